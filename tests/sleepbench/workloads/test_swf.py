"""Logs in the Standard Workload Format: which jobs become tasks, and what is said of the others."""

import gzip
from pathlib import Path

import pytest

from deskgrid.sleepbench.workloads.source import Jobs, WorkloadError
from deskgrid.sleepbench.workloads.swf import PROCESSORS_MOST, JobSelection, read_swf
from tests.sleepbench.workloads.files import job, log

HEADER = ["; Computer: IBM SP2", ";Installation: SDSC", ";   MaxProcs: 128", "; a comment without meaning", ";", ""]


def read(folder: Path, *lines: str, taken: JobSelection | None = None, lenient: bool = False) -> Jobs:
    """What a log of these lines gives."""
    return read_swf(log(folder, lines), taken or JobSelection(), lenient)


def bags(jobs: Jobs) -> list[tuple[float, list[float], list[float]]]:
    """When each bag comes, its predictions and its run times."""
    return [(bag.at, list(bag.runtimes), list(bag.actual or ())) for bag in jobs.arrivals]


def test_the_run_times_of_serial_jobs_are_one_bag_at_the_start(tmp_path: Path) -> None:
    jobs = read(tmp_path, *HEADER, job(1, submit=100, run=60, requested=3600), job(2, submit=200, run=2.5))
    assert bags(jobs) == [(0.0, [60.0, 2.5], [60.0, 2.5])]
    assert jobs.tasks == 2
    assert jobs.notes == ()


def test_the_title_names_file_and_system(tmp_path: Path) -> None:
    assert read(tmp_path, *HEADER, job()).title == "1 jobs of some.swf, SDSC, IBM SP2, 128 processors"
    assert read(tmp_path, job()).title == "1 jobs of some.swf"


def test_what_the_top_says_of_the_system_is_not_overruled_further_down(tmp_path: Path) -> None:
    assert read(tmp_path, *HEADER, job(), "; MaxProcs: 256", job()).title.endswith("128 processors")


def test_parallel_jobs_are_left_out_and_counted(tmp_path: Path) -> None:
    jobs = read(tmp_path, job(run=10, processors=4), job(run=20), job(run=30, processors=2))
    assert bags(jobs) == [(0.0, [20.0], [20.0])]
    assert jobs.notes == ("jobs left out, parallel: 2",)


def test_or_each_processor_of_theirs_is_a_task(tmp_path: Path) -> None:
    jobs = read(tmp_path, job(run=10, processors=3), job(run=20), taken=JobSelection(each="processor"))
    assert bags(jobs) == [(0.0, [10.0, 10.0, 10.0, 20.0], [10.0, 10.0, 10.0, 20.0])]
    assert jobs.notes == ()


@pytest.mark.parametrize("each", ["job", "processor"])
def test_jobs_that_never_ran_or_on_nothing_are_left_out_and_counted(tmp_path: Path, each: str) -> None:
    lines = [job(run=-1), job(run=0), job(run=0, processors=-1), job(processors=-1), job(processors=0), job(run=7)]
    jobs = read(tmp_path, *lines, taken=JobSelection(each="job" if each == "job" else "processor"))
    assert bags(jobs) == [(0.0, [7.0], [7.0])]
    assert jobs.notes == ("jobs left out, run time unknown or 0: 3", "jobs left out, processors unknown or 0: 2")


def test_requested_times_are_the_predictions_when_asked_where_there_are_any(tmp_path: Path) -> None:
    lines = [job(run=60, requested=3600), job(run=90, requested=-1), job(run=80, requested=40), job(run=5, requested=0)]
    jobs = read(tmp_path, *lines, taken=JobSelection(requested=True))
    assert bags(jobs) == [(0.0, [3600.0, 90.0, 40.0, 5.0], [60.0, 90.0, 80.0, 5.0])]
    assert jobs.notes == ("jobs without a requested time, predicted by their run time: 2",)


def test_jobs_arrive_when_they_were_submitted_counted_from_the_first_that_is_taken(tmp_path: Path) -> None:
    lines = [
        job(submit=0, run=-1),
        job(submit=100, run=1),
        job(submit=160, run=2, processors=2),
        job(submit=130, run=3),
    ]
    jobs = read(tmp_path, *lines, taken=JobSelection(arrivals=True, each="processor"))
    assert bags(jobs) == [(0.0, [1.0], [1.0]), (30.0, [3.0], [3.0]), (60.0, [2.0, 2.0], [2.0, 2.0])]


def test_a_job_whose_submission_is_unknown_does_not_arrive(tmp_path: Path) -> None:
    jobs = read(tmp_path, job(submit=-1, run=1), job(submit=9, run=2), taken=JobSelection(arrivals=True))
    assert bags(jobs) == [(0.0, [2.0], [2.0])]
    assert jobs.notes == ("jobs left out, submit time unknown: 1",)
    assert read(tmp_path, job(submit=-1, run=1), job(submit=9, run=2)).tasks == 2


def test_the_first_jobs_that_are_of_use_are_taken_and_nothing_after_them_is_read(tmp_path: Path) -> None:
    lines = [job(run=1), job(run=-1), job(run=2, processors=8), job(run=3), "this line is malformed"]
    jobs = read(tmp_path, *lines, taken=JobSelection(jobs=2))
    assert bags(jobs) == [(0.0, [1.0, 3.0], [1.0, 3.0])]
    assert jobs.notes == ("jobs left out, run time unknown or 0: 1", "jobs left out, parallel: 1")
    with pytest.raises(WorkloadError, match="line 5"):
        read(tmp_path, *lines, taken=JobSelection(jobs=3))


def test_a_log_with_fewer_jobs_than_asked_for_gives_them_all(tmp_path: Path) -> None:
    assert read(tmp_path, job(), job(), taken=JobSelection(jobs=1000)).tasks == 2


def test_bytes_that_are_no_text_do_not_matter_in_a_comment_nor_does_a_mark_at_the_top(tmp_path: Path) -> None:
    path = tmp_path / "some.swf"
    path.write_bytes(b"\xef\xbb\xbf; Computer: \xe9\n" + job(run=42).encode())
    assert bags(read_swf(path, JobSelection())) == [(0.0, [42.0], [42.0])]


def test_a_gzipped_log_is_read_too(tmp_path: Path) -> None:
    path = log(tmp_path, [*HEADER, job(run=42)], "some.swf.gz")
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert bags(read_swf(path, JobSelection())) == [(0.0, [42.0], [42.0])]


def test_only_as_much_of_a_gzipped_log_is_unpacked_as_is_needed(tmp_path: Path) -> None:
    path = log(tmp_path, [job(number, run=number) for number in range(1, 60_000)], "long.swf.gz")
    path.write_bytes(path.read_bytes()[:-20_000])
    assert read_swf(path, JobSelection(jobs=1000)).tasks == 1000
    with pytest.raises(WorkloadError, match=r"long\.swf\.gz cannot be read"):
        read_swf(path, JobSelection())


MALFORMED = [
    ("1 2 3", "18 fields, but this one has 3"),
    (job() + " 0", "18 fields, but this one has 19"),
    (job().replace(" 60 ", " sixty "), "run time is not a number: 'sixty'"),
    (job().replace(" 60 ", " nan "), "run time is not a number"),
    (job().replace(" 60 ", " 1_000 "), "run time is not a number"),
    (job().replace(" 60 ", " \uff16\uff10 "), "run time is not a number"),
    (job(run=1e300), "run time is out of bounds"),
    (job(submit=-1.1e12), "submit time is out of bounds"),
    (job().replace(" 60 ", " 1e999 "), "run time is out of bounds"),
    (job().replace("1 0 ", "1 soon "), "submit time is not a number"),
    (job(processors=1.5), "processors is not a whole number: 1.5"),
    (job(processors=PROCESSORS_MOST + 1), "no machine has 10,000,001 processors"),
    (job().replace(" 64 -1 ", " 64 ? "), "requested time is not a number"),
]


@pytest.mark.parametrize(("line", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
def test_a_malformed_line_is_an_error_with_file_and_number(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read(tmp_path, *HEADER, job(), line, job())
    assert str(error.value).startswith(f"{tmp_path / 'some.swf'}, line {len(HEADER) + 2}: ")
    assert why in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("line", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
def test_or_it_is_skipped_and_counted(tmp_path: Path, line: str, why: str) -> None:
    jobs = read(tmp_path, line, job(run=1), line, job(run=2), lenient=True)
    assert bags(jobs) == [(0.0, [1.0, 2.0], [1.0, 2.0])]
    assert jobs.notes == ("malformed lines of some.swf skipped: 2",)


def test_a_log_without_a_job_of_use_is_an_error_that_says_what_it_had(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"some\.swf has no job to run; jobs left out, parallel: 2$"):
        read(tmp_path, job(processors=2), job(processors=2))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "no.swf.gz").write_text(job())
    (tmp_path / "half.swf.gz").write_bytes(gzip.compress(job().encode() * 99)[:-12])
    for path in (tmp_path, tmp_path / "none.swf", tmp_path / "no.swf.gz", tmp_path / "half.swf.gz"):
        with pytest.raises(WorkloadError, match="cannot be read"):
            read_swf(path, JobSelection())
