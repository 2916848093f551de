"""The pictures of the papers on parallel tasks."""

import pytest
from matplotlib.container import BarContainer

from deskgrid.papers import paper_named
from deskgrid.papers.base import TrialRow
from deskgrid.papers.picture import figure_of


@pytest.mark.parametrize(("values", "drawn"), [([21.0], False), ([21.0, 25.0], True)])
def test_only_several_runs_have_error_bars(values: list[float], drawn: bool) -> None:
    rows = [
        TrialRow("sdpn", "turnaround", "4/fcfs/uniform", "sdpn", seed, value, "%") for seed, value in enumerate(values)
    ]
    (axes,) = figure_of(paper_named("sdpn"), rows).axes
    (bars,) = [each for each in axes.containers if isinstance(each, BarContainer)]
    assert (bars.errorbar is not None) == drawn
