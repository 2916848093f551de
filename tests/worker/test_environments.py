"""Environments on a PC: wheels come, are unpacked once, and share their files."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.worker.environments import environments as module
from deskgrid.worker.environments import helpers, install
from deskgrid.worker.environments.environments import Environments
from deskgrid.worker.environments.install import ABOUT, CHANGED_S
from deskgrid.worker.environments.store import WheelStore
from deskgrid.worker.files.background import Background
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.claims import NOT_SENT, Claims
from deskgrid.worker.files.downloads import Downloads
from deskgrid.worker.run.folders import WorkerFolder
from deskgrid.worker.run.scope import LOWEST
from tests.files.fakes import Store, digest, entry
from tests.waiting import eventually
from tests.wheels import make_wheel

PYTHON = wire.this_system().python
posix = pytest.mark.skipif(sys.platform == "win32", reason="programs of wheels are for systems with #!")


class Pc:
    """A PC's disk, an `Environments`, and a broker's store of parts."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.broker = Store()
        self.now, self.used = 0.0, set[str]()
        self.said: list[wire.Prepared] = []
        self.wants: list[wire.Want] = []
        self.begin()

    def begin(self, most: int = 2**30) -> None:
        """Start a worker on this disk."""
        numbers = iter(range(1, 1_000_000))
        self.area = self.place / f"worker-{len(list(self.place.glob('worker-*')))}"
        self.area.mkdir(parents=True)
        self.cache = FileCache(self.place / "cache", 2**30)
        self.wheels = WheelStore(self.place / "wheels", most)
        self.background = Background(lambda: None)
        self.downloads = Downloads(self.cache, self.background, numbers)
        self.claims = Claims(numbers)
        self.all = Environments(
            self.wheels,
            self.cache,
            self.area,
            self.downloads,
            self.claims,
            wake=lambda: None,
            in_use=self.used.__contains__,
        )

    def end(self) -> None:
        self.all.close()
        self.background.close()
        self.downloads.close()

    def tree(self, *wheels: Path) -> bytes:
        """Store wheels at the broker; the digest of their tree."""
        return self.broker.add({path.name: path.read_bytes() for path in wheels})

    def want(self, **trees: bytes) -> None:
        """The broker says what is wanted, by key; all of it is Ann's."""
        self.all.prepare(
            wire.Prepare(tuple(wire.EnvironmentWanted(k, "bag", t, "ann", PYTHON) for k, t in trees.items())),
            self.now,
        )

    def turn(self) -> None:
        """One turn of the worker's loop, and what the broker says to that."""
        self.now += 0.01
        self.background.poll()
        self.all.poll()
        self.said += self.all.say(self.now)
        for claim in list(self.claims.say(self.now)):
            assert isinstance(claim, wire.Claim)
            assert claim.holder == "bag"
            answer = self.broker.answer(claim)
            assert isinstance(answer, wire.Lacks)
            assert self.claims.lacks(answer, self.now)
        for message in list(self.downloads.say(self.now)):
            assert isinstance(message, wire.Want)
            assert message.holder == "bag"
            self.wants.append(message)
            data = self.broker.parts.get(message.digest)
            if data is None:
                assert self.downloads.failed(message.request, "it is gone")
            else:
                self.downloads.part(wire.Part(message.request, "bag", message.digest, wire.payload_of(data)), self.now)

    def until(self, condition: Callable[[], bool]) -> None:
        def turned() -> bool:
            self.turn()
            return condition()

        eventually(turned)

    def prepared(self, count: int = 1) -> list[wire.Prepared]:
        """What is said about so many environments."""
        self.until(lambda: len(self.said) >= count)
        said, self.said = self.said, []
        return said

    def run(self, key: str, code: str) -> str:
        site = self.all.ready[key]
        argv = [site.python, "-I", "-c", code]
        return subprocess.run(argv, env=site.variables({}), capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def pc(tmp_path: Path) -> Iterator[Pc]:
    made = Pc(tmp_path / "pc")
    yield made
    made.end()
    assert [thread for thread in threading.enumerate() if thread.name == "deskgrid-files"] == []


def a_wheel(tmp_path: Path, name: str = "tiny", **more: str) -> Path:
    return make_wheel(tmp_path / "wheels", name, "1.0", {f"{name}/__init__.py": f"NAME = {name!r}\n", **more})


def test_an_environment_has_its_wheels_and_nothing_of_the_worker(pc: Pc, tmp_path: Path) -> None:
    pc.want(k=pc.tree(a_wheel(tmp_path), a_wheel(tmp_path, "other")))
    (said,) = pc.prepared()
    assert (said.key, said.readiness) == ("k", wire.Readiness.READY)
    assert said.size > 0
    assert said.seconds > 0
    assert pc.run("k", "import tiny, other; print(tiny.NAME, other.NAME)") == "tiny other"
    with pytest.raises(subprocess.CalledProcessError):
        pc.run("k", "import msgpack")
    assert pc.run("k", "import tiny; print(tiny.__spec__.cached)").startswith(pc.all.ready["k"].folder)


def test_an_environment_that_somebody_has_removed_is_made_again(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree)
    pc.prepared()
    for folder in (pc.area / module.PLACE, pc.place / "wheels", pc.place / "cache"):
        shutil.rmtree(folder)
    assert pc.all.lacks("k")
    assert pc.prepared()[0].readiness == wire.Readiness.GONE
    pc.want(k=tree)
    assert pc.prepared()[0].readiness == wire.Readiness.READY
    assert pc.run("k", "import tiny; print(tiny.NAME)") == "tiny"


def test_environments_share_files_and_a_second_one_needs_nothing_from_the_broker(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(ann=tree)
    pc.prepared()
    pc.wants.clear()
    pc.want(ann=tree, bob=tree)
    said = pc.prepared(2)
    assert pc.wants == []
    assert [(each.key, each.readiness, each.size) for each in said] == [("ann", 0, 0), ("bob", 0, 0)]
    ann, bob = pc.all.ready["ann"], pc.all.ready["bob"]
    assert ann.identity == bob.identity
    assert ann.folder != bob.folder
    places = [next(Path(site.folder).rglob("tiny/__init__.py")) for site in (ann, bob)]
    assert os.path.samefile(*places)
    assert not places[0].stat().st_mode & 0o222
    caches = [next(Path(site.folder).rglob("tiny/__pycache__/*.pyc")) for site in (ann, bob)]
    assert os.path.samefile(*caches)


def test_the_next_worker_of_the_pc_finds_the_wheels_unpacked(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree)
    pc.prepared()
    pc.end()
    pc.wants.clear()
    pc.begin()
    pc.want(k=tree)
    assert pc.prepared()[0].size == 0
    assert pc.wants == []
    assert pc.run("k", "import tiny; print(1)") == "1"


def test_what_no_bag_needs_is_let_go_unless_a_process_is_in_it(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 0)
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree, used=tree)
    pc.prepared(2)
    folders = {key: Path(site.folder) for key, site in pc.all.ready.items()}
    pc.used.add("used")
    pc.want()
    pc.until(lambda: not folders["k"].exists())
    assert pc.all.lacks("k")
    assert not pc.all.lacks("used")
    pc.used.clear()
    pc.until(lambda: not folders["used"].exists())
    assert [(each.key, each.readiness) for each in pc.said] == [("k", wire.Readiness.GONE)]


def test_the_last_environments_are_kept_although_no_bag_needs_them(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 1)
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(first=tree, second=tree, third=tree)
    pc.prepared(3)
    pc.want(first=tree)
    pc.until(lambda: len(pc.all.ready) == 2)
    pc.want()
    pc.until(lambda: list(pc.all.ready) == ["first"])
    assert not pc.all.lacks("first")


# Bytes that a wheel of these tests needs at most while it is unpacked.
MOST = 80_000


def names_of(pc: Pc) -> list[str]:
    """The wheels that are unpacked on the PC."""
    paths = (pc.place / "wheels").iterdir()
    return sorted(json.loads((path / ABOUT).read_text())["name"] for path in paths)


def again(pc: Pc, most: int) -> None:
    """Start another worker, with room for so many bytes of wheels in all."""
    pc.end()
    shutil.rmtree(pc.area)
    pc.begin(most=most)


def test_the_least_used_wheels_go_first_and_none_that_an_environment_uses(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 0)
    monkeypatch.setattr(module, "SHARE", 1.0)
    wheels = {name: a_wheel(tmp_path, name) for name in ("first", "second", "third")}
    trees = {name: pc.tree(wheel) for name, wheel in wheels.items()}
    again(pc, 2 * MOST)
    pc.want(first=trees["first"])
    pc.prepared()
    pc.want(first=trees["first"], second=trees["second"])
    pc.prepared(2)
    (tmp_path / "files").mkdir()
    needs = next(install.unpack(str(wheels["third"]), str(tmp_path / "files")))["needs"]
    again(pc, int(str(needs)) + max(install.read_about(path).bytes for path in (pc.place / "wheels").iterdir()))
    pc.want(second=trees["second"])
    pc.prepared()
    pc.want(second=trees["second"], third=trees["third"])
    pc.prepared(2)
    assert names_of(pc) == ["second", "third"]


def test_wheels_that_are_used_count_and_one_without_room_is_this_pcs_trouble(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARE", 2.0)
    again(pc, MOST)
    big = a_wheel(tmp_path, "big", **{"big/data.bin": "x" * 20_000})
    pc.want(small=pc.tree(a_wheel(tmp_path)), big=pc.tree(big))
    said = {each.key: each for each in pc.prepared(2)}
    assert said["small"].readiness == wire.Readiness.READY
    assert said["big"].readiness == wire.Readiness.TROUBLE
    assert said["big"].reason.startswith("it needs 0.1 MB, and libraries that are in use leave 0.1 of the 0 MB")
    assert names_of(pc) == ["tiny"]


def test_environments_that_no_bag_needs_make_room(pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARE", 1.0)
    again(pc, MOST)
    first, second = (pc.tree(a_wheel(tmp_path, name, **{"data.bin": "x" * 9_000})) for name in ("first", "second"))
    pc.want(first=first)
    pc.prepared()
    pc.want(second=second)
    assert [(each.key, each.readiness) for each in pc.prepared()] == [("second", wire.Readiness.READY)]
    assert [*pc.all.ready] == ["second"]
    assert names_of(pc) == ["second"]


def test_one_person_has_half_of_the_room_and_others_the_rest(pc: Pc, tmp_path: Path) -> None:
    again(pc, 2 * MOST)
    trees = [pc.tree(a_wheel(tmp_path, name, **{"data.bin": "x" * 9_000})) for name in ("first", "second")]
    ann = [wire.EnvironmentWanted(f"ann-{place}", "bag", tree, "ann", PYTHON) for place, tree in enumerate(trees)]
    pc.all.prepare(wire.Prepare((*ann, wire.EnvironmentWanted("bob", "bag", trees[1], "bob", PYTHON))), pc.now)
    said = {each.key: each for each in pc.prepared(3)}
    assert said["ann-0"].readiness == said["bob"].readiness == wire.Readiness.READY
    assert said["ann-1"].readiness == wire.Readiness.TROUBLE
    assert said["ann-1"].reason.startswith("with it, the libraries of ann would take 0.1 MB here")
    pc.all.prepare(
        wire.Prepare((ann[0], wire.EnvironmentWanted("again", "bag", trees[1], "ann", PYTHON))),
        pc.now,
    )
    said = {each.key: each for each in pc.prepared(2)}
    assert said["again"].readiness == wire.Readiness.READY, "a wheel that is here takes what it takes"


def test_a_wheel_that_somebody_wrote_to_is_unpacked_again(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree)
    pc.prepared()
    source = next(Path(pc.all.ready["k"].folder).rglob("tiny/__init__.py"))
    source.chmod(0o644)
    source.write_text("NAME = 'evil'\n")
    assert source.stat().st_mtime != CHANGED_S
    pc.want(k=tree, other=tree)
    pc.prepared(2)
    assert pc.run("other", "import tiny; print(tiny.NAME)") == "tiny"
    text = next(Path(pc.all.ready["other"].folder).rglob("tiny/__init__.py")).read_text()
    assert text == "NAME = 'tiny'\n"


def test_a_wheel_that_cannot_be_used_is_named_and_others_go_on(pc: Pc, tmp_path: Path) -> None:
    bad = make_wheel(tmp_path / "bad", "bad", record={"bad.py": "sha256=AAAA"})
    pc.want(bad=pc.tree(bad), good=pc.tree(a_wheel(tmp_path)))
    said = {each.key: each for each in pc.prepared(2)}
    assert said["bad"].package == bad.name
    assert said["bad"].readiness == wire.Readiness.REFUSED
    assert said["bad"].reason == "'bad.py' is not what RECORD says"
    assert said["good"].readiness == wire.Readiness.READY


def test_files_that_do_not_come_and_trees_that_are_none_are_said(pc: Pc) -> None:
    data = b"no tree"
    pc.broker.parts[digest(data)] = data
    pc.want(gone=bytes(32), none=digest(data))
    said = {each.key: each for each in pc.prepared(2)}
    assert (said["gone"].readiness, said["gone"].reason) == (wire.Readiness.TROUBLE, "it is gone")
    assert said["none"].readiness == wire.Readiness.REFUSED


def test_a_failed_environment_is_tried_again_when_the_broker_wants_it_again(pc: Pc, tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path)
    tree = pc.tree(wheel)
    parts, pc.broker.parts = pc.broker.parts, {}
    pc.want(k=tree)
    assert pc.prepared()[0].readiness == wire.Readiness.TROUBLE
    pc.broker.parts = parts
    pc.want(k=tree)
    assert pc.prepared()[0].readiness == wire.Readiness.READY


def test_nothing_is_prepared_while_no_window_is_open(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.all.rest()
    pc.want(k=tree)
    pc.turn()
    assert not pc.all.ready
    pc.all.start()
    assert pc.prepared()[0].readiness == wire.Readiness.READY


def test_a_window_that_closes_stops_the_helpers_and_the_next_one_goes_on(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, ran, run = pc.tree(a_wheel(tmp_path)), list[str](), pc.all._helpers.run

    def close_the_window(*argv: str, **how: Any) -> dict[str, object]:
        ran.append(argv[0])
        if len(ran) == 1:
            pc.all._helpers.stop()
        return run(*argv, **how)

    monkeypatch.setattr(pc.all._helpers, "run", close_the_window)
    pc.want(k=tree)
    pc.until(lambda: bool(ran))
    pc.all.rest()
    pc.until(lambda: pc.all._making is None)
    assert pc.said == []
    pc.all.start()
    assert pc.prepared()[0].readiness == wire.Readiness.READY


def test_a_helper_that_dies_is_this_pcs_trouble(pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.worker.environments.helpers.PROGRAM", tmp_path / "nothing.py")
    pc.want(k=pc.tree(a_wheel(tmp_path)))
    (said,) = pc.prepared()
    assert said.readiness == wire.Readiness.TROUBLE
    assert "ended before it was done" in said.reason
    pc.until(lambda: not [*(pc.area / module.PLACE).iterdir()])


def test_a_full_disk_while_it_is_unpacked_is_this_pcs_trouble(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*argv: str, **how: Any) -> dict[str, object]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pc.all._helpers, "run", full)
    pc.want(k=pc.tree(a_wheel(tmp_path)))
    (said,) = pc.prepared()
    assert (said.readiness, said.reason) == (wire.Readiness.TROUBLE, "No space left on device")


@posix
def test_a_helper_ends_with_its_worker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never.whl")
    places = [str(tmp_path / "never.whl"), str(tmp_path / "new")]
    argv = [sys.executable, "-I", str(helpers.PROGRAM), "0", "unpack", *places]
    (tmp_path / "new").mkdir()
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert eventually((tmp_path / "new" / "prefix").is_dir)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells so of a process")
def test_a_helper_gives_way_as_far_as_the_worker_was_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never.whl")
    places = [str(tmp_path / "never.whl"), str(tmp_path / "new")]
    (tmp_path / "new").mkdir()
    argv = [sys.executable, "-I", str(helpers.PROGRAM), str(LOWEST), "unpack", *places]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert eventually((tmp_path / "new" / "prefix").is_dir)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == LOWEST
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
        assert process.stdin is not None
        process.stdin.close()


def test_what_a_killed_worker_was_making_is_removed_by_the_next_one(tmp_path: Path) -> None:
    code = f"""
import os, pathlib
from deskgrid.worker.run.folders import WorkerFolder
from deskgrid.worker.environments.environments import PLACE
path = WorkerFolder(pathlib.Path({str(tmp_path)!r})).path / PLACE / "new-1" / "site"
path.mkdir(parents=True)
(path / "half.py").touch(0o444)
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    assert [*left.rglob("half.py")]
    folder = WorkerFolder(tmp_path)
    assert not left.exists()
    folder.close()


@posix
def test_commands_find_python_and_the_programs_of_the_environment(pc: Pc, tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path / "wheels",
        "tool",
        "1.0",
        {
            "tool.py": "import sys\ndef main():\n    print('tool in', sys.prefix)\n",
            "tool-1.0.data/scripts/shout": "#!python\nprint('HEY')\n",
            "tool-1.0.data/data/share/tool.txt": "text",
        },
        scripts={"tool": "tool:main"},
    )
    pc.want(k=pc.tree(wheel))
    pc.prepared()
    site = pc.all.ready["k"]
    env = site.variables({**os.environ, "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"})
    said = subprocess.run(
        "python -c 'import tool, sys; print(sys.prefix)'; tool; shout; echo $VIRTUAL_ENV $PYTHONPATH",
        shell=True,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said == [site.folder, f"tool in {site.folder}", "HEY", site.folder]
    assert Path(site.folder, "share", "tool.txt").read_text() == "text"


def test_where_links_fail_files_are_copied(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree)
    pc.prepared()

    def refuse(*args: object, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    (stored,) = (pc.place / "wheels").iterdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", refuse)
        (said,) = install.make(str(tmp_path / "copy"), str(stored))
    assert int(str(said["copied"])) > 0
    code = "import tiny; print(tiny.NAME, tiny.__spec__.cached)"
    python = tmp_path / "copy" / module._PROGRAMS / str(said["python"])
    out = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("tiny ")


def test_nobody_has_wheels_that_only_others_have_sent(pc: Pc, tmp_path: Path) -> None:
    """Ben knows what Ann's wheel is called by its content, and sends a list that names it."""
    wheel = a_wheel(tmp_path)
    tree = pc.tree(wheel)
    pc.want(ann=tree)
    pc.prepared()
    pc.broker.others = set(pc.broker.parts)
    mine = wire.Tree((entry("mine-1.0-py3-none-any.whl", wheel.read_bytes()),)).packed()
    pc.broker.parts[digest(mine)] = mine
    bens = [
        wire.EnvironmentWanted(key, "bag", name, "ben", PYTHON)
        for key, name in (("same", tree), ("mine", digest(mine)))
    ]
    pc.all.prepare(wire.Prepare((wire.EnvironmentWanted("ann", "bag", tree, "ann", PYTHON), *bens)), pc.now)
    said = {each.key: each for each in pc.prepared(3)}
    assert [*pc.all.ready] == ["ann"]
    for key in ("same", "mine"):
        assert (said[key].readiness, said[key].reason) == (wire.Readiness.TROUBLE, NOT_SENT)


# --- what is not believed ---------------------------------------------------------------------------------------------


def test_no_file_of_a_wheel_is_taken_for_what_is_known_of_another_one(pc: Pc, tmp_path: Path) -> None:
    good = a_wheel(tmp_path, "good")
    pc.want(first=pc.tree(good))
    pc.prepared()
    (stored,) = (pc.place / "wheels").iterdir()
    evil = tmp_path / "evil"
    told = json.dumps(install.About("good", "1.0", 1, {f"../../../../../../..{evil}": ("os", "getcwd")})._asdict())
    for number, place in enumerate([f".{stored.name}", ABOUT, f"{module.MARKS}/{stored.name}", f"files/{ABOUT}"]):
        name = f"bad{number}"
        bad = make_wheel(tmp_path / name, name, "1.0", {f"{name}-1.0.data/data/{place}": told, f"{name}.py": ""})
        pc.want(k=pc.tree(bad, good))
        (said,) = pc.prepared()
        assert said.readiness == wire.Readiness.READY
        assert not evil.exists()
        pc.all._drop("k")


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"name": "tiny", "version": "1.0", "bytes": -1, "scripts": {}}',
        '{"name": "../tiny", "version": "1.0", "bytes": 1, "scripts": {}}',
        '{"name": "tiny", "version": "1.0", "bytes": 1, "scripts": {"../../evil": ["os", "getcwd"]}}',
        '{"name": "tiny", "version": "1.0", "bytes": 1, "scripts": {"python3": ["os", "getcwd"]}}',
        '{"name": "tiny", "version": "1.0", "bytes": 1, "scripts": {"tool": ["os", "getcwd()\\n#"]}}',
        '{"name": "tiny", "version": "1.0", "bytes": 1, "scripts": {"tool": "os"}}',
    ],
)
def test_what_is_known_of_a_wheel_is_checked_again(pc: Pc, tmp_path: Path, told: str) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree)
    pc.prepared()
    (stored,) = (pc.place / "wheels").iterdir()
    (stored / ABOUT).chmod(0o644)
    (stored / ABOUT).write_text(told)
    pc.want(k=tree, other=tree)
    pc.prepared(2)
    assert pc.run("other", "import tiny; print(tiny.NAME)") == "tiny"
    (stored,) = (pc.place / "wheels").iterdir()
    assert install.read_about(stored).scripts == {}


def test_a_wheel_of_an_earlier_version_that_has_no_files_is_unpacked_again(pc: Pc, tmp_path: Path) -> None:
    tree = pc.tree(a_wheel(tmp_path))
    pc.want(k=tree)
    pc.prepared()
    (stored,) = (pc.place / "wheels").iterdir()
    (stored / install.FILES).rename(stored / "site")
    pc.want(k=tree, other=tree)
    pc.prepared(2)
    assert pc.run("other", "import tiny; print(tiny.NAME)") == "tiny"


# A helper that says what it likes.
LIAR = """
import sys
if sys.argv[2] == {which!r}:
    print({line!r})
else:
    import runpy
    del sys.argv[0]
    sys.argv.insert(0, {program!r})
    runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("which", "line"),
    [
        ("unpack", "nonsense"),
        ("unpack", "[1]"),
        ("unpack", '{"needs": 1e400}'),
        ("unpack", '{"needs": "much"}'),
        ("unpack", '{"unpacked": true}'),
        (
            "unpack",
            '{"needs": 9, "unpacked": true, "name": "a", "version": "1", "bytes": 1, "scripts": {"/x": ["a", "b"]}}',
        ),
        ("make", '{"python": "../../../bin/sh"}'),
        ("make", '{"python": ["python"]}'),
        ("make", '{"damaged": 7}'),
        ("make", '{"damaged": -1}'),
        ("make", '{"damaged": "/etc"}'),
    ],
)
def test_what_a_helper_says_is_checked(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, line: str
) -> None:
    program = tmp_path / "liar.py"
    program.write_text(LIAR.format(which=which, line=line, program=str(helpers.PROGRAM)))
    monkeypatch.setattr(helpers, "PROGRAM", program)
    pc.want(k=pc.tree(a_wheel(tmp_path)))
    (said,) = pc.prepared()
    assert said.readiness == wire.Readiness.TROUBLE
    assert not pc.all.ready


# Has the helper end in the middle of compiling, as a limit of the system makes it.
ENDED = """
import builtins, os, runpy, sys
real = builtins.compile
builtins.compile = lambda source, *args, **how: os._exit(9) if b"SLOW" in source else real(source, *args, **how)
del sys.argv[0]
sys.argv.insert(0, {program!r})
runpy.run_path({program!r}, run_name="__main__")
"""


def test_a_wheel_that_takes_too_long_to_compile_is_used_without_the_rest_of_its_bytecode(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ended.py"
    program.write_text(ENDED.format(program=str(helpers.PROGRAM)))
    monkeypatch.setattr(helpers, "PROGRAM", program)
    pc.want(k=pc.tree(a_wheel(tmp_path, **{"tiny/slow.py": "SLOW = 1\n"})))
    (said,) = pc.prepared()
    assert said.readiness == wire.Readiness.READY
    assert pc.run("k", "import tiny.slow; print(tiny.slow.SLOW)") == "1"


@posix
def test_a_link_that_a_task_leaves_in_an_environment_is_not_followed_when_that_is_removed(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 0)
    kept = tmp_path / "kept" / "file"
    kept.parent.mkdir()
    kept.touch()
    pc.want(k=pc.tree(a_wheel(tmp_path)))
    pc.prepared()
    folder = Path(pc.all.ready["k"].folder)
    (folder / "link").symlink_to(kept.parent)
    pc.want()
    pc.until(lambda: not folder.parent.exists())
    assert kept.exists()
