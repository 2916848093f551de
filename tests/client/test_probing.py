"""Which items a bag begins with: they are spread over the parameters in them."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from deskgrid import Grid
from deskgrid.client.probing import CANDIDATES, PARAMETERS, PARTS, checked_probes, parameters, probes, scaled, spread
from deskgrid.errors import BagRejected
from deskgrid.wire import PROBES_LIMIT, TaskOptions


@dataclass
class Setting:
    width: float
    name: str
    depth: tuple[int, ...] = (3,)


@pytest.mark.parametrize(
    ("item", "found"),
    [
        (7, (7.0,)),
        (Fraction(1, 2), (0.5,)),
        ((1, [2.5, "x"]), (1.0, 2.5)),
        ({"a": 1, "b": {"c": True}}, (1.0, 1.0)),
        ({"width": 2, "depth": 3}, (3.0, 2.0)),
        (Setting(2.0, "wide", (4, 5)), (2.0, 4.0, 5.0)),
        ("--rate=1e-3 --size 20 out-7.txt", (0.001, 20.0, -7.0)),
        (Setting, ()),
        (None, ()),
        (math.nan, (math.inf,)),
        (-(10**400), (-math.inf,)),
        ((((((1,),),),),), ()),
        (range(3), ()),
        (tuple(range(100)), tuple(map(float, range(PARAMETERS)))),
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_the_parameters_of_an_item_are_its_numbers(item: Any, found: tuple[float, ...]) -> None:
    assert parameters(item) == found


def test_an_item_that_holds_itself_has_an_end() -> None:
    item = list[Any]([1])
    item.append(item)
    assert parameters(item) == (1.0,) * 4


def test_a_large_item_without_numbers_is_not_read_to_its_end() -> None:
    class Counted(list[Any]):
        read = 0

        def __iter__(self) -> Any:
            Counted.read += 1
            return super().__iter__()

    item: Any = None
    for _ in range(4):
        item = Counted([item] * 16)
    assert parameters(item) == ()
    assert 0 < Counted.read <= PARTS


def test_a_field_without_a_value_is_no_parameter() -> None:
    @dataclass
    class Late:
        a: int
        b: float = field(init=False)

    assert parameters(Late(3)) == (3.0,)


def test_parameters_are_scaled_by_the_ranks_of_their_values() -> None:
    assert scaled([(1, 5, 0.1), (10, 5, 0.2), (100, 5, 0.1)]) == [(0.0, 0.0), (0.5, 1.0), (1.0, 0.0)]


@pytest.mark.parametrize("points", [[], [()], [(1.0,), (1.0, 2.0)], [(3.0,), (3.0,)]])
def test_points_that_do_not_differ_or_do_not_match_are_no_parameters(points: list[tuple[float, ...]]) -> None:
    assert scaled(points) is None


@pytest.mark.parametrize("values", [(400,), (20, 20), (7, 7, 7)])
def test_probes_are_spread_over_all_values_of_every_parameter(values: tuple[int, ...]) -> None:
    items = list(product(*map(range, values)))
    chosen = [items[item] for item in probes(items)]
    assert len(set(chosen)) == PROBES_LIMIT
    for axis, many in enumerate(values):
        for low, high in ((0.0, 0.5), (0.25, 0.75), (0.5, 1.0)):
            its = [item for item in chosen if low <= item[axis] / (many - 1) <= high]
            assert len(its) >= PROBES_LIMIT / 4, (axis, low, chosen)


def test_the_first_probe_is_in_the_middle() -> None:
    assert probes(range(101))[0] == 50


def test_items_without_parameters_are_drawn_and_always_the_same() -> None:
    items = [object() for _ in range(100)]
    assert probes(items) == probes(items)
    assert len(set(probes(items))) == PROBES_LIMIT
    assert probes(items) != tuple(range(PROBES_LIMIT))


@pytest.mark.parametrize("items", [[], [1], [1, 2, 3], [None] * 3, "abc"])
def test_a_small_bag_has_a_probe_for_each_item(items: Any) -> None:
    assert sorted(probes(items)) == list(range(len(items)))


def test_the_probes_of_very_many_items_are_chosen_from_some_of_them() -> None:
    many = 100 * CANDIDATES
    chosen = probes(range(many))
    assert len(set(chosen)) == PROBES_LIMIT
    assert min(chosen) < many / 8
    assert max(chosen) > many * 7 / 8


def test_points_that_are_the_same_are_chosen_one_after_the_other() -> None:
    assert sorted(spread([(0.5,)] * 3, 5)) == [0, 1, 2]


def test_a_checkpointable_bag_is_not_explored() -> None:
    with pytest.raises(BagRejected, match="save checkpoints cannot explore"):
        checked_probes([1], TaskOptions(checkpoint=True))


def test_a_bag_that_explores_begins_with_its_probes_and_keeps_the_order_of_its_results() -> None:
    import time

    def when(item: tuple[int, int]) -> float:
        time.sleep(0.02)
        return time.monotonic()

    items = list(product(range(8), range(8)))
    with Grid.local(workers=1) as grid:
        began = list(grid.bag(when, iter(items), explore=True, runtime=0.6).results())
    first = sorted(range(len(items)), key=began.__getitem__)[:PROBES_LIMIT]
    assert tuple(first) == probes(items)
