"""Descriptions of what is wrong with a worker: tasks crash there, it does not answer, fails with gangs, has no room."""

from deskgrid.durations import precise
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.views.explain import SlotReason


def trouble(scheduler: Scheduler, name: str, no_room: str, now: float) -> str:
    """What is wrong with the worker ``name``; empty when all is well. ``no_room``: why it had none the last time."""
    stay, owed = scheduler.quarantined(name), len(scheduler.owed_by(name))
    if stay is not None:
        return f"in quarantine: {stay.why}"
    if owed:
        return f"does not answer on {owed} of its slots"
    if (until := scheduler.rests_until(name)) is not None:
        return f"gets no gangs for {precise(max(0.0, until - now))}: it failed with some"
    until = scheduler.roomless_until(name)
    if until is None:
        return ""
    return f"had no room for a task, and gets none like it for {precise(max(0.0, until - now))}: {no_room}"


def reason(slot: SlotReason) -> str:
    """Why a slot does not run a task, in a word or two."""
    if slot.quarantined is not None:
        return "quarantined"
    if slot.silent_s is not None:
        return "silent"
    if slot.no_room_s is not None:
        return "no room"
    if not slot.ready:
        return "not prepared"
    return "too short" if slot.short_s and not slot.gang else "busy"


def in_quarantine(stay: Quarantined, now: float) -> str:
    """Why a worker in quarantine gets no work, and for how long."""
    why = "it does not answer" if stay.silent else "the last attempts there crashed"
    when = f"in {precise(stay.until - now)}" if stay.until > now else "now"
    return f"in quarantine, because {why}; one task is tried there {when}"
