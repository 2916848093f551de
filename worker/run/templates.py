"""Templates on a worker: each is checked, and its bundle of modules is unpacked once, keyed by its content."""

import errno
import hashlib
import tempfile
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from deskgrid.wire import TemplateRefused, split_digests
from deskgrid.wire import read_template as unpack
from deskgrid.worker.run.child import FULL, frame
from deskgrid.worker.run.jobs import NoRoomError, TemplateError

# The most folders of a bundle, and the most parts of a file's path: far more than any program has, and so few that they
# are made within seconds. A worker that takes longer is silent for so long that the broker takes it for lost.
FOLDERS_LIMIT = 10_000
PARTS_LIMIT = 32
# What a template takes in memory beside its own bytes.
TEMPLATE_BYTES = 2_000
# Errors for which the disk, or the limit of open files, is to blame, and no bundle.
_THIS_PC = {*FULL, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}


class Remembered:
    """Names of templates that are remembered within a limit of bytes: those that were used last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total = 0

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def use(self, name: str) -> None:
        """A template that is remembered was used."""
        self._sizes.move_to_end(name)

    def add(self, name: str, size: int, needed: Collection[str] = ()) -> list[str]:
        """Remember one more, of ``size`` bytes. Returns the names to forget: never a ``needed`` one, or this one."""
        self._total += size + TEMPLATE_BYTES - self._sizes.pop(name, 0)
        gone = []
        for old in list(self._sizes) if self._total > self._limit else ():
            if self._total > self._limit and old not in needed:
                self._total -= self._sizes.pop(old)
                gone.append(old)
        self._sizes[name] = size + TEMPLATE_BYTES
        return gone


@dataclass(frozen=True, slots=True)
class UnpackedTemplate:
    """``bundle`` is the digest of the template's modules, "" if it has none; None for a command template.

    ``inputs``: the digests of the trees that every task needs. ``outputs``: the patterns of the files that a command
    leaves in its folder; None: it has no folder of its own. ``source``: the tree that has the modules instead, and the
    folder that they are to be in. ``size``: bytes.
    """

    bundle: str | None
    body: dict[str, Any]
    inputs: tuple[bytes, ...] = ()
    outputs: tuple[str, ...] | None = None
    size: int = 0
    source: tuple[bytes, Path] | None = None

    @property
    def unpacked(self) -> str:
        """The folder with its modules, unless they are laid out for each task that lacks them; empty if it has none."""
        return "" if self.source is not None or not self.bundle else str(self.body["folder"])

    @property
    def has_files(self) -> bool:
        """Whether each task needs files, or may leave some in a folder."""
        return bool(self.inputs) or self.source is not None or self.outputs is not None


def read_template(blob: bytes, cache: Path) -> UnpackedTemplate:
    """Read the template in ``blob`` and unpack its bundle below ``cache``. Raises `TemplateError`."""
    try:
        template = unpack(blob)
    except TemplateRefused as error:
        raise TemplateError(f"the template cannot be read: {error}") from error
    inputs = tuple(split_digests(template.get("inputs", b"")))
    outputs = tuple(template["outputs"]) if "outputs" in template else None
    match template:
        case {"kind": "command", "argv": [_, *_] as argv}:
            body = {"kind": "command", "argv": argv, "in_folder": outputs is not None} | _saves(template)
            return UnpackedTemplate(None, body, inputs, outputs, len(blob))
        case {"kind": "python", "python": python, "function": function, "bundle": bundle}:
            body = {"kind": "python", "python": python, "function": function}
            body |= {name: template[name] for name in ("classes", "lines") if name in template}
            size = len(function) + len(template.get("classes", b""))
            if source := template.get("source"):
                place = cache / source.hex()
                body["folder"] = str(place)
                return UnpackedTemplate(source.hex(), body, inputs, None, size, (source, place))
            digest = hashlib.sha256(frame(sorted(bundle.items()))).hexdigest() if bundle else ""
            body["folder"] = str(_unpacked(bundle, cache / digest)) if bundle else ""
            return UnpackedTemplate(digest, body, inputs, size=size)
    raise TemplateError("neither a Python nor a command template")


def _saves(template: dict[str, Any]) -> dict[str, Any]:
    """How a checkpointable command saves, as its process is told; nothing for others. Raises `TemplateError`."""
    match template:
        case {"checkpoint": patterns, "signal": name, "exit": code}:
            for pattern in patterns:
                _place(pattern)
            return {"saves": {"patterns": patterns, "signal": name, "exit": code}}
    return {}


def _unpacked(bundle: dict[str, bytes], folder: Path) -> Path:
    """Unpack ``bundle`` into ``folder``, completely or not at all, and return ``folder``."""
    files = {_place(path): source for path, source in bundle.items()}
    if len({folder for place in files for folder in place.parents}) > FOLDERS_LIMIT:
        raise TemplateError(f"the bundle has more than {FOLDERS_LIMIT:,} folders")
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as staging:
            _fill(Path(staging) / "all", files)
            _rename(Path(staging) / "all", folder)
    except OSError as error:
        kind = NoRoomError if error.errno in _THIS_PC else TemplateError
        raise kind(f"the bundle cannot be unpacked: {error}") from error
    return folder


def _fill(root: Path, files: dict[PurePosixPath, bytes]) -> None:
    for place, source in files.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source)


def _rename(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another worker on this PC was faster, with the same content
            raise


def _place(path: str) -> PurePosixPath:
    """Return ``path`` if it is a relative, normalized path that stays in its folder on any system."""
    if not set(path) & set("\\:\0") and path.count("/") < PARTS_LIMIT:
        place = PurePosixPath(path)
        if str(place) == path and place.parts and ".." not in place.parts and not place.is_absolute():
            return place
    raise TemplateError(f"not a place for a bundle's file: {path!r:.80}")
