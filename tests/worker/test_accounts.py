"""Accounts for tasks: one person has one at a time, and nothing of that person is left when the next one gets it."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.worker.files.places import Places
from deskgrid.worker.run import beneath, clearing
from deskgrid.worker.run.accounts import AccountError, UserAccount, find_accounts, reserved
from deskgrid.worker.run.pool import Accounts, NoAccount, clear_account
from tests.files.test_stage import Rig
from tests.waiting import PATIENCE_S, eventually
from tests.worker.users import can_make_users, changed, users

if sys.platform != "win32":
    import pwd

pytestmark = [
    pytest.mark.skipif(not can_make_users(), reason="only root can make users"),
    # The program that clears has one thread, and tests have more.
    pytest.mark.filterwarnings("ignore:.*is multi-threaded:DeprecationWarning"),
]
ONE, TWO = (
    UserAccount(name, 60_001 + number, 60_001 + number, (60_001 + number,), "/") for number, name in enumerate("ab")
)


class Clearing:
    """Clears accounts when it is told to, and says whether they are clean."""

    def __init__(self) -> None:
        self.cleared: list[str] = []
        self.clean = True
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, account: UserAccount, folders: Sequence[Path]) -> bool:
        self.gate.wait(PATIENCE_S)
        self.cleared.append(account.name)
        return self.clean


@pytest.fixture
def clear() -> Clearing:
    return Clearing()


@pytest.fixture
def area() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="accounts-") as folder:
        yield Path(folder)


def name_of(accounts: Accounts, person: str) -> str | None:
    """The account that a person gets, after some time at most."""
    found = list[str]()

    def taken() -> bool:
        place = accounts.take(person)
        found.extend([] if place is None or place.account is None else [place.account.name])
        return bool(found)

    assert eventually(taken, PATIENCE_S)
    return found[0]


# --- the pool --------------------------------------------------------------------------------------------------------


def test_without_accounts_everybody_has_the_same_place(area: Path) -> None:
    accounts = Accounts(area)
    assert accounts.take("ann") == accounts.take("ben") == accounts.places[0]
    assert accounts.places[0].account is None
    accounts.release("ann")
    accounts.close()


def test_each_person_has_an_account_and_keeps_it(area: Path, clear: Clearing) -> None:
    accounts = Accounts(area, (ONE, TWO), clear=clear)
    ann, ben = name_of(accounts, "ann"), name_of(accounts, "ben")
    assert {ann, ben} == {"a", "b"}
    assert name_of(accounts, "ann") == ann
    assert accounts.take("cyd") is None
    accounts.release("ann")
    assert accounts.take("cyd") is None, "ann took it twice"
    assert accounts.may_be_free(()), "if she lets go of it"
    assert not accounts.may_be_free(("ann", "ben"))
    accounts.release("ann")
    assert name_of(accounts, "cyd") == ann
    accounts.close()


def test_an_account_is_cleared_before_anybody_gets_it_and_at_the_end(area: Path, clear: Clearing) -> None:
    clear.gate.clear()
    accounts = Accounts(area, (ONE,), clear=clear)
    assert accounts.take("ann") is None, "a worker that was killed may have left something"
    assert accounts.may_be_free(("ann",))
    clear.gate.set()
    assert name_of(accounts, "ann") == "a"
    clear.gate.clear()
    accounts.release("ann")
    assert accounts.take("ben") is None
    clear.gate.set()
    assert name_of(accounts, "ben") == "a"
    assert clear.cleared == ["a", "a"]
    accounts.close()
    assert clear.cleared == ["a", "a", "a"]


def test_an_account_in_which_something_stays_is_nobodys_and_is_cleared_again(area: Path, clear: Clearing) -> None:
    clear.clean = False
    accounts = Accounts(area, (ONE,), clear=clear)
    assert eventually(lambda: accounts.take("ann") is None and len(clear.cleared) >= 2, PATIENCE_S)
    clear.clean = True
    assert name_of(accounts, "ann") == "a"
    accounts.close()


def test_an_account_whose_folder_somebody_has_removed_is_cleared_as_well(area: Path, clear: Clearing) -> None:
    accounts = Accounts(area, (ONE,), clear=clear)
    assert name_of(accounts, "ann") == "a"
    beneath.remove(area, "a")
    accounts.release("ann")
    assert name_of(accounts, "ben") == "a"
    accounts.close()


@pytest.mark.parametrize("removed", [".", "a", "a/run", "a/home"])
def test_what_somebody_has_removed_of_the_folders_of_accounts_is_made_again(
    area: Path, clear: Clearing, removed: str
) -> None:
    area = area / "area"
    area.mkdir(0o700)
    accounts = Accounts(area, [ONE, TWO], clear=clear)
    name_of(accounts, "ann")
    found = _modes(area)
    shutil.rmtree(area / removed)
    area.mkdir(0o700, exist_ok=True)
    accounts.renew()
    assert _modes(area) == found
    accounts.close()


def _modes(area: Path) -> dict[Path, tuple[int, int, int]]:
    """All folders, with their modes and owners."""
    stats = {path: path.stat() for path in (area, *area.rglob("*"))}
    return {path: (found.st_mode, found.st_uid, found.st_gid) for path, found in stats.items()}


def test_the_folder_of_an_account_can_be_entered_by_its_user_only(area: Path, clear: Clearing) -> None:
    accounts = Accounts(area, (ONE, TWO), clear=clear)
    for place in accounts.places:
        assert place.account is not None
        found = place.area.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, place.account.gid, 0o710)
        assert (place.area / "home").stat().st_uid == place.account.uid
        assert place.account.home == str(place.area / "home")
    accounts.close()


def test_a_folder_that_a_person_was_let_into_is_closed_before_the_next_one_comes(area: Path, clear: Clearing) -> None:
    accounts = Accounts(area, (ONE,), clear=clear)
    (area / "site").mkdir()
    assert name_of(accounts, "ann") == "a"
    accounts.let_in("ann", area / "site")
    assert ((area / "site").stat().st_gid, (area / "site").stat().st_mode & 0o777) == (ONE.gid, 0o750)
    accounts.let_in("ben", area / "site")
    accounts.release("ann")
    assert ((area / "site").stat().st_gid, (area / "site").stat().st_mode & 0o777) == (0, 0o700)
    accounts.close()


# --- attempts and their places ---------------------------------------------------------------------------------------


def test_an_attempt_waits_for_an_account_that_will_be_free_and_is_refused_if_none_will(
    area: Path, clear: Clearing
) -> None:
    accounts, ended = Accounts(area, (ONE,), clear=clear), list[Collection[str]]()
    places = Places(accounts, ended.append)
    assert eventually(lambda: places.take("1.1", "ann") is not None, PATIENCE_S)
    assert places.take("1.1", "ann") is places.of("1.1")
    with pytest.raises(NoAccount, match=r"^the account for tasks on this PC \(--run-as\): in use by other people$"):
        places.take("2.1", "ben")
    accounts.take("ann")  # as a process that waits for more of her tasks
    places.release("1.1")
    places.release("1.1")
    assert places.take("2.1", "ben") is None
    assert ended[-2:] == [{"ann"}, set()]
    accounts.release("ann")
    assert eventually(lambda: places.take("2.1", "ben") is not None, PATIENCE_S)
    accounts.close()


@pytest.fixture
def rig(tmp_path: Path, area: Path, clear: Clearing) -> Iterator[Rig]:
    accounts = Accounts(area, (ONE,), clear=clear)
    made = Rig(tmp_path, accounts)
    yield made
    made.background.poll()
    accounts.close()


def run(rig: Rig, task: int, owner: str, template: str = "plain") -> None:
    rig.stage.run(task, [rig.job(task, template, owner=owner)])


def test_a_task_whose_person_gets_no_account_here_goes_elsewhere(rig: Rig) -> None:
    run(rig, 0, "ann")
    assert eventually(lambda: rig.say() == [] and rig.ran == [0], PATIENCE_S)
    run(rig, 1, "ben")
    run(rig, 2, "ann")
    rig.say()
    assert rig.ran == [0, 2]
    (ended,) = rig.ended
    assert (ended.task, ended.outcome) == (1, wire.Outcome.NO_ROOM)
    assert "in use by other people" in wire.read_failure(ended.payload).message
    for task in (0, 2):
        rig.processes.end(task)
    rig.say()
    run(rig, 1, "ben")
    assert eventually(lambda: rig.say() == [] and rig.ran == [1], PATIENCE_S)


def test_files_are_put_into_the_place_of_their_person_and_it_is_held_until_they_are_removed(
    rig: Rig, area: Path, clear: Clearing
) -> None:
    rig.command("*", inputs={"a": b"1"})
    run(rig, 0, "ann", "command")

    def has_run() -> bool:
        rig.go()
        return rig.ran == [0]

    assert eventually(has_run, PATIENCE_S)
    work = area / "a" / "in" / "0.1" / "work"
    assert (work.stat().st_uid, (work / "a").stat().st_uid) == (ONE.uid, 0)
    (work / "b").write_bytes(b"2")
    os.chown(work / "b", ONE.uid, ONE.gid)
    rig.processes.end(0)
    rig.go()
    assert rig.store.files(wire.unwrap(rig.ended[0].payload).trees[0]) == {"a": b"1", "b": b"2"}
    assert not work.exists()
    assert eventually(lambda: clear.cleared == ["a", "a"], PATIENCE_S)


# --- who can be one --------------------------------------------------------------------------------------------------


def test_accounts_are_found_by_name_and_by_pattern() -> None:
    with users(3) as names:
        stem = names[0][:-1]
        assert [account.name for account in find_accounts(f"{stem}%")] == names
        assert [account.name for account in find_accounts(f"{names[2]}, {names[0]}")] == [names[2], names[0]]
        with pytest.raises(AccountError, match=f"there is no user that matches '{stem}x%'"):
            find_accounts(f"{stem}%,{stem}x%")


def test_accounts_that_share_a_group_are_refused() -> None:
    with users(2) as names:
        changed(names[1], "--append", "--groups", names[0])
        with pytest.raises(AccountError, match=f"{names[1]} and {names[0]} have a group in common"):
            find_accounts(",".join(names))
        changed(names[1], "--groups", "")


def test_an_account_whose_group_another_user_of_the_machine_has_is_refused() -> None:
    with users(2) as (account, other):
        changed(other, "--gid", account)
        with pytest.raises(AccountError, match=f"{other} and {account} have a group in common"):
            find_accounts(account)
        changed(other, "--gid", other)
        changed(other, "--append", "--groups", account)
        with pytest.raises(AccountError, match=f"{other} and {account} have a group in common"):
            find_accounts(account)
        changed(other, "--groups", "")


def test_an_account_that_can_write_to_its_home_is_refused(area: Path) -> None:
    with users(1) as names:
        changed(names[0], "--home", str(area))
        assert find_accounts(names[0])
        os.chown(area, pwd.getpwnam(names[0]).pw_uid, -1)
        with pytest.raises(AccountError, match="where one person's tasks would find what another's have left"):
            find_accounts(names[0])


def test_another_worker_cannot_use_the_same_accounts(area: Path) -> None:
    with reserved([ONE], area):
        with pytest.raises(AccountError, match="another worker of this PC uses a"), reserved([TWO, ONE], area):
            pytest.fail("both use it")
        with reserved([TWO], area):
            pass
    with reserved([ONE], area):
        pass


# --- clearing --------------------------------------------------------------------------------------------------------

# What a task may leave behind: processes in sessions of their own, some of which only fork, and files everywhere.
_LEAVE = """
import ctypes, os, sys, time
uid, home, other = sys.argv[1:]
libc = ctypes.CDLL(None)
os.setgroups([])
os.setgid(int(uid))
os.setuid(int(uid))
os.setsid()
if not os.fork():
    os.setsid()
    while True:
        if os.fork():
            os._exit(0)
for place in (home, "/tmp", "/var/tmp", "/dev/shm", other):
    os.makedirs(f"{place}/left-{os.getpid()}/locked")
    open(f"{place}/left-{os.getpid()}/locked/file", "w").close()
    os.chmod(f"{place}/left-{os.getpid()}/locked", 0)
libc.shmget(0, 4096, 0o1600)
libc.semget(0, 1, 0o600)
libc.msgget(0, 0o600)
print("ready", flush=True)
if os.fork():
    os._exit(0)
time.sleep(1000)
"""


def _left_by(uid: int) -> list[str]:
    found = []
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        found += [path.path for path in os.scandir(place) if path.stat(follow_symlinks=False).st_uid == uid]
    rows = [row for table in Path("/proc/sysvipc").glob("*") for row in table.read_text().splitlines()[1:]]
    return found + [row for row in rows if str(uid) in row.split()]


def _running_as(uid: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == uid and b") Z " not in (path / "stat").read_bytes():
                found.append(path.name)
        except OSError:
            pass
    return found


@contextmanager
def running(argv: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/", **how) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_all_that_an_account_runs_and_has_left_goes_and_nothing_else(area: Path) -> None:
    area.chmod(0o755)
    with users(2) as names:
        one, two = find_accounts(",".join(names))
        for folder in ("home", "everybodys"):
            (area / folder).mkdir()
        one.own(area / "home")
        (area / "everybodys").chmod(0o777)
        (area / "everybodys" / "theirs").touch()
        argv = [sys.executable, "-I", "-c", _LEAVE, str(one.uid), str(area / "home"), str(area / "everybodys")]
        with running(["sleep", "1000"], user=two.uid, group=two.gid) as bystander, running(argv) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                assert eventually(lambda: _running_as(one.uid) != [])  # it has just made a copy of itself, and ended
                assert len(_left_by(one.uid)) >= 3
            finally:
                is_clean = clearing.clear(one.uid, one.gid, [str(area / "home"), str(area / "everybodys")])
            assert is_clean
            assert _running_as(one.uid) == []
            assert _left_by(one.uid) == []
            assert {path.name for path in area.rglob("*")} == {"home", "everybodys", "theirs"}
            assert bystander.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_folders_in_folders_of_somebody_else_keep_no_account_from_being_cleared(area: Path) -> None:
    area.chmod(0o755)
    folder, old = area, os.umask(0)
    try:
        for _ in range(1500):
            folder /= "d"
            folder.mkdir()  # which everybody can write to
    finally:
        os.umask(old)
    with users(1) as names:
        (one,) = find_accounts(*names)
        (folder / "left").touch()
        one.own(folder / "left")
        is_clean, left = clearing.clear(one.uid, one.gid, [str(area)]), list(folder.iterdir())
    beneath.remove(area, "d")
    assert is_clean
    assert left == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_an_account_leaves_on_a_disk_that_everybody_can_write_to_is_found(area: Path) -> None:
    (area / "for all").mkdir()
    (area / "for all").chmod(0o1777)
    (area / "closed").mkdir(mode=0o755)
    rows = [f"/dev/sda1 {area}/for\\040all ext4 rw 0 0", f"tmpfs {area}/for\\040all tmpfs rw 0 0"]
    rows += [
        f"/dev/sda2 {area}/closed ext4 rw 0 0",
        f"server:/all {area}/for\\040all nfs4 rw 0 0",
        "none /gone tmpfs rw",
        "a\rname /mnt/of\ra fuse.task rw 0 0",
    ]
    (area / "mounts").write_text("\n".join(rows), newline="")
    assert [*clearing._open_disks(str(area / "mounts"))] == [f"{area}/for all"] * 2


# What stands for a program that keeps what is to run later, for root to carry out: a file that it was let write.
_KEEPER = """#!/bin/sh
case "${{0##*/}} $1" in
    "crontab -r") rest=$(grep -v "^every" {kept}) ;;
    "crontab -l") grep "^every" {kept}; exit ;;
    "atq ") grep -v "^every" {kept}; exit ;;
    "atrm "*) rest=$(grep -v "^$1\\b" {kept}) ;;
esac
echo "$rest" > {kept}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_an_account_has_run_later_is_taken_back(area: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    area.chmod(0o755)
    kept = area / "kept"
    kept.write_text("every minute\n3\ttomorrow\n17\tin a year\n")
    for program in ("crontab", "atq", "atrm"):
        (area / program).write_text(_KEEPER.format(kept=kept))
        (area / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{area}:{os.environ['PATH']}")
    with users(1) as names:
        (one,) = find_accounts(*names)
        one.own(kept)
        kept.chmod(0o600)
        assert clearing.clear(one.uid, one.gid, [])
        assert kept.read_text().strip() == ""
        monkeypatch.setattr(clearing, "ROUNDS", 1)
        (area / "crontab").write_text("#!/bin/sh\necho every minute\n")
        assert not clearing.clear(one.uid, one.gid, [])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_an_account_is_not_clean_if_nobody_can_be_asked_what_it_has_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks_memory(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with users(1) as names:
        (one,) = find_accounts(*names)
        monkeypatch.setattr(clearing, "ROUNDS", 1)
        assert clearing.clear(one.uid, one.gid, [])
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "run", lacks_memory)
            assert not clearing.clear(one.uid, one.gid, [])


def test_why_an_account_is_not_clean_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def stays(*_: object) -> None:
        raise ValueError("something stays")

    monkeypatch.setattr(clearing, "ROUNDS", 1)
    monkeypatch.setattr(clearing, "_tidy", stays)
    assert not clearing.clear(ONE.uid, ONE.gid, [])
    said = capfd.readouterr().err
    assert said == "ValueError: something stays\n"
    ended: Any = subprocess.CompletedProcess([], 1, b"", said.encode())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    assert not clear_account(ONE, [])
    assert caplog.messages == ["account-not-clean name='a' why='ValueError: something stays': nobody gets it"]


# Adds a key to the keyring of the user that it becomes, or looks for it: add_key(2) and KEYCTL_SEARCH.
_KEYS = """
import ctypes, os, sys
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
call = ctypes.CDLL(None).syscall
if sys.argv[1] == "add":
    print(call({keyctl} - 2, b"user", b"deskgrid-test", b"secret", ctypes.c_size_t(6), -4) > 0)
else:
    print(call({keyctl}, 10, -4, b"user", b"deskgrid-test", 0) > 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs keyctl")
def test_keys_that_the_kernel_keeps_for_an_account_go() -> None:
    keyctl = clearing._KEYCTL[os.uname().machine]

    def ask(uid: int, what: str) -> bool:
        program = _KEYS.format(uid=uid, keyctl=keyctl)
        said = subprocess.run([sys.executable, "-I", "-c", program, what], check=True, capture_output=True).stdout
        return said == b"True\n"

    with users(1) as names:
        (one,) = find_accounts(*names)
        if not ask(one.uid, "add"):
            pytest.skip("this kernel keeps no keys")
        assert ask(one.uid, "find")
        assert clearing.clear(one.uid, one.gid, [])
        assert not ask(one.uid, "find")


def test_root_is_never_cleared() -> None:
    assert not clearing.clear(0, 0, [])
