"""Scripted runs for faults in what a task finds, leaves and prints, and in who it is: each succeeds, or raises."""

import ctypes
import os
import random
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

from deskgrid.wire import Outcome
from deskgrid.worker.run import accounts, pool, scope
from deskgrid.worker.run.accounts import AccountError, UserAccount
from deskgrid.worker.run.output import HeadAndTail, Outputs, PipeOutput
from tests.executor.rig import Rig, child_finder, python_template
from tests.executor.rig import call as payload
from tests.grid.witness import expect
from tests.waiting import eventually

MARK = b"m" * 16


def of_scope(seed: int, home: Path) -> None:
    """What a task changes in its process is as it was; what it put in the place of its folder is not emptied."""
    surroundings = scope.Surroundings()
    umask, cwd, finder = os.umask(0o77), os.getcwd(), sys.meta_path.pop()
    try:
        os.environ["DESKGRID_OF_A_TASK"] = "secret"
        if sys.platform == "linux":
            ctypes.CDLL(None).setenv(b"DESKGRID_IN_C", b"secret", 1)
        os.chdir(home)
        random.seed(42)
        first = random.random()
        random.seed(42)
        expect(surroundings.restore(True), "a process cannot be as it was")
        expect(random.random() != first, "the seed of a task is that of the next one")
        expect("DESKGRID_OF_A_TASK" not in os.environ, "a task finds variables of another one")
        expect(b"DESKGRID_IN_C=secret" not in (scope._read_c_variables() or ()), "a task finds variables of C")
        expect(finder in sys.meta_path, "a task finds no modules, because another one has removed what does")
        expect(os.getcwd() == cwd, "a task begins in the folder of another one")
        expect(os.umask(0o77) == umask, "a task has the umask of another one")
    finally:
        os.environ.pop("DESKGRID_OF_A_TASK", None)
        os.unsetenv("DESKGRID_IN_C")
        sys.meta_path += [finder] if finder not in sys.meta_path else []
        os.chdir(cwd)
        os.umask(umask)
        os.close(surroundings._folder)
    (home / "mine").mkdir()
    (home / "theirs").mkdir()
    (home / "theirs" / "precious").touch()
    temporary = scope.Temporary(str(home / "mine"))
    assert isinstance(temporary._place, int)
    (home / "mine" / "litter").touch()
    expect(temporary.clean() and not list((home / "mine").iterdir()), "a task finds the files of another one")
    (home / "mine").rmdir()
    (home / "mine").symlink_to(home / "theirs")
    expect(not temporary.clean(), "a link counts as the folder")
    expect((home / "theirs" / "precious").exists(), "what a link leads to is emptied")
    os.close(temporary._place)


def of_output(seed: int, home: Path) -> None:
    """Each task has its own output, in order, its head and its tail."""
    stream = PipeOutput(10)
    os.close(stream.ours)
    os.close(stream.theirs)
    stream.begin(MARK)
    for piece in (b"one" + MARK[:5], MARK[5:] + b"two", MARK + b"0123456789abcdef" + MARK + MARK):
        stream.add(piece)
    cut = b"01234\n[... 6 bytes cut ...]\nbcdef"
    expect([stream.take() for _ in range(4)] == [b"one", b"two", cut, b""], "the output of tasks is not theirs")
    forged = struct.pack("!QII", 1, 2**31, 2**31)
    with suppress(ValueError):
        HeadAndTail(10).go_on(forged)
        raise AssertionError("a checkpoint may say of its output what it likes")
    outputs = Outputs(10, lambda: 1)
    outputs.spawned()
    try:
        with suppress(ValueError):
            outputs.take()
            raise AssertionError("the output of a task may be without an end")
    finally:
        outputs.close()


def of_accounts(seed: int, home: Path) -> None:
    """An account is one person's at a time, is cleared in between, and has a group of its own."""
    one, two = UserAccount("a", 60_001, 60_001, (60_001,), "/"), UserAccount("b", 60_002, 60_002, (60_002, 60_001), "/")
    with suppress(AccountError):
        accounts._check_apart([one, two])
        raise AssertionError("two accounts can read what either has")
    kept = {"DESKGRID_JOIN": "secret", "SLURM_JOB_ID": "1", "LANG": "C"}
    expect(accounts.environment(kept) == {"LANG": "C"}, "tasks find what is only for the worker")
    may_clear, cleared = Event(), list[str]()

    def clear(account: UserAccount, folders: Sequence[Path]) -> bool:
        may_clear.wait(5.0)
        cleared.append(account.name)
        return True

    may_clear.set()
    mine = UserAccount("a", os.getuid(), os.getgid(), (), "/")
    held = pool.Accounts(home, [mine], clear=clear)
    expect(eventually(lambda: held.take("ann") is not None, 5.0), "nobody gets the account")
    expect(held.take("ben") is None, "two people have one account")
    may_clear.clear()
    held.release("ann")
    expect(held.take("ben") is None, "an account is given away before it is cleared")
    may_clear.set()
    expect(eventually(lambda: held.take("ben") is not None, 5.0), "nobody gets an account again")
    expect(cleared == ["a", "a"], "an account is not cleared")
    held.close()


def of_reports(seed: int, home: Path) -> None:
    """A process cannot speak for the tasks of others, nor begin its own anew without end."""

    find = child_finder()

    def forges(report: list[object]) -> None:
        import time

        find()._tell(report)
        time.sleep(60)

    rig = Rig()
    try:
        digest = rig.know(python_template(forges))
        rig.executor.checkpoints.write(99, 1, b"theirs")
        (ended,) = rig.run(digest, payload(["saved", 99, 1, None, 0.0, 0.0, b"forged"]))
        expect(ended.outcome is Outcome.CRASH, "a process reports what it likes")
        expect(rig.executor.checkpoints.read(99, 1) == b"theirs", "a task replaces the checkpoint of another one")
        rig.executor.run(0, rig.jobs(digest, payload(["spent"])))
        until = time.monotonic() + 5.0
        while not rig.poll():
            expect(time.monotonic() < until, "a task begins again and again")
    finally:
        rig.executor.close()
