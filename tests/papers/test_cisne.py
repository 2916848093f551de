"""The virtual laboratory, and those who predict turnarounds in it."""

from collections.abc import Sequence
from itertools import islice
from statistics import fmean

import pytest

from deskgrid.papers.cisne.ahead import LookAhead, Model, Moment, SeenJob
from deskgrid.papers.cisne.jobs import Kind, LabJob, drawn_jobs
from deskgrid.papers.cisne.lab import Use, Users, slowdowns
from deskgrid.papers.cisne.predictors import (
    EndedJob,
    Historical,
    Multiprogramming,
    SimilarJobs,
    Slowdowns,
    by_distance,
    by_templates,
)
from deskgrid.papers.cisne.runs import Setting
from deskgrid.scheduler.policies import make_policy

NAMES = ["pc01", "pc02", "pc03", "pc04"]
IDLE = Use(0.0, 0.0)


def job(size: int = 2, computes: float = 100.0, communicates: float = 0.0, link: float = 0.5) -> LabJob:
    return LabJob(Kind("BT", "A", size), 0.0, computes, communicates, (computes, communicates), link)


def slow(jobs: Sequence[LabJob], places: Sequence[Sequence[str]], uses: dict[str, Use] | None = None) -> list[float]:
    """How many times as long each takes as alone."""
    known = dict.fromkeys(NAMES, IDLE) | (uses or {})
    where = [[(name, 1) for name in names] for names in places]
    found = slowdowns(jobs, where, known)
    return [
        (job.really[0] * both[0] + job.really[1] * both[1]) / job.seconds for job, both in zip(jobs, found, strict=True)
    ]


def test_a_job_alone_on_idle_pcs_is_not_slowed_down() -> None:
    assert slow([job(communicates=50.0)], [["pc01", "pc02"]]) == [1.0]


def test_the_busiest_of_its_pcs_slows_a_job_down() -> None:
    uses = {"pc01": Use(0.5, 0.0), "pc02": Use(0.2, 0.0)}
    assert slow([job()], [["pc01", "pc02"]], uses) == [pytest.approx(2.0)]


def test_two_that_compute_slow_each_other_down_and_one_that_communicates_hardly_does() -> None:
    both = [["pc01", "pc02"], ["pc02", "pc03"]]
    assert slow([job(), job()], both) == [pytest.approx(2.0)] * 2
    mostly = job(computes=10.0, communicates=90.0, link=0.3)
    computing, communicating = slow([job(), mostly], both)
    assert 1.0 < computing < 1.3
    assert 1.0 < communicating < 1.3


def test_a_saturated_link_slows_down_what_communicates() -> None:
    saturated = {"pc01": Use(0.0, 1.0)}
    assert slow([job()], [["pc01", "pc02"]], saturated) == [1.0]
    assert slow([job(computes=50.0, communicates=50.0)], [["pc01", "pc02"]], saturated) == [pytest.approx(1.25)]


def test_users_use_what_the_paper_says_on_the_average() -> None:
    users = Users([f"pc{number}" for number in range(16)], saturated=True, seed="x")
    changes = list(islice(users.changes(), 4000))
    assert [at for at, _, _ in changes] == sorted(at for at, _, _ in changes)
    assert fmean([cpu for _, _, cpu in changes]) == pytest.approx(0.15, rel=0.05)
    last = changes[-1][0]
    links = {name: users.mean(name, last, last).link for name in ("pc0", "pc1")}
    assert links["pc0"] == 0.0
    assert links["pc1"] == pytest.approx(1.0, rel=0.1)


def test_a_long_window_knows_more_than_a_sample() -> None:
    users = Users(NAMES, saturated=False, seed="x")
    list(islice(users.changes(), 400))

    def off(window: float) -> float:
        return fmean([abs(users.mean(name, 977.0, window).cpu - users.now(name, 977.0).cpu) for name in NAMES])

    assert off(120.0) < off(1.0)


def test_the_jobs_are_those_of_the_paper_and_computing_and_communicating_are_in_balance() -> None:
    jobs = drawn_jobs("x")
    assert len(jobs) == 90
    assert {job.kind.size for job in jobs} == {2, 4, 8}
    assert drawn_jobs("x") == jobs != drawn_jobs("y")
    every = [job for seed in range(20) for job in drawn_jobs(str(seed))]
    assert 0.35 < fmean([job.cpu for job in every]) < 0.65


# --- predictions -----------------------------------------------------------------------------------------------------


def moment(running: Sequence[SeenJob], *waiting: LabJob, mpl: int = 1, uses: Sequence[Use] = (IDLE,) * 4) -> Moment:
    return Moment(100.0, mpl, uses, running, list(enumerate(waiting, start=10)))


def play(now: Moment, model: Model, policy: str = "cisne-normal") -> tuple[float, float]:
    """The prediction for the last of those that wait."""
    parallel = make_policy(policy, mpl=now.mpl).parallel  # type: ignore[attr-defined]
    return LookAhead(now, parallel, model).play(now.waiting[-1][0])


def seen(size: int = 4, left: float = 0.5, computes: float = 100.0) -> SeenJob:
    return SeenJob(job(size, computes), 1, [(number, 1) for number in range(size)], 50.0, left)


@pytest.mark.parametrize("model", [Slowdowns, Multiprogramming])
def test_a_job_waits_for_what_is_left_of_another(model: type[Slowdowns]) -> None:
    assert play(moment([seen()], job()), model()) == pytest.approx((50.0, 100.0))


def test_sdpn_counts_what_users_do_and_hanzich_does_not() -> None:
    busy = [Use(0.5, 0.0)] * 4
    assert play(moment([], job(), uses=busy), Slowdowns()) == pytest.approx((0.0, 200.0))
    assert play(moment([], job(), uses=busy), Multiprogramming()) == pytest.approx((0.0, 100.0))


def test_sdpn_tells_computing_from_communicating_and_hanzich_does_not() -> None:
    other = SeenJob(job(4, 20.0, 80.0, 0.2), 1, [(number, 1) for number in range(4)], 50.0, 1.0)
    assert play(moment([other], job(4), mpl=2), Multiprogramming())[1] == pytest.approx(200.0)
    assert 120.0 < play(moment([other], job(4), mpl=2), Slowdowns())[1] < 130.0


def test_backfilling_is_played_if_the_laboratory_backfills() -> None:
    now = moment([seen(2)], job(4), job(2, 40.0))
    assert play(now, Slowdowns())[0] == pytest.approx(150.0)
    assert play(now, Slowdowns(), "cisne-normal-easy") == pytest.approx((0.0, 40.0))


PAST = [
    EndedJob(Kind("BT", "A", 2), 0, 0.0, 100.0),
    EndedJob(Kind("BT", "A", 2), 8, 40.0, 120.0),
    EndedJob(Kind("BT", "B", 2), 0, 10.0, 400.0),
    EndedJob(Kind("IS", "A", 2), 0, 10.0, 30.0),
    EndedJob(Kind("IS", "A", 8), 0, 10.0, 10.0),
    EndedJob(Kind("IS", "A", 8), 4, 10.0, 20.0),
]


def test_smith_takes_the_template_whose_mean_is_known_best() -> None:
    similar = by_templates(PAST, 0.9)
    assert similar(Kind("BT", "A", 2)) == pytest.approx(110.0)
    assert similar(Kind("IS", "B", 8)) == pytest.approx(15.0)


def test_li_weighs_jobs_by_how_similar_they_are() -> None:
    similar = by_distance(PAST, 0.2)
    assert similar(Kind("BT", "A", 2)) == pytest.approx(110.0, rel=1e-3)
    assert 10.0 < by_distance(PAST, 5.0)(Kind("BT", "A", 2)) < 400.0


def test_what_has_run_for_longer_than_others_did_has_a_little_left() -> None:
    model = SimilarJobs(lambda kind: 100.0)
    assert model.left(seen(), 80.0) == pytest.approx(0.7)
    assert model.left(seen(), 500.0) == 0.05


def test_historical_looks_for_jobs_like_this_one_when_as_much_was_running() -> None:
    at = moment([seen(4)], LabJob(Kind("BT", "A", 2), 0.0, 1.0, 0.0, (1.0, 0.0), 0.1), mpl=2)
    assert Historical(PAST, 1).predict(at) == (0.0, 100.0)
    assert Historical(PAST, 2).predict(at) == (20.0, 110.0)


def test_a_setting_names_its_policy() -> None:
    assert Setting(4, "backfilling", "uniform").policy().name == "cisne-uniform-easy"
    assert Setting(1, "fcfs", "normal").policy().name == "cisne-normal"
