"""What the broker tells the status screen: a thread asks for what is on the screen, again and again.

Rule: an answer may take as long as the broker is away. So nothing on the screen waits for one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, cast

from deskgrid.client.replies import NewEvents, pages
from deskgrid.errors import DeskgridError, GridUnreachable
from deskgrid.screen.questions import BAGS, EVENTS, GRID, OUTPUT, STATUS, TICK_S, WantedAnswer
from deskgrid.screen.view import BrokerAnswer, Happened, PendingOrder, ScreenData, ScreenQuestion
from deskgrid.wire.status import StatusDocument

# Events that are kept: as many as a broker keeps in both of its lists. And tasks whose output is kept.
KEPT = 2_000
KEPT_OUTPUTS = 200

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


class AnswerSource:
    """Within its context, a thread asks what is wanted and keeps the newest answers.

    ``ask``: asks the broker one question. While it raises that the broker is away, the last answers grow old; a refusal
    is an answer. Any other error is raised by `seen`.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._told = {STATUS: BrokerAnswer(ask("status", {}))}
        self._asked = {STATUS: clock()}
        self._heard = clock()
        self._wanted: Sequence[WantedAnswer] = [WantedAnswer(STATUS, TICK_S)]
        self._events = deque[Happened](maxlen=KEPT)
        self._new_events = NewEvents(ask)
        self._lock = threading.Lock()  # while the answers are changed
        self._stop = False
        self._wake = threading.Event()
        # Set when there is something new that somebody waits for: a first answer, or the end of an order.
        self.news = threading.Event()
        self._said = ""
        self._error: BaseException | None = None

    def __enter__(self) -> "AnswerSource":
        threading.Thread(target=self._run, name="status", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True  # without waiting: the thread may be waiting for an answer that never comes
        self._wake.set()

    # --- for the screen ----------------------------------------------------------------------------------------------

    def want(self, wanted: Sequence[WantedAnswer]) -> None:
        """Ask these questions from now on, and forget the answers to all others."""
        if wanted != self._wanted:
            self._wanted = wanted
            kept = {each.question for each in wanted}
            with self._lock:
                self._told = {question: told for question, told in self._told.items() if question in kept}
            self._wake.set()

    def order(self, order: PendingOrder) -> None:
        """Send an order; what came of it will be `said`."""
        threading.Thread(target=self._carry_out, args=(order,), name="order", daemon=True).start()

    def said(self) -> str:
        """What came of the last order, once."""
        said, self._said = self._said, ""
        return said

    def seen(self) -> ScreenData:
        """All that the broker has told."""
        if self._error is not None:
            raise self._error
        told = self._told
        bags = told.get(BAGS, BrokerAnswer(None)).answer
        snapshot = self._snapshot(told)
        return ScreenData(
            snapshot,
            snapshot["bags"] if bags is None else bags["bags"],
            datetime.now().astimezone(),
            list(self._events),
            told,
            self._clock() - self._heard,
        )

    def _snapshot(self, told: dict[ScreenQuestion, BrokerAnswer]) -> StatusDocument:
        """The last status, with what is newer; the totals are as old as the rows."""
        snapshot = cast(StatusDocument, told[STATUS].answer)
        grid = told.get(GRID, BrokerAnswer(None)).answer
        if grid is None or self._asked[GRID] < self._asked[STATUS]:
            return snapshot
        return cast(StatusDocument, {**snapshot, **grid, "totals": snapshot["totals"]})

    # --- the threads -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop:
                self._wake.clear()
                waits = [self._look(each) for each in list(self._wanted)]
                self._wake.wait(min(waits))
        except BaseException as error:
            self._error = error

    def _look(self, wanted: WantedAnswer) -> float:
        """Ask a question if it is time; returns the seconds until the next time."""
        question = wanted.question
        since = self._clock() - self._asked.get(question, -wanted.every_s)
        if question in self._told and since < wanted.every_s:
            return wanted.every_s - since
        self._asked[question] = self._clock()
        try:
            self._keep(question, BrokerAnswer(self._answer(question)))
        except GridUnreachable:
            pass  # the age of the last answers will show it
        except DeskgridError as error:
            last = self._told.get(question, BrokerAnswer(None))
            self._keep(question, BrokerAnswer(last.answer, str(error)))
        return wanted.every_s

    def _keep(self, question: ScreenQuestion, told: BrokerAnswer) -> None:
        self._heard = self._clock()
        with self._lock:
            first = question not in self._told
            self._told = {**self._told, question: told}
        if first:
            self.news.set()

    def _answer(self, question: ScreenQuestion) -> dict[str, Any]:
        if question == BAGS:
            found = pages(lambda after: self._ask("bags", {"after": after}))
            return {"bags": [row for page in found for row in page["bags"]]}
        if question == EVENTS:
            return self._look_for_events()
        if question.what == OUTPUT:
            return self._longer_output(question)
        return self._ask(question.what, dict(question.args))

    def _look_for_events(self) -> dict[str, Any]:
        for rows in self._new_events.pages():
            now = datetime.now().astimezone()
            self._events += [Happened(now - timedelta(seconds=row["age_s"]), row) for row in rows]
        return {}

    def _longer_output(self, question: ScreenQuestion) -> dict[str, Any]:
        """Ask for the output of tasks that ended since the last time, and put it behind what is known."""
        last = self._told.get(question, BrokerAnswer(None)).answer or {"output": [], "after": None}
        more = self._ask(OUTPUT, {**dict(question.args), "after": last["after"]})
        return {**more, "output": [*last["output"], *more["output"]][-KEPT_OUTPUTS:]}

    def _carry_out(self, order: PendingOrder) -> None:
        try:
            answer = self._ask(order.question.what, dict(order.question.args))
            self._said = f"{order.text}: {_outcome(answer)}"
        except DeskgridError as error:
            self._said = str(error)
        self.news.set()


def _outcome(answer: dict[str, Any]) -> str:
    return f"{answer['cancelled']:,} cancelled" if "cancelled" in answer else "done"
