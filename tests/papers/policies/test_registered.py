"""The papers' policies are known by the entry point that anybody's package uses."""

from importlib import import_module
from importlib.metadata import entry_points

import pytest

from deskgrid.papers import PAPERS
from deskgrid.scheduler.policies import GROUP, POLICIES, make_policy, parallel_policy, policy_names
from deskgrid.scheduler.policies.parallel import ParallelPacking

MADE = {
    policy.name
    for folder in PAPERS.values()
    for policy in vars(import_module(f"{folder}.policies")).values()
    if isinstance(policy, type) and issubclass(policy, ParallelPacking)
}


def test_each_is_registered_under_its_own_name() -> None:
    points = [point for point in entry_points(group=GROUP) if point.value.startswith("deskgrid.papers.")]
    assert {point.name for point in points} == MADE
    assert [point.load().name for point in points] == [point.name for point in points]
    assert set(policy_names()) >= MADE
    assert not MADE & set(POLICIES)


@pytest.mark.parametrize("name", sorted(MADE))
def test_each_can_be_made_and_has_its_name(name: str) -> None:
    policy = make_policy(name, margin=2.0)
    assert policy.name == parallel_policy(policy).name == name
    assert policy.requirement.margin == 2.0
