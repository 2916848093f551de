"""Tiny wheels, wheels that nobody should use, and wheels of what is installed here: no test needs a package index."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deskgrid.kit.wheel import hash_of, installed_wheel, record_of

__all__ = ["installed_wheel", "make_wheel"]


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
    hashes = {place: hash_of(each) for place, each in data.items()} | dict(record or {})
    data[f"{info}/RECORD"] = record_of(hashes, info)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, each in data.items():
            if place.rpartition("/")[2] not in leave_out:
                archive.writestr(place, each)
    return path
