"""The user's modules: they may have any name, and those of two bags do not mix."""

import errno
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid.worker.run.jobs import NoRoomError, TemplateError
from deskgrid.worker.run.templates import FOLDERS_LIMIT, PARTS_LIMIT, read_template
from tests.executor.rig import Rig, call, command_template, python_template, value

ROOT = Path(__file__).parents[2]


# Folders of ours are called so, too.
NAMES = ("worker", "scheduler", "client", "wire", "broker")


def whose() -> Any:
    """A function that imports by name what the bundle brings."""

    def task() -> list[str]:
        return [import_module(name).WHOSE for name in NAMES]

    return task


def test_a_user_may_have_modules_with_the_names_of_our_folders(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # as if ours were installed
    monkeypatch.chdir(ROOT)
    bundle = {f"{name}.py": b"WHOSE = 'the user'" for name in NAMES[:-1]}
    bundle["broker/__init__.py"] = b"from broker.inner import WHOSE"
    bundle["broker/inner.py"] = b"WHOSE = 'the user, in a package'"
    (ended,) = rig.run(rig.know(python_template(whose(), bundle)), call())
    assert value(ended) == ["the user"] * 4 + ["the user, in a package"]


def test_our_own_folder_is_not_on_the_path(rig: Rig) -> None:
    assert value(rig.call(lambda: find_spec("executor"))) is None


def test_functions_and_arguments_by_name_are_found_in_the_bundle(rig: Rig) -> None:
    bundle = {"worker.py": b"class Point:\n    x = 3\ndef read(point): return point.x"}
    digest = rig.know(python_template(b"cworker\nread\n.", bundle))
    assert value(rig.run(digest, b"((cworker\nPoint\nt}\x86.")[0]) == 3


def test_bundles_with_the_same_module_do_not_mix(rig: Rig) -> None:
    one = rig.know(python_template(b"cmine\nread\n.", {"mine.py": b"def read(): return 1"}))
    two = rig.know(python_template(b"cmine\nread\n.", {"mine.py": b"def read(): return 2"}))
    none = rig.know(python_template(lambda: find_spec("mine")))
    assert [value(rig.run(digest, call())[0]) for digest in (one, two, none, one)] == [1, 2, None, 1]


def test_a_command_in_between_does_not_make_a_process_forget_its_bundle(rig: Rig) -> None:
    one = rig.know(python_template(b"cmine\nread\n.", {"mine.py": b"def read(): return 1"}))
    two = rig.know(python_template(b"cmine\nread\n.", {"mine.py": b"def read(): return 2"}))
    command = rig.know(command_template(sys.executable, "-c", "print('between')"))
    ended = [rig.run(digest, payload)[0] for digest, payload in ((one, call()), (command, b""), (two, call()))]
    assert [value(one) for one in ended] == [1, f"between{os.linesep}", 2]


def test_templates_with_the_same_bundle_and_commands_share_a_process(rig: Rig) -> None:
    bundle = {"mine.py": b"import os\ndef one(): return os.getpid()\ndef two(): return os.getpid()"}
    one = rig.know(python_template(b"cmine\none\n.", bundle))
    two = rig.know(python_template(b"cmine\ntwo\n.", bundle))
    command = rig.know(command_template(sys.executable, "-c", "import os; print(os.getppid())"))
    pids = [value(rig.run(digest, payload)[0]) for digest, payload in ((one, call()), (command, b""), (two, call()))]
    assert {int(pid) for pid in pids} == {pids[0]}


def test_a_function_is_loaded_once_and_its_output_belongs_to_the_first_task(rig: Rig) -> None:
    source = b"def f(): pass\ndef make():\n    print('loaded')\n    return f"
    digest = rig.know(python_template(b"cmine\nmake\n)R.", {"mine.py": source}))
    outputs = [ended.stdout for ended in rig.run(digest, call(), call()) + rig.run(digest, call())]
    assert outputs == [b"loaded\n", b"", b""]


def test_a_bundle_is_unpacked_once_for_all_templates_that_bring_it(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "bundles"
    bundle = {"mine/deep.py": b"def f(): return 1", "mine/__init__.py": b""}
    unpacked = [read_template(python_template(f"cmine.deep\n{name}\n.".encode(), bundle), cache) for name in "fg"]
    (folder,) = cache.iterdir()
    assert [template.body["folder"] for template in unpacked] == [str(folder)] * 2
    assert (folder / "mine" / "deep.py").read_bytes() == b"def f(): return 1"


@pytest.mark.parametrize(
    "path",
    [
        "{here}/evil.py",
        "../evil.py",
        "a/../../evil.py",
        "a/..",
        "",
        ".",
        "./a.py",
        "a//b.py",
        "a\\b.py",
        "C:a.py",
        "a\0.py",
        5,
    ],
)
def test_a_bundle_cannot_write_outside_its_folder(tmp_path: Path, path: object) -> None:
    if isinstance(path, str):
        path = path.format(here=tmp_path)  # an absolute one; a broken check must not reach further than this test
    with pytest.raises(TemplateError):
        read_template(_python_blob(bundle={path: b"evil"}), tmp_path / "in" / "cache")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize(
    "paths",
    [
        ["a/" * PARTS_LIMIT + "x.py"],
        [f"{number}/" + "a/" * (PARTS_LIMIT - 3) + "x.py" for number in range(FOLDERS_LIMIT // (PARTS_LIMIT - 2) + 1)],
    ],
)
def test_a_bundle_of_very_many_folders_is_refused_before_any_is_made(tmp_path: Path, paths: list[str]) -> None:
    with pytest.raises(TemplateError):
        read_template(_python_blob(bundle=dict.fromkeys(paths, b"")), tmp_path / "cache")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, NoRoomError), (errno.EROFS, NoRoomError), (errno.ENAMETOOLONG, TemplateError)]
)
def test_who_is_to_blame_for_a_bundle_that_cannot_be_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TemplateError]
) -> None:
    def write(path: Path, data: bytes) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(TemplateError) as raised:
        read_template(_python_blob(bundle={"a.py": b""}), tmp_path)
    assert type(raised.value) is kind
    assert not list(tmp_path.iterdir())


def test_a_bundle_may_have_deep_folders(tmp_path: Path) -> None:
    deepest = "a/" * (PARTS_LIMIT - 1) + "x.py"
    read_template(_python_blob(bundle={deepest: b""}), tmp_path)
    assert [each.name for each in tmp_path.rglob("*.py")] == ["x.py"]


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"garbage",
        b"\xc1",
        b"\x91" * 5000,
        msgpack.packb(None),
        msgpack.packb([1, 2]),
        msgpack.packb({"kind": "python"}),
        msgpack.packb({"kind": "other", "argv": ["true"]}),
        msgpack.packb({"kind": "command", "argv": []}),
        msgpack.packb({"kind": "command", "argv": "true"}),
        msgpack.packb({"kind": "command", "argv": ["true", 5]}),
        msgpack.packb({"kind": "python", "python": "3.11", "function": "text", "bundle": {}}),
        msgpack.packb({"kind": "python", "python": "3.11", "function": b"", "bundle": {"a.py": "text"}}),
        msgpack.packb({"kind": "python", "python": "3.11", "function": b"", "bundle": {"a": b"", "a/b": b""}}),
    ],
)
def test_a_malformed_template_is_refused(rig: Rig, blob: bytes) -> None:
    with pytest.raises(TemplateError):
        rig.executor.know("digest", blob)
    assert not rig.executor.knows("digest")


def test_a_known_template_is_known(rig: Rig) -> None:
    assert rig.executor.knows(rig.know(python_template(lambda: 1)))


def _python_blob(bundle: object) -> bytes:
    return bytes(msgpack.packb({"kind": "python", "python": "3.11", "function": b"", "bundle": bundle}))
