"""A home folder that several PCs share, as those of a university do: nothing of one host is another's."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from deskgrid.client.environments.store import WheelFolder
from deskgrid.homes import _of_linux, this_host, this_machine
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys
from deskgrid.worker import agent, identities
from deskgrid.worker.agent import WorkerError, WorkerOptions
from deskgrid.worker.environments import store
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.identities import Identities, PcIdentity
from deskgrid.worker.run.folders import PREFIX, WorkerFolder
from tests.cli.fakes import deskgrid

SERVER = new_pair()[0]


def identity(name: str) -> PcIdentity:
    return PcIdentity(name, JoinLine("worker", "lab-server", 7077, Keys(SERVER, *new_pair())))


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> "On":
    return On(monkeypatch)


class On:
    """Makes this machine another host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, host: str) -> None:
        self._monkeypatch.setattr("socket.gethostname", lambda: host)


# --- identities ------------------------------------------------------------------------------------------------------


def test_each_pc_comes_back_as_itself_however_many_have_joined(tmp_path: Path, on: On) -> None:
    known = {host: identity(host) for host in ("pcA", "pcB", "pcC")}
    for host, its in known.items():
        on(host)
        assert Identities(tmp_path).choose(None, None) is None
        Identities(tmp_path).keep(its)
    for host, its in known.items():
        on(host)
        assert Identities(tmp_path).choose(None, None) == its
        assert Identities(tmp_path).find(SERVER, host) == its


def test_the_identity_of_another_host_is_none_also_by_its_name(tmp_path: Path, on: On) -> None:
    on("pcA")
    Identities(tmp_path).keep(identity("desk"))
    on("pcB")
    assert Identities(tmp_path).choose("desk", None) is None
    assert Identities(tmp_path).find(SERVER, "desk") is None
    Identities(tmp_path).keep(identity("desk"))
    on("pcA")
    Identities(tmp_path).drop(identity("desk"))
    on("pcB")
    assert Identities(tmp_path).choose("desk", None) is not None


def test_a_pc_that_has_not_joined_hears_whose_the_identities_are_and_what_to_do(tmp_path: Path, on: On) -> None:
    for host in ("pcA", "pcB", "pcC", "pcD"):
        on(host)
        Identities(tmp_path).keep(identity(host))
    on("new")
    result = deskgrid("worker", "--home", str(tmp_path))
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "belong to other hosts (pcA, pcB, pcC, ...), and this one is new" in said
    assert "the first time, give --join with the line that the broker printed" in said
    assert f"rename its folder in {tmp_path}/identities" in said


def test_a_pc_that_was_renamed_goes_on_when_its_folder_is(tmp_path: Path, on: On) -> None:
    on("old")
    Identities(tmp_path).keep(identity("old"))
    on("new")
    (tmp_path / "identities" / "old").rename(tmp_path / "identities" / this_host())
    found = Identities(tmp_path).choose(None, None)
    assert found is not None
    assert found.name == "old"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this machine another one, which has the same host name."""
    return lambda machine_id: monkeypatch.setattr(identities, "this_machine", lambda: machine_id)


def test_a_copy_of_a_pc_has_no_identity_says_why_and_gets_one_of_its_own(
    tmp_path: Path, machine: Callable[[str], None]
) -> None:
    machine("first")
    before, after = identity("lab3-07"), identity("lab3-08")
    Identities(tmp_path).keep(before)
    assert Identities(tmp_path).copied == ""
    machine("second")
    assert Identities(tmp_path).find(SERVER, "lab3-07") is None
    assert Identities(tmp_path).choose(None, None) is None
    result = deskgrid("worker", "--home", str(tmp_path))
    assert result.exit_code == 2
    assert "were made on another machine: this PC is a copy of it" in " ".join(result.output.split())
    Identities(tmp_path).keep(after)
    assert Identities(tmp_path).choose(None, None) == after
    folder = tmp_path / "identities" / f"{this_host()}.first"
    assert [path.name for path in folder.rglob("*.join")] == ["lab3-07.join"]


def test_a_pc_that_was_installed_anew_goes_on_when_the_note_of_its_machine_is_gone(
    tmp_path: Path, machine: Callable[[str], None]
) -> None:
    machine("first")
    Identities(tmp_path).keep(identity("lab3-07"))
    machine("second")
    (tmp_path / "identities" / this_host() / "machine").unlink()
    assert Identities(tmp_path).choose(None, None) is not None


def test_a_machine_without_an_id_is_no_copy(tmp_path: Path, machine: Callable[[str], None]) -> None:
    machine("")
    Identities(tmp_path).keep(identity("lab3-07"))
    for machine_id in ("", "first", ""):
        machine(machine_id)
        assert Identities(tmp_path).choose(None, None) is not None
        Identities(tmp_path).keep(identity("lab3-07"))


def test_a_machine_id_is_one_that_the_machine_keeps(tmp_path: Path) -> None:
    file, found = tmp_path / "machine-id", "0123456789abcdef" * 2
    assert _of_linux(file, Path("/proc")) == ""
    file.write_text(f"{found}\n")
    assert _of_linux(file, Path("/proc")) == found
    assert _of_linux(file, tmp_path) == ""  # in memory, until the next start
    file.write_text("uninitialized\n")
    assert _of_linux(file, Path("/proc")) == ""
    assert this_machine() == this_machine()
    assert len(this_machine()) in (0, 16)


@pytest.mark.parametrize("name", ["..", "", "a/b", "x" * 65, "a b", "pc\udce9"])
def test_a_host_name_that_cannot_be_a_folder_is_still_one_below_the_others(on: On, name: str) -> None:
    on(name)
    assert len(this_host()) == 16
    assert this_host().isalnum()


# --- files -----------------------------------------------------------------------------------------------------------


def options(home: Path, files: Path | None = None) -> WorkerOptions:
    return WorkerOptions(JoinLine("worker", "127.0.0.1", 1, None), 1, "pc", home, files=files)


def opened(options: WorkerOptions, said: list[str]) -> list[Path]:
    """The folders that a worker uses, which are closed."""
    cache, wheels, tasks, sites = agent._places(options, said.append)
    assert isinstance(cache, FileCache)
    found = [cache._folder, wheels.folder, tasks.path, sites.path]
    tasks.close()
    sites.close()
    return found


@pytest.mark.parametrize("given", [False, True])
def test_caches_and_folders_of_different_hosts_never_meet(tmp_path: Path, on: On, given: bool) -> None:
    found = []
    for host in ("pcA", "pcB"):
        on(host)
        found.append(opened(options(tmp_path / "home", tmp_path / "files" if given else None), []))
    assert not {path.parent for path in found[0]} & {path.parent for path in found[1]}


def test_the_folder_of_a_worker_on_another_host_is_left_alone_also_without_locks(tmp_path: Path, on: On) -> None:
    """Its lock may be free here: on some network disks a lock is one of the machine that took it."""
    on("pcA")
    theirs = tmp_path / "home" / "files" / "pcA"
    theirs.mkdir(parents=True)
    left = WorkerFolder(theirs)
    os.close(left._lock or 0)  # what the other host sees
    on("pcB")
    opened(options(tmp_path / "home"), [])
    assert left.path.is_dir()


@pytest.mark.skipif(os.name != "posix", reason="Windows always has locks")
@pytest.mark.parametrize("given", [False, True])
def test_where_there_are_no_locks_files_are_kept_elsewhere_or_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    import fcntl

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if f"{tmp_path}/net" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOLCK, "No locks available")
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    said: list[str] = []
    if given:
        with pytest.raises(WorkerError, match="has no locks: with --files, name a folder on a disk of this PC"):
            opened(options(tmp_path / "home", tmp_path / "net" / "files"), said)
    else:
        assert all(path.is_relative_to(tmp_path / "tmp") for path in opened(options(tmp_path / "net"), said))
        assert "has no locks, so stored files are kept in" in said[0]
    (tmp_path / "net" / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "net" / "tmp"))
    with pytest.raises(WorkerError, match="has no locks: with TMPDIR, name a folder on a disk of this PC"):
        opened(options(tmp_path / "home"), said)


def test_names_of_unfinished_files_are_no_process_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Process ids repeat: on other hosts, and in containers."""
    monkeypatch.setattr("os.getpid", lambda: 42)
    names: list[str] = []
    real = Path.replace

    def noted(self: Path, target: Path) -> Path:
        names.append(self.name)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    cache = FileCache(tmp_path / "cache", 2**20)

    for _ in range(2):
        cache.put_tree(sha256(b"x").digest(), b"x")
    assert len(set(names)) == 2
    assert store._gone() != store._gone()


def test_two_programs_note_the_same_wheels_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 42)
    first = WheelFolder(tmp_path)
    real = os.replace
    sources: list[str] = []

    def slow(source: Path, target: Path) -> None:
        sources.append(str(source))
        if len(sources) == 1:
            WheelFolder(tmp_path).note("key", [])
        real(source, target)

    monkeypatch.setattr(os, "replace", slow)
    first.note("key", [])
    assert len(set(sources)) == 2
    assert first.resolved("key") == []
    assert not list(tmp_path.glob("new-*"))


def test_the_folders_of_dead_workers_of_this_host_go(tmp_path: Path) -> None:
    place = tmp_path / "home" / "files" / this_host()
    place.mkdir(parents=True)
    left = WorkerFolder(place)
    os.close(left._lock or 0)
    found = opened(replace(options(tmp_path / "home")), [])
    assert not left.path.exists()
    assert all(path.name.startswith(PREFIX) for path in found[2:])
