"""Tiny wheels, and wheels of what is installed here: so that no test needs a package index."""

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
) -> Path:
    """Make a wheel with these files, or with a module of its name, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    told = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    told += [f"Requires-Dist: {each}\n" for each in requires]
    told += [f"Requires-Python: {python}\n"] if python else []
    content = {**({f"{name}.py": f"VERSION = {version!r}\n"} if files is None else files)}
    content[f"{info}/METADATA"] = "".join(told)
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, text in content.items():
            archive.writestr(place, text)
        archive.writestr(f"{info}/RECORD", _record(content, info))
    return path


def _record(content: Mapping[str, str | bytes], info: str) -> str:
    lines = []
    for place, text in content.items():
        data = text.encode() if isinstance(text, str) else text
        digest = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{place},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{info}/RECORD,,\n"])


def installed_wheel(folder: Path, name: str) -> Path:
    """Make the wheel of a distribution that is installed here, from its files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = metadata.distribution(name)
    files = [file for file in found.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    (tags,) = [file for file in files if file.name == "WHEEL"]
    tag = next(line.removeprefix("Tag: ") for line in tags.read_text().splitlines() if line.startswith("Tag: "))
    path = folder / f"{found.metadata['Name'].replace('-', '_')}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in files:
            if file.name not in ("RECORD", "direct_url.json", "REQUESTED", "INSTALLER"):
                archive.write(str(file.locate()), str(file))
        record = "".join([f"{file},,\n" for file in files if file.name != "RECORD"])
        archive.writestr(str(tags.parent / "RECORD"), record)
    return path
