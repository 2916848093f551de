"""What is wrong with a worker, in words: every task crashes there, or it does not answer."""

from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.state.quarantine import Rest
from deskgrid.scheduler.views.explain import SlotReason


def trouble(scheduler: Scheduler, name: str) -> str:
    """What is wrong with the worker ``name``; empty when all is well."""
    rest, owed = scheduler.quarantined(name), len(scheduler.owed_by(name))
    if rest is not None:
        return f"rests: {rest.why}"
    return f"does not answer on {owed} of its slots" if owed else ""


def reason(slot: SlotReason) -> str:
    """Why a slot does not run a task, in a word or two."""
    if slot.quarantined is not None:
        return "rests"
    if slot.silent_s is not None:
        return "silent"
    return "too short" if slot.short_s else "busy"


def at_rest(rest: Rest, now: float) -> str:
    """Why a worker gets no work, and for how long."""
    why = "it does not answer" if rest.silent else "everything crashes there"
    when = f"in {rest.until - now:.0f} s" if rest.until > now else "now"
    return f"rests, because {why}; one task is tried there {when}"
