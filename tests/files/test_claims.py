"""Nobody is given a file that another person's task has brought to a PC, unless its owner has it, too."""

import os
import pickle
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.worker.files import claims as module
from deskgrid.worker.files.claims import NOT_SENT, Claims
from deskgrid.worker.run.jobs import Job, Program
from deskgrid.worker.run.templates import UnpackedTemplate
from tests.files.fakes import content, digest, entry, parts_of
from tests.files.test_stage import PLAIN, Rig, failure

SECRET = {"secret.csv": b"ann's secret", "more.csv": b"and more"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A PC that has Ann's files, of a task that has ended."""
    made = Rig(tmp_path)
    tree = made.store.add(SECRET)
    made.processes.templates["command"] = UnpackedTemplate(None, {}, (tree,), ())
    run(made, 0, "ann")
    assert made.ran == [0]
    made.processes.end(0)
    made.go()
    assert not made.work(0).exists()
    made.store.others = set(made.store.parts)
    made.store.sent.clear()
    made.ended.clear()
    yield made
    made.background.poll()


def run(rig: Rig, task: int, owner: str, template: str = "command", payload: wire.Payload = b"") -> None:
    job = Job(task, 1, template, payload, wire.TaskOptions(), program=Program(owner, "program"))
    rig.stage.run(0, [job])
    rig.go()


def refused(rig: Rig, task: int) -> None:
    """The task was not run: its owner has not sent the files."""
    assert task not in rig.ran
    (ended,) = rig.ended
    told = failure(ended)
    assert (told.kind, told.brief) in {("FilesMissing", NOT_SENT), ("FilesMissing", "it is not here")}
    assert not [path for path in rig.area.rglob("*") if path.is_file()]


def test_the_digest_of_a_tree_gives_nobody_its_files(rig: Rig) -> None:
    run(rig, 1, "ben")
    refused(rig, 1)


def test_the_digest_of_a_shared_object_gives_nobody_the_object(rig: Rig) -> None:
    (tree,) = rig.processes.templates["command"].inputs
    run(rig, 1, "ben", "plain", wire.wrap([tree], pickle.dumps(1)))
    refused(rig, 1)


def test_a_tree_of_ones_own_that_names_a_file_of_another_gives_nobody_the_file(rig: Rig) -> None:
    """Ben has sent the list, and nothing of what it lists."""
    data = wire.Tree((entry("mine.csv", SECRET["secret.csv"]),)).packed()
    rig.store.parts[digest(data)] = data
    rig.processes.templates["mine"] = UnpackedTemplate(None, {}, (digest(data),), ())
    run(rig, 1, "ben", "mine")
    refused(rig, 1)
    assert [digest(data)] == rig.store.sent


def test_a_file_of_which_ones_own_is_only_a_part_is_not_given_either(rig: Rig) -> None:
    own = b"ben's"
    data = wire.Tree((entry("mine.csv", own), entry("secret.csv", SECRET["secret.csv"]))).packed()
    rig.store.parts |= {digest(data): data, digest(own): own}
    rig.processes.templates["mine"] = UnpackedTemplate(None, {}, (digest(data),), ())
    run(rig, 1, "ben", "mine")
    refused(rig, 1)


def test_what_was_fetched_in_part_for_another_is_not_given_either(rig: Rig) -> None:
    big = os.urandom(3 * wire.PART_BYTES)
    tree = rig.store.add({"big": big})
    rig.processes.templates["big"] = UnpackedTemplate(None, {}, (tree,), ())
    rig.stage.run(0, [Job(1, 1, "big", b"", wire.TaskOptions(), program=Program("ann", "program"))])
    while len(rig.store.sent) < 2:
        rig.hear(rig.store.answer(rig.say()[0]))
    rig.say()
    rig.stage.stop(0, rig.now)
    rig.say()
    assert [path for path in (rig.area.parent / "cache").iterdir() if path.name.endswith(".part")]
    rig.store.others |= {digest(part) for part in parts_of(big)}
    run(rig, 2, "ben", "big")
    refused(rig, 2)


def test_modules_that_are_laid_out_for_another_are_not_used(rig: Rig, tmp_path: Path) -> None:
    """The template is the same, and so is the folder of its modules."""
    modules = {"lib.py": b"SECRET = 1"}
    tree = rig.store.add(modules)
    rig.processes.templates["python"] = UnpackedTemplate("f", {}, source=(tree, tmp_path / "laid-out"))
    run(rig, 1, "ann", "python")
    assert rig.ran == [1]
    assert content(tmp_path / "laid-out") == modules
    rig.processes.ran.clear()
    rig.store.others |= {digest(data) for data in modules.values()}
    run(rig, 2, "ben", "python")
    refused(rig, 2)
    run(rig, 3, "ann", "python")
    assert rig.ran == [3]


def test_who_has_sent_the_same_files_is_given_them_and_nothing_travels_again(rig: Rig) -> None:
    rig.store.others.clear()
    run(rig, 1, "ben")
    assert rig.ran == [1]
    assert content(rig.work(1)) == SECRET
    assert rig.store.sent == []


def test_each_owner_is_asked_for_once(rig: Rig) -> None:
    rig.store.others.clear()
    rig.store.claimed.clear()
    for task in range(1, 4):
        run(rig, task, "ben")
        run(rig, 10 + task, "ann")
    assert rig.ran == [1, 11, 2, 12, 3, 13]
    (asked,) = rig.store.claimed
    assert asked.holder == "1.1"
    named = {digest(data) for data in SECRET.values()} | set(rig.processes.templates["command"].inputs)
    assert set(wire.split_digests(asked.parts)) == named


def test_a_task_that_was_stopped_asks_for_nothing(rig: Rig) -> None:
    rig.stage.run(0, [Job(1, 1, "command", b"", wire.TaskOptions(), program=Program("ben", "program"))])
    (claim,) = rig.say()
    rig.stage.stop(0, rig.now)
    assert rig.say() == []
    rig.hear(rig.store.answer(claim))
    assert rig.say() == []
    assert rig.ran == []


def test_tasks_without_files_ask_for_nothing(rig: Rig) -> None:
    assert rig.processes.templates["plain"] is PLAIN
    rig.store.claimed.clear()
    run(rig, 1, "ben", "plain")
    assert rig.ran == [1]
    assert rig.store.claimed == []


# --- questions and answers -------------------------------------------------------------------------------------------


def parts(many: int) -> list[bytes]:
    return [digest(bytes([number % 256, number // 256])) for number in range(many)]


def lacks(claims: Claims, message: wire.Message, lacking: bytes = b"") -> None:
    assert isinstance(message, wire.Claim)
    assert claims.lacks(wire.Lacks(message.request, lacking), 0.0)


def test_many_parts_are_asked_for_in_several_questions_and_one_that_is_lacking_is_enough() -> None:
    claims, said = Claims(count(1)), list[str]()
    many = parts(3 * wire.OFFER_PARTS)
    claims.ask("1.1", "ann", bytes(32), many, said.append)
    first, *others = claims.say(0.0)
    assert len(others) == 3
    lacks(claims, first)
    assert not claims.knows("ann", bytes(32))
    assert said == []
    lacks(claims, others[0], many[0])
    assert said == [NOT_SENT]
    assert not claims.knows("ann", bytes(32))
    assert isinstance(others[1], wire.Claim)
    assert not claims.lacks(wire.Lacks(others[1].request, b""), 0.0), "nobody waits for it any more"
    assert list(claims.say(0.0)) == []


def test_only_a_few_questions_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 2)
    claims, said = Claims(count(1)), list[str]()
    claims.ask("1.1", "ann", bytes(32), parts(3 * wire.OFFER_PARTS), said.append)
    asked = 0
    while some := list(claims.say(0.0)):
        assert len(some) == 2
        for message in some:
            lacks(claims, message)
            asked += 1
    assert asked == 4
    assert said == [""]
    assert claims.knows("ann", bytes(32))
    assert not claims.knows("ben", bytes(32))


def test_what_was_not_answered_is_asked_again_over_a_new_connection_and_after_some_silence() -> None:
    claims, said = Claims(count(1)), list[str]()
    claims.ask("1.1", "ann", bytes(32), [], said.append)
    (lost,) = claims.say(0.0)
    assert list(claims.say(module.SILENCE_S - 1.0)) == []
    (again,) = claims.say(module.SILENCE_S)
    claims.reconnected()
    (last,) = claims.say(module.SILENCE_S)
    for message in (lost, again):
        assert isinstance(message, wire.Claim)
        assert not claims.lacks(wire.Lacks(message.request, b""), 0.0)
    lacks(claims, last)
    assert said == [""]


def test_a_broker_that_does_not_answer_a_question_says_why() -> None:
    claims, said = Claims(count(1)), list[str]()
    claims.ask("1.1", "ann", bytes(32), [], said.append)
    (claim,) = claims.say(0.0)
    assert isinstance(claim, wire.Claim)
    assert claims.failed(claim.request, "this worker does not hold that attempt")
    assert not claims.failed(claim.request, "again")
    assert said == ["this worker does not hold that attempt"]


def test_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN", 2)
    claims, said = Claims(count(1)), list[str]()
    for number in range(3):
        claims.ask("1.1", "ann", bytes([number]) * 32, [], said.append)
        (claim,) = claims.say(0.0)
        lacks(claims, claim)
    assert [claims.knows("ann", bytes([number]) * 32) for number in range(3)] == [False, True, True]
    assert said == ["", "", ""]
