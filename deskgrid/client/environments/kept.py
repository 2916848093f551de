"""The environments of the bags at the broker: what is in them, and how to have it forgotten."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deskgrid.client.downloads import ResultFiles
from deskgrid.client.environments.store import WheelFolder
from deskgrid.client.link import Link
from deskgrid.client.replies import ask
from deskgrid.errors import RequestFailed
from deskgrid.wire import OFFER_PARTS, System, TreeFile, split_digests


@dataclass(frozen=True, slots=True)
class KeptBuild:
    """The wheels for one sort of PC. ``size``: their bytes; ``unpacked``: the bytes of the files in them."""

    system: System
    tree: bytes
    size: int
    unpacked: int


@dataclass(frozen=True, slots=True)
class KeptEnvironment:
    """``id`` names it; ``bags``: some of those that use it, all of one ``owner``, the newest first.

    ``count``: how many bags these are in all; ``waits``: how many of them have not ended.
    """

    id: str
    label: str
    owner: str
    builds: tuple[KeptBuild, ...]
    bags: tuple[str, ...]
    count: int
    waits: int

    @property
    def size(self) -> int:
        """Bytes of the wheels of all builds."""
        return sum([build.size for build in self.builds])


def environments(link: Link) -> list[KeptEnvironment]:
    """Return the environments that bags at the broker use, less those forgotten; those of the newest bags first."""
    return [_environment(row) for row in ask(link, "environments", {})["environments"]]


def _environment(row: dict[str, Any]) -> KeptEnvironment:
    builds = [
        KeptBuild(System(*system), bytes.fromhex(tree), size, unpacked)
        for *system, tree, size, unpacked in row["builds"]
    ]
    names = (row["environment"], row["label"], row["owner"])
    return KeptEnvironment(*names, tuple(builds), tuple(row["bags"]), row["count"], row["waits"])


def find(link: Link, name: str) -> KeptEnvironment:
    """Return the environment whose id begins with ``name``. Raises `RequestFailed` unless there is exactly one."""
    found = [each for each in environments(link) if name and each.id.startswith(name)]
    if len(found) != 1:
        have = f"{len(found)} environments have ids that begin" if found else "no environment has an id that begins"
        raise RequestFailed(f"{have} with {name!r}: see deskgrid env list")
    return found[0]


def wheels(link: Link, kept: KeptEnvironment, build: KeptBuild) -> Sequence[TreeFile]:
    """Return the wheels of a build. Raises `RequestFailed` if they are somebody else's."""
    if not build.tree:
        raise RequestFailed(f"the wheels of {kept.id} cannot be seen: only {kept.owner} and admins may do this")
    try:
        return ResultFiles(link, kept.bags[0]).tree(build.tree).entries
    except RequestFailed as error:
        raise RequestFailed(f"the wheels of {kept.id} cannot be seen: {error}") from error


def forget(link: Link, kept: KeptEnvironment) -> int:
    """Have the wheels of an environment forgotten, here and at the broker; return how many bytes less that has.

    Raises `RequestFailed` if a bag that uses it has not ended.
    """
    if kept.waits:
        bags = "1 bag that uses it has" if kept.waits == 1 else f"{kept.waits} bags that use it have"
        raise RequestFailed(f"{kept.id} cannot be forgotten yet: {bags} not ended; cancel what is left, or wait")
    parts: dict[bytes, None] = {}
    for build in kept.builds:
        files = wheels(link, kept, build)
        WheelFolder().forget({entry.path for entry in files})
        parts |= dict.fromkeys([*(part for entry in files for part in split_digests(entry.parts)), build.tree])
    size, digests = 0, list(parts)
    for start in range(0, len(digests), OFFER_PARTS):
        some = b"".join(digests[start : start + OFFER_PARTS])
        size += int(ask(link, "release", {"bag": kept.bags[0], "parts": some})["size"])
    return size
