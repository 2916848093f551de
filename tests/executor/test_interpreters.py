"""The other Pythons of a PC: which are found, which are refused, and what tasks find there."""

import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import click
import pytest

from deskgrid import wire
from deskgrid.cli.sizes import worker_pythons
from deskgrid.wire import TaskOptions
from deskgrid.worker.environments import interpreters as module
from deskgrid.worker.environments.interpreters import NotAnInterpreter, copy_libraries, find_interpreters, sites_of
from tests.executor.rig import HERE, Rig, call, python_template, value

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs of these tests are scripts with #!")


def program(path: Path, *lines: str) -> str:
    """A program that prints these lines, whatever it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    path.chmod(0o755)
    return str(path)


def test_a_python_is_known_by_its_version_and_the_first_of_a_version_counts(tmp_path: Path) -> None:
    first = program(tmp_path / "a", "cpython", "3.77", "/opt/a")
    second = program(tmp_path / "b", "cpython", "3.77", "/opt/b")
    other = program(tmp_path / "c", "cpython", "3.78", "/opt/c")
    assert find_interpreters([first, second, other, sys.executable], HERE) == {"3.77": "/opt/a", "3.78": "/opt/c"}


def test_all_that_are_on_the_path_or_of_pyenv_are_found_and_what_does_not_start_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "python3.77", "cpython", "3.77", "/opt/a")
    program(tmp_path / "bin" / "python3.78-config", "cpython", "3.78", "/opt/b")
    program(tmp_path / "bin" / "python3.9", "cpython", "3.9", "/opt/c")
    (tmp_path / "bin" / "python3").symlink_to(tmp_path / "nowhere")
    program(tmp_path / "versions" / "3.79.1" / "bin" / "python3", "cpython", "3.79", "/opt/d")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), str(tmp_path / "no folder")]))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_interpreters(["auto"], HERE) == {"3.77": "/opt/a", "3.79": "/opt/d"}


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (("hello",), "is not a Python 3"),
        ((), "is not a Python 3"),
        (("pypy", "3.11", "/opt/pypy"), "is pypy, and functions of programs run on CPython only"),
        (("cpython", "3.9", "/opt/old"), "is Python 3.9; tasks need 3.11 or later"),
    ],
)
def test_what_is_no_python_for_tasks_is_refused_by_name(tmp_path: Path, lines: tuple[str, ...], complaint: str) -> None:
    path = program(tmp_path / "some python", *lines)
    with pytest.raises(click.BadParameter) as refused:
        worker_pythons([path])
    assert refused.value.message == f"{path} {complaint}"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/nowhere/python3", "/nowhere/python3 does not start: No such file or directory"),
        ("a\0b", "'a\\x00b' is not the name of a program"),
    ],
)
def test_what_does_not_start_is_refused(path: str, complaint: str) -> None:
    with pytest.raises(NotAnInterpreter) as refused:
        find_interpreters([path], HERE)
    assert str(refused.value) == complaint


def test_a_python_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_S", 0.2)
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    with pytest.raises(NotAnInterpreter, match=r"has not said its version within 0\.2 s"):
        find_interpreters([str(hangs)], HERE)


def test_a_worker_offers_so_many_versions_at_most(tmp_path: Path) -> None:
    given = [program(tmp_path / f"{minor}", "cpython", f"3.{minor}", "/x") for minor in range(70, 78)]
    assert len(worker_pythons(given[1:])) == wire.PYTHONS_LIMIT - 1
    with pytest.raises(click.BadParameter, match="at most 8 versions"):
        worker_pythons(given)
    assert worker_pythons([]) == {}


def test_a_task_on_another_python_finds_what_its_process_needs_and_nothing_else_of_the_worker(
    rigs: Callable[..., Rig], tmp_path: Path
) -> None:
    """The other Python is of the same version, and has no libraries at all."""

    def found() -> tuple[str, list[str], bool]:
        import importlib.util

        import cloudpickle
        import msgpack

        ours = [os.path.dirname(os.path.dirname(each.__file__)) for each in (cloudpickle, msgpack)]
        return sys.executable, ours, importlib.util.find_spec("click") is not None

    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare" / "bin" / "python")
    copy_libraries(tmp_path)
    copy_libraries(tmp_path)  # again, as after the folder was removed in part
    libraries = tmp_path / "libraries"
    assert {path.suffix for path in libraries.rglob("*") if path.is_file()} == {".py"}
    rig = rigs()
    rig.executor.sites = sites_of({HERE: bare}, tmp_path)
    digest = rig.know(python_template(found))
    for python, has in ((HERE, (bare, [str(libraries)] * 2, False)), (None, (sys.executable, ANY, True))):
        (job,) = rig.jobs(digest, call())
        rig.executor.run(0, [job._replace(options=TaskOptions(python=python))])
        (ended,) = rig.until(1)
        assert value(ended) == has
