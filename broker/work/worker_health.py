"""Descriptions of what is wrong with a worker: which work fails there, and is kept from it for a while."""

from collections.abc import Mapping

from deskgrid import wire
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.durations import precise
from deskgrid.scheduler.state.avoided import Kind, Person, Rest, Why, person_of
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.views.explain import SlotReason

# The events that tell when work of some kind is kept from a worker.
EVENTS = {
    Why.NO_ROOM: "worker-has-no-room",
    Why.FAILS: "worker-fails-bag",
    Why.NO_START: "worker-starts-nothing",
    Why.SILENT: "worker-not-answering",
}
# In a word or two.
_WORDS = {Why.NO_ROOM: "no room", Why.FAILS: "fails there", Why.NO_START: "no start", Why.SILENT: "silent"}
# Why a PC gets no tasks like the one that is explained.
_REASONS = {
    Why.NO_ROOM: "its disk is too full for such tasks",
    Why.FAILS: "tasks of this bag fail there, and not elsewhere",
    Why.NO_START: "could start no process for such tasks",
    Why.SILENT: "did not answer for such tasks",
}
# PCs that the note of a bag names.
NAMED = 3


def kinds_of(bag: ScheduledBag) -> set[Kind]:
    """All work that a worker may rest from and that tasks of ``bag`` belong to."""
    return {bag.category.key, bag.own_key, person_of(bag.category.key)}


def brief_of(result: wire.Result) -> str:
    """What a failed attempt says, in one line."""
    failure = wire.read_failure(result.payload)
    errors = wire.Outcome.NO_ROOM, wire.Outcome.NO_START
    return failure.brief if result.outcome in errors else f"{failure.kind}: {failure.brief}"


def trouble(state: BrokerState, session: WorkerSession, now: float) -> str:
    """What is wrong with a worker; empty when all is well."""
    scheduler, name = state.scheduler, session.name
    stay, owed = scheduler.quarantined(name), scheduler.silent_slots(name)
    over = "its window is over" if session.ending else ""
    if drained := state.drains.text(session.join.name, state.wall.posix(now)) or over:
        return drained + _still(state, name)
    if stay is not None:
        return f"in quarantine: {stay.why}"
    if owed:
        return f"does not answer on {owed} of its slots"
    if (until := scheduler.rests_until(name)) is not None:
        return f"gets no gangs for {precise(max(0.0, until - now))}: it failed with some"
    resting = scheduler.resting(name)
    if resting is None:
        return ""
    kind, rest = resting
    said = f": {session.why_rests[kind]}" if kind in session.why_rests else ""
    return f"{_kept(state, kind, rest)} for {precise(max(0.0, rest.until - now))}{said}"


def _still(state: BrokerState, name: str) -> str:
    """What a worker that gets nothing new still runs."""
    up = state.scheduler.grid.slots.workers.get(name)
    runs = 0 if up is None else sum([bool(slot.sent) for slot in up.slots])
    return f"; {runs} {'task runs' if runs == 1 else 'tasks run'} to the end" if runs else ""


def _kept(state: BrokerState, kind: Kind, rest: Rest) -> str:
    """What happened on a worker, and what it does not get."""
    if isinstance(kind, Person):
        whose = f"tasks of {kind.owner} in one environment" if kind.environment else f"tasks of {kind.owner}"
        what = "could start no process for" if rest.why is Why.NO_START else "did not answer for"
        return f"{what} {whose}, and gets none of them"
    if rest.why is Why.NO_ROOM:
        return "had no room for a task, and gets none like it"
    bag = state.book.by_number.get(kind.bag or 0)
    return f"tasks of bag {'?' if bag is None else bag.row.id} fail here and not elsewhere, and it gets none of them"


def kept_from(state: BrokerState, by_name: Mapping[str, WorkerSession], bag: OpenBag, now: float) -> str:
    """The note of a bag whose tasks are kept from some PCs, because they fail there; empty if they are not."""
    if bag.row.number not in state.scheduler.grid.tasks.bags:
        return ""
    found = [each for each in state.scheduler.resting_from(bag.row.number) if each[2].why is not Why.NO_ROOM]
    if not found:
        return ""
    parts = []
    for name, kind, rest in found[:NAMED]:
        said = by_name[name].why_rests.get(kind, "") if name in by_name else ""
        parts.append(f"{name} for {precise(max(0.0, rest.until - now))}" + (f" ({said})" if said else ""))
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"kept from {', '.join(parts)}{more}, where its tasks fail"


def reason(slot: SlotReason) -> str:
    """Why a slot does not run a task, in a word or two."""
    if slot.shut:
        return slot.shut
    if slot.silent_s is not None:
        return "silent"
    if slot.rest is not None:
        return _WORDS[slot.rest.why]
    if not slot.ready:
        return "not prepared"
    return "too short" if slot.short_s and not slot.gang else "busy"


def rests(rest: Rest, said: str, now: float) -> str:
    """Why a worker gets no tasks of a kind, and for how long. ``said``: what the last one there said; may be empty."""
    because = f" ({said})" if said and rest.why is not Why.NO_ROOM else ""
    return f"{_REASONS[rest.why]}{because}; it is tried again in {precise(max(0.0, rest.until - now))}"


def in_quarantine(stay: Quarantined, now: float) -> str:
    """Why a worker in quarantine gets no work, and for how long."""
    why = "it does not answer" if stay.silent else "the last attempts there crashed"
    when = f"in {precise(stay.until - now)}" if stay.until > now else "now"
    return f"in quarantine, because {why}; one task is tried there {when}"
