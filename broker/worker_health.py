"""Descriptions of what is wrong with a worker: every task crashes there, it does not answer, or fails with gangs."""

from deskgrid.durations import precise
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.views.explain import SlotReason


def trouble(scheduler: Scheduler, name: str, now: float) -> str:
    """What is wrong with the worker ``name``; empty when all is well."""
    stay, owed = scheduler.quarantined(name), len(scheduler.owed_by(name))
    if stay is not None:
        return f"in quarantine: {stay.why}"
    if owed:
        return f"does not answer on {owed} of its slots"
    until = scheduler.rests_until(name)
    return "" if until is None else f"gets no gangs for {precise(max(0.0, until - now))}: it failed with some"


def reason(slot: SlotReason) -> str:
    """Why a slot does not run a task, in a word or two."""
    if slot.quarantined is not None:
        return "quarantined"
    if slot.silent_s is not None:
        return "silent"
    if not slot.ready:
        return "not prepared"
    return "too short" if slot.short_s and not slot.gang else "busy"


def in_quarantine(stay: Quarantined, now: float) -> str:
    """Why a worker in quarantine gets no work, and for how long."""
    why = "it does not answer" if stay.silent else "the last attempts there crashed"
    when = f"in {precise(stay.until - now)}" if stay.until > now else "now"
    return f"in quarantine, because {why}; one task is tried there {when}"
