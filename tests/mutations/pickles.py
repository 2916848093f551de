"""Scripted runs for faults in what a script defines, where it is made again: each succeeds, or raises."""

import abc
import ctypes
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deskgrid.classes import class_of, members_of
from deskgrid.client.by_value import pickle_by_value
from deskgrid.rebuilt import dumps
from deskgrid.rebuilt_types import tracker
from tests.grid.witness import expect


def of_scripts(seed: int, home: Path) -> None:
    """Classes, closures and sentinels are elsewhere what they are here, and what is here already stays as it is."""
    _classes_elsewhere()
    _structures()
    _closures()
    _classes_here()
    with _in_main() as main:
        _sentinels(main)


def _elsewhere(pickled: bytes) -> Any:
    """Load a pickle as another process does, which knows no class of it."""
    known = tracker()._DYNAMIC_CLASS_TRACKER_BY_ID
    before = dict(known)
    known.clear()
    try:
        return pickle.loads(pickled)
    finally:
        known.update(before)


class _Told(property):
    by = ""


def _shapes() -> tuple[Any, Any]:
    """Return an abstract class, and one that is registered with it, which has objects of itself among its members."""

    class Shape(abc.ABC):
        @abc.abstractmethod
        def size(self) -> int: ...

    class Square:
        __slots__ = ("side",)
        told = _Told(lambda self: self.side)
        known: "dict[Square, int]"

        def __init__(self, side: int) -> None:
            self.side = side

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Square) and other.side == self.side

        def __hash__(self) -> int:
            return hash(self.side)

    Square.told.by = "me"
    Square.known = {Square(1): 1}
    Shape.register(Square)
    return Shape, Square


def _classes_elsewhere() -> None:
    shape, square = _elsewhere(dumps(_shapes()))
    expect(square(1) in square.known, "objects of a class were made before its methods")
    expect(square(2).told == 2 and vars(square)["told"].by == "me", "a descriptor has lost what it had")
    expect(not hasattr(square(1), "__dict__"), "a class with slots has more")
    expect(isinstance(square(1), shape), "a class is not registered any more")
    try:
        shape()
    except TypeError:
        return
    expect(False, "an abstract class can be made")


def _structures() -> None:
    class Point(ctypes.Structure):
        _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int))

    pickled = pickle_by_value((Point, Point * 2, Point(1, 2)))
    for load in (_elsewhere, pickle.loads):
        kind, row, point = load(pickled)
        expect(row is kind * 2 and point.y == 2, "a structure has other fields")


def _closures() -> None:
    count = 0

    def more() -> None:
        nonlocal count
        count += 1

    def now() -> int:
        return count

    count = 5
    more_there, now_there = pickle.loads(dumps((more, now)))
    more_there()
    expect(now_there() == 6, "two functions that share a variable see {} in it", now_there())
    expect(now() == 5, "a function elsewhere has the variable of this one")


def _classes_here() -> None:
    shape, _ = _shapes()
    shape.changed = 1
    result, item = dumps(shape), pickle_by_value(shape)
    shape.changed = 2
    expect(pickle.loads(result).changed == 2, "a result has changed a class that was here")
    expect(pickle.loads(item).changed == 1, "a task finds a class as it was for an earlier one")


class _Unset:
    """Has no state."""


class _Named:
    """Has state, and is pickled by its name."""

    def __init__(self) -> None:
        self.state = 1

    def __reduce__(self) -> str:
        return "NAMED"


@contextmanager
def _in_main() -> Iterator[dict[str, Any]]:
    """Have `__main__` define what a script would."""
    main, kinds = vars(sys.modules["__main__"]), (_Unset, _Named)
    before, modules = dict(main), [kind.__module__ for kind in kinds]
    for kind in kinds:
        kind.__module__ = "__main__"
        main[kind.__name__] = kind
    try:
        yield main
    finally:
        main.clear()
        main.update(before)
        for number, module in enumerate(modules):
            kinds[number].__module__ = module


def _sentinels(main: dict[str, Any]) -> None:
    main.update(UNSET=_Unset(), NAMED=_Named())
    sentinels = main["UNSET"], main["NAMED"]
    result, item = dumps(sentinels), pickle_by_value(sentinels)
    main["NAMED"].state = 2
    again = pickle.loads(result)
    expect(again[0] is main["UNSET"] and again[1] is main["NAMED"], "a sentinel comes back as another object")
    expect(main["NAMED"].state == 2, "a result has changed the state of an object that is here")
    del main["UNSET"], main["NAMED"]
    there = pickle.loads(item)
    expect(there[1].state == 1, "an object that is pickled by its name has lost its state")
    expect(main["UNSET"] is there[0], "a sentinel is not found by its name in a task")
    main["Other"] = bool
    kind = class_of("Other", members_of(_Unset), pickle.dumps(float))
    expect(kind is float, "a class of the same name counts as that of a result, whatever it has")
