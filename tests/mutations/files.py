"""Scripted runs for faults in what is done with stored files: each succeeds, or raises."""

import os
from contextlib import closing, suppress
from pathlib import Path

import msgpack

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.wire.trees import TreeRefused
from deskgrid.worker.files.cache import FileCache, link
from deskgrid.worker.files.turns import Turns
from deskgrid.worker.run.beneath import open_file
from deskgrid.worker.run.jobs import Job, Program
from tests.broker.office import Office, OfficeLine
from tests.broker.test_transfers import attempt, digest, fetched, held, lacked, later, offer, part_of, send, store
from tests.files.fakes import entry
from tests.files.test_cache import fetch
from tests.files.test_stage import Rig
from tests.grid.witness import expect
from tests.peers import COMMAND

ANN, BEN = Credential("ann", "submitter"), Credential("ben", "submitter")
DATA = b"data" * 100


def at_the_broker(seed: int, home: Path) -> None:
    """Two owners and two workers: each has what is its own, and what nobody needs goes."""
    with closing(Office(home)) as office:
        ann, ben, worker, other = office.client(ANN), office.client(BEN), office.worker("pc1"), office.worker("pc2")
        bag = ann.submit([b"0"])
        store(ann, bag, DATA)
        expect(isinstance(fetched(ben, "bens", DATA), str), "another submitter fetches a file")
        expect(not office.sessions.records(b"stranger", BEN, part_of(DATA)), "a stranger has a file written")
        expect(isinstance(send(ann, bag, b"other", digest(b"what it is not")), wire.Failed), "a wrong part is kept")
        worker.join()
        holder, _ = attempt(worker)
        other.join()
        expect(isinstance(offer(other, holder, DATA), wire.Failed), "a worker sends files for the task of another")
        expect(isinstance(ben.answer_to(ben.batch("new", [b"0"])), wire.Failed), "a template needs not be one's own")
        ben.send(wire.Blob(wire.sha256_of(COMMAND), COMMAND))
        named = ben.batch("new", [bytes(wire.wrap([digest(DATA)], b"0"))])
        expect(isinstance(ben.answer_to(named), wire.Failed), "a bag names files of others")
        secret = msgpack.packb({"kind": "command", "argv": ["secret"]})
        ben.send(wire.Blob(wire.sha256_of(secret), secret))
        other.send(wire.Fetch(wire.sha256_of(secret)))
        office.settle()
        assert isinstance(other.line, OfficeLine)
        blobs = [data for data in other.line.inbox if isinstance(wire.decode(data), wire.Blob)]
        expect(blobs == [], "a worker gets any template")
        store(ben, "bens", DATA)
        expect(lacked(worker, holder, DATA) == [], "a part travels again")
        office.sessions.transfers.release(bag, "ann", [digest(DATA)])
        expect(fetched(ann, bag, DATA) == DATA, "a part went that a result needs")
        ann.ask("cancel", bag=bag)
        ann.ask("forget", bag=bag)
        later(office)
        expect(lacked(ben, "bens", DATA) == [], "a part went that another bag needs")
        expect(fetched(ben, "bens", DATA) == DATA, "a part cannot be fetched any more")
        expect(held(office) == [1, 1, 1], "parts of a forgotten bag stay")


def on_a_pc(seed: int, home: Path) -> None:
    """A task with files, one whose files are damaged, and one that leaves a file."""
    rig = Rig(home)
    with closing(rig.stage):
        rig.command("out", inputs={"data": DATA})
        rig.run(0)
        expect(rig.ran == [], "a task runs before its files are there")
        rig.go()
        expect(rig.ran == [0], "a task does not run")
        (rig.work(0) / "out").write_bytes(b"result")
        rig.processes.end(0)
        said = rig.say()
        expect(rig.ended == [], "a task has ended before its files are with the broker")
        for message in said:
            rig.hear(rig.store.answer(message))
        rig.go()
        expect(len(rig.ended) == 1 and wire.unwrap(rig.ended[0].payload).payload == b"done", "a result is lost")
        rig.command(inputs={"data": DATA})
        rig.store.others = set(rig.store.parts)
        rig.stage.run(0, [Job(2, 1, "command", b"", wire.TaskOptions(), program=Program("ben", "its"))])
        rig.go()
        expect(rig.ran == [], "a task is given the files of another person")
        rig.store.others.clear()
        rig.command(inputs={"other": b"12345"})
        rig.store.parts[digest(b"12345")] = b"54321"
        rig.run(1)
        rig.go()
        expect(rig.ran == [], "a task is given a damaged file")


def in_folders(seed: int, home: Path) -> None:
    """Names and links that lead out of a folder, and a cache with files in use, changed, and superfluous."""
    names = msgpack.packb([["../x"], [0], [False], [b""], []])
    with suppress(TreeRefused):
        wire.read_tree(names)
        raise AssertionError("a name that leads out of the folder is taken")
    (home / "secret").write_bytes(b"secret")
    (home / "area").mkdir()
    (home / "area" / "out").symlink_to(home)
    (home / "area" / "secret").symlink_to(home / "secret")
    for name in ("out/secret", "secret"):
        with suppress(OSError):
            os.close(open_file(home / "area", name))
            raise AssertionError("a link is followed")
    (home / "secret").chmod(0o600)
    with suppress(OSError):
        os.close(open_file(home, "secret", [os.getuid() + 1]))
        raise AssertionError("a file of somebody else is taken")
    turns = Turns[int]()
    turns.add("a", [1, 2])
    turns.add("b", [3])
    expect([turns.take()[1] for _ in range(2)] == [1, 3], "an attempt waits for all files of another")
    cache, files = FileCache(home / "cache", 0), {name: entry(name, name.encode()) for name in ("a", "b", "c")}
    path = fetch(cache, files["a"], b"a")
    link(path, home / "mine", executable=False)
    fetch(cache, files["b"], b"b")
    expect(path.exists(), "a file goes that a task uses")
    (home / "mine").chmod(0o600)
    (home / "mine").write_bytes(b"z")
    expect(cache.find(files["a"]) is None, "a file is used that a task wrote to")
