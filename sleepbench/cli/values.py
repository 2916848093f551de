"""Callbacks that parse the option values of ``deskgrid sleepbench simulate``."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from deskgrid.option_types import Seconds, key_values
from deskgrid.scheduler.policies import policy_names, single_policy_names

# Far beyond any real prediction error.
ERROR_MOST = 1000.0

F = TypeVar("F", bound=Callable[..., Any])


def scenario_numbers(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """``all``, or numbers of the paper's scenarios, with commas between."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")] if text != "all" else ["0", "1", "2", "3"]
    if not set(words) <= {"0", "1", "2", "3"}:
        raise click.BadParameter(f"0, 1, 2, 3 (some, with commas between) or all, not {text!r}", ctx, option)
    return tuple(map(int, dict.fromkeys(words)))


def chosen_policies(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Names of policies, with commas between; ``all``: those that differ in how they place single tasks, or gangs."""
    return _policies(ctx, option, text, policy_names() if ctx.params.get("gangs") else single_policy_names())


def gang_policies(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """The same, of a command that always has gangs."""
    return _policies(ctx, option, text, policy_names())


def _policies(
    ctx: click.Context, option: click.Parameter, text: str | None, everything: Sequence[str]
) -> tuple[str, ...] | None:
    if text is None:
        return None
    known = policy_names()
    words = [word.strip() for word in text.split(",")] if text != "all" else everything
    for word in words:
        if word not in known:
            raise click.BadParameter(f"there is no policy {word!r}; there are: {', '.join(known)}", ctx, option)
    return tuple(dict.fromkeys(words))


def error_factors(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...]:
    """Factors F from 1 up, with commas between; none: no error."""
    found: list[float] = []
    for word in [] if text is None else text.split(","):
        try:
            factor = float(word)
        except ValueError:
            factor = 0.0
        if not 1.0 <= factor <= ERROR_MOST:
            raise click.BadParameter(f"{word.strip()!r} is not a number from 1 to {ERROR_MOST:,.0f}", ctx, option)
        found.append(factor)
    return tuple(dict.fromkeys(found))


def policy_options(ctx: click.Context, option: click.Parameter, words: Sequence[str]) -> dict[str, object]:
    """``[POLICY.]KEY=VALUE``, as `key_values` reads them."""
    found = key_values(ctx, option, words)
    for key in found:
        policy, dot, name = key.rpartition(".")
        if dot and policy not in policy_names():
            raise click.BadParameter(f"there is no policy {policy!r} for its option {name!r}", ctx, option)
    return found


def seconds_option(name: str, text: str) -> Callable[[F], F]:
    """An option for a number of seconds, which has no default of its own."""
    return click.option(name, type=Seconds(), metavar="S", help=text)
