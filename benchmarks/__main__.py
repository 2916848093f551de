"""``python -m benchmarks``, or ``make bench``: compare deskgrid with its peers."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.catalogue import ENVIRONMENTS, WORKLOADS
from benchmarks.markdown import markdown
from benchmarks.report import report
from benchmarks.runner import SIZES, Plan, measure
from deskgrid.sleepbench.pictures.files import NO_MATPLOTLIB

RUNS = 5


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=RUNS, show_default=True, help="Of everything, in turns.")
@click.option(
    "--only", "chosen", multiple=True, type=click.Choice(tuple(ENVIRONMENTS)), help="Only these environments."
)
@click.option("--workload", "workloads", multiple=True, type=click.Choice(WORKLOADS), help="Only these workloads.")
@click.option("--quick", "size", flag_value="quick", help="Smaller sizes: to see that everything works.")
@click.option(
    "--size", "size", type=click.Choice(SIZES), default="full", show_default=True, help="How much of everything."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder for the JSON and the picture.")
@click.option("--show", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Only show such a JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="With --show: tables for a page of text.")
def main(
    *,
    runs: int,
    chosen: tuple[str, ...],
    workloads: tuple[str, ...],
    size: str,
    out: Path | None,
    show: Path | None,
    as_markdown: bool,
) -> None:
    """Measure every environment with every workload, in turns, and show the results."""
    console = Console()
    if show is not None:
        shown = json.loads(show.read_text(encoding="utf-8"))
        if as_markdown:
            click.echo("\n".join(markdown(shown)))
        else:
            console.print(report(shown))
        return
    told = Console(stderr=True)
    plan = Plan(chosen or tuple(ENVIRONMENTS), workloads or WORKLOADS, runs, size)
    result: dict[str, Any] = {}
    for result in measure(plan, lambda line: told.print(line, style="dim", highlight=False)):
        if out is not None:
            _write(result, out, told)
    console.print(report(result))


def _write(result: Mapping[str, Any], out: Path, told: Console) -> None:
    """Write the results so far. Called after each run, so that a failure does not lose hours of measurements."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if find_spec("matplotlib") is None:
        told.print(NO_MATPLOTLIB)
        return
    from benchmarks.picture import draw

    draw(result, out / "peers.svg")


if __name__ == "__main__":
    main()
