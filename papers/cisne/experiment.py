"""SDPN: how well each job's turnaround is predicted when it arrives (J. Ll. Lérida et al.).

Experiments: ``turnaround`` (Fig. 2, and Fig. 3 left), ``saturated`` (Fig. 3 right), ``parts`` and ``window`` (Fig. 4),
``cost`` (Table 1). The policies of the rows are who predicts; how the laboratory schedules is a part of the case.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import thread_time

from deskgrid.papers.base import AskedExperiments, Experiment, Paper, PaperTrial, TrialRow
from deskgrid.papers.cisne.predictors import PredictedSeconds, predictors
from deskgrid.papers.cisne.runs import Ended, LabRun, Setting, past
from deskgrid.papers.printed import table_of

NAMES = ("sdpn", "hanzich", "historical", "li", "smith")
SELECTIONS, PLACEMENTS = ("fcfs", "backfilling"), ("normal", "uniform")
COMBINATIONS = [f"{selection}/{placement}" for selection in SELECTIONS for placement in PLACEMENTS]
MPLS = (1, 2, 3, 4)
# The part of a turnaround that a deviation is of.
WAITING, EXECUTION = "waiting", "execution"
RUNS = 5

_FACTS, _ASSUMED = table_of("sdpn")["facts"], table_of("sdpn")["assumed"]


def _cases(*words: Sequence[object]) -> list[str]:
    """All combinations of a word of each, with slashes between."""
    cases = [""]
    for some in words:
        cases = [f"{case}/{word}" for case in cases for word in some]
    return [case[1:] for case in cases]


EXPERIMENTS = {
    "turnaround": Experiment(
        "Turnaround", "MPL/selection/placement", "mean deviation", "%", _cases(MPLS, COMBINATIONS), NAMES
    ),
    "saturated": Experiment(
        "Turnaround, links of half of the PCs saturated",
        "MPL/selection/placement",
        "mean deviation",
        "%",
        _cases(MPLS[-1:], COMBINATIONS),
        NAMES,
    ),
    "parts": Experiment(
        "Waiting and execution time at MPL 4",
        "part/selection/placement",
        "deviation",
        "%",
        _cases([WAITING, EXECUTION], COMBINATIONS),
        ("historical", "hanzich", "sdpn"),
    ),
    "window": Experiment(
        "What users do, measured for so many seconds, at MPL 4",
        "part/selection/placement",
        "deviation",
        "%",
        _cases([WAITING, EXECUTION], COMBINATIONS),
        [f"sdpn-{window}" for window in _FACTS["windows"]],
    ),
    "cost": Experiment("One prediction", "MPL", "mean processor time", "ms", ["4"], NAMES),
}


@dataclass(frozen=True, slots=True)
class LabTrial:
    """One run of the laboratory, in which everybody predicts each job."""

    setting: Setting
    seed: int
    asked: AskedExperiments

    def rows(self) -> Sequence[TrialRow]:
        """The rows of all experiments that are about such a run."""
        return [row for row in self._rows() if self.asked.wants(row.experiment, row.case, row.policy)]

    def _rows(self) -> Iterator[TrialRow]:
        # Slowly measured uses are other predictors, of the same run.
        windows = {_ASSUMED["window"], *(_FACTS["windows"] if self._wants("window") else ())}
        everybody = predictors(past(self.setting), self.setting.parallel())
        told: dict[tuple[str, float], list[PredictedSeconds]] = {}
        took: dict[str, list[float]] = {}

        def watch(run: LabRun, task: int) -> None:
            for window in sorted(windows):
                moment = run.moment(window)
                for predictor in everybody if window == _ASSUMED["window"] else everybody[:1]:
                    began = thread_time()
                    said = predictor.predict(moment)
                    took.setdefault(predictor.name, []).append(thread_time() - began)
                    told.setdefault((predictor.name, window), []).append(said)

        ended = LabRun(self.setting, f"run {self.seed}", watch).run()
        usual = {name: told[name, _ASSUMED["window"]] for name in NAMES}
        yield from self._deviations(ended, usual)
        if self.setting.mpl == MPLS[-1] and not self.setting.saturated:
            for window in windows:
                yield from self._parts("window", ended, {f"sdpn-{window}": told["sdpn", window]})
            yield from self._parts("parts", ended, {name: usual[name] for name in EXPERIMENTS["parts"].policies})
            for name, seconds in took.items():
                yield self._row("cost", "4", name, 1000.0 * fmean(seconds), "ms")

    @property
    def _case(self) -> str:
        return f"{self.setting.mpl}/{self._combination}"

    @property
    def _combination(self) -> str:
        return f"{self.setting.selection}/{self.setting.placement}"

    def _wants(self, experiment: str) -> bool:
        return experiment in self.asked.experiments

    def _deviations(self, ended: Sequence[Ended], told: Mapping[str, Sequence[PredictedSeconds]]) -> Iterator[TrialRow]:
        experiment = "saturated" if self.setting.saturated else "turnaround"
        for name, said in told.items():
            deviations = [
                abs(one.waits + one.runs - really.waited - really.ran) / (really.waited + really.ran)
                for one, really in zip(said, ended, strict=True)
            ]
            yield self._row(experiment, self._case, name, 100.0 * fmean(deviations), "%")

    def _parts(
        self, experiment: str, ended: Sequence[Ended], told: Mapping[str, Sequence[PredictedSeconds]]
    ) -> Iterator[TrialRow]:
        for name, said in told.items():
            pairs = list(zip(said, ended, strict=True))
            off = sum([abs(one.waits - really.waited) for one, really in pairs])
            if waited := sum([each.waited for each in ended]):
                yield self._row(experiment, f"{WAITING}/{self._combination}", name, 100.0 * off / waited, "%")
            off = sum([abs(one.runs - really.ran) for one, really in pairs])
            ran = sum([each.ran for each in ended])
            yield self._row(experiment, f"{EXECUTION}/{self._combination}", name, 100.0 * off / ran, "%")

    def _row(self, experiment: str, case: str, policy: str, value: float, unit: str) -> TrialRow:
        setting = self.setting
        lab = {"mpl": setting.mpl, "selection": setting.selection, "placement": setting.placement}
        return TrialRow("sdpn", experiment, case, policy, self.seed, value, unit, lab)


def trials(asked: AskedExperiments) -> list[PaperTrial]:
    """The runs that know what was asked for."""
    found: list[PaperTrial] = []
    for setting in _settings():
        about = {name: _about(name, setting) for name in EXPERIMENTS}
        wanted = [
            (name, case, who) for name, cases in about.items() for case in cases for who in EXPERIMENTS[name].policies
        ]
        if any(asked.wants(*each) for each in wanted):
            found += [LabTrial(setting, seed, asked) for seed in asked.seeds]
    return found


def _settings() -> Iterator[Setting]:
    for saturated, mpls in ((False, MPLS), (True, (4,))):
        for mpl in mpls:
            for selection in SELECTIONS:
                for placement in PLACEMENTS:
                    yield Setting(mpl, selection, placement, saturated)


def _about(experiment: str, setting: Setting) -> list[str]:
    """The cases of an experiment that a run in this setting knows."""
    combination = f"{setting.selection}/{setting.placement}"
    if setting.saturated != (experiment == "saturated"):
        return []
    if experiment in ("parts", "window"):
        return [f"{part}/{combination}" for part in (WAITING, EXECUTION) if setting.mpl == MPLS[-1]]
    case = str(setting.mpl) if experiment == "cost" else f"{setting.mpl}/{combination}"
    return [case] if case in EXPERIMENTS[experiment].cases else []


PAPER = Paper("sdpn", "SDPN in a virtual laboratory", EXPERIMENTS, trials, RUNS)
