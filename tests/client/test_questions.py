"""Questions have a size limit: one about many tasks is asked in parts; if that is impossible, it is not sent."""

import pytest

from deskgrid import wire
from deskgrid.client.grid import Grid
from deskgrid.errors import RequestFailed
from tests.client.fakebroker import FakeGrid
from tests.waiting import eventually


def test_many_runtimes_are_predicted_anew_in_parts(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    fake.broker.answers["runtimes"] = {}
    count = 2 * wire.QUESTION_ITEMS + 1
    grid.bag(abs, range(count)).update_runtimes(dict.fromkeys(range(count), 1.5))
    asked = fake.memory.asked("runtimes")
    assert [len(args["items"]) for args in asked] == [wire.QUESTION_ITEMS, wire.QUESTION_ITEMS, 1]
    assert [item for args in asked for item in args["items"]] == list(range(count))
    assert all(len(args["runtimes"]) == len(args["items"]) for args in asked)


def test_many_calls_are_cancelled_in_parts(fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "QUESTION_ITEMS", 10)
    fake.memory.hold = True
    futures = [grid.submit(abs, item) for item in range(35)]
    assert eventually(lambda: sum(len(bag.payloads) for bag in fake.memory.bags.values()) == 35)
    for future in futures:
        assert future.cancel()

    def all_asked() -> bool:
        return sorted(item for args in fake.memory.asked("cancel") for item in args["items"]) == list(range(35))

    assert eventually(all_asked)
    assert max(len(args["items"]) for args in fake.memory.asked("cancel")) <= 10


def test_a_question_that_is_too_long_is_not_sent(fake: FakeGrid, grid: Grid) -> None:
    with pytest.raises(RequestFailed, match=r"'progress' is asked with 2,097,1\d\d bytes of arguments; the limit is"):
        grid.attach("b" * 2**21)
    assert fake.memory.asked("progress") == []
