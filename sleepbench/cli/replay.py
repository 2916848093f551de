"""``deskgrid sleepbench replay``: what each policy would have done with a stopped broker's own journal."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Refusal
from deskgrid.sleepbench.cli.common import check_writable, json_option

if TYPE_CHECKING:
    from deskgrid.sleepbench.replay import Played, Replay


class MomentType(click.ParamType[float]):
    """A date, or a date and time, in this machine's time zone unless it names another; as POSIX seconds."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read one."""
        try:
            return datetime.fromisoformat(str(value)).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is no date like 2026-11-20, nor a time like 2026-11-20T18:00", param, ctx)


@click.command("replay")
@click.argument("home", type=click.Path(file_okay=False, path_type=Path))
@click.option("--policy", "policies", metavar="NAME,...", help="Which policies.  [default: all]")
@click.option("--since", type=MomentType(), metavar="DATE", help="Only what was submitted since then.")
@click.option("--bag", "bags", multiple=True, metavar="ID", help="Only this bag; may be given several times.")
@json_option(
    'Also write there: "rows" as of the other benchmarks, "bags" with turnarounds, what was "assumed", and how '
    '"etas" held.'
)
def replay(*, home: Path, policies: str | None, since: float | None, bags: tuple[str, ...], file: Path | None) -> None:
    """Replay a broker's past under every policy: HOME is the folder of a broker that is stopped.

    Its journal knows when tasks were submitted, their predicted runtimes and elapsed times, and when each PC was there.
    The tables show what really happened beside what other policies would have achieved. If the broker was asked when
    bags would be done, the last table says how well its estimates held.
    """
    from rich.console import Console

    from deskgrid.scheduler.model import UnknownPolicy
    from deskgrid.scheduler.policies import make_policy, single_policy_names
    from deskgrid.sleepbench.history import HistoryError, read_history
    from deskgrid.sleepbench.replay import Replay
    from deskgrid.sleepbench.replayed import held, held_table, tables

    check_writable(file)
    names = single_policy_names() if policies is None else [name.strip() for name in policies.split(",")]
    try:
        for name in names:
            make_policy(name)
        history = read_history(home)
        past = Replay(history, bags, float("-inf") if since is None else since)
    except (HistoryError, UnknownPolicy) as error:
        raise Refusal(str(error)) from error
    played = [past.recorded(), *map(past.play, names)]
    console = Console()
    told = list(held(history))
    for table in [*tables(past, played), *held_table(told)]:
        console.print(table)
    stalled = [f"{one.policy} {one.stalled}" for one in played if one.stalled]
    for sentence in [*stalled, *past.assumed()]:
        console.print(f"- {sentence}", style="dim", highlight=False, soft_wrap=True)
    if file is not None:
        whole = {**document(past, played), "etas": [asdict(row) for row in told]}
        file.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def document(past: "Replay", played: Sequence["Played"]) -> dict[str, object]:
    """The document of ``--json``. Seconds. A policy whose run never ends has no row or turnarounds, but a reason."""
    return {
        "rows": [asdict(one.row) for one in played if one.row is not None],
        "bags": [
            {
                "bag": bag.id,
                "name": bag.name,
                "turnaround_s": {one.policy: one.turnarounds_s[number] for one in played if one.turnarounds_s},
            }
            for number, bag in past.bags.items()
        ],
        "stalled": {one.policy: one.stalled for one in played if one.stalled},
        "assumed": list(past.assumed()),
    }
