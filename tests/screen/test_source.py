"""What the screen asks the broker, how often, and what it makes of refusals and of silence."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deskgrid.errors import GridUnreachable, RequestFailed
from deskgrid.screen.questions import (
    BAGS,
    DETAIL_S,
    EVENTS,
    GRID,
    ROWS_PER_S,
    SHARES,
    STATUS,
    TICK_S,
    WantedAnswer,
    cancel_of,
    explain_of,
    logs_of,
    output_of,
    tasks_of,
    wanted,
    worker_of,
)
from deskgrid.screen.source import AnswerSource
from deskgrid.screen.view import Page, PendingOrder, ScreenQuestion, ScreenView, progress_of
from deskgrid.wire.status import StatusDocument
from tests.screen.builders import BAG, asked, bag, lab, seen, snapshot, worker
from tests.waiting import PATIENCE_S, eventually

Answer = dict[str, Any]


# --- what is asked ---------------------------------------------------------------------------------------------------


def questions(page: Page, document: StatusDocument) -> dict[ScreenQuestion, float]:
    return dict(wanted(ScreenView([page]), seen(document)))


def test_a_small_grid_is_asked_for_twice_a_second() -> None:
    assert questions(Page("overview"), lab(9)) == {STATUS: TICK_S}


def test_of_a_large_grid_the_rows_are_asked_for_less_often_and_the_rest_as_before() -> None:
    asked = questions(Page("pcs"), lab(1000))
    assert asked[STATUS] == pytest.approx(1000 / ROWS_PER_S, rel=0.01)
    assert asked[GRID] == TICK_S


@pytest.mark.parametrize("kind", ["bags", "people"])
def test_all_bags_are_asked_for_where_they_are_shown_and_not_in_the_status(kind: Any) -> None:
    document = snapshot(bags=[bag(id=f"{number:012}") for number in range(300)])
    assert BAGS not in questions(Page(kind), document)
    few: StatusDocument = {**document, "bags": document["bags"][:200]}
    assert BAGS in questions(Page(kind), few)
    assert BAGS in dict(wanted(ScreenView([Page(kind), Page("bag", "1")]), seen(few)))
    assert BAGS not in questions(Page("pcs"), few)


def test_shares_are_asked_for_where_people_are_shown() -> None:
    assert questions(Page("people"), lab(9))[SHARES] == DETAIL_S
    assert SHARES not in questions(Page("bags"), lab(9))


def test_what_is_open_is_asked_for() -> None:
    document = snapshot([worker("pc")], [bag(failed=1, cancelled=0, done=0)])
    assert {worker_of("pc"), EVENTS} < questions(Page("pc", "pc"), document).keys()
    assert {explain_of(BAG, 3), logs_of(BAG, 3)} < questions(Page("task", BAG, 3), document).keys()
    of_bag = questions(Page("bag", BAG), document).keys()
    assert {
        progress_of(BAG),
        explain_of(BAG),
        *(tasks_of(BAG, group) for group in ("failed", "running", "waiting")),
    } < of_bag
    assert not {tasks_of(BAG, "done"), tasks_of(BAG, "cancelled")} & of_bag


# --- what comes of it ------------------------------------------------------------------------------------------------


class Broker:
    """Answers as `asked` does until ``error`` is set; ``heard`` is what it was asked."""

    def __init__(self, document: StatusDocument, **answers: Answer | str) -> None:
        self.heard: list[tuple[str, Answer]] = []
        self.error: Exception | None = None
        self.document, self.answers = document, answers

    def __call__(self, what: str, args: Answer) -> Answer:
        self.heard.append((what, args))
        if self.error is not None:
            raise self.error
        return asked(self.document, **self.answers)(what, args)


class Clock:
    """Time that stands still unless it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


Open = Callable[..., AnswerSource]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens sources, which end with the test."""
    sources: list[AnswerSource] = []

    def open_one(broker: Broker, *questions: ScreenQuestion, clock: Clock | None = None) -> AnswerSource:
        source = AnswerSource(broker) if clock is None else AnswerSource(broker, clock)
        sources.append(source.__enter__())
        source.want([WantedAnswer(question, 0.01) for question in (STATUS, *questions)])
        return source

    yield open_one
    for source in sources:
        source.__exit__(None, None, None)


def test_a_broker_that_was_never_there_is_an_error() -> None:
    broker = Broker(lab(3))
    broker.error = GridUnreachable("nobody")
    with pytest.raises(GridUnreachable):
        AnswerSource(broker)


def test_while_the_broker_is_away_the_last_answers_grow_old_and_then_there_are_new_ones(opened: Open) -> None:
    clock, broker = Clock(), Broker(lab(3))
    source = opened(broker, clock=clock)
    broker.error = GridUnreachable("nobody")
    clock.now += 12.0
    assert source.seen().snapshot == lab(3)
    assert source.seen().age_s in (0.0, 12.0)  # a question may have been on its way
    broker.error, broker.document = None, snapshot([worker("new")])
    clock.now += 1.0
    source.want([WantedAnswer(STATUS, 0.02)])
    assert eventually(lambda: source.seen().snapshot["workers"][0]["name"] == "new")
    assert source.seen().age_s == 0.0


def test_a_refusal_is_told_and_the_last_rows_stay(opened: Open) -> None:
    broker = Broker(lab(3))
    source = opened(broker)
    broker.error = RequestFailed("4000 questions are pending already")
    assert eventually(lambda: source.seen().error(STATUS) == "4000 questions are pending already")
    assert source.seen().snapshot == lab(3)


def test_an_error_that_is_not_the_brokers_is_not_hidden(opened: Open) -> None:
    broker = Broker(lab(3))
    source = opened(broker)
    broker.error = ZeroDivisionError()

    def failed() -> bool:
        try:
            source.seen()
        except ZeroDivisionError:
            return True
        return False

    assert eventually(failed)


def test_a_first_answer_is_news_and_answers_that_nobody_wants_any_more_are_forgotten(opened: Open) -> None:
    broker = Broker(lab(3), worker={"name": "pc"})
    source = opened(broker, worker_of("pc"))
    assert source.news.wait(PATIENCE_S)
    assert eventually(lambda: source.seen().answer(worker_of("pc")) == {"name": "pc"})
    source.want([WantedAnswer(STATUS, 0.01)])
    assert worker_of("pc") not in source.seen().told


def test_all_pages_of_bags_are_asked_for(opened: Open) -> None:
    class Pages(Broker):
        def __call__(self, what: str, args: Answer) -> Answer:
            if what != "bags":
                return super().__call__(what, args)
            after = args["after"] or 0
            return {"bags": [bag(id=f"{after:012}")], "after": after + 1 if after < 4 else None}

    source = opened(Pages(lab(3)), BAGS)
    assert eventually(lambda: len(source.seen().bags) == 5)


class Log(Broker):
    """A broker with these events; ``refuses``: those for admins are not for us."""

    def __init__(self, count: int, refuses: bool) -> None:
        super().__init__(lab(3))
        self.count, self.refuses = count, refuses

    def __call__(self, what: str, args: Answer) -> Answer:
        if not what.startswith("events"):
            return super().__call__(what, args)
        self.heard.append((what, args))
        if what == "events all" and self.refuses:
            raise RequestFailed("for admins")
        first = args["after"] or 0
        numbers = range(first + 1, min(self.count, first + 2) + 1)
        rows = [{"number": number, "age_s": 1.0, "event": what, "facts": {}} for number in numbers]
        return {"events": rows, "after": numbers[-1] if numbers else first}


@pytest.mark.parametrize(("refuses", "what"), [(True, "events"), (False, "events all")])
def test_events_are_asked_for_once_each_as_far_as_you_may_see_them(opened: Open, refuses: bool, what: str) -> None:
    broker = Log(5, refuses)
    source = opened(broker, EVENTS)
    assert eventually(lambda: len(source.seen().events) == 5)
    broker.count = 7
    assert eventually(lambda: len(source.seen().events) == 7)
    assert [each.row["number"] for each in source.seen().events] == list(range(1, 8))
    assert {each.row["event"] for each in source.seen().events} == {what}
    assert sum(asked == "events all" for asked, _ in broker.heard) == 1 or not refuses


def test_the_grid_alone_is_newer_than_the_rows_and_its_totals_are_not_shown_with_them() -> None:
    class Grid(Broker):
        def __call__(self, what: str, args: Answer) -> Answer:
            whole = super().__call__(what, args)
            throughput = {"per_s": 99.0} if args else {"per_s": 1.0}
            return {**whole, "throughput": throughput, "totals": {} if args else whole["totals"]}

    with AnswerSource(Grid(lab(3))) as source:
        source.want([WantedAnswer(STATUS, 3600.0), WantedAnswer(GRID, 0.01)])
        assert eventually(lambda: source.seen().snapshot["throughput"]["per_s"] == 99.0)
        assert source.seen().snapshot["totals"] == lab(3)["totals"]


def test_the_output_of_a_bag_grows_and_only_what_is_new_is_asked_for(opened: Open) -> None:
    class Prints(Broker):
        def __call__(self, what: str, args: Answer) -> Answer:
            if what != "output":
                return super().__call__(what, args)
            last = args["after"] or 0
            return {"output": [{"item": last}] if last < 300 else [], "after": min(300, last + 1)}

    source = opened(Prints(lab(3)), output_of(BAG))
    assert eventually(lambda: {"item": 299} in source.seen().answer(output_of(BAG)).get("output", ()))
    assert [row["item"] for row in source.seen().answer(output_of(BAG))["output"]] == list(range(100, 300))


# --- orders ----------------------------------------------------------------------------------------------------------


def test_what_came_of_an_order_is_said_once(opened: Open) -> None:
    broker = Broker(lab(3), cancel={"cancelled": 1204})
    source = opened(broker)
    source.order(PendingOrder(cancel_of(BAG, 3), "cancel task 3"))
    assert source.news.wait(PATIENCE_S)
    assert source.said() == "cancel task 3: 1,204 cancelled"
    assert source.said() == ""
    assert ("cancel", {"bag": BAG, "items": (3,)}) in broker.heard


def test_a_refused_order_says_why(opened: Open) -> None:
    source = opened(Broker(lab(3), cancel="bag a belongs to ann"))
    source.order(PendingOrder(cancel_of(BAG), "cancel bag a"))
    assert source.news.wait(PATIENCE_S)
    assert source.said() == "bag a belongs to ann"
