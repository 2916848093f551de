"""The other Pythons of a PC: a bag of calls needs the minor version of the program that made it.

The programs of tasks (`deskgrid.worker.run.start`) run on any of these. They need two libraries of ours, of which they
find copies: the Python itself need have nothing of deskgrid.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from deskgrid.worker.environments.site import EnvironmentSite

AUTO = "auto"
# The programs of tasks are written for this version or a later one.
LEAST = (3, 11)
# How long a Python may take to say its version. Seconds.
START_S = 20.0
# What a task's process needs beside the standard library. Both can do without their compiled parts.
LIBRARIES = ("cloudpickle", "msgpack")
FOLDER = "libraries"
_ASKED = "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2], sys.executable, sep='\\n')"
_NAMES = re.compile(r"python3(\.[0-9]+)?(\.exe)?", re.IGNORECASE)


class NotAnInterpreter(ValueError):
    """A program is not a Python that tasks can have; the message says why."""


def find_interpreters(given: Iterable[str], own: str) -> dict[str, str]:
    """Return the Pythons of this PC that tasks can have, beside that of the worker: path by minor version.

    ``given``: paths or names of programs; "auto" stands for all that are found. Of several with the same version, the
    first counts. ``own``: the version of the worker. Raises `NotAnInterpreter`.
    """
    found: dict[str, str] = {}
    for each in given:
        if each != AUTO:
            version, path = version_of(each)
            found.setdefault(version, path)
            continue
        for program in _installed():
            with suppress(NotAnInterpreter):  # such as a command of pyenv for a version that is not selected
                version, path = version_of(program)
                found.setdefault(version, path)
    found.pop(own, None)
    return found


def version_of(program: str) -> tuple[str, str]:
    """Return the minor version of a Python, and the path at which it starts. Raises `NotAnInterpreter`."""
    try:
        ended = subprocess.run(
            [program, "-I", "-c", _ASKED], stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S, check=False
        )
    except OSError as error:
        raise NotAnInterpreter(f"{program} does not start: {error.strerror or error}") from error
    except ValueError as error:  # a NUL
        raise NotAnInterpreter(f"{program!r} is not the name of a program") from error
    except subprocess.TimeoutExpired:
        raise NotAnInterpreter(f"{program} has not said its version within {START_S:g} s") from None
    kind, version, path = (*os.fsdecode(ended.stdout).splitlines(), "", "", "")[:3]
    if ended.returncode or not re.fullmatch(r"\d+\.\d+", version):
        raise NotAnInterpreter(f"{program} is not a Python 3")
    if kind != "cpython":
        raise NotAnInterpreter(f"{program} is {kind}, and functions of programs run on CPython only")
    if tuple(map(int, version.split("."))) < LEAST:
        raise NotAnInterpreter(f"{program} is Python {version}; tasks need {LEAST[0]}.{LEAST[1]} or later")
    return version, path


def _installed() -> Iterator[str]:
    """What may be a Python: on the path, of pyenv, and as the launcher of Windows lists them."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(
        Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser().glob("versions/*/bin"), reverse=True
    )
    for folder in folders:
        try:
            names = sorted(entry for entry in os.listdir(folder) if _NAMES.fullmatch(entry))
        except OSError:
            continue
        yield from (str(folder / name) for name in names)
    if sys.platform == "win32" and (launcher := shutil.which("py")):
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([launcher, "-0p"], capture_output=True, timeout=START_S, check=False)
            said = os.fsdecode(done.stdout).splitlines()
            yield from (line.split(maxsplit=1)[-1].lstrip("* ") for line in said if line.strip())


def copy_libraries(folder: Path) -> None:
    """Have the source of `LIBRARIES` in ``folder``, for Pythons that find no others. Raises OSError."""
    for name in LIBRARIES:
        target = folder / FOLDER / name
        if not target.exists():
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            shutil.copytree(Path(spec.origin).parent, target, ignore=_all_but_source)


def _all_but_source(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py")]


def sites_of(interpreters: Mapping[str, str], folder: Path) -> dict[str, EnvironmentSite]:
    """Where tasks with these Pythons run, by the version. ``folder``: where `copy_libraries` has put them."""
    libraries = str(folder / FOLDER)
    return {version: EnvironmentSite("", path, libraries=libraries) for version, path in interpreters.items()}
