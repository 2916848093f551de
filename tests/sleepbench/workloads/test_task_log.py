"""Logs of what tasks took: CSV files, and jobs in the Standard Workload Format. All files are made here."""

import gzip
from pathlib import Path

import pytest

from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.task_log import LoggedTask, read_csv, read_job_log


def csv_file(folder: Path, text: str, name: str = "tasks.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_rows_of_a_bag_are_a_stream_in_their_order(tmp_path: Path) -> None:
    log = read_csv(csv_file(tmp_path, "bag,function,seconds,angle\na,f,1.5,7\nb,g,2,8\na,f,0,9\n"))
    assert log.streams == (
        (LoggedTask("a", "f", "", 1.5), LoggedTask("a", "f", "", 0.0)),
        (LoggedTask("b", "g", "", 2.0),),
    )
    assert log.title == "3 tasks of tasks.csv, bag after bag"


def test_a_program_and_a_request_are_read_if_they_are_there(tmp_path: Path) -> None:
    text = "requested,program,bag,function,seconds\n60,p,a,f,1\n,p,a,f,1\n-1,p,a,f,1\n"
    (stream,) = read_csv(csv_file(tmp_path, text)).streams
    assert stream[0] == LoggedTask("a", "f", "p", 1.0, 60.0)
    assert [task.requested for task in stream] == [60.0, None, None]


def test_a_gzipped_file_is_read_and_so_is_a_table_of_workflow_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv.gz"
    text = 'instance,app,program,args,runtime_s\nblast-1,blast,split,"a, b",2.5\nblast-2,blast,split,,3\n'
    path.write_bytes(gzip.compress(text.encode()))
    assert read_csv(path).streams == (
        (LoggedTask("blast-1 split", "split", "blast", 2.5),),
        (LoggedTask("blast-2 split", "split", "blast", 3.0),),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no columns bag, function and seconds in its first line"),
        ("bag,seconds\na,1\n", "has no columns bag, function and seconds"),
        ("bag,function,seconds\n", "has no tasks"),
        ("bag,function,seconds\na,f,1\na,f,soon\n", "line 3: the number of seconds is not a number: 'soon'"),
        ("bag,function,seconds\na,f,nan\n", "line 2: the number of seconds is not a number: 'nan'"),
        ("bag,function,seconds\na,f,-1\n", "line 2: no task takes -1 seconds"),
        ("bag,function,seconds\na\n", "line 2: the number of seconds is not a number: ''"),
        ("bag,function,seconds,requested\na,f,1,x\n", "line 2: the requested time is not a number: 'x'"),
        ("bag,function,seconds\n" + "a" * 200_000 + ",f,1\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_log_is_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        read_csv(csv_file(tmp_path, text))
    assert reason in str(refused.value)


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    for path in (csv_file(tmp_path, "no gzip", "tasks.csv.gz"), tmp_path / "missing.csv"):
        with pytest.raises(WorkloadError, match="cannot be read"):
            read_csv(path)


JOB = "{number} 0 5 {seconds} {processors} -1 -1 8 {requested} -1 1 {user} 1 -1 3 -1 -1 -1"


def jobs_file(folder: Path, *jobs: str) -> Path:
    return csv_file(folder, "\n".join(["; Computer: none", *jobs]), "log.swf")


def job(seconds: object, user: int = 1, processors: int = 1, requested: int = 600) -> str:
    return JOB.format(number=1, seconds=seconds, processors=processors, requested=requested, user=user)


def test_the_jobs_of_a_user_with_the_same_request_are_a_bag(tmp_path: Path) -> None:
    log = read_job_log(jobs_file(tmp_path, job(5), job(6), job(7, processors=4), job(8, user=2, requested=-1), job(0)))
    (stream,) = log.streams
    assert [task.seconds for task in stream] == [5.0, 6.0, 7.0, 8.0]
    assert stream[0].bag == stream[1].bag == "user 1, 1 processors, 600 s"
    assert len({task.bag for task in stream}) == 3
    assert [task.requested for task in stream] == [600.0, 600.0, 600.0, None]
    assert stream[3].program == "user 2"
    assert log.notes == ("jobs left out, run time unknown or 0: 1",)


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ([job(-1)], "has no job that ran"),
        ([job("x")], "line 2: the run time is not a number"),
        (["1 2 3"], "line 2: a job has 18 fields, but this one has 3"),
    ],
)
def test_a_job_log_without_jobs_or_with_other_lines_is_refused(tmp_path: Path, jobs: list[str], reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason):
        read_job_log(jobs_file(tmp_path, *jobs))
