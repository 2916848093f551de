"""The table of policies. An installed package adds rows by the entry point group ``deskgrid.policies``."""

import math
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
    installed = {point.name for point in entry_points(group=GROUP)}
    return [*POLICIES, *sorted(installed.difference(POLICIES))]


def make_policy(name: str, **options: Any) -> Policy:
    """The policy of that name; raises `UnknownPolicy` for an unknown name, option or value."""
    maker = _maker(name)
    try:
        policy = maker(**options)
        _check_options(policy)
    except (TypeError, ValueError, AttributeError) as error:
        raise UnknownPolicy(f"policy {name!r}: {error}") from error
    return policy


def _maker(name: str) -> Callable[..., Policy]:
    if name in POLICIES:
        return POLICIES[name]
    for point in entry_points(group=GROUP, name=name):
        try:
            installed: Callable[..., Policy] = point.load()
        except (ImportError, AttributeError) as error:
            raise UnknownPolicy(f"policy {name!r} cannot be loaded: {error}") from error
        return installed
    raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(policy_names())}")


def _check_options(policy: Policy) -> None:
    if policy.order not in ORDERS:
        raise ValueError(f"order is one of {', '.join(ORDERS)}, not {policy.order!r}")
    for option in ("queue_length", "queue_s", "margin"):
        if not 0 <= getattr(policy, option) < math.inf:
            raise ValueError(f"{option} is a finite number from 0 up")
