"""The last events of the grid, in memory, for people who watch it. Pure.

An event is a note of `BrokerState.note`. Two lists are kept, so that refused peers, who may come again and again, push
nothing out of the list that everybody sees.
"""

from collections import deque
from collections.abc import Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Literal, NamedTuple

from deskgrid.broker.model.forecaster import Json
from deskgrid.wire.details import EventRow

# Who sees which events: everybody sees what the status document says of workers anyway. A note that is not listed here
# is only in the broker's log.
SEEN_BY: Mapping[str, Literal["everyone", "admin"]] = {
    "worker-joined": "everyone",
    "worker-left": "everyone",
    "worker-lost": "everyone",
    "home-file-wrong": "everyone",
    "home-file-doubtful": "everyone",
    "pc-drained": "everyone",
    "pc-undrained": "everyone",
    "pc-missing": "everyone",
    "pc-woken": "everyone",
    "worker-silent": "everyone",
    "worker-quarantined": "everyone",
    "worker-paused": "everyone",
    "worker-goes-on": "everyone",
    "worker-recovered": "everyone",
    "worker-gets-no-gangs": "everyone",
    "worker-has-no-room": "everyone",
    "worker-fails-bag": "everyone",
    "worker-starts-nothing": "everyone",
    "worker-not-answering": "everyone",
    "task-crashed": "everyone",
    "gang-not-ready": "everyone",
    "checkpoint-unreadable": "everyone",
    "bag-paused": "everyone",
    "bag-cancelled": "everyone",
    "bag-held": "everyone",
    "environment-failed": "everyone",
    "bag-resumed": "everyone",
    "bag-cannot-run": "everyone",
    "files-wait": "everyone",
    "refused": "admin",
    "enrolment": "admin",
    "enrolment-refused": "admin",
    "worker-enrolled": "admin",
    "worker-revoked": "admin",
    "key-added": "admin",
    "key-revoked": "admin",
    "key-forgotten": "admin",
    "disk-ok": "admin",
    "disk-low": "admin",
    "disk-full": "admin",
    "clock-jumped": "admin",
}
# The events in each of the two lists, the most events in one answer, and the most characters of one fact.
KEPT = 1_000
EVENT_ROWS = 500
FACT_CHARACTERS = 200


class Event(NamedTuple):
    """``number``: events are numbered as they come, also across restarts of the broker. ``at``: the broker's clock."""

    number: int
    at: float
    what: str
    facts: dict[str, str]


class EventLog:
    """The last events. ``first``: the number of the first one, larger than those of any earlier life of the broker."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._kept = {"everyone": deque[Event](maxlen=KEPT), "admin": deque[Event](maxlen=KEPT)}

    def add(self, what: str, facts: Mapping[str, object], now: float) -> None:
        """Keep an event, if it is one that somebody may see."""
        audience = SEEN_BY.get(what)
        if audience is not None:
            said = {name: _cut(str(value)) for name, value in facts.items()}
            self._kept[audience].append(Event(self._next, now, what, said))
            self._next += 1

    def page(self, after: int, now: float, *, everything: bool) -> Json:
        """The events after number ``after``, the oldest first; ``everything``: also those that only admins see.

        ``after`` in the answer is the number to ask with next.
        """
        lists = self._kept.values() if everything else [self._kept["everyone"]]
        newer = (event for event in merge(*lists, key=itemgetter(0)) if event.number > after)
        rows = list(islice(newer, EVENT_ROWS))
        return {"events": [_row(row, now) for row in rows], "after": rows[-1].number if rows else after}


def _cut(text: str) -> str:
    return text if len(text) <= FACT_CHARACTERS else text[: FACT_CHARACTERS - 1] + "…"


def _row(event: Event, now: float) -> EventRow:
    age_s = max(0.0, now - event.at)
    return {"number": event.number, "age_s": age_s, "event": event.what, "facts": event.facts}
