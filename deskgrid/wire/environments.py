"""Environments as they travel: which tree of wheels a PC needs, by its Python and its platform.

An *environment* is the libraries that a bag brings. It has a *build* for each sort of PC: a tree of wheels that were
chosen for that sort. `this_system` says what sort this machine is, in the words that builds and workers use.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import Annotated, NamedTuple

from deskgrid.wire.fields import AtMost, Count, Integer, Line, PartDigest, PythonVersion, Word, fields_of
from deskgrid.wire.limits import BUILDS_LIMIT, DIGEST_BYTES, NAME_BYTES
from deskgrid.wire.source import Source, Wrong

# What wheels call a platform, without the version of its C library or of macOS, which stands beside it.
Platform = Annotated[
    str, Word(re.compile(r"(linux|musllinux|macosx|win)_[a-z0-9_]{1,32}|win32"), "a platform like linux_x86_64")
]
# A part of such a version.
VersionPart = Annotated[int, Integer(0, 9_999)]
# The musl that is assumed where Linux has no glibc: nobody maintains an older one any more, and none names its version.
_MUSL = (1, 2)


class System(NamedTuple):
    """A sort of PC. ``major``, ``minor``: the version of its glibc, its musl or its macOS; 0, 0 on Windows."""

    python: str
    platform: str
    major: int
    minor: int

    def __str__(self) -> str:
        words = {"linux": "glibc", "musllinux": "musl", "macosx": "macOS"}
        what = words.get(self.platform.partition("_")[0])
        return f"Python {self.python} on {self.platform}{f' ({what} {self.major}.{self.minor})' if what else ''}"

    def can_use(self, other: "System") -> bool:
        """Whether this PC can use what was chosen for ``other``: a C library runs what was made for an older one."""
        same = (self.python, self.platform) == (other.python, other.platform)
        return same and (self.major, self.minor) >= (other.major, other.minor)


class Build(NamedTuple):
    """The wheels for one sort of PC. ``size``: their bytes; ``unpacked``: the bytes of the files in them."""

    python: PythonVersion
    platform: Platform
    major: VersionPart
    minor: VersionPart
    tree: PartDigest
    size: Count
    unpacked: Count

    @property
    def system(self) -> System:
        """The sort of PC that the wheels were chosen for."""
        return System(*self[:4])


class Environment(NamedTuple):
    """The libraries that a bag brings. ``label``: names them to people, like "numpy==2.4.6 +2"."""

    label: Annotated[str, Line(NAME_BYTES)]
    builds: Annotated[tuple[Build, ...], AtMost(BUILDS_LIMIT)]

    def packed(self) -> list[object]:
        """Return the entry of a template."""
        return [self.label, *map(list, zip(*self.builds, strict=True))]

    def build_for(self, system: System) -> Build | None:
        """Return the build that a PC can use: of several, the one that was chosen for the newest system."""
        usable = [build for build in self.builds if system.can_use(build.system)]
        return max(usable, key=lambda build: (build.major, build.minor), default=None)


_LABEL = fields_of(Environment)["label"]
_COLUMNS = fields_of(Build)


def read_environment(source: Source) -> Environment:
    """Read the entry of a template."""
    if source.array() != 1 + len(_COLUMNS):
        raise Wrong("an environment has the wrong number of columns for its builds")
    label = _LABEL.read(source)
    columns = source.columns(len(_COLUMNS), BUILDS_LIMIT)
    if not columns[0] or len({*map(len, columns)}) > 1:
        raise Wrong("an environment without builds, or with columns of different lengths")
    checked = [field.all(column) for field, column in zip(_COLUMNS.values(), columns, strict=True)]
    builds = tuple(map(Build._make, zip(*checked, strict=True)))
    if any(len(build.tree) != DIGEST_BYTES for build in builds):
        raise Wrong("not the digest of a tree")
    if len({build.system for build in builds}) < len(builds):
        raise Wrong("two builds of an environment for the same systems")
    return Environment(label, builds)


def this_system() -> System:
    """Return what sort of PC this is."""
    return System(f"{sys.version_info[0]}.{sys.version_info[1]}", *_platform(sys.platform))


def _platform(system: str) -> tuple[str, int, int]:
    import platform  # here, because most programs never need it

    machine = platform.machine().lower()
    if system == "win32":
        return "win32" if sys.maxsize < 2**32 else f"win_{machine}", 0, 0
    if system == "darwin":
        return f"macosx_{machine}", *_two(platform.mac_ver()[0])
    confstr: Callable[[str], str | None] = getattr(os, "confstr", lambda name: None)
    try:
        name, _, version = (confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        name, version = "", ""
    return (f"linux_{machine}", *_two(version)) if name == "glibc" else (f"musllinux_{machine}", *_MUSL)


def _two(version: str) -> tuple[int, int]:
    parts = [int(part) for part in re.findall(r"[0-9]+", version)[:2]]
    major, minor = (*parts, 0, 0)[:2]
    return major, minor
