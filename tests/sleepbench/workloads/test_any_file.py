"""Whatever is in a file, reading it gives jobs or PCs or raises the one error."""

import gzip
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from deskgrid.sleepbench.workloads.fta import read_fta
from deskgrid.sleepbench.workloads.source import Jobs, Lab, WorkloadError
from deskgrid.sleepbench.workloads.swf import Each, JobSelection, read_swf

EACH: list[Each] = ["job", "processor"]
takings = st.builds(JobSelection, st.none() | st.integers(1, 9), st.sampled_from(EACH), st.booleans(), st.booleans())
# Numbers as they should be, near their bounds, and what only looks like a number. Few processors: each is a task.
numbers = st.one_of(
    st.integers(-2, 300).map(str),
    st.floats(-1e13, 1e13).map(repr),
    st.sampled_from(
        ["NULL", "-1", "0", "1e12", "1e400", "-1e12", "1e-300", "nan", "inf", "0x10", "1_0", "\u0661", "", "1.", "."]
    ),
)
few = st.one_of(st.integers(-2, 50).map(str), st.sampled_from(["1.5", "1e12", "NULL", "one"]))
swf_line = st.tuples(*[few if place == 4 else numbers for place in range(18)]).map(" ".join)
event_line = st.tuples(*[few if place in {2, 3, 5} else numbers for place in range(9)]).map("\t".join)
swf_of_use = st.tuples(st.integers(0, 10**6), st.floats(0.001, 1e6), st.integers(-1, 10**6)).map(
    lambda drawn: f"1 {drawn[0]} 0 {drawn[1]!r} 1 -1 -1 1 {drawn[2]} -1 1 1 1 -1 -1 -1 -1 -1"
)
plain_event = st.tuples(st.integers(0, 5).map(str), st.sampled_from("01"), st.integers(0, 99), st.integers(0, 99)).map(
    lambda drawn: "\t".join(["0", "0", drawn[0], "1", "pc", drawn[1], str(drawn[2]), str(drawn[2] + drawn[3]), "NULL"])
)
node_line = st.lists(few, min_size=8, max_size=16).map("\t".join)
junk = st.one_of(
    st.text(max_size=80), st.sampled_from(["; MaxProcs: 128", "# comment", ";", ":", "\t\t\t\t\t\t\t\t\t"])
)


def document(line: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """A file of such lines, some junk between them; or of any bytes."""
    lines = st.lists(st.one_of(line, line, junk), max_size=12).map(
        lambda found: "\n".join(found).encode("utf-8", "replace")
    )
    return st.one_of(lines, lines, st.binary(max_size=200))


@contextmanager
def folder(**tables: bytes) -> Iterator[Path]:
    """A folder of these files; hypothesis calls a test often, so pytest's own will not do."""
    with TemporaryDirectory() as name:
        for table, data in tables.items():
            (Path(name) / table.replace("__", ".")).write_bytes(data)
        yield Path(name)


def check_jobs(jobs: Jobs) -> None:
    """Every task has a time that can be, and time begins at 0."""
    assert jobs.tasks > 0
    assert min(arrival.at for arrival in jobs.arrivals) == 0.0
    for arrival in jobs.arrivals:
        assert all(0.0 < seconds < math.inf for seconds in [*arrival.runtimes, *(arrival.actual or ())])


def check_lab(lab: Lab) -> None:
    """Every PC has windows, in order."""
    assert len({pc.name for pc in lab.pcs}) == len(lab.pcs) > 0
    for pc in lab.pcs:
        windows = list(pc.timetable())
        assert windows
        assert pc.slots >= 1
        assert all(0.0 <= span.opens < span.closes for span in windows)
        assert all(span.closes < after.opens for span, after in pairwise(windows))


def given_or_refused(read: Callable[[], Jobs | Lab]) -> Jobs | Lab | str:
    """What is read, or the one line of the one error; any other is the test's failure."""
    try:
        return read()
    except WorkloadError as error:
        return str(error)


def check(found: Jobs | Lab | str) -> None:
    """It is what it should be."""
    if isinstance(found, str):
        assert "\n" not in found
    elif isinstance(found, Jobs):
        check_jobs(found)
    else:
        check_lab(found)


@given(document(swf_line), st.booleans(), takings)
def test_any_log_is_jobs_or_the_one_error(data: bytes, lenient: bool, taken: JobSelection) -> None:
    with folder(a__swf=data, b__swf__gz=gzip.compress(data), c__swf__gz=data) as files:
        for path in sorted(files.iterdir()):
            check(given_or_refused(partial(read_swf, path, taken, lenient)))


@given(document(st.one_of(event_line, plain_event)), document(node_line), document(node_line), st.booleans())
def test_any_trace_is_pcs_or_the_one_error(events: bytes, nodes: bytes, platforms: bytes, lenient: bool) -> None:
    with folder(event_trace__tab=events, node__tab=nodes, platform__tab=platforms) as data_set:
        check(given_or_refused(lambda: read_fta(data_set, lenient=lenient)))


@given(st.lists(swf_of_use, min_size=1, max_size=20), takings)
def test_any_log_of_jobs_of_use_is_jobs(lines: list[str], taken: JobSelection) -> None:
    with folder(a__swf="\n".join(lines).encode()) as files:
        check_jobs(read_swf(files / "a.swf", taken))


@given(st.lists(plain_event, min_size=1, max_size=30))
def test_any_well_formed_trace_is_pcs_or_has_none(events: list[str]) -> None:
    with folder(event_trace__tab="\n".join(events).encode()) as data_set:
        found = given_or_refused(lambda: read_fta(data_set))
    if isinstance(found, str):
        assert "no node that is ever available" in found
    check(found)
