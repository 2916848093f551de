"""The options of ``deskgrid submit`` that say what each task needs, beside its runtime."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from deskgrid.option_types import Whole
from deskgrid.resources import read_amounts, resources_of
from deskgrid.sizes import read_size
from deskgrid.wire import MEMORY_LIMIT, RANKS_LIMIT, SLOTS_LIMIT

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_GANG = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_SPEEDUPS = "amdahl:0.05, downey:8,1 or 1:1,2:1.9,4:3.4"


class GangType(click.ParamType[int | tuple[int, int]]):
    """N ranks, or from N to M."""

    name = "gang"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, int]:
        """Return the number of ranks, or the least and the most; a usage error if ``value`` is neither."""
        found = _GANG.fullmatch(value)
        least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= least <= RANKS_LIMIT or not 1 <= most <= RANKS_LIMIT:
            self.fail(f"{value!r} is not a number of ranks, 1 to {RANKS_LIMIT:,}, nor a range like 2-16", param, ctx)
        if least > most:
            self.fail(f"{value!r} has the larger number first: use {most}-{least}", param, ctx)
        return least if least == most else (least, most)


class SpeedupType(click.ParamType[Any]):
    """A formula with its numbers, or a table."""

    name = "speedup"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the speed-up as Python takes it; a usage error if ``value`` is none."""
        from deskgrid.scheduler.parallel.speedup import Amdahl, Downey

        kind, _, rest = value.partition(":")
        try:
            if kind == "amdahl":
                return Amdahl(float(rest))
            if kind == "downey":
                average, sigma = map(float, rest.split(","))
                return Downey(average, sigma)
        except ValueError as error:
            # The second says by itself what is wrong: the number is outside its range.
            why = "" if str(error).startswith(("could not", "not enough", "too many")) else f": {error}"
            self.fail(f"{value!r} is not a speed-up like {_SPEEDUPS}{why}", param, ctx)
        try:
            pairs = [pair.split(":") for pair in value.split(",")]
            table = {int(ranks): float(speedup) for ranks, speedup in pairs}
        except ValueError:
            self.fail(f"{value!r} is not a speed-up like {_SPEEDUPS}", param, ctx)
        if len(table) < len(pairs):
            self.fail(f"{value!r} has the same number of ranks twice", param, ctx)
        return table


class SizeType(click.ParamType[int]):
    """A number of bytes of memory, perhaps with a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes in ``value``; a usage error if no PC can have so much."""
        try:
            size = read_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 1 <= size <= MEMORY_LIMIT:
            self.fail(f"{value!r} is {'more than any PC has' if size else 'no memory: leave it out'}", param, ctx)
        return size


_OPTIONS = (
    click.option(
        "--gang",
        type=GangType(),
        metavar="N|N-M",
        help="Run each task as N ranks at once, on PCs that can reach each other. With N-M, the grid chooses the "
        "number. Ranks find RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in their environment.",
    ),
    click.option(
        "--speedup",
        type=SpeedupType(),
        metavar="amdahl:S|downey:A,SIGMA|1:1,2:1.9,...",
        help="How much faster a task is with more ranks. --runtime is then the time on one rank.",
    ),
    click.option("--mpi", is_flag=True, help="The ranks are MPI processes, and run only on PCs that allow MPI."),
    click.option("--slots", type=Whole(1, SLOTS_LIMIT), help="How many slots of one PC each rank needs."),
    click.option("--memory", type=SizeType(), metavar="SIZE", help="How much memory each rank needs, such as 4G."),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME[=AMOUNT]",
        callback=lambda context, parameter, texts: resource_amounts(texts),
        help="What each rank needs of what is counted of PCs, such as gpu=1, gpu=0.5 or scratch=20G. You can repeat "
        "this.",
    ),
    click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="LABEL",
        help="A label that a PC must have, such as matlab or os=windows. You can repeat this.",
    ),
)


def resource_amounts(texts: Sequence[str]) -> dict[str, str]:
    """Return amounts by name, which a task can need; raises BadParameter."""
    try:
        amounts = read_amounts(texts)
        resources_of(amounts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return amounts


def needs_options(command: CommandT) -> CommandT:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_needs(gang: int | tuple[int, int] | None, speedup: object) -> None:
    """Refuse a range of ranks without a speed-up."""
    if isinstance(gang, tuple) and speedup is None:
        raise click.UsageError(f"--gang {gang[0]}-{gang[1]} needs --speedup, such as {_SPEEDUPS}")
