"""A scheduling pass with ten thousand slots and a million tasks that wait; what a decision costs. deskgrid only."""

from collections.abc import Mapping

from benchmarks.environments.base import Environment
from benchmarks.scheduling import Loaded
from benchmarks.workloads.base import Figures, Metric, Workload, middle, quantile

POLICIES = ("packing", "pgs")
BATCH = 100
# With these the cost of a decision is compared.
FEW_SLOTS = 10
MS = 1000.0


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """For each policy: a pass that places a batch, and how much more a decision costs than with ten slots."""
    figures: Figures = {}
    for policy in POLICIES:
        slots, tasks, count = int(size["slots"]), int(size["tasks"]), int(size["passes"])
        many = Loaded(policy, slots, tasks).passes(count, BATCH)
        few = Loaded(policy, FEW_SLOTS, tasks).passes(count, FEW_SLOTS)
        figures |= {
            f"{policy}_ms": MS * middle(many.passes_s),
            f"{policy}_p99_ms": MS * quantile(many.passes_s, 0.99),
            f"{policy}_decision_us": many.decision_us,
            f"{policy}_growth": many.decision_us / few.decision_us,
        }
    return figures


def _metrics(policy: str) -> tuple[Metric, ...]:
    return (
        Metric(f"{policy}_ms", f"{policy}: a pass that places a batch, median", "ms", "less"),
        Metric(f"{policy}_p99_ms", f"{policy}: p99", "ms", "less"),
        Metric(f"{policy}_decision_us", f"{policy}: a decision with the messages about it", "us", "less"),
        Metric(f"{policy}_growth", f"{policy}: the same against that with 10 slots", "times", "less"),
    )


WORKLOAD = Workload(
    metrics=tuple(metric for policy in POLICIES for metric in _metrics(policy)),
    run=run,
    full={"slots": 10_000, "tasks": 1_000_000, "passes": 500},
    quick={"slots": 10_000, "tasks": 100_000, "passes": 100},
    tiny={"slots": 100, "tasks": 2_000, "passes": 10},
    workers=0,
)
