"""The table of policies. An installed package adds rows by the entry point group ``deskgrid.policies``."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from scheduler.model import UnknownPolicy
from scheduler.policies.base import Place, Policy, Postpone, View
from scheduler.policies.fcfs import FCFS
from scheduler.policies.pgs import PGS
from scheduler.waiting import ORDERS

__all__ = ["GROUP", "POLICIES", "Place", "Policy", "Postpone", "View", "make_policy", "policy_names"]

GROUP = "deskgrid.policies"

POLICIES: dict[str, Callable[..., Policy]] = {"pgs": PGS, "fcfs": FCFS}


def policy_names() -> list[str]:
    """Every name `make_policy` knows, ours first."""
    return [*POLICIES, *sorted(point.name for point in entry_points(group=GROUP) if point.name not in POLICIES)]


def make_policy(name: str, **options: Any) -> Policy:
    """The policy of that name; raises `UnknownPolicy` for an unknown name, option or value."""
    maker = POLICIES.get(name)
    if maker is None:
        for point in entry_points(group=GROUP, name=name):
            maker = point.load()
    if maker is None:
        raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(policy_names())}")
    try:
        policy = maker(**options)
    except TypeError as error:
        raise UnknownPolicy(f"policy {name!r}: {error}") from error
    if policy.order not in ORDERS:
        raise UnknownPolicy(f"policy {name!r}: order is one of {', '.join(ORDERS)}, not {policy.order!r}")
    for option in ("queue_length", "queue_s", "margin"):
        if not 0 <= getattr(policy, option) < float("inf"):
            raise UnknownPolicy(f"policy {name!r}: {option} is a finite number from 0 up")
    return policy
