"""The wheel of a distribution that is installed here, made of its files again."""

import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path

# What the installer wrote, and the wheel had not.
_OF_THE_INSTALLER = ("RECORD", "direct_url.json", "REQUESTED", "INSTALLER")


def installed_wheel(folder: Path, name: str) -> Path:
    """Make the wheel of a distribution that is installed here, from its files, in ``folder``.

    Raises `PackageNotFoundError`, and OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = metadata.distribution(name)
    files = [file for file in found.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    (tags,) = [file for file in files if file.name == "WHEEL"]
    tag = next(line.removeprefix("Tag: ") for line in tags.read_text().splitlines() if line.startswith("Tag: "))
    path = folder / f"{found.metadata['Name'].replace('-', '_')}-{found.version}-{tag}.whl"
    hashes = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in files:
            if file.name not in _OF_THE_INSTALLER:
                data = Path(str(file.locate())).read_bytes()
                archive.writestr(str(file), data)
                hashes[str(file)] = hash_of(data)
        archive.writestr(str(tags.parent / "RECORD"), record_of(hashes, str(tags.parent)))
    return path


def hash_of(data: bytes) -> str:
    """Return the hash of a file, as RECORD has it."""
    return f"sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()}"


def record_of(hashes: Mapping[str, str], info: str) -> bytes:
    """Return RECORD for the hashes of all files. ``info``: the folder that it is in."""
    return "".join([*(f"{place},{value},\n" for place, value in hashes.items()), f"{info}/RECORD,,\n"]).encode()
