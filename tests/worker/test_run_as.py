"""Tasks of another user: ``deskgrid worker --run-as``. Real processes; by root only, for nobody else can do it."""

import os
import pickle
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import File
from deskgrid.client.grid import Grid
from deskgrid.worker.run.accounts import AccountError, find_account
from deskgrid.worker.run.folders import PREFIX
from tests.executor.rig import alive, call, command_template, python_template, written
from tests.live import ROOT, LiveGrid, live_grid
from tests.peers import PATIENCE_S
from tests.waiting import eventually
from tests.worker.machine import WorkerProcess, worker_process

if sys.platform != "win32":
    import pwd

USER = "nobody"
# Has a command run where everybody can read these folders, each bound to a place of its own meanwhile.
_MOUNTS = """
set -e
{keep}
{hide}
{show}
exec "$@"
"""


def closed(path: Path) -> Path | None:
    """The topmost folder on the way to ``path`` that others cannot enter."""
    return next((each for each in [*reversed(path.parents), path] if not each.stat().st_mode & stat.S_IXOTH), None)


def prefix(place: Path) -> list[str]:
    """What a command begins with so that every user can run this Python: nothing, or a mount namespace of its own."""
    needed = [path for path in {Path(sys.base_prefix), Path(sys.prefix), ROOT} if closed(path)]
    if not needed:
        return []
    kept = {path: place / f"kept{number}" for number, path in enumerate(needed)}
    for folder in kept.values():
        folder.mkdir()
    script = _MOUNTS.format(
        keep="\n".join(f"mount --bind {path} {folder}" for path, folder in kept.items()),
        hide="\n".join({f"mount -t tmpfs -o mode=755 tmpfs {closed(path)}" for path in needed}),
        show="\n".join(f"mkdir -p {path}; mount --bind {folder} {path}" for path, folder in kept.items()),
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def can_be_tried() -> bool:
    """Whether this process may become another user, and has that user."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as place:
        tried = subprocess.run([*prefix(Path(place)), "true"], capture_output=True, check=False)
    return tried.returncode == 0


by_root = pytest.mark.skipif(not can_be_tried(), reason="only root can run tasks as another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="run-as-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def live(place: Path) -> Iterator[LiveGrid]:
    with live_grid(place / "broker") as started:
        yield started


@pytest.fixture
def start(live: LiveGrid, place: Path) -> Callable[[], Any]:
    """Starts a worker that runs tasks as another user; its temporary folders are in ``place/tmp``."""
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o755)
    begin, home = prefix(place), str(place / "pc")
    options = [
        "--join",
        live.broker.ready.worker_line,
        "--home",
        home,
        "--name",
        "pc1",
        "--slots",
        "1",
        "--files",
        f"{place}/files",
    ]
    environment = {"TMPDIR": str(place / "tmp"), "DESKGRID_JOIN": live.broker.ready.client_line, "MINE": "secret"}
    return lambda: worker_process(place / "log", *options, "--run-as", USER, prefix=begin, **environment)


def value_of(live: LiveGrid, template: bytes, payload: bytes = call()) -> Any:
    client = live.client()
    (result,) = client.results(client.submit([payload], template, runtime=0.1))
    assert result.outcome == 0, bytes(result.payload)
    return pickle.loads(bytes(result.payload))


def _who() -> dict[str, Any]:
    import os

    print("said by a task")
    with open("/proc/self/environ", encoding="utf-8") as file:
        environ = file.read()
    ids = os.getresuid(), os.getresgid(), sorted(os.getgroups())
    return {
        "ids": ids,
        "variables": dict(os.environ),
        "environ": environ,
        "folder": os.getcwd(),
        "umask": os.umask(0o77),
    }


@by_root
def test_tasks_run_as_that_user_in_a_clean_environment_and_their_output_is_captured(
    live: LiveGrid, start: Callable[[], Any]
) -> None:
    entry = pwd.getpwnam(USER)
    with start() as worker:
        assert worker.joined()
        client = live.client()
        bag = client.submit([call()], python_template(_who), runtime=0.1)
        (result,) = client.results(bag)
        found = pickle.loads(bytes(result.payload))
        assert client.ask("logs", bag=bag, item=0)["stdout"] == "said by a task\n"
        assert value_of(live, command_template("id", "-un"), b"") == f"{USER}\n"
    uid, gid = entry.pw_uid, entry.pw_gid
    groups = sorted(os.getgrouplist(USER, gid))
    assert found["ids"] == ((uid, uid, uid), (gid, gid, gid), groups)
    home = entry.pw_dir if Path(entry.pw_dir).is_dir() else "/"
    assert found["folder"] == home
    assert {name: found["variables"].get(name) for name in ("HOME", "USER", "LOGNAME")} == {
        "HOME": home,
        "USER": USER,
        "LOGNAME": USER,
    }
    for text in (found["environ"], str(found["variables"])):
        assert "DESKGRID" not in text
        assert "secret" not in text


def _tried(paths: list[str]) -> list[str]:
    """What of it this process can read, list or change."""
    import os

    found = []
    for path in [*paths, f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/fd", f"/proc/{os.getppid()}/mem"]:
        for attempt in (lambda path=path: open(path, "rb").close(), lambda path=path: os.listdir(path)):
            try:
                attempt()
                found.append(path)
            except OSError:
                pass
    return found


@by_root
def test_no_task_can_read_a_key_or_what_the_worker_keeps(live: LiveGrid, start: Callable[[], Any], place: Path) -> None:
    with start() as worker:
        assert worker.joined()
        folders = [path for path in (place / "tmp").iterdir() if path.is_dir()]
        secret = [*(place / "pc").rglob("*"), place / "pc", *(place / "broker").rglob("*"), *folders, place / "files"]
        assert [path for path in secret if path.suffix == ".join"]
        assert value_of(live, python_template(_tried), call([*map(str, secret)])) == []
        (folder,) = folders
        assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (0o710, 0)


@by_root
def test_a_task_can_open_its_output_by_name(live: LiveGrid, start: Callable[[], Any]) -> None:
    def opened() -> tuple[int, ...]:
        import pathlib

        return tuple(pathlib.Path(f"/dev/{name}").write_text("text") for name in ("stdout", "stderr"))

    with start() as worker:
        assert worker.joined()
        assert value_of(live, python_template(opened), call()) == (4, 4)


@by_root
def test_modules_that_travel_can_be_imported_and_not_changed(live: LiveGrid, start: Callable[[], Any]) -> None:
    def imported() -> tuple[int, bool]:
        import importlib
        import os

        travelled = importlib.import_module("travelled")
        return travelled.VALUE, os.access(str(travelled.__file__), os.W_OK)

    with start() as worker:
        assert worker.joined()
        assert value_of(live, python_template(imported, {"travelled.py": b"VALUE = 42"})) == (42, False)


@by_root
def test_what_a_task_started_is_killed_with_it(live: LiveGrid, start: Callable[[], Any], place: Path) -> None:
    notes = place / "notes"
    notes.mkdir()
    notes.chmod(0o777)
    with start() as worker:
        assert worker.joined()
        client = live.client()
        script = f"echo $$ > {notes}/shell; sleep 1000 & echo $! > {notes}/sleep; wait"
        bag = client.submit([b""], command_template("sh", "-c", script), runtime=1000.0)
        pids = [int(written(notes / name)) for name in ("shell", "sleep")]
        assert [Path(f"/proc/{pid}").stat().st_uid for pid in pids] == [pwd.getpwnam(USER).pw_uid] * 2
        client.ask("cancel", bag=bag)
        assert eventually(lambda: not any(map(alive, pids)), PATIENCE_S)
        assert value_of(live, python_template(lambda: 1)) == 1


@by_root
def test_nothing_is_left_of_a_worker_that_was_killed_when_the_next_one_starts(
    live: LiveGrid, start: Callable[[], Any], place: Path
) -> None:
    worker: WorkerProcess
    with start() as worker:
        assert worker.joined()
        pid = value_of(live, python_template(lambda: __import__("os").getpid()))
        worker.kill()
        assert eventually(lambda: not alive(pid), PATIENCE_S)
    left = [*(place / "tmp").glob(f"{PREFIX}*"), *(place / "files").glob(f"{PREFIX}*")]
    assert left
    with start() as worker:
        assert worker.joined(2)
        assert not [path for path in left if path.exists()]
    assert not list((place / "tmp").iterdir())
    assert sorted(path.name for path in (place / "files").iterdir()) == ["cache", "wheels"], "the cache stays"


@by_root
def test_what_a_task_of_that_user_left_in_shared_memory_is_gone(live: LiveGrid, start: Callable[[], Any]) -> None:
    def leaves(name: str) -> None:
        import os
        from multiprocessing import resource_tracker
        from multiprocessing.shared_memory import SharedMemory

        SharedMemory(name, create=True, size=100)
        with open(f"/dev/shm/{name}-too", "wb"):
            resource_tracker.unregister(f"/{name}", "shared_memory")
            os.kill(os.getpid(), 9)

    names = [f"deskgrid-test-{os.getpid()}", f"deskgrid-test-{os.getpid()}-too"]
    with start() as worker:
        assert worker.joined()
        client = live.client()
        client.results(client.submit([call(names[0])], python_template(leaves), runtime=0.1))
        assert eventually(lambda: not any(Path("/dev/shm", name).exists() for name in names), PATIENCE_S)


# --- who cannot be --------------------------------------------------------------------------------------------------


@by_root
@pytest.mark.parametrize(
    ("user", "reason"), [("root", "choose another user"), ("no-such-user", "there is no user 'no-such-user'")]
)
def test_a_user_that_tasks_cannot_run_as_is_refused(user: str, reason: str) -> None:
    with pytest.raises(AccountError, match=reason):
        find_account(user)


@by_root
def test_a_user_who_cannot_run_this_python_is_refused_before_anything_is_asked(live: LiveGrid, place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    options = ["--join", live.broker.ready.worker_line, "--home", str(place / "pc"), "--run-as", USER]
    with worker_process(place / "log", *options, prefix=prefix(place), TMPDIR=str(place / "closed")) as worker:
        assert worker.ends() == 2
        (line,) = [line for line in worker.said.splitlines() if line.startswith("deskgrid: ")]
        assert line.startswith(f"deskgrid: {USER} cannot run tasks: it needs")
        assert line.endswith(f"and cannot enter {place / 'closed'}")
        assert "enrolled" not in worker.said


@pytest.mark.skipif(sys.platform == "win32", reason="Windows refuses in other words")
def test_only_root_can_run_tasks_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(AccountError, match="only root can run tasks as another user"):
        find_account(USER)


def _leaves(given: Any) -> Any:
    with open(given["file"]) as file, open(given["make"]("deep/out.txt"), "w") as out:
        out.write(file.read() * 2)
    return given["make"]("deep/out.txt")


@by_root
def test_tasks_of_that_user_are_given_files_and_leave_others(
    live: LiveGrid, start: Callable[[], Any], place: Path
) -> None:
    (place / "data.csv").write_text("1,2")
    with start() as worker, Grid(live.broker.ready.client_line) as grid:
        assert worker.joined()
        script = "id -un > out; cat data.csv >> out; echo more >> data.csv; ln -s /etc/shadow secret; true"
        argv = ["sh", "-c", script]
        inputs = [str(place / "data.csv")]
        bag = grid.command(argv, [""], runtime=1, inputs=inputs, outputs=["out"])
        assert bag.wait(PATIENCE_S)
        assert "Permission denied" in bag.logs(0).stderr
        (path,) = bag.fetch(place / "to", 0)
        assert path.read_text() == f"{USER}\n1,2"
        (error,) = grid.command(argv, [""], runtime=1, inputs=inputs, outputs=["secret"]).results(errors="return")
        assert "is a link to something that is not in the task's folder" in str(error)
        item = {"file": File(place / "data.csv"), "make": File}
        (result,) = grid.bag(_leaves, [item], runtime=1).results()
        assert Path(result).read_text() == "1,21,2"
        files = place / "files"
        assert {path.stat().st_uid for path in (files / "cache").iterdir()} == {0}
