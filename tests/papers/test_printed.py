"""What was printed beside what comes out: means, differences and orders, and what is said if they disagree."""

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from deskgrid.papers import PAPERS, paper_named
from deskgrid.papers.base import AskedExperiments, Experiment, Paper, TrialRow
from deskgrid.papers.printed import Printed, beside, printed_in, table_of
from deskgrid.papers.report import figure, notes, tables


def rows(**means: float) -> list[TrialRow]:
    """Two runs of each policy, one above and one below its mean."""
    return [
        TrialRow("p", "load", "0.5", policy, seed, mean + (0.5 if seed else -0.5), "s")
        for policy, mean in means.items()
        for seed in (0, 1)
    ]


MEASURED = rows(a=10.0, b=20.0, c=40.0)


def ours(printed: Printed) -> tuple[object, bool]:
    (found,) = beside([printed], MEASURED)
    return found.ours, found.reproduced


def test_a_mean_is_reproduced_within_percent() -> None:
    assert ours(Printed("load", "0.5", "a", 10.9)) == (10.0, True)
    assert ours(Printed("load", "0.5", "a", 11.2)) == (10.0, False)
    assert ours(Printed("load", "0.5", "a", 11.2, within=20.0)) == (10.0, True)


def test_a_difference_is_reproduced_within_percentage_points() -> None:
    assert ours(Printed("load", "0.5", "a", -55.0, against=("b",))) == (-50.0, True)
    assert ours(Printed("load", "0.5", "a", -65.0, against=("b",))) == (-50.0, False)
    assert ours(Printed("load", "0.5", "a", -50.0, against=("c", "b"))) == (-50.0, True)  # the best of the others


def test_an_order_is_reproduced_or_not() -> None:
    assert ours(Printed("load", "0.5", order=("a", "b", "c"))) == (["a", "b", "c"], True)
    assert ours(Printed("load", "0.5", order=("b", "a"))) == (["a", "b"], False)


def test_what_was_not_measured_is_not_compared() -> None:
    assert not list(beside([Printed("load", "0.5", "a", 1.0, against=("d",))], MEASURED))
    assert not list(beside([Printed("load", "0.7", "a", 1.0)], MEASURED))


PAPER = Paper(
    "p",
    "A paper",
    {
        "load": Experiment("By load", "load", "mean", "s", ["0.5", "0.7"], ["a", "b", "c"]),
        "other": Experiment("Other", "case", "mean", "s", ["x"], ["a"]),
    },
    lambda asked: [],
    runs=2,
)


def shown(printed: Sequence[Printed], measured: Sequence[TrialRow] = MEASURED, width: int = 120) -> str:
    console = Console(width=width, file=StringIO())
    with console.capture() as captured:
        for table in tables(PAPER, measured, printed, console):
            console.print(table)
    return captured.get()


def test_the_table_has_means_and_deviations_and_the_papers_means_beside_them() -> None:
    text = shown([Printed("load", "0.5", "b", 21.5)])
    assert "By load: mean, s" in text
    assert "10.0 ± 0.707" in text
    assert "20.0 ± 0.707   21.5" in text
    assert "means of 2 runs" in text
    assert "Other" not in text
    assert "What was printed" not in text


def test_a_narrow_screen_cuts_no_claim() -> None:
    text = shown([Printed("load", "0.5", order=("c", "b", "a"))], width=60)
    assert "What was printed" in text
    assert "…" not in text
    assert text.count("reproduced") == 1


def test_a_table_that_is_too_wide_is_cut_between_policies_and_not_in_a_figure() -> None:
    text = shown([], width=40)
    assert text.count("By load") == 2
    assert [text.count(mean) for mean in ("10.0 ± 0.707", "20.0 ± 0.707", "40.0 ± 0.707")] == [1, 1, 1]
    assert shown([], width=24).count("By load") == 3


def test_one_run_has_no_deviation() -> None:
    text = shown(
        [], [TrialRow("p", "load", "0.7", "a", 3, 1.25, "s"), TrialRow("p", "load", "0.5", "b", 3, 123.4, "s")]
    )
    assert "1.25" in text
    assert "123" in text
    assert "±" not in text
    assert "one run" in text


def test_differences_and_orders_have_a_table_of_their_own() -> None:
    text = shown(
        [
            Printed("load", "0.5", "a", -55.0, against=("b",)),
            Printed("load", "0.5", "a", -10.0, against=("b", "c"), by="somebody"),
            Printed("load", "0.5", order=("b", "a")),
        ]
    )
    assert "a to b" in text
    assert "-55 %" in text
    assert "-50.0 %" in text
    assert "a to the best of the others" in text
    assert "somebody" in text
    assert "b < a" in text
    assert "a < b" in text
    assert text.count("yes") == 1


def test_what_is_not_reproduced_is_said_once() -> None:
    said = "It is not so."
    printed = [
        Printed("load", "0.5", order=("b", "a"), note=said),
        Printed("load", "0.5", order=("c", "a"), note=said),
        Printed("load", "0.5", "c", 1.0),
        Printed("load", "0.5", "a", 10.0, note="never said"),
    ]
    assert notes(MEASURED, printed) == [said, "Not reproduced: load, 0.5: c."]


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (-1.234, "-1.23"), (12.34, "12.3"), (1234.5, "1,234"), (100.0, "100")]
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize("name", PAPERS)
def test_each_paper_has_a_file_that_speaks_of_its_own_experiments(name: str) -> None:
    paper = paper_named(name)
    assert paper.name == name
    assert paper.runs >= 1
    assert table_of(name)["assumed"]
    assert printed_in(name)
    for one in printed_in(name):
        experiment = paper.experiments[one.experiment]
        assert any(f"{case}/".startswith(f"{one.case}/") for case in experiment.cases)
        assert {*one.policies} <= {*experiment.policies}


@pytest.mark.parametrize("name", PAPERS)
def test_each_paper_makes_trials_for_each_of_its_experiments(name: str) -> None:
    paper = paper_named(name)
    for experiment in paper.experiments:
        assert paper.trials(AskedExperiments([experiment], [], [], [0]))


def test_the_beginning_of_a_case_stands_for_all_that_begin_so() -> None:
    asked = AskedExperiments(["load"], ["A1/0.7"], ["a"], [0])
    assert asked.wants("load", "A1/0.7/0.1", "a")
    assert asked.wants("load", "A1/0.7", "a")
    assert not asked.wants("load", "A1/0.75", "a")
    assert not asked.wants("load", "A1", "a")
    assert not asked.wants("load", "A1/0.7", "b")
    assert not asked.wants("other", "A1/0.7", "a")
