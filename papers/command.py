"""``deskgrid sleepbench paper``: a paper's experiments by the real scheduler, beside what the paper printed."""

import os
from collections.abc import Iterable, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Refusal, Whole
from deskgrid.papers import PAPERS, paper_named
from deskgrid.papers.base import AskedExperiments, Paper, PaperError, PaperTrial, TrialRow
from deskgrid.sleepbench.cli.common import SEED_OPTION, check_writable, json_option, progress_bar, write_json
from deskgrid.sleepbench.cli.pictures import picture_option, write_picture
from deskgrid.sleepbench.pool import computed

if TYPE_CHECKING:
    from rich.console import Console

# After how many new rows the file is written again, as a part of those that it has: it is never much behind, and a
# long series does not write it thousands of times.
GROWN = 0.05


def _words(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Words with commas between."""
    return () if text is None else tuple(dict.fromkeys(word.strip() for word in text.split(",")))


@click.command("paper")
@click.argument("name", metavar="|".join(PAPERS), type=click.Choice(list(PAPERS)))
@click.option("--experiment", "experiments", callback=_words, metavar="NAME,...", help="Only these of its experiments.")
@click.option(
    "--case",
    "cases",
    callback=_words,
    metavar="CASE,...",
    help="Only these cases; the first words of a case stand for all that begin so: A1/0.75.",
)
@click.option("--policy", "policies", callback=_words, metavar="NAME,...", help="Only these policies.")
@click.option(
    "--swf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The log that the paper used, in the Standard Workload Format; tla only.  [default: drawn]",
)
@click.option("--runs", type=Whole(min=1), help="How many runs of each.  [default: as many as the paper made]")
@SEED_OPTION
@click.option("--processes", "-j", type=Whole(min=1), help="How many runs at once.  [default: one for each core]")
@json_option("Also write a row for each run there.")
@picture_option("--plot", "Draw the experiments.")
def paper(
    *,
    name: str,
    experiments: tuple[str, ...],
    cases: tuple[str, ...],
    policies: tuple[str, ...],
    swf: Path | None,
    runs: int | None,
    seed: int,
    processes: int | None,
    file: Path | None,
    plot: Path | None,
) -> None:
    """Repeat a paper on parallel tasks in virtual time, with the scheduler that the broker runs.

    The tables show what the paper printed beside what comes out here. What the papers leave open is assumed; each
    assumption stands with its reason in papers/NAME/assumptions.toml.
    """
    from rich.console import Console

    check_writable(file)
    chosen = paper_named(name)
    _check(chosen, experiments, cases, policies, swf)
    asked = AskedExperiments(
        experiments or [each for each, about in chosen.experiments.items() if not about.optional],
        cases,
        policies,
        range(seed, seed + (runs or chosen.runs)),
        swf,
    )
    try:
        trials = chosen.trials(asked)
    except PaperError as error:
        raise Refusal(str(error)) from error
    if not trials:
        raise click.UsageError("none of these experiments has such a case under such a policy")
    rows = _made(trials, processes or os.cpu_count() or 1, file)
    _print(chosen, rows, Console())
    if plot is not None:
        from deskgrid.papers.picture import figure_of

        write_picture(figure_of(chosen, rows), plot)


def _check(
    chosen: Paper, experiments: Sequence[str], cases: Sequence[str], policies: Sequence[str], swf: Path | None
) -> None:
    known = chosen.experiments
    _among(experiments, known, "--experiment", f"paper {chosen.name} has no experiment")
    of_these = [known[each] for each in experiments or known]
    _among(policies, _union([each.policies for each in of_these]), "--policy", "none of the experiments has the policy")
    _among(cases, _union([_starts(each.cases) for each in of_these]), "--case", "none of the experiments has the case")
    if swf is not None and not chosen.swf:
        raise click.BadParameter(f"paper {chosen.name} does not read a log", param_hint="--swf")


def _starts(cases: Sequence[str]) -> list[str]:
    """All that may be said for these cases: A1, A1/0.75, and A1/0.75/0.1."""
    return ["/".join(case.split("/")[:length]) for case in cases for length in range(1, case.count("/") + 2)]


def _union(names: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))


def _among(words: Sequence[str], known: Iterable[str], option: str, complaint: str) -> None:
    names = list(known)
    for word in words:
        if word not in names:
            raise click.BadParameter(f"{complaint} {word!r}; there are: {', '.join(names)}", param_hint=option)


def _made(trials: Sequence[PaperTrial], processes: int, file: Path | None) -> list[TrialRow]:
    """The rows of all trials. The file is written again and again, so that an interrupted series keeps its rows."""
    rows: list[TrialRow] = []
    written = 0
    with (
        computed(methodcaller("rows"), trials, processes) as results,
        progress_bar("simulating", len(trials), "runs") as progress,
    ):
        try:
            for count, some in enumerate(results, start=1):
                rows += some
                progress(count)
                if len(rows) - written > GROWN * written:
                    written = len(rows)
                    write_json(file, [row.as_json() for row in rows])
        except PaperError as error:
            raise Refusal(str(error)) from error
        finally:
            write_json(file, [row.as_json() for row in rows])
    return rows


def _print(chosen: Paper, rows: Sequence[TrialRow], console: "Console") -> None:
    from deskgrid.papers.printed import printed_in
    from deskgrid.papers.report import notes, tables

    printed = printed_in(chosen.name)
    for table in tables(chosen, rows, printed, console):
        console.print(table)
    for sentence in notes(rows, printed):
        console.print(f"- {sentence}", style="dim", highlight=False, soft_wrap=True)
