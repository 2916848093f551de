"""What copies are worth: 40 slots, three tasks a slot, and one attempt in a hundred takes five times as long."""

from random import Random
from statistics import mean

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.runs import Run
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedPC, Simulator

pytestmark = pytest.mark.slow

SLOTS, TASKS, RUNTIME_S = 40, 120, 600.0
# Without a slow attempt all tasks take three rounds. A run whose makespan is longer than four has one at its tail.
FOUR_ROUNDS_S = 4 * RUNTIME_S
SEEDS = range(40)


def run(seed: int, policy: str, pcs: int, spread: float, *, copies: bool) -> Run:
    """A run. ``spread``: by what fraction of the mean the runtimes differ from it, at most."""
    draw = Random(f"runtimes {seed}")
    runtimes = [RUNTIME_S * (1.0 + draw.uniform(-spread, spread)) for _ in range(TASKS)]
    machines = [SimulatedPC(f"pc{number}", slots=SLOTS // pcs) for number in range(pcs)]
    return Simulator(
        make_policy(policy), machines, [Arrival(runtimes, copies=copies)], Conditions(slow=0.01, seed=seed)
    ).run()


@pytest.mark.parametrize("policy", ["packing", "pgs", "fcfs"])
@pytest.mark.parametrize(("pcs", "spread"), [(40, 0.0), (10, 0.5)])
def test_copies_shorten_the_tail_by_a_fifth_and_never_lengthen_it(policy: str, pcs: int, spread: float) -> None:
    pairs = [
        (run(seed, policy, pcs, spread, copies=False), run(seed, policy, pcs, spread, copies=True)) for seed in SEEDS
    ]
    assert all(copied.makespan_s <= plain.makespan_s for plain, copied in pairs)
    tails = [(plain, copied) for plain, copied in pairs if plain.makespan_s > FOUR_ROUNDS_S]
    assert len(tails) > len(SEEDS) // 3
    # In the mean over the runs with a slow attempt at the tail, and over all runs.
    assert mean(1.0 - copied.makespan_s / plain.makespan_s for plain, copied in tails) >= 0.25
    assert sum(c.makespan_s for _, c in pairs) <= 0.8 * sum(p.makespan_s for p, _ in pairs)
    # The cycles of all attempts, those of stopped ones included.
    assert all(copied.ran_s <= 1.03 * plain.ran_s for plain, copied in pairs)
    assert sum(copied.ran_s for _, copied in pairs) <= sum(plain.ran_s for plain, _ in pairs)


def test_a_bag_without_slow_attempts_is_as_it_was() -> None:
    seed = next(seed for seed in SEEDS if run(seed, "pgs", 40, 0.0, copies=False).makespan_s == 3 * RUNTIME_S)
    ended = run(seed, "pgs", 40, 0.0, copies=True)
    assert (ended.makespan_s, ended.ran_s, ended.counters.copies) == (3 * RUNTIME_S, TASKS * RUNTIME_S, 0)


def test_a_slow_pc_does_not_decide_when_a_bag_ends() -> None:
    """Ten PCs, one of them four times slower: its last task is copied before it is behind."""
    pcs = [SimulatedPC("slow", speed=0.25), *(SimulatedPC(f"pc{number}") for number in range(9))]

    def makespan(copies: bool) -> float:
        return Simulator(make_policy("pgs"), pcs, [Arrival([60.0] * 150, copies=copies)]).run().makespan_s

    assert makespan(True) <= makespan(False) - 60.0
