"""Tasks of another user: ``deskgrid worker --run-as``. Real processes; by root only, for nobody else can do it."""

import os
import pickle
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deskgrid import File
from deskgrid.client.grid import Grid
from deskgrid.homes import this_host
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys
from deskgrid.worker.run.accounts import AccountError, find_accounts
from deskgrid.worker.run.folders import PREFIX
from tests.executor.rig import alive, call, command_template, python_template, written
from tests.live import ROOT, LiveGrid, live_grid
from tests.waiting import PATIENCE_S, eventually
from tests.worker.machine import WorkerProcess, worker_process
from tests.worker.users import can_make_users, users

if sys.platform != "win32":
    import pwd

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
    if not can_make_users():
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


@pytest.fixture(scope="module")
def names() -> Iterator[list[str]]:
    """Two accounts for tasks."""
    with users(2) as made:
        yield made


@pytest.fixture
def user(names: list[str]) -> str:
    return names[0]


@pytest.fixture
def live(place: Path) -> Iterator[LiveGrid]:
    with live_grid(place / "broker") as started:
        yield started


@pytest.fixture
def start(live: LiveGrid, place: Path, user: str) -> Callable[..., Any]:
    """Starts a worker that runs tasks as other users; its temporary folders are in ``place/tmp``."""
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o755)
    begin, home = prefix(place), str(place / "pc")
    own = ["--home", home, "--name", "pc1", "--files", f"{place}/files"]
    options = ["--join", live.broker.ready.worker_line, *own]
    environment = {"TMPDIR": str(place / "tmp"), "DESKGRID_JOIN": live.broker.ready.client_line, "MINE": "secret"}

    def started(who: str = user, slots: int = 1) -> Any:
        more = ["--slots", str(slots), "--run-as", who]
        return worker_process(place / "log", *options, *more, prefix=begin, **environment)

    return started


@pytest.fixture
def ben(live: LiveGrid) -> str:
    """The line of another person."""
    public, secret = new_pair()
    live.admin().ask("keys add", role="submitter", name="ben", public=public.hex())
    own = live.broker.line("client")
    assert own.keys is not None
    return str(JoinLine("client", own.host, own.port, Keys(own.keys.server, public, secret)))


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
    live: LiveGrid, start: Callable[[], Any], user: str
) -> None:
    entry = pwd.getpwnam(user)
    with start() as worker:
        assert worker.joined(), worker.said
        client = live.client()
        bag = client.submit([call()], python_template(_who), runtime=0.1)
        (result,) = client.results(bag)
        found = pickle.loads(bytes(result.payload))
        assert client.ask("logs", bag=bag, item=0)["stdout"] == "said by a task\n"
        assert value_of(live, command_template("id", "-un"), b"") == f"{user}\n"
    uid, gid = entry.pw_uid, entry.pw_gid
    groups = sorted(os.getgrouplist(user, gid))
    assert found["ids"] == ((uid, uid, uid), (gid, gid, gid), groups)
    home = found["folder"]
    assert (Path(home).name, Path(home).parent.name) == ("home", user)
    assert {name: found["variables"].get(name) for name in ("HOME", "USER", "LOGNAME")} == {
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
    }
    for text in (found["environ"], str(found["variables"])):
        assert set(re.findall("DESKGRID[A-Z_]*", text)) <= {"DESKGRID_TASK"}
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
        assert worker.joined(), worker.said
        folders = [path for path in (place / "tmp").iterdir() if path.is_dir()]
        secret = [*(place / "pc").rglob("*"), place / "pc", *(place / "broker").rglob("*"), *folders, place / "files"]
        assert [path for path in secret if path.suffix == ".join"]
        assert value_of(live, python_template(_tried), call([*map(str, secret)])) == []
        (folder,) = folders
        assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (0o700, 0)


@by_root
def test_the_next_program_of_a_person_has_a_process_that_is_there_already(
    live: LiveGrid, start: Callable[[], Any], user: str
) -> None:
    uid = pwd.getpwnam(user).pw_uid

    def running() -> set[int]:
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                found |= {int(path.name)} if path.stat().st_uid == uid else set()
        return found

    with start() as worker:
        assert worker.joined(), worker.said
        first = value_of(live, python_template(os.getpid))
        assert eventually(lambda: len(running()) == 2)
        there = running()
        second = value_of(live, python_template(os.getpid))
    assert first != second
    assert {first, second} == there


@by_root
def test_a_task_can_open_its_output_by_name(live: LiveGrid, start: Callable[[], Any]) -> None:
    def opened() -> tuple[int, ...]:
        import pathlib

        return tuple(pathlib.Path(f"/dev/{name}").write_text("text") for name in ("stdout", "stderr"))

    with start() as worker:
        assert worker.joined(), worker.said
        assert value_of(live, python_template(opened), call()) == (4, 4)


@by_root
def test_modules_that_travel_can_be_imported_and_not_changed(live: LiveGrid, start: Callable[[], Any]) -> None:
    def imported() -> tuple[int, bool]:
        import importlib
        import os

        travelled = importlib.import_module("travelled")
        return travelled.VALUE, os.access(str(travelled.__file__), os.W_OK)

    with start() as worker:
        assert worker.joined(), worker.said
        assert value_of(live, python_template(imported, {"travelled.py": b"VALUE = 42"})) == (42, False)


@by_root
def test_what_a_task_started_is_killed_with_it(
    live: LiveGrid, start: Callable[[], Any], place: Path, user: str
) -> None:
    notes = place / "notes"
    notes.mkdir()
    notes.chmod(0o777)
    with start() as worker:
        assert worker.joined(), worker.said
        client = live.client()
        script = f"echo $$ > {notes}/shell; sleep 1000 & echo $! > {notes}/sleep; wait"
        bag = client.submit([b""], command_template("sh", "-c", script), runtime=1000.0)
        pids = [int(written(notes / name)) for name in ("shell", "sleep")]
        assert [Path(f"/proc/{pid}").stat().st_uid for pid in pids] == [pwd.getpwnam(user).pw_uid] * 2
        client.ask("cancel", bag=bag)
        assert eventually(lambda: not any(map(alive, pids)), PATIENCE_S)
        assert value_of(live, python_template(lambda: 1)) == 1


@by_root
def test_nothing_is_left_of_a_worker_that_was_killed_when_the_next_one_starts(
    live: LiveGrid, start: Callable[[], Any], place: Path
) -> None:
    worker: WorkerProcess
    with start() as worker:
        assert worker.joined(), worker.said
        pid = value_of(live, python_template(lambda: __import__("os").getpid()))
        worker.kill()
        assert eventually(lambda: not alive(pid), PATIENCE_S)
    left = [*(place / "tmp").glob(f"{PREFIX}*"), *(place / "files" / this_host()).glob(f"{PREFIX}*")]
    assert left
    with start() as worker:
        assert worker.joined(2)
        assert not [path for path in left if path.exists()]
    assert not list((place / "tmp").iterdir())
    assert sorted(path.name for path in (place / "files" / this_host()).iterdir()) == ["cache", "wheels"], (
        "the cache stays"
    )


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
        find_accounts(user)


@by_root
def test_a_user_who_cannot_run_this_python_is_refused_before_anything_is_asked(
    live: LiveGrid, place: Path, user: str
) -> None:
    (place / "closed").mkdir(mode=0o700)
    options = ["--join", live.broker.ready.worker_line, "--home", str(place / "pc"), "--run-as", user]
    with worker_process(place / "log", *options, prefix=prefix(place), TMPDIR=str(place / "closed")) as worker:
        assert worker.ends() == 2
        (line,) = [line for line in worker.said.splitlines() if line.startswith("deskgrid: ")]
        assert line.startswith(f"deskgrid: {user} cannot run tasks: it needs")
        assert line.endswith(f"and cannot enter {place / 'closed'}")
        assert "enrolled" not in worker.said


@pytest.mark.skipif(sys.platform == "win32", reason="Windows refuses in other words")
def test_only_root_can_run_tasks_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(AccountError, match="only root can run tasks as another user"):
        find_accounts("nobody")


def _leaves(given: Any) -> Any:
    with open(given["file"]) as file, open(given["make"]("deep/out.txt"), "w") as out:
        out.write(file.read() * 2)
    return given["make"]("deep/out.txt")


@by_root
def test_tasks_of_that_user_are_given_files_and_leave_others(
    live: LiveGrid, start: Callable[[], Any], place: Path, user: str
) -> None:
    (place / "data.csv").write_text("1,2")
    with start() as worker, Grid(live.broker.ready.client_line) as grid:
        assert worker.joined(), worker.said
        script = "id -un > out; cat data.csv >> out; echo more >> data.csv; ln -s /etc/shadow secret; true"
        argv = ["sh", "-c", script]
        inputs = [str(place / "data.csv")]
        bag = grid.command(argv, [""], runtime=1, inputs=inputs, outputs=["out"])
        assert bag.wait(PATIENCE_S)
        assert "Permission denied" in bag.logs(0).stderr
        (path,) = bag.fetch(place / "to", 0)
        assert path.read_text() == f"{user}\n1,2"
        (error,) = grid.command(argv, [""], runtime=1, inputs=inputs, outputs=["secret"]).results(errors="return")
        assert "is a link to something that is not in the task's folder" in str(error)
        item = {"file": File(place / "data.csv"), "make": File}
        (result,) = grid.bag(_leaves, [item], runtime=1).results()
        assert Path(result).read_text() == "1,21,2"
        files = place / "files" / this_host()
        assert {path.stat().st_uid for path in (files / "cache").iterdir()} == {0}


# --- several people --------------------------------------------------------------------------------------------------


@by_root
def test_people_have_different_accounts_at_the_same_time_and_read_nothing_of_each_other(
    live: LiveGrid, start: Callable[..., Any], place: Path, names: list[str], ben: str
) -> None:
    secret = b"secret of ann"
    (place / "data.csv").write_bytes(secret)
    notes = place / "notes"
    notes.mkdir()
    notes.chmod(0o777)

    def read(paths: list[str]) -> tuple[int, list[str]]:
        import os

        found = []
        for path in paths:
            try:
                with open(path, "rb") as file:
                    found += [path] if b"secret of ann" in file.read() else []
            except OSError:
                pass
        return os.getuid(), found

    def hold(given: Any) -> int:
        import os
        import time

        travelled = __import__("travelled")
        with open(given["make"]("mine"), "w") as mine, open(given["file"]) as file:
            mine.write(file.read() + str(travelled.__doc__))
            mine.flush()
            os.mkdir(given["ready"])
            while not os.path.exists(given["go"]):
                time.sleep(0.05)
        return os.getuid()

    (place / "travelled.py").write_text(f'"""{secret.decode()}"""')
    with (
        start(",".join(names), 2) as worker,
        Grid(live.broker.ready.client_line) as anns,
        Grid(ben) as bens,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert worker.joined(), worker.said
        patch.syspath_prepend(str(place))
        item = {"file": File(place / "data.csv"), "make": File, "ready": f"{notes}/ready", "go": f"{notes}/go"}
        bag = anns.bag(hold, [item], runtime=1000, modules=["travelled"])
        assert eventually((notes / "ready").is_dir, PATIENCE_S), worker.said
        paths = [str(path) for folder in ("tmp", "files") for path in (place / folder).rglob("*") if path.is_file()]
        assert sum(secret in Path(path).read_bytes() for path in paths) >= 3, "the input, the module and the output"
        ((uid, found),) = bens.bag(read, [paths], runtime=1).results()
        assert found == []
        (notes / "go").mkdir()
        assert {uid, *bag.results()} == {pwd.getpwnam(name).pw_uid for name in names}


@by_root
def test_the_next_person_finds_nothing_of_the_one_before(
    live: LiveGrid, start: Callable[..., Any], user: str, ben: str
) -> None:
    def leave(given: int) -> tuple[int, list[str], int]:
        import os
        import subprocess

        home = os.environ["HOME"]
        paths = [f"{place}/left-{os.getpid()}" for place in (home, "/tmp", "/var/tmp", "/dev/shm")]
        for path in paths:
            with open(path, "w") as file:
                file.write("secret")
        left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return os.getuid(), paths, left.pid

    def look(paths: list[str]) -> tuple[int, list[str]]:
        import os

        return os.getuid(), [path for path in paths if os.path.exists(path)] + os.listdir(os.environ["HOME"])

    with start() as worker, Grid(live.broker.ready.client_line) as anns, Grid(ben) as bens:
        assert worker.joined(), worker.said
        ((uid, paths, pid),) = anns.bag(leave, [0], runtime=1).results()
        ((same, found),) = bens.bag(look, [paths], runtime=1).results()
        assert same == uid == pwd.getpwnam(user).pw_uid
        assert found == []
        assert not alive(pid)
        ((again, found),) = anns.bag(look, [paths], runtime=1).results()
        assert (again, found) == (uid, [])


@by_root
def test_nothing_that_runs_as_an_account_outlives_its_worker(live: LiveGrid, start: Callable[..., Any]) -> None:
    def leave() -> int:
        import subprocess

        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid

    with start() as worker:
        assert worker.joined(), worker.said
        pid = value_of(live, python_template(leave))
    assert eventually(lambda: not alive(pid), PATIENCE_S)


@by_root
@pytest.mark.slow
def test_with_one_account_a_second_person_waits_until_the_first_has_no_task_left(
    live: LiveGrid, start: Callable[..., Any], place: Path, user: str, ben: str
) -> None:
    notes = place / "notes"
    notes.mkdir()
    with start(user, 2) as worker, Grid(live.broker.ready.client_line) as anns, Grid(ben) as bens:
        assert worker.joined(), worker.said
        assert f"tasks run as {user}: tasks of at most 1 person run at the same time" in worker.said
        hold = anns.command(["sh", "-c", f"while ! test -e {notes}/go; do sleep 0.1; done"], [""], runtime=1000)
        late = bens.command(["id", "-un"], [""], runtime=1)

        def explained() -> bool:
            return "in use by other people" in str(live.admin().ask("explain", bag=late.id, item=0))

        assert eventually(explained, PATIENCE_S)
        (notes / "go").touch()
        assert hold.wait(PATIENCE_S)
        assert late.results() == [f"{user}\n"]
