"""The virtual network finds each fault of the table within a bounded number of seeds.

The unchanged code passes the same seeds in `tests.grid.test_sweep`. Here are tried only the faults that a change may
have to do with: see `tests.mutations.choosing`.
"""

import logging
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.counting import COUNTS
from tests.grid.sweep import WEATHERS, processes, tried
from tests.mutations.choosing import chosen
from tests.mutations.mutating import Mutation, NoSuchPlace, mutated, mutated_source
from tests.mutations.scripts import SCRIPTS
from tests.mutations.table import MUTATIONS

# Several times what they take, for machines that are busy.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# As many faults the table has at least.
ENOUGH = 8
# A fault that so many seeds of its weather do not find counts as not found.
SEEDS = 300
CHOSEN = chosen(MUTATIONS)


def found(weather: str, seed: int) -> bool:
    """Whether a seed finds the fault that is in force."""
    if weather in WEATHERS:
        return bool(tried(weather, seed).failure)
    try:
        with tempfile.TemporaryDirectory(prefix="deskgrid-script-") as home:
            SCRIPTS[weather](seed, Path(home))
    except Exception:
        return True
    return False


def hunt(number: int) -> int:
    """How many seeds it takes to find a mutation; 0 when none does."""
    logging.disable(logging.CRITICAL)
    mutation = MUTATIONS[number]
    with mutated(mutation):
        for count in range(SEEDS):
            if found(mutation.weather, (mutation.first + count) % SEEDS):
                return count + 1
    return 0


@pytest.fixture(scope="module")
def hunter() -> Iterator[ProcessPoolExecutor]:
    """A process that hunts, one fault after another: tests that run in parallel have one each."""
    with processes(1) as pool:
        yield pool


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_well_where_there_is_no_fault(script: str) -> None:
    with tempfile.TemporaryDirectory(prefix="deskgrid-script-") as home:
        SCRIPTS[script](1, Path(home))


@pytest.mark.parametrize("number", CHOSEN, ids=[MUTATIONS[number].name for number in CHOSEN])
def test_the_virtual_network_finds(hunter: ProcessPoolExecutor, number: int) -> None:
    seeds = hunter.submit(hunt, number).result()
    assert seeds, f"no seed finds: {MUTATIONS[number].name}"
    COUNTS.append(f"mutation: {MUTATIONS[number].name}: {seeds} seeds")


def test_every_fault_of_the_table_fits_the_code() -> None:
    COUNTS.append(f"mutations: {len(CHOSEN)} of {len(MUTATIONS)} were tried, which a change may have to do with")
    for mutation in MUTATIONS:
        assert mutated_source(mutation)
        assert mutation.weather in (*WEATHERS, *SCRIPTS)


def test_there_are_faults_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTATIONS) >= ENOUGH
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def as_it_is() -> int:
    """A function to spoil."""
    return 1


@pytest.mark.parametrize(
    ("where", "old", "new", "reason"),
    [
        ("nothing", "return 1", "return 2", "there is no"),
        ("Nobody.nothing", "return 1", "return 2", "there is no"),
        ("as_it_is", "return 3", "return 2", "0 times"),
        ("as_it_is", "i", "j", "times"),
        ("as_it_is", "return 1", "return 1  # the same", "changes nothing"),
        ("as_it_is", "return 1", "return (", "no Python"),
    ],
)
def test_a_mutation_that_does_not_fit_the_code_is_an_error(where: str, old: str, new: str, reason: str) -> None:
    with pytest.raises(NoSuchPlace, match=reason), mutated(Mutation("x", f"{__name__}:{where}", old, new)):
        pass


def test_a_mutation_is_in_force_inside_its_block_only_and_for_everybody() -> None:
    imported_before = as_it_is
    with mutated(Mutation("x", f"{__name__}:as_it_is", "return 1", "return 2")):
        assert (as_it_is(), imported_before()) == (2, 2)
    assert as_it_is() == 1
