"""Choose the picture for simulated trials: by scenario, against an error, or one run slot by slot."""

from collections.abc import Sequence
from textwrap import fill

from matplotlib.figure import Figure

from deskgrid.sleepbench.pictures.bars import figure2
from deskgrid.sleepbench.pictures.gantt import gantt
from deskgrid.sleepbench.pictures.means import called
from deskgrid.sleepbench.pictures.perturbation import against_error
from deskgrid.sleepbench.scenarios import MINUTE_S, Row
from deskgrid.sleepbench.simulated import ERRORS, Trial, simulate

# How many characters fit into a line above the picture.
TITLE_MOST = 105


def plot_of(made: Sequence[tuple[Trial, Row]]) -> Figure:
    """Makespans by scenario; if there are several error factors, makespans against these factors.

    If both errors have several factors, it takes those of the runtimes. That is not one picture, so callers have to
    refuse it.
    """
    for what, factor_of in ERRORS.items():
        factors = {factor_of(trial) for trial, _ in made}
        if len(factors) > 1:
            return against_error({f: [row for trial, row in made if factor_of(trial) == f] for f in factors}, what)
    return figure2(row for _, row in made)


def gantt_of(trial: Trial) -> Figure:
    """Repeat the run with a trace, on the clock of the problem, and draw it; raises `Stalled`."""
    run = simulate(trial, trace=True)
    known = [called(trial.problem.name), trial.policy, f"run {trial.run} (seed {trial.seed})"]
    known += [f"every time multiplied by {trial.problem.scale:g}"] if trial.problem.scale != 1.0 else []
    known += [f"F = {of(trial):g} of {what}" for what, of in ERRORS.items() if of(trial) != 1.0]
    came_to = f"{run.makespan_s / MINUTE_S:.2f} minutes, {run.counters.kills} killed"
    return gantt(run, trial.problem.pcs, fill(f"{', '.join(known)}: {came_to}", TITLE_MOST))
