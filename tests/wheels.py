"""Makes tiny wheels: `make_wheel(folder, "name", "1.0", {"module.py": "x = 1"})`, and wheels that nobody should use."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    *,
    tag: str = "py3-none-any",
    scripts: Mapping[str, str] | None = None,
    requires: tuple[str, ...] = (),
    record: Mapping[str, str] | None = None,
    leave_out: tuple[str, ...] = (),
) -> Path:
    """Write a wheel with these files, and return its path.

    ``scripts``: programs, each with its MODULE:FUNCTION. ``record``: hashes to give instead of the true ones, by file.
    ``leave_out``: names of files that the wheel should have and does not.
    """
    info = f"{name}-{version}.dist-info"
    known = "".join(f"Requires-Dist: {each}\n" for each in requires)
    its: dict[str, bytes] = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    its[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{known}".encode()
    pure = "true" if tag.endswith("-any") else "false"
    its[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    if scripts:
        rows = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        its[f"{info}/entry_points.txt"] = f"[console_scripts]\n{rows}".encode()
    hashes = {path: f"sha256={_hash(data)}" for path, data in its.items()} | dict(record or {})
    rows = [f"{path},{value},{len(its[path]) if path in its else 0}\n" for path, value in hashes.items()]
    its[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, data in its.items():
            if place.rpartition("/")[2] not in leave_out:
                archive.writestr(zipfile.ZipInfo(place), data, zipfile.ZIP_DEFLATED)
    return path


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
