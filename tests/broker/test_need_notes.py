"""What is told at submit of tasks that no PC, or no site, can run as things are."""

from hashlib import sha256
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.answers.explaining import LONGER
from deskgrid.broker.model.need_notes import WAIT, lacks_text, need_note
from deskgrid.wire import TaskOptions
from tests.broker.office import Office, OpenOffice
from tests.peers import COMMAND

GIB = 2**30


def pc(name: str = "pc1", site: str = "a", slots: int = 4, **has: Any) -> wire.Join:
    given: dict[str, Any] = {"address": "10.0.0.1", **has}
    return wire.Join(
        wire.VERSION, ("3.11",), name, name, 1, name, site, slots, "open-ended", "open-ended", None, (), (), **given
    )


def told(pcs: list[wire.Join], **options: Any) -> str:
    note = need_note(TaskOptions(**options), pcs)
    assert not note or note.endswith(f"; {WAIT}")
    return note.removesuffix(f"; {WAIT}")


GPU, MATLAB = pc("gpu", labels=("gpu",), memory=4 * GIB), pc("matlab", labels=("matlab",), memory=16 * GIB)
BOTH = pc("both", site="b", labels=("gpu", "matlab"), memory=8 * GIB, mpi=True)
FOUR = {"ranks": (4, 8), "gang": True}


@pytest.mark.parametrize(
    ("pcs", "options", "expected"),
    [
        ([], {"labels": ("gpu",)}, ""),
        ([pc()], {}, ""),
        ([GPU], {"labels": ("gpu",)}, ""),
        ([GPU], {"labels": ("fpga",)}, "no PC has the label fpga"),
        ([GPU], {"labels": ("fpga", "gpu", "tpu")}, "no PC has the labels fpga and tpu"),
        ([GPU, MATLAB], {"labels": ("gpu", "matlab")}, "no PC has all of the labels gpu and matlab"),
        ([GPU, MATLAB, BOTH], {"labels": ("gpu", "matlab")}, ""),
        ([GPU, MATLAB], {"memory": 8 * GIB}, ""),
        ([GPU, BOTH], {"memory": 16 * GIB}, "no PC has 16 G of memory: the most is 8 G"),
        ([GPU, pc()], {"memory": 16 * GIB}, ""),
        (
            [GPU, MATLAB],
            {"memory": 8 * GIB, "labels": ("gpu",)},
            "no PC with the label gpu has 8 G of memory: the most is 4 G",
        ),
        ([pc(slots=2), pc(slots=3)], {"slots": 4}, "no PC has 4 slots: the most is 3"),
        (
            [GPU, pc(slots=64)],
            {"slots": 8, "labels": ("gpu",)},
            "no PC with the label gpu has 8 slots: the most is 4",
        ),
        ([GPU, BOTH], {**FOUR, "mpi": True}, ""),
        ([GPU], {**FOUR, "mpi": True}, "no PC allows MPI, which `deskgrid worker --mpi` does"),
        (
            [GPU, BOTH],
            {"ranks": (4, 4), "gang": True, "mpi": True, "memory": 10 * GIB},
            "no PC with MPI has 10 G of memory: the most is 8 G",
        ),
        (
            [BOTH, pc("pc1")],
            {"ranks": (6, 6), "gang": True, "mpi": True},
            "a task needs 6 ranks at one site, and PCs with MPI have room for 4 at most",
        ),
        ([pc(slots=2), pc("pc2", slots=2)], FOUR, ""),
        (
            [pc(slots=2), pc("pc2", site="b", slots=3)],
            FOUR,
            "a task needs 4 ranks at one site, and PCs have room for 3 at most",
        ),
        (
            [pc(slots=3), pc("pc2", slots=3)],
            {**FOUR, "slots": 2},
            "a task needs 4 ranks of 2 slots at one site, and PCs have room for 2 at most",
        ),
        (
            [GPU, BOTH, pc("pc1")],
            {"ranks": (6, 6), "gang": True, "memory": GIB, "labels": ("gpu",), "mpi": True},
            "a task needs 6 ranks at one site, and PCs with the label gpu and MPI and 1 G of memory have room for 4 "
            "at most",
        ),
        ([pc(address=None)], FOUR, ""),
        (
            [pc(slots=2, address=None), pc("pc2", slots=2, address=None)],
            FOUR,
            "a task needs 4 ranks, and PCs are not reached by others of their site, or do not know by which address",
        ),
        (
            [pc(slots=1, address=None), pc("pc2", slots=2, address=None)],
            FOUR,
            "a task needs 4 ranks at one site, and PCs have room for 2 at most",
        ),
    ],
)
def test_what_no_pc_has_is_told(pcs: list[wire.Join], options: dict[str, Any], expected: str) -> None:
    assert told(pcs, **options) == expected


def test_a_bag_that_no_pc_can_run_is_accepted_and_told(office: Office) -> None:
    client = office.client()
    client.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    office.worker("pc1").join(slots=2, labels=("matlab",))
    answer = client.answer_to(client.batch("b1", [b"0"], options=TaskOptions(labels=("gpu",))))
    assert isinstance(answer, wire.Accepted)
    assert answer.note == f"no PC has the label gpu; {WAIT}"
    assert client.ask("progress", bag="b1")["note"] == answer.note
    office.worker("pc2").join(labels=("gpu",))
    assert client.ask("progress", bag="b1")["note"] == ""


# --- what explain says -----------------------------------------------------------------------------------------------


def test_what_a_pc_lacks_is_said() -> None:
    assert lacks_text(("gpu",), ()) == "the PC does not have the label gpu"
    assert lacks_text(("gpu", "tpu"), ()) == "the PC does not have the labels gpu and tpu"
    assert lacks_text((), [("memory", 2.0 * GIB)]) == "the PC has 2 G of memory, which is too little"
    assert lacks_text((), [("gpu", 500)]) == "the PC has 0.5 gpu, which is too little"
    assert lacks_text((), [("scratch", 1000 * GIB), ("gpu", 0)]) == "the PC has 1 G of scratch, which is too little"
    assert lacks_text((), [("gpu", 0)]) == "the PC has no gpu"


def test_explain_counts_what_the_policy_in_force_lets_a_task_have(open_office: OpenOffice) -> None:
    office = open_office(policy="cisne-uniform")  # at most one rank of a gang on each PC
    office.worker("pc1").join(slots=4, processors=2)
    client = office.client()
    client.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    answer = client.answer_to(client.batch("b1", [b"0"], options=TaskOptions(ranks=(2, 2), gang=True), runtime=10.0))
    reason = "cisne-uniform gives each rank a PC of its own, and no site has more than 1 for it"
    assert isinstance(answer, wire.Accepted)
    assert answer.note == f"a task needs 2 slots of one site for 10 s; {reason}; {WAIT}"
    (text,) = client.ask("explain", bag="b1", item=0)["text"]
    assert text.endswith(reason)


def test_explain_counts_the_slots_that_its_processors_may_share(open_office: OpenOffice) -> None:
    office = open_office(policy="cisne-uniform", mpl=1)
    office.worker("pc1").join(slots=4, processors=2)
    bag = office.client().submit([b"0"], runtime=10.0, options=TaskOptions(slots=3))
    (text,) = office.client().ask("explain", bag=bag, item=0)["text"]
    assert "so many are together" not in text


def test_explain_begins_with_what_no_pc_has_also_for_parallel_tasks(office: Office) -> None:
    client = office.client()
    office.worker("pc1").join(slots=2, labels=("matlab",))
    needs: tuple[dict[str, Any], ...] = ({"slots": 2}, {"ranks": (2, 2), "gang": True}, {"limit": 1})
    for number, need in enumerate(needs):
        bag = client.submit([b"0"], runtime=10.0, options=TaskOptions(labels=("gpu",), **need))
        first, second, *_ = client.ask("explain", bag=bag)["text"]
        assert first == f"no PC has the label gpu; {WAIT}", number
        assert second.startswith("task 0 (predicted 10 s) waits: ")


def test_explain_says_what_is_missing_and_what_is_together(office: Office) -> None:
    client = office.client()
    client.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    office.worker("pc1").join(slots=2, site="lab", uptime=600.0, address="10.0.0.1")
    gang = TaskOptions(ranks=(4, 4), gang=True)
    client.answer_to(client.batch("b1", [b"0"], options=gang, runtime=60.0))
    text = client.ask("explain", bag="b1", item=0)["text"]
    waits = "task 0 (predicted 1 min 00 s) waits: it needs 4 slots of one site for 1 min 00 s"
    short = f"a task needs 4 ranks at one site, and PCs have room for 2 at most; {WAIT}"
    assert text == [short, f"{waits}; at most 2 are together now"]
    client.answer_to(client.batch("b2", [b"0"], options=TaskOptions(labels=("gpu",))))
    text = client.ask("explain", bag="b2", item=0)["text"]
    assert (text[0], text[-1]) == (f"no PC has the label gpu; {WAIT}", "pc1 slot 1: the PC does not have the label gpu")
    assert client.ask("eta", bag="b2")["why"] == f"no PC has the label gpu; {WAIT}"
    assert client.ask("eta", bag="b1")["why"] == short
    (row,) = client.ask("whatif", bag="b1", changes=[])["rows"]
    assert row["why"] == "its tasks do not all end while the PCs that they need are there together"
    assert client.ask("advise", bag="b1")["now"]["median_s"] is None
    two = TaskOptions(ranks=(2, 2), gang=True)
    answer = client.answer_to(client.batch("b3", [b"0"], options=two, runtime=2400.0))
    assert isinstance(answer, wire.Accepted)
    wants = "a task needs 2 slots of one site for 40 min; no PC that is known has that for so long"
    assert answer.note == f"{wants}: {LONGER}"
    assert "one of its tasks needs 40 min" in client.ask("eta", bag="b3")["why"]
