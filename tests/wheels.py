"""Tiny wheels, wheels that nobody should use, and wheels of what is installed here: no test needs a package index."""

import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import metadata
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    files: Mapping[str, str | bytes] | None = None,
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    python: str = "",
    scripts: Mapping[str, str] | None = None,
    record: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = (),
) -> Path:
    """Make a wheel with these files, or with a module of its name, in ``folder``.

    ``scripts``: programs, each with its MODULE:FUNCTION. ``record``: hashes to give instead of the true ones, by file.
    ``leave_out``: names of files that the wheel should have and does not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    told = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    told += [f"Requires-Dist: {each}\n" for each in requires]
    told += [f"Requires-Python: {python}\n"] if python else []
    content = {**({f"{name}.py": f"VERSION = {version!r}\n"} if files is None else files)}
    content[f"{info}/METADATA"] = "".join(told)
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        points = [f"{script} = {target}\n" for script, target in scripts.items()]
        content[f"{info}/entry_points.txt"] = "".join(["[console_scripts]\n", *points])
    data = {place: text.encode() if isinstance(text, str) else text for place, text in content.items()}
    hashes = {place: _hash(each) for place, each in data.items()} | dict(record or {})
    data[f"{info}/RECORD"] = _record(hashes, info)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, each in data.items():
            if place.rpartition("/")[2] not in leave_out:
                archive.writestr(place, each)
    return path


def _hash(data: bytes) -> str:
    return f"sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()}"


def _record(hashes: Mapping[str, str], info: str) -> bytes:
    return "".join([*(f"{place},{value},\n" for place, value in hashes.items()), f"{info}/RECORD,,\n"]).encode()


def installed_wheel(folder: Path, name: str) -> Path:
    """Make the wheel of a distribution that is installed here, from its files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = metadata.distribution(name)
    files = [file for file in found.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    (tags,) = [file for file in files if file.name == "WHEEL"]
    tag = next(line.removeprefix("Tag: ") for line in tags.read_text().splitlines() if line.startswith("Tag: "))
    path = folder / f"{found.metadata['Name'].replace('-', '_')}-{found.version}-{tag}.whl"
    hashes = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in files:
            if file.name not in ("RECORD", "direct_url.json", "REQUESTED", "INSTALLER"):
                data = Path(str(file.locate())).read_bytes()
                archive.writestr(str(file), data)
                hashes[str(file)] = _hash(data)
        archive.writestr(str(tags.parent / "RECORD"), _record(hashes, str(tags.parent)))
    return path
