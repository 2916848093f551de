"""Random number generators that a function brings along: each process would draw the same numbers from them."""

import functools
import logging
import pickle
import random
import sys
from collections.abc import Callable
from random import random as draw_shared
from types import ModuleType
from typing import Any

import pytest

from deskgrid.client.generators import warn_of_generators
from deskgrid.client.payload import pack_call, share
from deskgrid.client.template import pickle_function
from tests.client import carrying

rng = random.Random(0)
boxed = {"inner": [random.Random(1)]}
system = random.SystemRandom()


class Simulation:
    """Draws from a generator of its own."""

    of_class = random.Random(3)

    def __init__(self) -> None:
        self.own = random.Random(2)

    def run(self) -> float:
        """Draw."""
        return self.own.random()


def by_name() -> Callable[[], float]:
    return lambda: rng.random() + 1.0


def by_default() -> Callable[..., float]:
    def task(chosen: random.Random = rng) -> float:
        return chosen.random()

    return task


def by_keyword() -> Callable[..., float]:
    def task(*, chosen: random.Random = rng) -> float:
        return chosen.random()

    return task


def by_closure() -> Callable[[], float]:
    mine = random.Random(6)
    unbound: Any

    def task() -> float:
        return mine.random() + bool(unbound)

    if sys.flags.verbose > 100:
        unbound = None
    return task


def by_another() -> Callable[[], float]:
    other = by_closure()

    def task() -> float:
        def inner() -> float:
            return other()

        return inner()

    return task


def by_module() -> Callable[[], float]:
    return lambda: carrying.seeded.random() + 1.0


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (by_name(), ["rng"]),
        (by_default(), ["chosen"]),
        (by_keyword(), ["chosen"]),
        (by_closure(), ["mine"]),
        (by_another(), ["mine"]),
        (by_module(), ["carrying.seeded"]),
        (lambda: boxed, ["boxed['inner'][0]"]),
        (Simulation().run, ["Simulation.own", "Simulation.of_class"]),
        (functools.partial(Simulation.run, Simulation()), ["partial[0].own", "Simulation.of_class"]),
        (random.Random(7).random, ["Random"]),
        (lambda: (random.random(), draw_shared(), system.random()), []),
        (random.gauss, []),
        (len, []),
    ],
)
def test_a_generator_is_named_wherever_a_function_holds_it(
    function: Any, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "deskgrid"):
        warn_of_generators(function, "partial")
        warn_of_generators(function, "partial")
    found = [message.split(" is a random")[0].removeprefix("partial: ") for message in caplog.messages]
    assert list(dict.fromkeys(found)) == names
    assert all("Make one in the task, seeded by its item" in message for message in caplog.messages)
    assert all(record.name.startswith("deskgrid") for record in caplog.records)


@pytest.mark.parametrize(
    ("module", "kind"), [("numpy.random", "Generator"), ("numpy.random", "RandomState"), ("torch", "Generator")]
)
def test_generators_of_libraries_are_named(
    module: str, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    library: Any = ModuleType(module)
    one = type(kind, (), {})
    setattr(library, kind, one)
    monkeypatch.setitem(sys.modules, module, library)
    held = one()
    with caplog.at_level(logging.WARNING, "deskgrid"):
        warn_of_generators(lambda: held, "task")
    assert "task: held is a random number generator that travels as it is now" in caplog.text


def test_a_function_is_looked_at_when_it_is_pickled_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    function = by_name()
    with caplog.at_level(logging.WARNING, "deskgrid"):
        pickle_function(function)
        pickle_function(function)
        pack_call((random.Random(1),), {}, "an item")
    assert len(caplog.messages) == 1
    with caplog.at_level(logging.WARNING, "deskgrid"):
        share({"key": random.Random(1)})
    assert "the object to share, dict: the object to share, dict['key'] is" in caplog.messages[-1]


def test_the_search_ends_soon_however_much_a_function_refers_to(caplog: pytest.LogCaptureFixture) -> None:
    chain: Any = None
    for _ in range(100_000):
        chain = [chain]
    numbers = [*map(str, range(1_000_000)), random.Random(8)]
    with caplog.at_level(logging.WARNING, "deskgrid"):
        warn_of_generators(lambda: (chain, numbers, rng), "task")
    assert [message.split(" is a random")[0] for message in caplog.messages] == ["task: rng"]
    while chain:  # no deep recursion when it is freed
        chain = chain[0]


class StandIn:
    """Says that it is of the class of what it stands for, as proxies and mock objects do."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.own = random.Random(9)

    __class__ = property(lambda self: type(self.inner))


@pytest.mark.parametrize(
    "inner", [[1], {"a": 1}, functools.update_wrapper, functools.partial(abs), draw_shared, int, sys]
)
def test_what_says_that_it_is_of_another_class_is_searched_as_what_it_is(
    caplog: pytest.LogCaptureFixture, inner: object
) -> None:
    stand_in = StandIn(inner)
    with caplog.at_level(logging.WARNING, "deskgrid"):
        warn_of_generators(lambda: stand_in, "task")
    assert [message.split(" is a random")[0] for message in caplog.messages] == ["task: stand_in.own"]


@pytest.mark.parametrize("function", [draw_shared, random.gauss, functools.partial(random.uniform, 0.0)])
def test_the_functions_of_the_random_module_do_not_bring_their_state(function: Callable[..., float]) -> None:
    for pickled in (
        pickle_function(function),
        pickle_function(lambda: function),
        pack_call((function,), {}, "an item"),
    ):
        assert isinstance(pickled, bytes)
        assert len(pickled) < 1_500, "the state of a generator takes more"
    loaded = pickle.loads(pickle_function(function))
    loaded = getattr(loaded, "func", loaded)
    assert loaded.__self__ is draw_shared.__self__  # type: ignore[attr-defined]
