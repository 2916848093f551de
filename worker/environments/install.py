"""A program that unpacks a wheel, or makes an environment of unpacked wheels, in a process of its own.

    install.py NICE unpack WHEEL FOLDER      a wheel becomes a new folder: site, bin, prefix, and what is in it
    install.py NICE make FOLDER WHEEL...     unpacked wheels become an environment, a folder that a Python runs in

It ends with one line of JSON on stdout: facts, or who is to blame: ``refused`` (the wheel: no PC can have it),
``trouble`` (this PC), or an unpacked wheel that is ``damaged`` or ``gone``.

Rule 1: this file stands alone, with `scope.py` of the processes of tasks, so that the process starts quickly. It gives
way to others on the PC as they do (NICE), and ends when its input ends, that is, with its worker.
Rule 2: nothing of a wheel is run. A name that could lead out of the folder, a link, names that are one where case does
not count, and a file that is not what RECORD says are refused; so are more files and bytes than any wheel has.
Rule 3: what it writes is in the folder that it is given, which nobody else uses. Files are read-only.
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
import venv
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from configparser import Error as ConfigError
from configparser import RawConfigParser
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

# What is in an unpacked wheel: modules, programs, other files by their places in an environment, and what it is.
SITE, BIN, PREFIX, ABOUT = "site", "bin", "prefix", "about.json"
# Files of one wheel, their bytes when unpacked, and the folders around one: the largest wheels that people use have
# 30,000 files and 5 GB.
FILES_LIMIT = 100_000
BYTES_LIMIT = 16 * 2**30
FOLDERS_LIMIT = 32
NAME_BYTES = 1_024
# Bytes of a wheel's own files about itself: RECORD has a hundred bytes for each file.
ABOUT_BYTES = 32 * 2**20
# A longer source is data. Its bytecode is not kept.
SOURCE_BYTES = 8 * 2**20
# Bytes of memory that compiling may take. A source of 7 MiB that is one long list would take 3 GiB.
COMPILING_BYTES = 2**30
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
_SCHEMES = {"purelib": SITE, "platlib": SITE, "scripts": BIN, "data": PREFIX, "headers": f"{PREFIX}/include"}
_SIGNATURES = ("RECORD", "RECORD.jws", "RECORD.p7s")
_HASHES = {"sha256", "sha384", "sha512"}
_SCRIPT = re.compile(r"\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?\s*")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}")
_STARTER = "#!{python}\nimport sys\nfrom {module} import {top}\nsys.exit({call}())\n"


class Refused(Exception):
    """No PC can have this wheel; one line that says why."""


class Trouble(Exception):
    """This PC cannot have it now; one line."""


class Damaged(Exception):
    """Somebody wrote to an unpacked wheel: it has to be unpacked again."""


# --- a wheel ---------------------------------------------------------------------------------------------------------


def unpack(wheel: str, target: str) -> dict[str, object]:
    """Unpack a wheel into a new folder. Raises `Refused`, `Trouble`, and OSError."""
    folder = Path(target)
    for name in (SITE, BIN, PREFIX):
        (folder / name).mkdir(parents=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            about = _unpack(archive, folder)
    # NotImplementedError: the archive needs a later version of zipfile, as it says itself.
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, zlib.error) as error:
        raise Refused(f"it is not a whole wheel: {error}") from error
    about["bytes"] = _compile_all(folder / SITE) + int(str(about["bytes"]))
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    return about


def _unpack(archive: zipfile.ZipFile, folder: Path) -> dict[str, object]:
    entries = _checked(archive.infolist())
    _check_room(folder, sum(entry.file_size for entry in entries.values()))
    top, name, version = _dist_info(entries)
    about = _metadata(_text(archive, entries, f"{top}.dist-info/WHEEL"))
    if not about.get("wheel-version", "").startswith("1."):
        raise Refused(f"wheels of version {about.get('wheel-version', '')!r:.20} are not known")
    record = _record(_text(archive, entries, f"{top}.dist-info/RECORD"))
    if missing := sorted(record.keys() - entries.keys()):
        raise Refused(f"RECORD names {missing[0]!r:.200}, which is not in it")
    places = {path: _place(path, top) for path in entries}
    _check_alike(places.values())  # files with different names may have one place
    made: set[Path] = set()
    for path, entry in entries.items():
        expected = record.get(path)
        if expected is None and path.rpartition("/")[0] == f"{top}.dist-info" and path.endswith(_SIGNATURES):
            expected = ("", b"")
        if expected is None or (not expected[0] and not path.endswith(_SIGNATURES)):
            raise Refused(f"RECORD has no hash of {path!r:.200}")
        place = folder / places[path]
        if place.parent not in made:
            place.parent.mkdir(parents=True, exist_ok=True)
            made.add(place.parent)
        executable = bool((entry.external_attr >> 16) & 0o111) or place.is_relative_to(folder / BIN)
        _extract(archive, entry, place, expected, executable=executable)
    points = f"{top}.dist-info/entry_points.txt"
    return {
        "name": name,
        "version": version,
        "files": len(entries),
        "bytes": sum(entry.file_size for entry in entries.values()),
        "scripts": _scripts(_text(archive, entries, points)) if points in entries else {},
    }


def _checked(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The files of a wheel by name. Raises `Refused`."""
    if len(infos) > FILES_LIMIT:
        raise Refused(f"it has {len(infos):,} files; at most {FILES_LIMIT:,}")
    if sum(info.file_size for info in infos) > BYTES_LIMIT:
        raise Refused(f"it has more than {BYTES_LIMIT:,} bytes when it is unpacked")
    found = list[tuple[str, zipfile.ZipInfo]]()
    for info in infos:
        # The name as it is in the file: `zipfile` would cut it at a zero, and turn separators.
        name = info.orig_filename
        path = name.rstrip("/") if info.is_dir() else name
        if why := _wrong_with(path):
            raise Refused(f"{name!r:.200} cannot be the name of a file: {why}")
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR) or info.flag_bits & 0x1:
            raise Refused(f"{name!r:.200} is a link, encrypted, or no file at all")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # not every Python can read others
            raise Refused(f"{name!r:.200} is compressed in a way that wheels are not")
        if not info.is_dir():
            found.append((path, info))
    _check_alike([path for path, _ in found])
    return dict(found)


def _check_alike(paths: Iterable[str]) -> None:
    """Raise `Refused` if two files would be one, on some system at least."""
    folders: dict[str, str] = {}
    files: set[str] = set()
    for path in paths:
        parents = path.split("/")
        for count in range(1, len(parents)):
            folder = "/".join(parents[:count])
            if folders.setdefault(folder.casefold(), folder) != folder:
                raise Refused(f"{folder!r:.200} is there twice where case does not count")
        if path.casefold() in files:
            raise Refused(f"{path!r:.200} is there twice, at least where case does not count")
        files.add(path.casefold())
    if both := sorted(files & folders.keys()):
        raise Refused(f"{both[0]!r:.200} is a file and a folder")


def _wrong_with(path: str) -> str:
    parts = path.split("/")
    if len(path.encode("utf-8", "replace")) > NAME_BYTES or len(parts) > FOLDERS_LIMIT:
        return "it is too long"
    if not path.isprintable() or any(each in path for each in _SPECIAL):
        return "not every system can have it"
    if any(part in ("", ".", "..") or part[-1] in ". " for part in parts):
        return "it is not a path below the folder"
    return ""


def _dist_info(entries: dict[str, zipfile.ZipInfo]) -> tuple[str, str, str]:
    """NAME-VERSION, and both; the wheel's files about itself are in a folder of that name."""
    found = {path.partition("/")[0] for path in entries if path.partition("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise Refused(f"it has {len(found)} folders .dist-info, not one")
    top = found.pop().removesuffix(".dist-info")
    name, _, version = top.partition("-")
    if not name or not version:
        raise Refused(f"{top!r:.100} is not a name with a version")
    return top, name, version


def _text(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], path: str) -> str:
    if path not in entries:
        raise Refused(f"it has no {path.rpartition('/')[2]}")
    if entries[path].file_size > ABOUT_BYTES:
        raise Refused(f"{path!r:.200} has more than {ABOUT_BYTES:,} bytes")
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
                    raise Refused(f"RECORD has hashes of the kind {kind!r:.20}")
                found[row[0]] = kind, base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (csv.Error, ValueError) as error:
        raise Refused(f"its RECORD cannot be read: {error}") from error
    return found


def _place(path: str, top: str) -> str:
    """Where a file of the wheel goes in its folder."""
    first, _, rest = path.partition("/")
    if first != f"{top}.data":
        return f"{SITE}/{path}"
    scheme, _, below = rest.partition("/")
    if scheme not in _SCHEMES or not below:
        raise Refused(f"{path!r:.200} is for a place that no environment has")
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
                raise Refused(f"{entry.filename!r:.200} has more bytes than the wheel says")
            seen.update(data)
            target.write(data)
    if kind and seen.digest() != digest:
        raise Refused(f"{entry.filename!r:.200} is not what RECORD says")
    _finish(place, executable=executable)


def _finish(path: Path, *, executable: bool = False) -> None:
    path.chmod(0o555 if executable else 0o444)
    os.utime(path, (CHANGED_S, CHANGED_S))


def _check_room(folder: Path, size: int) -> None:
    """Raise `Trouble` if the disk has no room for ``size`` bytes, and bytecode of them."""
    free = shutil.disk_usage(folder).free
    takes = size + size // 4
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
    return found


# --- bytecode --------------------------------------------------------------------------------------------------------


def _compile_all(site: Path) -> int:
    """Keep the bytecode of all modules but tests, which hardly anybody imports. Returns how many bytes."""
    written = 0
    with _little_memory():
        for root, folders, files in os.walk(site):
            folders[:] = [name for name in folders if name not in ("tests", "test", "testing_data", "__pycache__")]
            for name in files:
                if name.endswith(".py"):
                    written += _compile(os.path.join(root, name))
    return written


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


def _compile(path: str) -> int:
    """Compile a module. One that is not of this Python's language has no bytecode: importing it says why."""
    with open(path, "rb") as file:
        source = file.read(SOURCE_BYTES + 1)
    if len(source) > SOURCE_BYTES:
        return 0
    try:
        code = compile(source, path, "exec", dont_inherit=True)
        data = marshal.dumps(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    target = Path(importlib.util.cache_from_source(path))
    target.parent.mkdir(exist_ok=True)
    if target.exists():  # the wheel brought it
        return 0
    target.write_bytes(importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source) + data)
    _finish(target)
    return len(data) + 16


# --- an environment --------------------------------------------------------------------------------------------------


class _Builder(venv.EnvBuilder):
    """Makes what a Python needs to find its modules, and no more."""

    def setup_scripts(self, context: Any) -> None:
        """Leave the scripts out with which people activate an environment."""


def make(target: str, *wheels: str) -> dict[str, object]:
    """Make an environment of unpacked wheels. Raises `Trouble`, and OSError."""
    builder = _Builder(symlinks=sys.platform != "win32", with_pip=False)
    context = builder.ensure_directories(target)
    builder.create_configuration(context)
    builder.setup_python(context)
    programs, site = Path(context.bin_path), Path(_site_of(target))
    copied = 0
    for wheel in wheels:
        try:
            # While it has a second name, the wheel is in use. That is why it comes first.
            copied += _link(os.path.join(wheel, ABOUT), os.path.join(target, f".{os.path.basename(wheel)}"))
            copied += _add(wheel, target, str(site), programs, context.env_exe)
        except FileNotFoundError:
            return {"gone": wheel}
        except Damaged:
            return {"damaged": wheel}
        about = json.loads(Path(target, f".{os.path.basename(wheel)}").read_text(encoding="utf-8"))
        for name, (module, call) in about["scripts"].items():
            top = call.partition(".")[0]
            text = _STARTER.format(python=context.env_exe, module=module, top=top, call=call)
            if sys.platform != "win32":
                _write_script(programs / name, text.encode())
    return {"python": context.env_exe, "programs": str(programs), "copied": copied}


def _add(wheel: str, target: str, site: str, programs: Path, python: str) -> int:
    """Add the files of a wheel. Returns the bytes that were copied. Raises `Damaged`, and OSError."""
    copied = 0
    for part, place in ((SITE, site), (PREFIX, target)):
        copied += sum(_link(*pair) for pair in _pairs(os.path.join(wheel, part), place))
    for source, path in _pairs(os.path.join(wheel, BIN), str(programs)):
        _put_script(source, Path(path), python)
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
                        raise Damaged
                    yield each.path, path


def _link(source: str, target: str) -> int:
    """Give a file another name, or copy it where it can have none. Returns the bytes that were copied."""
    try:
        os.link(source, target)
    except FileExistsError:
        return 0  # another wheel, or Python itself, has it already
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
            raise
        shutil.copyfile(source, target)
        os.chmod(target, os.stat(source).st_mode & 0o777)
        return os.path.getsize(source)
    return 0


def _put_script(source: str, target: Path, python: str) -> None:
    with open(source, "rb") as file:
        data = file.read()
    first, newline, rest = data.partition(b"\n")
    if first.startswith(b"#!python"):
        data = b"#!" + python.encode() + newline + rest
    _write_script(target, data)


def _write_script(target: Path, data: bytes) -> None:
    with suppress(FileExistsError), target.open("xb") as file:
        file.write(data)
        target.chmod(0o555)


# --- the program -----------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> None:
    """Do one thing, and say on stdout how it went."""
    threading.Thread(target=_end_with_worker, daemon=True).start()
    nice, todo, *rest = argv
    _give_way(int(nice))
    todos: dict[str, Callable[..., dict[str, object]]] = {"unpack": unpack, "make": make}
    try:
        said = todos[todo](*rest)
    except Refused as error:
        said = {"refused": str(error)}
    except Trouble as error:
        said = {"trouble": str(error)}
    except OSError as error:
        said = {"trouble": error.strerror or str(error)}
    except MemoryError:
        said = {"trouble": "too little memory"}
    _say(said)


def _say(said: dict[str, object]) -> NoReturn:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    os._exit(0)


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
