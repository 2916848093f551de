"""Data sets of the Failure Trace Archive: when each PC is there."""

import math
import pickle
from pathlib import Path

import pytest

from deskgrid.scheduler.simulation.simulator import RealWindow
from deskgrid.sleepbench.workloads.fta import open_windows, read_fta
from deskgrid.sleepbench.workloads.source import Lab, WorkloadError
from tests.sleepbench.workloads.files import event, node, trace

Windows = dict[str, list[tuple[float, float]]]
EPOCH = 893466664


def windows(lab: Lab) -> Windows:
    """When each PC is there."""
    return {pc.name: [(span.opens, span.closes) for span in pc.timetable()] for pc in lab.pcs}


def test_a_pc_is_there_while_its_events_say_so(tmp_path: Path) -> None:
    events = event(0, 1, 0.0, 200.0), event(0, 0, 200, 700), event(0, 1, 700.5, 750), event(7, 1, 100, 150)
    lab = read_fta(trace(tmp_path, *events))
    assert windows(lab) == {"pc0": [(0.0, 200.0), (700.5, 750.0)], "pc7": [(100.0, 150.0)]}
    assert [pc.slots for pc in lab.pcs] == [1, 1]
    assert lab.notes == ()


def test_each_run_gets_the_windows_afresh_and_closings_as_they_were(tmp_path: Path) -> None:
    (pc,) = read_fta(trace(tmp_path, event(0, 1, 5, 9))).pcs
    assert list(pc.timetable()) == list(pc.timetable()) == [RealWindow(0.0, 4.0, 4.0)]
    assert list(pickle.loads(pickle.dumps(pc)).timetable()) == [RealWindow(0.0, 4.0, 4.0)]


def test_time_begins_with_the_first_event_of_the_whole_data_set(tmp_path: Path) -> None:
    events = event(0, 1, EPOCH + 50, EPOCH + 90), event(1, 0, EPOCH, EPOCH + 60), event(1, 1, EPOCH + 60, EPOCH + 61)
    assert windows(read_fta(trace(tmp_path, *events))) == {"pc0": [(50.0, 90.0)], "pc1": [(60.0, 61.0)]}


def test_events_in_any_order_that_touch_or_overlap_are_one_window(tmp_path: Path) -> None:
    events = event(0, 1, 40, 60), event(0, 1, 0, 20), event(0, 1, 20, 30), event(0, 1, 50, 80), event(0, 1, 52, 53)
    assert windows(read_fta(trace(tmp_path, *events))) == {"pc0": [(0.0, 30.0), (40.0, 80.0)]}


def test_where_events_contradict_each_other_the_pc_is_not_there(tmp_path: Path) -> None:
    host, cpu = (event(0, 1, 0, 100, component=0), event(0, 0, 30, 40, component=1))
    assert windows(read_fta(trace(tmp_path, host, cpu))) == {"pc0": [(0.0, 30.0), (40.0, 100.0)]}


def test_an_event_of_no_length_changes_nothing(tmp_path: Path) -> None:
    events = event(0, 1, 0, 100), event(0, 0, 50, 50), event(0, 1, 200, 200)
    assert windows(read_fta(trace(tmp_path, *events))) == {"pc0": [(0.0, 100.0)]}


def test_a_window_too_short_to_be_told_apart_so_long_after_the_start_is_none(tmp_path: Path) -> None:
    events = event(0, 0, -1e12, 0), event(0, 1, 1e-6, 2e-6), event(0, 1, 5, 9)
    assert windows(read_fta(trace(tmp_path, *events))) == {"pc0": [(1e12 + 5, 1e12 + 9)]}


def test_events_of_other_types_say_nothing_of_availability_and_are_counted(tmp_path: Path) -> None:
    lab = read_fta(trace(tmp_path, event(0, 1, 0, 100), event(0, 2, 10, 20), event(0, 10_001, 30, 40)))
    assert windows(lab) == {"pc0": [(0.0, 100.0)]}
    assert lab.notes == ("events ignored, neither availability nor unavailability: 2",)


def test_a_node_that_is_never_there_is_left_out_and_counted(tmp_path: Path) -> None:
    lab = read_fta(trace(tmp_path, event(0, 0, 0, 100), event(1, 1, 0, 10), event(2, 1, 0, 9), event(2, 0, 0, 9)))
    assert windows(lab) == {"pc1": [(0.0, 10.0)]}
    assert lab.notes == ("nodes left out, never available: 2",)


def test_the_first_pcs_that_are_ever_there_are_taken(tmp_path: Path) -> None:
    events = [event(number, 0 if number == 5 else 1, 0, 10) for number in (9, 5, 3, 4)]
    assert list(windows(read_fta(trace(tmp_path, *events), pcs=2))) == ["pc9", "pc3"]


def test_nodes_of_two_platforms_are_two_pcs_and_numbered_when_names_are_not_unique(tmp_path: Path) -> None:
    events = event(0, 1, 0, 1, platform=1), event(0, 1, 0, 2, platform=2)
    assert windows(read_fta(trace(tmp_path, *events))) == {"1.0": [(0.0, 1.0)], "2.0": [(0.0, 2.0)]}
    unnamed = event(0, 1, 0, 1, name="NULL"), event(1, 1, 0, 1)
    assert list(windows(read_fta(trace(tmp_path, *unnamed)))) == ["1.0", "1.1"]


def test_names_may_hold_blanks_and_a_copy_without_tabs_is_read_too(tmp_path: Path) -> None:
    assert list(windows(read_fta(trace(tmp_path, event(0, 1, 0, 1, name="front desk"))))) == ["front desk"]
    assert windows(read_fta(trace(tmp_path, event(0, 1, 0, 1).replace("\t", "  ")))) == {"pc0": [(0.0, 1.0)]}


def test_slots_are_the_cores_of_a_node_if_that_is_known(tmp_path: Path) -> None:
    nodes = [node(0, "4", "2"), node(1, "NULL", "2"), node(2, "8", "NULL"), node(3), node(4, "-1", "0")]
    events = [event(number, 1, 0, 1) for number in range(6)]
    folder = trace(tmp_path, *events, nodes=nodes)
    assert [pc.slots for pc in read_fta(folder).pcs] == [8, 2, 8, 1, 1, 1]
    assert [pc.slots for pc in read_fta(folder, slots=3).pcs] == [3] * 6


def test_the_title_names_platforms_or_the_folder(tmp_path: Path) -> None:
    assert read_fta(trace(tmp_path, event(0, 1, 0, 1))).title == f"1 PCs of {tmp_path.name}"
    platforms = ["# platform_id ...", "1\tmicrosoft\tUSA\tdesktop\tNULL", "2\tother\tUSA\tdesktop\tNULL"]
    assert read_fta(trace(tmp_path, event(0, 1, 0, 1), platforms=platforms)).title == "1 PCs of microsoft"


MALFORMED = [
    ("0\t0\t0", "an event has at least 8 fields, but this one has 3"),
    (event(0, 1, 0, 1).replace("pc0\t1", "pc0\tup"), "event_type is not a number: 'up'"),
    (event(0, 1, 0, 1).replace("pc0\t1", "pc0\t0.5"), "event_type is not a whole number"),
    (event(0, 1, math.nan, 1), "start is not a number: 'nan'"),
    (event(0, 1, 0, math.inf), "stop is not a number: 'inf'"),
    (event(0, 1, 0, 1e18), "stop is out of bounds"),
    (event(0, 1, 0, 1).replace("\t1\tNULL", "\tNULL\tNULL"), "stop is not a number: 'NULL'"),
    (event(0, 1, 9, 8), "the event stops at 8, before it starts at 9"),
    (event(0, 1, 0, 1).replace("\t 0\t1\t", "\t x\t1\t"), "node_id is not a number"),
    (event(0, 1, 0, 1).replace("\t1\tpc0", "\t\tpc0"), "platform_id is not a number"),
]


@pytest.mark.parametrize(("line", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
def test_a_malformed_event_is_an_error_with_file_and_number(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read_fta(trace(tmp_path, event(0, 1, 0, 5), line))
    assert str(error.value).startswith(f"{tmp_path / 'event_trace.tab'}, line 3: ")
    assert why in str(error.value)


@pytest.mark.parametrize(("line", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
def test_or_it_is_skipped_and_counted(tmp_path: Path, line: str, why: str) -> None:
    lab = read_fta(trace(tmp_path, event(0, 1, 0, 5), line, event(0, 1, 7, 9)), lenient=True)
    assert windows(lab) == {"pc0": [(0.0, 5.0), (7.0, 9.0)]}
    assert lab.notes == ("malformed lines of event_trace.tab skipped: 1",)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0\t1\tpc0", "a node has at least 10 fields, but this one has 3"),
        (node(0, "many"), "cores_per_proc is not a number"),
        (node(0, "1", "0.5"), "num_procs is not a whole number"),
        (node(0, "1000", "1000"), "no PC has 1,000,000 cores"),
    ],
)
def test_a_malformed_node_is_an_error_or_skipped_and_counted(tmp_path: Path, line: str, why: str) -> None:
    folder = trace(tmp_path, event(0, 1, 0, 1), nodes=["# node_id", line])
    with pytest.raises(WorkloadError, match=rf"node\.tab, line 2: .*{why}"):
        read_fta(folder)
    lab = read_fta(folder, lenient=True)
    assert [pc.slots for pc in lab.pcs] == [1]
    assert lab.notes == ("malformed lines of node.tab skipped: 1",)


def test_a_malformed_platform_is_an_error_or_skipped_and_counted(tmp_path: Path) -> None:
    folder = trace(tmp_path, event(0, 1, 0, 1), platforms=["one"])
    with pytest.raises(WorkloadError, match=r"platform\.tab, line 1: a platform has at least 2 fields"):
        read_fta(folder)
    assert read_fta(folder, lenient=True).notes == ("malformed lines of platform.tab skipped: 1",)


def test_a_folder_without_a_trace_or_a_pc_in_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"event_trace\.tab cannot be read"):
        read_fta(tmp_path)
    with pytest.raises(WorkloadError, match="no node that is ever available; nodes left out, never available: 1"):
        read_fta(trace(tmp_path, event(0, 0, 0, 1)))


def test_windows_are_what_is_available_and_not_unavailable() -> None:
    assert open_windows([(0, 9), (9, 10), (20, 30)], [(2, 3), (5, 5), (25, 40)]) == [(0, 2), (3, 10), (20, 25)]
    assert open_windows([(0, 1)], [(1, 2)]) == [(0, 1)]
    assert open_windows([], [(1, 2)]) == []
