"""What the web server knows of the grid: a thread asks the broker, as any client does, and publishes the answers.

Rule 1: however many browsers look, the broker is asked as often as for one.
Rule 2: what is published is never changed. A reader who is slow gets the newest, and nothing is kept for it.
"""

import json
import logging
import threading
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self, cast

from deskgrid.client.replies import NewEvents
from deskgrid.errors import DeskgridError, GridUnreachable
from deskgrid.web.estimates import Estimates
from deskgrid.web.history import Timelines
from deskgrid.wire.status import StatusDocument

log = logging.getLogger("deskgrid.web")

# Seconds between two questions about the grid as a whole while somebody looks.
TICK_S = 0.5
# The same about the rows of PCs and bags: the broker makes them once per heartbeat, which is 2 s; and in a large grid
# less often, so that it makes at most so many rows a second, which is one or two per cent of what it can do.
ROWS_S = 2.0
ROWS_PER_S = 75
# The same while nobody looks, for the past and for metrics.
ALONE_S = 10.0
# An answer about one PC, bag or task is given to everybody who asks within this time. Seconds.
FRESH_S = 1.0
# Such answers that are kept, and questions that the broker is asked at the same time.
ANSWERS = 256
AT_ONCE = 4
# Events that are kept: as many as a broker keeps in both of its lists.
EVENTS = 2_000

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
Kind = Literal["status", "grid"]


@dataclass(frozen=True, slots=True)
class Update:
    """One event of the stream. ``packed``: a piece of a deflate stream that refers to nothing before it."""

    number: int
    plain: bytes
    packed: bytes


@dataclass(slots=True)
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = float("-inf")
    body: bytes = b""


class GridWatch:
    """Within its context, a thread asks the broker and publishes.

    ``ask``: asks the broker one question; while it raises `GridUnreachable`, the last answers grow old.
    """

    def __init__(self, ask: Ask, *, clock: Callable[[], float] = time.monotonic, bin_s: float | None = None) -> None:
        self._ask = ask
        self._clock = clock
        self._published: dict[Kind, Update] = {}
        self._number = 0
        self._news = threading.Condition()
        self._stop = threading.Event()
        self._looked = threading.Event()
        self._readers = 0
        self.estimates = Estimates()
        self._history = Timelines() if bin_s is None else Timelines(bin_s)
        self._events = deque[dict[str, Any]](maxlen=EVENTS)
        self._new_events = NewEvents(ask)
        self._answers = OrderedDict[tuple[str, tuple[tuple[str, Any], ...]], _Answer]()
        self._answers_lock = threading.Lock()
        self._at_once = threading.BoundedSemaphore(AT_ONCE)
        self._document: tuple[float, StatusDocument] | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._looked.set()

    # --- for the threads that answer browsers ------------------------------------------------------------------------

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Within its context somebody looks, so the broker is asked more often."""
        with self._news:
            self._readers += 1
            self._looked.set()
        try:
            yield
        finally:
            with self._news:
                self._readers -= 1

    def updates(self, after: int, seconds: float) -> list[Update]:
        """What was published after a number, at most one of each kind; none if nothing is within ``seconds``."""
        with self._news:
            self._news.wait_for(lambda: self._number > after, seconds)
            return sorted((each for each in self._published.values() if each.number > after), key=lambda u: u.number)

    def document(self) -> tuple[float, StatusDocument] | None:
        """The age of the last status document in seconds, and the document; None before the first."""
        known = self._document
        return None if known is None else (self._clock() - known[0], known[1])

    def events(self, after: int) -> list[dict[str, Any]]:
        """The events after a number, with the time at which each happened."""
        return [row for row in list(self._events) if row["number"] > after]

    def history(self) -> dict[str, Any]:
        """The states of PCs in the past hours."""
        return self._history.rows()

    def answer(self, what: str, args: Mapping[str, Any]) -> bytes:
        """The broker's answer to a question, at most `FRESH_S` old. Raises `DeskgridError`."""
        key = what, tuple(sorted(args.items()))
        with self._answers_lock:
            known = self._answers.pop(key, None) or _Answer()
            self._answers[key] = known
            if len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
        with known.lock:
            if self._clock() - known.at >= FRESH_S:
                with self._at_once:
                    known.body = json.dumps(self._ask(what, dict(args))).encode()
                known.at = self._clock()
            return known.body

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        rows_at = self._clock()
        while not self._stop.is_set():
            began = self._clock()
            try:
                self._look_for_events()
                if began >= rows_at:
                    document = self._ask("status", {})
                    self._take(cast(StatusDocument, document))
                    rows_at = began + max(ROWS_S, (len(document["workers"]) + len(document["bags"])) / ROWS_PER_S)
                else:
                    self._publish("grid", self._ask("status", {"rows": False}))
            except GridUnreachable as error:
                log.debug("broker-away reason=%s", error)
            except DeskgridError as error:
                self.error = error  # the key was revoked, or the broker speaks another version
                return
            self._wait(began)

    def _wait(self, began: float) -> None:
        """Wait for the time of the next question, which comes sooner when somebody begins to look."""
        self._looked.clear()
        if not self._readers:
            self._looked.wait(max(0.0, ALONE_S - (self._clock() - began)))
        if self._readers:
            self._stop.wait(max(0.0, TICK_S - (self._clock() - began)))

    def _take(self, document: StatusDocument) -> None:
        now = self._clock()
        known = self._document
        if known is not None and known[1]["broker"] == document["broker"]:
            return  # the broker makes a new one once per heartbeat
        self._document = now, document
        self._history.add(document["workers"], now)
        self.estimates.add(document["bags"], now)
        self._publish("status", document)

    def _publish(self, kind: Kind, answer: Mapping[str, Any]) -> None:
        said = {**answer, "events": self._new_events.after}
        plain = f"event: {kind}\ndata: {json.dumps(said, separators=(',', ':'))}\n\n".encode()
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS, level=4)
        packed = packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH)
        with self._news:
            self._number += 1
            self._published[kind] = Update(self._number, plain, packed)
            self._news.notify_all()

    def _look_for_events(self) -> None:
        for rows in self._new_events.pages():
            now = datetime.now(UTC)
            for row in rows:
                at = now - timedelta(seconds=row["age_s"])
                self._events.append({**row, "at": at.isoformat(timespec="seconds")})
