"""The rows of a paper as tables: the means of all policies, and what the paper printed beside what comes out here."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev

from rich.console import Console
from rich.table import Table

from deskgrid.papers.base import Experiment, Paper, TrialRow
from deskgrid.papers.printed import Beside, Printed, beside
from deskgrid.sleepbench.tables import new_table

# The heading of what the paper printed, beside each policy's own.
PAPERS = "paper"
# From here on a figure has no decimals.
THREE_DIGITS = 100.0
# More than any table has. Characters.
_ANY_WIDTH = 10_000


def tables(paper: Paper, rows: Sequence[TrialRow], printed: Sequence[Printed], console: Console) -> Iterator[Table]:
    """Tables for each experiment of which there are rows, as wide as the console, then one of what was printed."""
    for name, experiment in paper.experiments.items():
        some = [row for row in rows if row.experiment == name]
        if some:
            absolute = [one for one in printed if one.experiment == name and one.absolute]
            yield from _fitting(experiment, some, absolute, _in_order(experiment, some)[1], console)
    compared = list(beside([one for one in printed if not one.absolute], rows))
    if compared:
        yield _compared(compared)


def notes(rows: Sequence[TrialRow], printed: Sequence[Printed]) -> list[str]:
    """What does not reproduce, and why as far as it is known: a sentence each."""
    failed = [each for each in beside(printed, rows) if not each.reproduced]
    return list(dict.fromkeys(each.printed.note or f"Not reproduced: {_name(each.printed)}." for each in failed))


def _fitting(
    experiment: Experiment,
    rows: Sequence[TrialRow],
    printed: Sequence[Printed],
    policies: Sequence[str],
    console: Console,
) -> Iterator[Table]:
    """One table of all policies, or several of some of them, if the console is not wide enough."""
    table = _means(experiment, rows, printed, policies)
    width = console.measure(table, options=console.options.update(width=_ANY_WIDTH)).maximum
    if width <= console.width or len(policies) == 1:
        yield table
    else:
        half = (len(policies) + 1) // 2
        for some in (policies[:half], policies[half:]):
            yield from _fitting(experiment, rows, printed, some, console)


def _means(
    experiment: Experiment, rows: Sequence[TrialRow], printed: Sequence[Printed], policies: Sequence[str]
) -> Table:
    values = _values(rows)
    cases, _ = _in_order(experiment, rows)
    known = {(one.case, one.policy): one.value for one in printed}
    shown = {policy for _, policy in known} & set(policies)
    seeds = len({row.seed for row in rows})
    drawn = new_table(f"{experiment.title}: {experiment.value}, {experiment.unit}")
    drawn.caption = f"means of {seeds} runs ± standard deviation" if seeds > 1 else "one run"
    drawn.add_column(experiment.by, no_wrap=True)
    for policy in policies:
        drawn.add_column(policy, justify="right", no_wrap=True)
        if policy in shown:
            drawn.add_column(PAPERS, justify="right", no_wrap=True, style="dim")
    for case in cases:
        cells = [case]
        for policy in policies:
            cells.append(_mean(values.get((case, policy), ())))
            if policy in shown:
                cells.append(figure(known[case, policy]) if (case, policy) in known else "")
        drawn.add_row(*cells)
    return drawn


def _values(rows: Sequence[TrialRow]) -> Mapping[tuple[str, str], Sequence[float]]:
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        values.setdefault((row.case, row.policy), []).append(row.value)
    return values


def _in_order(experiment: Experiment, rows: Sequence[TrialRow]) -> tuple[list[str], list[str]]:
    """The cases and the policies that there are, in the experiment's order."""
    cases, policies = {row.case for row in rows}, {row.policy for row in rows}
    return [case for case in experiment.cases if case in cases], [
        policy for policy in experiment.policies if policy in policies
    ]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{figure(fmean(values))} ± {figure(stdev(values))}" if len(values) > 1 else figure(values[0])


def figure(value: float) -> str:
    """Three digits, at least: 0.123, 1.23, 12.3, 1,234."""
    if abs(value) >= THREE_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _compared(compared: Sequence[Beside]) -> Table:
    drawn = new_table("What was printed, and what comes out here")
    # What does not fit into the screen goes on in the next line: a half of a claim says nothing.
    drawn.add_column("experiment", no_wrap=True)
    for column in ("case", "", "by"):
        drawn.add_column(column, overflow="fold")
    for column in ("printed", "here"):
        drawn.add_column(column, justify="right", overflow="fold")
    drawn.add_column("reproduced", justify="right", no_wrap=True)
    for each in compared:
        one = each.printed
        yes = "yes" if each.reproduced else "no"
        drawn.add_row(one.experiment, one.case, one.what(), one.by, *_both(each), yes)
    return drawn


def _both(each: Beside) -> tuple[str, str]:
    if isinstance(each.ours, float):
        return f"{each.printed.value:+.0f} %", f"{each.ours:+.1f} %"
    return "", " < ".join(each.ours) if not each.reproduced else ""


def _name(printed: Printed) -> str:
    return f"{printed.experiment}, {printed.case}: {printed.what()}"
