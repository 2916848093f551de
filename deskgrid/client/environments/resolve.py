"""Has pip, or uv, choose and fetch the wheels for a sort of PC, which may be another sort than this machine.

Rule 1: only wheels are chosen, so a PC needs neither a compiler nor an index.
Rule 2: conditions such as ``sys_platform == "win32"`` mean the PC. pip asks this machine instead, so it is told
otherwise (`_RUN`).
Rule 3: pip is configured as the user has configured it: nothing here names an index.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from deskgrid.client.environments.asked import AskedEnvironment, name_in
from deskgrid.client.environments.reasons import reason, reason_of_build
from deskgrid.client.environments.store import Wheel, WheelFolder
from deskgrid.durations import duration
from deskgrid.errors import BagRejected
from deskgrid.wire import System

# What the process that runs tasks imports besides Python: see `deskgrid.worker.run.child`.
NEEDS = ("cloudpickle", "msgpack")
# How long uv and pip may take: the first chooses wheels, the second also fetches and builds them. Seconds.
UV_S, PIP_S = 600.0, 3 * 3600.0
# Runs pip with the conditions of another machine: {"sys_platform": "win32", ...} is the first argument.
_RUN = """
import json, sys
conditions = json.loads(sys.argv.pop(1))
try:
    from pip._vendor.packaging import markers
    here = markers.default_environment
    markers.default_environment = lambda: {**here(), **conditions}
except (ImportError, AttributeError):
    pass
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
# The oldest glibc that wheels name for a machine, and the older names of some: manylinux2014 and so on (PEP 600).
_OLDEST_GLIBC = {"x86_64": 5, "i686": 5}
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
# What conditions call the platforms: sys_platform, platform_system, os_name.
_CALLED = {
    "linux": ("linux", "Linux", "posix"),
    "musllinux": ("linux", "Linux", "posix"),
    "macosx": ("darwin", "Darwin", "posix"),
    "win": ("win32", "Windows", "nt"),
    "win32": ("win32", "Windows", "nt"),
}


def wheels_for(asked: AskedEnvironment, system: System, store: WheelFolder) -> list[Wheel]:
    """Return the wheels of an environment on a sort of PC. Raises `BagRejected`."""
    built = [str(path) for place in asked.local for path in _built(Path(place), store)]
    key = [asked.lines, asked.constraints, built, system, needs(), _configuration()]
    wheels = store.resolved(key)
    if wheels is None:
        wheels = _chosen(asked, built, system, store)
        store.note(key, wheels)
    return wheels


def needs() -> list[str]:
    """Return the requirements of the process that runs tasks, as deskgrid itself has them."""
    try:
        found = metadata.requires("deskgrid") or []
    except metadata.PackageNotFoundError:
        found = []
    stated = {name_in(line): line for line in found}
    return [stated.get(name, name) for name in NEEDS]


def _configuration() -> list[str]:
    """What the environment variables tell pip and uv: with others, the result may be another."""
    return sorted([f"{name}={value}" for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))])


def _chosen(asked: AskedEnvironment, built: Sequence[str], system: System, store: WheelFolder) -> list[Wheel]:
    more = [line for line in needs() if name_in(line) not in asked.names]
    plain = [line for line in asked.lines if line not in asked.pinned]
    with store.room() as room:
        if asked.pinned:
            choices = [line for line in plain if line.startswith("-")]
            _fetch(room, asked, [*choices, *asked.pinned], system, ["--no-deps"])
        pins = [line.partition(";")[0].partition(" --hash")[0] for line in asked.pinned]
        _fetch(room, replace(asked, constraints=(*asked.constraints, *pins)), [*plain, *more, *built], system)
        return sorted(store.add(room / "wheels"))


def _fetch(
    room: Path, asked: AskedEnvironment, lines: Sequence[str], system: System, options: Sequence[str] = ()
) -> None:
    """Have pip put the wheels of requirements into ``room``."""
    if not lines:
        return
    constraints = room / "constraints.txt"
    constraints.write_text("\n".join(asked.constraints), "utf-8")
    wanted = room / "requirements.txt"
    by_uv = None if options or asked.local else _by_uv(lines, constraints, system)
    wanted.write_text(by_uv or "\n".join(lines), "utf-8")
    for platform in platforms(system):
        options = [*options, "--platform", platform]
    version = system.python.replace(".", "")
    done = run_pip(
        [
            *("download", "--dest", str(room / "wheels"), "--only-binary=:all:", "--progress-bar=off"),
            *("--python-version", system.python, "--implementation", "cp", "--abi", f"cp{version}"),
            *("--abi", "abi3", "--abi", "none", "--requirement", str(wanted), "--constraint", str(constraints)),
            *options,
        ],
        system,
    )
    if done.returncode:
        said = f"{done.stdout}\n{done.stderr}"
        raise BagRejected(reason(said, asked, system, lambda name: run_pip(["index", "versions", name]).stdout))


def _by_uv(lines: Sequence[str], constraints: Path, system: System) -> str | None:
    """Return the requirements of requirements as uv resolves them, which is faster; None if pip has to do it."""
    uv, platform = shutil.which("uv"), _uv_platform(system)
    if uv is None or not platform:
        return None
    command = [uv, "pip", "compile", "-", "--quiet", "--no-header", "--generate-hashes", "--only-binary=:all:"]
    command += ["--python-version", system.python, "--python-platform", platform, "--constraint", str(constraints)]
    try:
        done = subprocess.run(
            command, input="\n".join(lines), capture_output=True, encoding="utf-8", timeout=UV_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode else done.stdout


def _uv_platform(system: System) -> str:
    family, _, machine = system.platform.partition("_")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    names = {
        "linux": f"{machine}-manylinux_{system.major}_{system.minor}",
        "musllinux": f"{machine}-unknown-linux-musl",
        "macosx": f"{machine}-apple-darwin",
        "win": f"{machine}-pc-windows-msvc",
    }
    return names.get(family, "")


def platforms(system: System) -> list[str]:
    """Return the platforms of the wheels that a sort of PC can use, the newest first."""
    family, _, machine = system.platform.partition("_")
    if family == "musllinux":
        return [f"musllinux_{system.major}_{minor}_{machine}" for minor in range(system.minor, -1, -1)]
    if family == "macosx":
        return [f"macosx_{system.major}_{system.minor}_{machine}"]
    if family != "linux":
        return [system.platform]
    found = []
    for minor in range(system.minor, _OLDEST_GLIBC.get(machine, 17) - 1, -1):
        found.append(f"manylinux_{system.major}_{minor}_{machine}")
        found += [f"{_OLD_NAMES[minor]}_{machine}"] if minor in _OLD_NAMES else []
    return [*found, f"linux_{machine}"]


def conditions(system: System) -> dict[str, str]:
    """Return what conditions in requirements (PEP 508) are to find."""
    family, _, machine = system.platform.partition("_")
    sys_platform, platform_system, os_name = _CALLED[family]
    here = ".".join(map(str, sys.version_info[:3]))
    full = here if here.startswith(f"{system.python}.") else f"{system.python}.0"
    return {
        "sys_platform": sys_platform,
        "platform_system": platform_system,
        "os_name": os_name,
        "platform_machine": machine.upper() if family == "win" else machine or "x86",
        "python_version": system.python,
        "python_full_version": full,
        "implementation_version": full,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def run_pip(arguments: Sequence[str], system: System | None = None) -> subprocess.CompletedProcess[str]:
    """Run pip as if on a sort of PC. Raises `BagRejected` if there is no pip, or it does not end."""
    told = json.dumps(conditions(system) if system else {})
    command = [*_python_with_pip(), "-c", _RUN, told, *arguments, "--no-input", "--disable-pip-version-check"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PIP_QUIET", "PIP_VERBOSE")}
    try:
        return subprocess.run(
            command,
            env=environment | {"PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PIP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BagRejected(f"pip {arguments[0]} has not ended within {duration(PIP_S)}") from None


def _python_with_pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "run", "--no-project", "--quiet", "--python", sys.executable, "--with", "pip", "python", "-P"]
    raise BagRejected(
        f"this needs pip (or uv), and {sys.executable} has none: "
        f"run {sys.executable} -m ensurepip, or install uv or, on Debian and Ubuntu, python3-pip; PCs need none of them"
    )


# --- projects --------------------------------------------------------------------------------------------------------


def _built(place: Path, store: WheelFolder) -> list[str]:
    """Return the wheel of a project's folder, built unless nothing in it changed; a wheel is taken as it is."""
    if place.is_file():
        return [str(place)]
    key = ["built", str(place), _state_of(place), sys.version_info[:2], _configuration()]
    wheels = store.resolved(key)
    if wheels is None:
        with store.room() as room:
            done = run_pip(["wheel", "--no-deps", "--wheel-dir", str(room), "--progress-bar=off", str(place)])
            if done.returncode:
                raise BagRejected(f"{place} cannot be built into a wheel: {reason_of_build(done.stderr)}")
            wheels = store.add(room)
        store.note(key, wheels)
    return [wheel.path for wheel in wheels]


# Folders of a project that are no part of its wheel.
_NO_SOURCE = re.compile(r"\..*|__pycache__|build|dist|node_modules|.*\.egg-info|venv")


def _state_of(place: Path) -> list[tuple[str, int, int]]:
    found = []
    for folder, folders, files in os.walk(place):
        folders[:] = sorted(each for each in folders if not _NO_SOURCE.fullmatch(each))
        for name in sorted(files):
            path = Path(folder) / name
            if not path.is_symlink():
                state = path.stat()
                found.append((str(path.relative_to(place)), state.st_mtime_ns, state.st_size))
    return found
