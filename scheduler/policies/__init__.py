"""The table of policies. An installed package adds rows by the entry point group ``deskgrid.policies``.

So do the papers: their policies are in `deskgrid.papers`, and the scheduler knows none of them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.model import UnknownOption, UnknownPolicy
from deskgrid.scheduler.parallel.base import ParallelPolicy
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.policies.base import Place, Policy, Postpone, View
from deskgrid.scheduler.policies.fcfs import FCFS
from deskgrid.scheduler.policies.longest import Longest
from deskgrid.scheduler.policies.packing import Packing
from deskgrid.scheduler.policies.parallel import EASY, ParallelPacking
from deskgrid.scheduler.policies.pgs import PGS
from deskgrid.scheduler.queues.categories import ORDERS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

__all__ = [
    "DEFAULT",
    "GROUP",
    "POLICIES",
    "Place",
    "Policy",
    "Postpone",
    "Requirement",
    "View",
    "check_policy",
    "make_policy",
    "packs_singles",
    "parallel_policy",
    "policy_names",
    "policy_options",
    "single_policy_names",
]

GROUP = "deskgrid.policies"
# The policy that a grid starts with.
DEFAULT = "packing"

POLICIES: dict[str, Callable[..., Policy]] = {each.name: each for each in (Packing, PGS, Longest, FCFS, EASY)}


def policy_names() -> list[str]:
    """Every name that `make_policy` knows, the built-in ones first."""
    installed = {point.name for point in _installed()}
    return [*POLICIES, *sorted(installed.difference(POLICIES))]


def single_policy_names() -> list[str]:
    """Those that place single tasks in their own way; the others do that as the default policy does."""
    return [name for name in policy_names() if not packs_singles(name)]


def packs_singles(name: str) -> bool:
    """Whether a policy is named after what it does with parallel tasks, and places single ones as the default does."""
    try:
        maker = _maker(name)
    except UnknownPolicy:
        return False  # whoever makes it is told why it cannot be
    return isinstance(maker, type) and issubclass(maker, ParallelPacking)


def check_policy(name: str) -> None:
    """Raise `UnknownPolicy` unless there is a policy of that name. It is not loaded."""
    if name not in (names := policy_names()):
        raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(names)}")


def make_policy(name: str, **options: Any) -> Policy:
    """The policy of that name. Raises `UnknownPolicy` for an unknown name or value, `UnknownOption` for an option."""
    maker = _maker(name)
    try:
        takes = signature(maker).parameters.values()
        if not any(each.kind is Parameter.VAR_KEYWORD for each in takes):
            _check_names(name, options, [each.name for each in takes])
        policy = maker(**options)
        _check_options(policy)
    except (TypeError, ValueError, AttributeError) as error:
        raise UnknownPolicy(f"policy {name!r}: {error}") from error
    return policy


def policy_options(policy: Policy) -> dict[str, Any]:
    """The options that a policy was made with, as far as it keeps them under their names."""
    return {name: getattr(policy, name) for name in signature(type(policy)).parameters if hasattr(policy, name)}


def parallel_policy(policy: Policy) -> ParallelPolicy:
    """What a policy does with parallel tasks: its ``parallel``; the default if it says nothing of them."""
    found: ParallelPolicy | None = getattr(policy, "parallel", None)
    return default_policy(policy.requirement.margin) if found is None else found


def _maker(name: str) -> Callable[..., Policy]:
    if name in POLICIES:
        return POLICIES[name]
    check_policy(name)
    point = next(iter(_installed().select(name=name)))
    try:
        installed: Callable[..., Policy] = point.load()
    except Exception as error:  # a module that is imported may raise anything
        raise UnknownPolicy(f"policy {name!r} cannot be loaded: {error}") from error
    return installed


def _installed() -> "EntryPoints":
    from importlib.metadata import entry_points  # here, because a grid starts sooner without it

    return entry_points(group=GROUP)


def _check_names(policy: str, options: Iterable[str], known: Sequence[str]) -> None:
    if unknown := sorted(set(options).difference(known)):
        raise UnknownOption(f"policy {policy!r} has no option {unknown[0]!r}; its options: {', '.join(known)}")


def _check_options(policy: Policy) -> None:
    if policy.order not in ORDERS:
        raise ValueError(f"order is one of {', '.join(ORDERS)}, not {policy.order!r}")
    numbers: list[tuple[str, int, object]] = [
        ("stretch", 1, policy.requirement.stretch),
        ("queue_length", 0, policy.queue_length),
        ("queue_s", 0, policy.queue_s),
        ("margin", 0, policy.requirement.margin),
    ]
    for option, least, value in numbers:
        if not isinstance(value, int | float) or not least <= value < math.inf:
            raise ValueError(f"{option} is a finite number from {least} up, not {value!r:.40}")
