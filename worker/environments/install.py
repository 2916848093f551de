"""A program that unpacks a wheel, or makes an environment of unpacked wheels, in a process of its own.

    install.py NICE unpack WHEEL FOLDER      the files of a wheel, in an empty folder: site, bin, prefix
    install.py NICE make FOLDER WHEEL...     unpacked wheels become an environment, a folder that a Python runs in
    install.py NICE check FOLDER             whether a PC could unpack the wheels there, as far as their lists tell

It says on stdout, in lines of JSON, what is known so far: facts, or who is to blame: ``refused`` (the wheel: no PC can
have it), ``trouble`` (this PC), or the number of an unpacked wheel that is ``damaged`` or ``gone``. `unpack` says what
the wheel ``needs`` before it writes, so that the worker can end it; when it is ``unpacked``; and what was ``compiled``.

Rule 1: this file stands alone, with `scope.py` of the processes of tasks, so that the process starts quickly. It gives
way to others on the PC as they do (NICE), and ends when its input ends, that is, with its worker.
Rule 2: nothing of a wheel is run. A name that could lead out of the folder, or that is Python's own there, a link,
names that are one on some system, and a file that is not what RECORD says are refused; so are more files and bytes than
any wheel has.
Rule 3: what it writes is in the folder that it is given, which nobody else uses. Files are read-only. Nothing that is
to be believed later is there: what is known of an unpacked wheel (`read_about`) lies beside the files of the wheel, and
the worker writes it.
"""

import base64
import csv
import errno
import hashlib
import importlib.util
import io
import json
import marshal
import os
import re
import shutil
import stat
import sys
import threading
import time
import unicodedata
import venv
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from configparser import Error as ConfigError
from configparser import RawConfigParser
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

# What is in the folder of an unpacked wheel: what it is, and its files. These are modules, programs, and others by
# their places in an environment.
ABOUT, FILES = "about.json", "files"
SITE, BIN, PREFIX = "site", "bin", "prefix"
# Where bytecode is written before it gets its name, in the folder of the files.
_STAGING = "compiled"
# Files of one wheel, their bytes when unpacked, and the folders around one: the largest wheels that people use have
# 30,000 files and 5 GB.
FILES_LIMIT = 100_000
BYTES_LIMIT = 16 * 2**30
FOLDERS_LIMIT = 32
NAME_BYTES = 1_024
# How many times its own size a wheel may have when it is unpacked, if that is more than a little: of 75 distributions,
# those that are compressed best have eight times their size.
RATIO_LIMIT = 64
RATIO_FROM_BYTES = 16 * 2**20
# Bytes of a wheel's own files about itself: RECORD has a hundred bytes for each file.
ABOUT_BYTES = 32 * 2**20
# A longer source is data. Its bytecode is not kept.
SOURCE_BYTES = 8 * 2**20
# Bytes of memory that compiling may take. A source of 7 MiB that is one long list would take 3 GiB.
COMPILING_BYTES = 2**30
# Seconds of a processor that compiling a wheel may take: 60 MB of sources take 14 s.
COMPILING_S = 300
# How many times the bytes of its sources the bytecode of a wheel may have, and what it may have anyway. Of 75
# distributions, none with more than 100 kB of sources has more than twice their bytes.
BYTECODE_RATIO = 4
BYTECODE_ANYWAY_BYTES = 2**16
# Bytes that stay free on the disk.
FREE_BYTES = 256 * 2**20
# The time of change of each file of an unpacked wheel: a file with another one was written to. Seconds since 1970.
CHANGED_S = 1_000_000_000
# Has how processes give way.
_SCOPE = Path(__file__).parents[1] / "run" / "scope.py"
# Bytecode that is never compared with its source: the time of change of copies differs.
_UNCHECKED = (1).to_bytes(4, "little")
_COPIED = 2**20
_SPECIAL = '<>:"|?*\\\0'
# Names that Windows keeps for devices, with any ending; and what it calls files whose names are too long for DOS.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])[ ]*(\..*)?", re.IGNORECASE)
_SHORT = re.compile(r"[^.]{1,6}~[0-9]{1,6}(\..{0,3})?")
# What Python reads beside itself, or above; and what it is called there, with its libraries, on any system.
_SETTINGS = re.compile(r"pyvenv\.cfg|pybuilddir\.txt|.*\._pth")
_PYTHON = re.compile(r"(python|pypy)w?[0-9.]*t?(_d)?(\.exe|\.dll)?|(vcruntime|msvcp|api-ms-).*\.dll")
# Where programs are in an environment, on any system.
_PROGRAMS = ("bin", "scripts")
_SCHEMES = {"purelib": SITE, "platlib": SITE, "scripts": BIN, "data": PREFIX, "headers": f"{PREFIX}/include"}
_SIGNATURES = ("RECORD", "RECORD.jws", "RECORD.p7s")
_HASHES = {"sha256", "sha384", "sha512"}
# A distribution's name or version, as the names of wheels have them.
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+!]{0,126}[A-Za-z0-9])?")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_SCRIPT = re.compile(rf"\s*({_DOTTED})\s*:\s*({_DOTTED})\s*(?:\[.*\])?\s*")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")
SCRIPTS_LIMIT = 10_000
_STARTER = "#!{python}\nimport sys\nfrom {module} import {top}\nsys.exit({call}())\n"


class WheelRefused(Exception):
    """No PC can have this wheel; one line that says why."""


class Trouble(Exception):
    """This PC cannot have it now; one line."""


class WheelChanged(Exception):
    """Somebody wrote to an unpacked wheel: it has to be unpacked again."""


# --- a wheel ---------------------------------------------------------------------------------------------------------


def unpack(wheel: str, target: str) -> Iterator[dict[str, object]]:
    """Unpack a wheel into an empty folder; yield what is known of it. Raises `WheelRefused`, `Trouble`, and OSError."""
    folder = Path(target)
    for name in (SITE, BIN, PREFIX, _STAGING):
        (folder / name).mkdir()
    with _opened(wheel) as archive:
        yield from _unpack(archive, os.path.getsize(wheel), folder)
    yield {"compiled": _compile_all(folder)}


def check(folder: str) -> Iterator[dict[str, object]]:
    """Yield the name of each wheel in a folder before it is looked at. Raises `WheelRefused`, and OSError."""
    for wheel in sorted(Path(folder).glob("*.whl")):
        yield {"wheel": wheel.name}
        with _opened(str(wheel)) as archive:
            entries = _checked(archive.infolist())
            _check_size(entries, wheel.stat().st_size)
            _contents(archive, entries)


@contextmanager
def _opened(wheel: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    # NotImplementedError: the archive needs a later version of zipfile, as it says itself.
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, zlib.error) as error:
        raise WheelRefused(f"it is not a whole wheel: {error}") from error


class _Contents(NamedTuple):
    """What a wheel says of itself. ``files``: where each goes, and what RECORD says of it."""

    name: str
    version: str
    scripts: dict[str, tuple[str, str]]
    files: list[tuple[zipfile.ZipInfo, str, tuple[str, bytes]]]


def _unpack(archive: zipfile.ZipFile, size: int, folder: Path) -> Iterator[dict[str, object]]:
    entries = _checked(archive.infolist())
    takes = _check_size(entries, size)
    needs = takes + _bytecode_limit(entry.file_size for path, entry in entries.items() if path.endswith(".py"))
    yield {"needs": needs}
    _check_room(folder, needs)
    contents = _contents(archive, entries)
    made: set[Path] = set()
    for entry, relative, expected in contents.files:
        place = folder / relative
        if place.parent not in made:
            place.parent.mkdir(parents=True, exist_ok=True)
            made.add(place.parent)
        executable = bool((entry.external_attr >> 16) & 0o111) or place.is_relative_to(folder / BIN)
        _extract(archive, entry, place, expected, executable=executable)
    facts = {"name": contents.name, "version": contents.version, "bytes": takes, "scripts": contents.scripts}
    yield {"unpacked": True, **facts}


def _contents(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> _Contents:
    """Read and check the lists in a wheel. Raises `WheelRefused`."""
    top, name, version = _dist_info(entries)
    about = _metadata(_text(archive, entries, f"{top}.dist-info/WHEEL"))
    if not about.get("wheel-version", "").startswith("1."):
        raise WheelRefused(f"wheels of version {about.get('wheel-version', '')!r:.20} are not known")
    record = _record(_text(archive, entries, f"{top}.dist-info/RECORD"))
    if missing := sorted(record.keys() - entries.keys()):
        raise WheelRefused(f"RECORD names {missing[0]!r:.200}, which is not in it")
    points = f"{top}.dist-info/entry_points.txt"
    scripts = _scripts(_text(archive, entries, points)) if points in entries else {}
    places = {path: _place(path, top) for path in entries}
    _check_alike(places.values())  # files with different names may have one place
    _check_python(places, scripts)
    files = []
    for path, entry in entries.items():
        expected = record.get(path)
        if expected is None and path.rpartition("/")[0] == f"{top}.dist-info" and path.endswith(_SIGNATURES):
            expected = ("", b"")
        if expected is None or (not expected[0] and not path.endswith(_SIGNATURES)):
            raise WheelRefused(f"RECORD has no hash of {path!r:.200}")
        files.append((entry, places[path], expected))
    return _Contents(name, version, scripts, files)


def _check_size(entries: dict[str, zipfile.ZipInfo], size: int) -> int:
    """How many bytes the files have. Raises `WheelRefused` if a wheel of ``size`` bytes cannot have so many."""
    takes = sum(entry.file_size for entry in entries.values())
    if takes > BYTES_LIMIT:
        raise WheelRefused(f"it has more than {BYTES_LIMIT:,} bytes when it is unpacked")
    if takes > max(RATIO_FROM_BYTES, RATIO_LIMIT * size):
        raise WheelRefused(f"it has {takes:,} bytes when it is unpacked, more than {RATIO_LIMIT} times its {size:,}")
    if sum(entry.compress_size for entry in entries.values()) > size:
        raise WheelRefused("it is not a whole wheel: its files overlap")
    return takes


def _checked(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The files of a wheel by name. Raises `WheelRefused`."""
    if len(infos) > FILES_LIMIT:
        raise WheelRefused(f"it has {len(infos):,} files; at most {FILES_LIMIT:,}")
    found = list[tuple[str, zipfile.ZipInfo]]()
    for info in infos:
        # The name as it is in the file: `zipfile` would cut it at a zero, and turn separators.
        name = info.orig_filename
        path = name.rstrip("/") if info.is_dir() else name
        if why := _wrong_with(path):
            raise WheelRefused(f"{name!r:.200} cannot be the name of a file: {why}")
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR) or info.flag_bits & 0x1:
            raise WheelRefused(f"{name!r:.200} is a link, encrypted, or no file at all")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # not every Python can read others
            raise WheelRefused(f"{name!r:.200} is compressed in a way that wheels are not")
        if not info.is_dir():
            found.append((path, info))
    _check_alike([path for path, _ in found])
    return dict(found)


def _check_alike(paths: Iterable[str]) -> None:
    """Raise `WheelRefused` if two files would be one, on some system at least."""
    folders: dict[str, str] = {}
    files: set[str] = set()
    for path in paths:
        parents = path.split("/")
        for count in range(1, len(parents)):
            folder = "/".join(parents[:count])
            if folders.setdefault(_key(folder), folder) != folder:
                raise WheelRefused(f"{folder!r:.200} is there twice where case does not count")
        if _key(path) in files:
            raise WheelRefused(f"{path!r:.200} is there twice, at least where case does not count")
        files.add(_key(path))
    if both := sorted(files & folders.keys()):
        raise WheelRefused(f"{both[0]!r:.200} is a file and a folder")


def _key(path: str) -> str:
    """Equal for names that are one on some system: where case does not count, nor how letters are composed."""
    return path if path.isascii() and path.islower() else unicodedata.normalize("NFC", path).casefold()


def _wrong_with(path: str) -> str:
    parts = path.split("/")
    if len(path.encode("utf-8", "replace")) > NAME_BYTES or len(parts) > FOLDERS_LIMIT:
        return "it is too long"
    if not path.isprintable() or any(each in path for each in _SPECIAL):
        return "not every system can have it"
    if any(part in ("", ".", "..") or part[-1] in ". " for part in parts):
        return "it is not a path below the folder"
    if any(_DEVICE.fullmatch(part) or _SHORT.fullmatch(part) for part in parts):
        return "Windows means something else by it"
    return ""


def _check_python(places: dict[str, str], scripts: Iterable[str]) -> None:
    """Raise `WheelRefused` if a file or a program would be Python itself in an environment, or its settings."""
    for path, place in places.items():
        part, *names = _key(place).split("/")
        if part == PREFIX and len(names) > 1 and names[0] in _PROGRAMS:
            part, names = BIN, names[1:]
        if part == BIN and _PYTHON.fullmatch(names[0]):
            raise WheelRefused(f"{path!r:.200} would be Python itself in an environment")
        if part in (BIN, PREFIX) and _SETTINGS.fullmatch(names[0]):
            raise WheelRefused(f"{path!r:.200} would be settings of Python in an environment")
    for name in scripts:
        if _PYTHON.fullmatch(_key(name)) or _SETTINGS.fullmatch(_key(name)):
            raise WheelRefused(f"its program {name!r:.100} would be Python itself in an environment, or its settings")


def _dist_info(entries: dict[str, zipfile.ZipInfo]) -> tuple[str, str, str]:
    """NAME-VERSION, and both; the wheel's files about itself are in a folder of that name."""
    found = {path.partition("/")[0] for path in entries if path.partition("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise WheelRefused(f"it has {len(found)} folders .dist-info, not one")
    top = found.pop().removesuffix(".dist-info")
    name, _, version = top.partition("-")
    if not _WORD.fullmatch(name) or not _WORD.fullmatch(version):
        raise WheelRefused(f"{top!r:.100} is not a name with a version")
    return top, name, version


def _text(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], path: str) -> str:
    if path not in entries:
        raise WheelRefused(f"it has no {path.rpartition('/')[2]}")
    if entries[path].file_size > ABOUT_BYTES:
        raise WheelRefused(f"{path!r:.200} has more than {ABOUT_BYTES:,} bytes")
    with archive.open(entries[path]) as file:
        return file.read(ABOUT_BYTES).decode("utf-8", "replace")


def _metadata(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _record(text: str) -> dict[str, tuple[str, bytes]]:
    """The algorithm and the hash of each file, by name; "" where RECORD gives none."""
    found: dict[str, tuple[str, bytes]] = {}
    try:
        for row in csv.reader(io.StringIO(text)):
            if row:
                kind, _, value = (row[1] if len(row) > 1 else "").partition("=")
                if kind and kind not in _HASHES:
                    raise WheelRefused(f"RECORD has hashes of the kind {kind!r:.20}")
                found[row[0]] = kind, base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (csv.Error, ValueError) as error:
        raise WheelRefused(f"its RECORD cannot be read: {error}") from error
    return found


def _place(path: str, top: str) -> str:
    """Where a file of the wheel goes in its folder."""
    first, _, rest = path.partition("/")
    if first != f"{top}.data":
        return f"{SITE}/{path}"
    scheme, _, below = rest.partition("/")
    if scheme not in _SCHEMES or not below:
        raise WheelRefused(f"{path!r:.200} is for a place that no environment has")
    if scheme == "headers":
        below = f"{top.partition('-')[0]}/{below}"
    return f"{_SCHEMES[scheme]}/{below}"


def _extract(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Path, expected: tuple[str, bytes], *, executable: bool
) -> None:
    kind, digest = expected
    seen, size = hashlib.new(kind or "sha256"), 0
    with archive.open(entry) as source, place.open("xb") as target:
        while data := source.read(_COPIED):
            size += len(data)
            if size > entry.file_size:
                raise WheelRefused(f"{entry.filename!r:.200} has more bytes than the wheel says")
            seen.update(data)
            target.write(data)
    if kind and seen.digest() != digest:
        raise WheelRefused(f"{entry.filename!r:.200} is not what RECORD says")
    _finish(place, executable=executable)


def _finish(path: Path, *, executable: bool = False) -> None:
    path.chmod(0o555 if executable else 0o444)
    os.utime(path, (CHANGED_S, CHANGED_S))


def _check_room(folder: Path, takes: int) -> None:
    """Raise `Trouble` if the disk has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < takes + FREE_BYTES:
        takes_mb, stays_mb, free_mb = takes / 1e6, FREE_BYTES / 1e6, free / 1e6
        raise Trouble(
            f"it takes {takes_mb:,.1f} MB, {stays_mb:,.0f} MB have to stay free, and the disk has {free_mb:,.0f} MB"
        )


class _Points(RawConfigParser):
    """Reads entry points, whose names may have capital letters."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _scripts(text: str) -> dict[str, tuple[str, str]]:
    """The programs that a wheel has: module and function, by name. Those that cannot be understood are left out."""
    parser = _Points(delimiters=("=",), strict=False)
    with suppress(ConfigError):
        parser.read_string(text)
    found = {}
    for group in ("console_scripts", "gui_scripts"):
        for name, value in parser.items(group) if parser.has_section(group) else ():
            point = _SCRIPT.fullmatch(value)
            if point is not None and _SCRIPT_NAME.fullmatch(name):
                found[name] = (point[1], point[2])
    if len(found) > SCRIPTS_LIMIT:
        raise WheelRefused(f"it has {len(found):,} programs; at most {SCRIPTS_LIMIT:,}")
    return found


# --- what is known of an unpacked wheel ------------------------------------------------------------------------------


class About(NamedTuple):
    """``bytes``: of its files and their bytecode. ``scripts``: module and function of each program."""

    name: str
    version: str
    bytes: int
    scripts: dict[str, tuple[str, str]]

    def text(self) -> str:
        """As `read_about` reads it."""
        return json.dumps(self._asdict())


def about_of(facts: object) -> About:
    """Check what is said to be known of a wheel. Raises ValueError."""
    if not isinstance(facts, dict):
        raise ValueError("not the facts of a wheel")
    name, version, size, scripts = (facts.get(field) for field in About._fields)
    if not all(isinstance(text, str) and _WORD.fullmatch(text) for text in (name, version)):
        raise ValueError("no name, or no version")
    if type(size) is not int or not 0 <= size <= BYTES_LIMIT + BYTECODE_RATIO * BYTES_LIMIT + BYTECODE_ANYWAY_BYTES:
        raise ValueError("no number of bytes")
    if not isinstance(scripts, dict) or len(scripts) > SCRIPTS_LIMIT:
        raise ValueError("no programs")
    for script, point in scripts.items():
        if not _SCRIPT_NAME.fullmatch(script) or _PYTHON.fullmatch(_key(script)) or _SETTINGS.fullmatch(_key(script)):
            raise ValueError("a program with a name that none has")
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise ValueError("a program that is no function")
        if not all(isinstance(each, str) and re.fullmatch(_DOTTED, each) for each in point):
            raise ValueError("a program that is no function")
    return About(str(name), str(version), size, {script: (point[0], point[1]) for script, point in scripts.items()})


def read_about(wheel: str | Path) -> About:
    """What is known of an unpacked wheel. Raises `WheelChanged`, and OSError."""
    with open(os.path.join(wheel, ABOUT), encoding="utf-8", errors="strict") as file:
        try:
            return about_of(json.loads(file.read(ABOUT_BYTES)))
        except (ValueError, RecursionError) as error:
            raise WheelChanged from error


# --- bytecode --------------------------------------------------------------------------------------------------------


def _bytecode_limit(sizes: Iterable[int]) -> int:
    """How many bytes the bytecode of sources of these sizes may have."""
    total = sum(size for size in sizes if size <= SOURCE_BYTES)
    return BYTECODE_RATIO * total + BYTECODE_ANYWAY_BYTES


def _compile_all(folder: Path) -> int:
    """Keep the bytecode of modules, as far as the limits go. Returns how many bytes.

    Not of tests, which hardly anybody imports.
    """
    staging, written, seen, until = folder / _STAGING, 0, 0, time.process_time() + COMPILING_S
    _limit_time(until)
    with _little_memory():
        for root, folders, files in os.walk(folder / SITE):
            folders[:] = [name for name in folders if name not in ("tests", "test", "testing_data", "__pycache__")]
            for name in files:
                if name.endswith(".py") and time.process_time() < until:
                    size, source = _compile(os.path.join(root, name), staging / "module", written, seen)
                    written, seen = written + size, seen + source
    staging.rmdir()
    return written


def _limit_time(until: float) -> None:
    """End this process if a single module takes longer. What is there by then is good. ``until``: as `process_time`."""
    if sys.platform != "win32":
        import resource  # Windows has none

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        limit = int(until) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the signal for that would leave one


@contextmanager
def _little_memory() -> Iterator[None]:
    """A source that compiling makes huge has no bytecode, rather than all of the PC's memory."""
    if sys.platform == "win32":
        yield
    else:
        import resource  # Windows has none

        what = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        soft, hard = resource.getrlimit(what)
        known = [each for each in (soft, hard, COMPILING_BYTES) if each != resource.RLIM_INFINITY]
        resource.setrlimit(what, (min(known), hard))
        try:
            yield
        finally:
            resource.setrlimit(what, (soft, hard))


def _compile(path: str, staging: Path, written: int, seen: int) -> tuple[int, int]:
    """Compile a module; returns the bytes of its bytecode and of its source.

    One that is not of this Python's language has no bytecode: importing it says why. ``written``, ``seen``: bytes of
    the bytecode and of the sources of modules before it.
    """
    with open(path, "rb") as file:
        source = file.read(SOURCE_BYTES + 1)
    if len(source) > SOURCE_BYTES:
        return 0, 0
    try:
        code = compile(source, path, "exec", dont_inherit=True)
        data = marshal.dumps(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0, len(source)
    if written + len(data) > _bytecode_limit([seen + len(source)]):
        return 0, len(source)
    target = Path(importlib.util.cache_from_source(path))
    target.parent.mkdir(exist_ok=True)
    if target.exists():  # the wheel brought it
        return 0, len(source)
    staging.write_bytes(importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source) + data)
    _finish(staging)
    staging.rename(target)  # whole or not at all: this process may be ended
    return len(data) + 16, len(source)


# --- an environment --------------------------------------------------------------------------------------------------


class _Builder(venv.EnvBuilder):
    """Makes what a Python needs to find its modules, and no more."""

    def setup_scripts(self, context: Any) -> None:
        """Leave the scripts out with which people activate an environment."""


def make(target: str, *wheels: str) -> Iterator[dict[str, object]]:
    """Make an environment of unpacked wheels in an empty folder. Raises `WheelRefused`, `Trouble`, and OSError."""
    builder = _Builder(symlinks=sys.platform != "win32", with_pip=False)
    context = builder.ensure_directories(target)
    builder.create_configuration(context)
    builder.setup_python(context)
    taken = {_key(os.path.join(root, name)) for root, _, names in os.walk(target) for name in names}
    place = _TargetEnvironment(target, _site_of(target), context.bin_path, context.env_exe, taken)
    copied = 0
    for number, wheel in enumerate(wheels):
        try:
            about = read_about(wheel)
            copied += _add(os.path.join(wheel, FILES), place, about.name)
        except FileNotFoundError:
            yield {"gone": number}
            return
        except WheelChanged:
            yield {"damaged": number}
            return
        for name, (module, call) in about.scripts.items():
            top = call.partition(".")[0]
            text = _STARTER.format(python=place.python, module=module, top=top, call=call)
            if sys.platform != "win32":
                _write_script(os.path.join(place.programs, name), text.encode(), place)
    yield {"python": os.path.basename(place.python), "copied": copied}


class _TargetEnvironment(NamedTuple):
    """An environment. ``taken``: its files that are Python's own."""

    prefix: str
    site: str
    programs: str
    python: str
    taken: set[str]

    def check(self, path: str) -> None:
        """Raise `WheelRefused` if a file of a wheel would be in the place of one of Python's own."""
        if _key(path) in self.taken:
            raise WheelRefused(f"{os.path.relpath(path, self.prefix)!r:.200} is Python's own in an environment")


def _add(files: str, place: _TargetEnvironment, name: str) -> int:
    """Add the files of a wheel. Returns the bytes copied. Raises `WheelRefused`, `WheelChanged`, and OSError."""
    copied = 0
    try:
        for part, folder in ((SITE, place.site), (PREFIX, place.prefix)):
            for source, path in _pairs(os.path.join(files, part), folder):
                place.check(path)
                copied += _link(source, path)
        for source, path in _pairs(os.path.join(files, BIN), place.programs):
            _put_script(source, path, place)
    except (FileExistsError, NotADirectoryError) as error:
        where = os.path.relpath(error.filename2 or error.filename, place.prefix)
        raise WheelRefused(f"{where!r:.200} of {name} is a folder of another wheel, or inside of a file") from error
    return copied


def _site_of(target: str) -> str:
    if os.name == "nt":
        return os.path.join(target, "Lib", "site-packages")
    return os.path.join(target, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def _pairs(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield each file below ``source`` with its place below ``target``, whose folders are made."""
    folders = [(source, target)]
    while folders:
        here, there = folders.pop()
        os.makedirs(there, exist_ok=True)
        with os.scandir(here) as found:
            for each in found:
                path = os.path.join(there, each.name)
                if each.is_dir(follow_symlinks=False):
                    folders.append((each.path, path))
                else:
                    if each.stat(follow_symlinks=False).st_mtime_ns != CHANGED_S * 10**9:
                        raise WheelChanged
                    yield each.path, path


def _link(source: str, target: str) -> int:
    """Give a file another name, or copy it where it can have none. Returns the bytes that were copied."""
    try:
        os.link(source, target)
    except FileExistsError:
        if os.path.isdir(target):
            raise
        return 0  # another wheel has it already
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
            raise
        with open(source, "rb") as file, open(target, "xb") as copy:
            shutil.copyfileobj(file, copy)
        os.chmod(target, os.stat(source).st_mode & 0o555)
        return os.path.getsize(source)
    return 0


def _put_script(source: str, target: str, place: _TargetEnvironment) -> None:
    with open(source, "rb") as file:
        data = file.read()
    first, newline, rest = data.partition(b"\n")
    if first.startswith(b"#!python"):
        data = b"#!" + place.python.encode() + newline + rest
    _write_script(target, data, place)


def _write_script(target: str, data: bytes, place: _TargetEnvironment) -> None:
    place.check(target)
    with suppress(FileExistsError), open(target, "xb") as file:
        file.write(data)
        os.chmod(target, 0o555)


# --- the program -----------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> None:
    """Do one thing, and say on stdout how it goes."""
    threading.Thread(target=_end_with_worker, daemon=True).start()
    nice, todo, *rest = argv
    _give_way(int(nice))
    todos: dict[str, Callable[..., Iterator[dict[str, object]]]] = {"unpack": unpack, "make": make, "check": check}
    try:
        for said in todos[todo](*rest):
            _say(said)
    except WheelRefused as error:
        _say({"refused": str(error)})
    except Trouble as error:
        _say({"trouble": str(error)})
    except OSError as error:
        _say({"trouble": error.strerror or str(error)})
    except MemoryError:
        _say({"trouble": "too little memory"})
    os._exit(0)


def _say(said: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _end_with_worker() -> None:
    with suppress(OSError):
        os.read(0, 1)
    os._exit(1)


def _give_way(nice: int) -> None:
    spec = importlib.util.spec_from_file_location("scope", _SCOPE)
    assert spec is not None
    assert spec.loader is not None
    scope = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scope)
    scope.give_way(nice)


if __name__ == "__main__":
    main(sys.argv[1:])
