"""Makes the environment of a bag: resolves what is asked for, once for each sort of PC, and makes trees of wheels."""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from deskgrid.client.environments import mine
from deskgrid.client.environments.asked import AskedEnvironment, Env, asked_by, asked_in
from deskgrid.client.environments.resolve import wheels_for
from deskgrid.client.environments.store import Wheel, WheelFolder
from deskgrid.client.sources import StoredTree, stored_paths
from deskgrid.errors import BagRejected
from deskgrid.wire import BUILDS_LIMIT, NAME_BYTES, Build, Environment, System, cut

log = logging.getLogger("deskgrid.client")

_CLAUSE = re.compile(r"\s*(?P<sign>~=|==|!=|<=|>=|<|>)\s*(?P<major>\d+)(?:\.(?P<minor>\d+))?(?P<more>[\d.*]*)\s*")
# What a clause of "requires-python" says about minor versions.
_HOLDS: dict[str, Callable[[tuple[int, int], tuple[int, int]], bool]] = {
    "==": lambda here, there: here == there,
    "!=": lambda here, there: here != there,
    "<=": lambda here, there: here <= there,
    ">=": lambda here, there: here >= there,
    "<": lambda here, there: here < there,
    ">": lambda here, there: here > there,
    "any": lambda here, there: True,
    "~=": lambda here, there: here >= there and here[0] == there[0],
}


class Made(NamedTuple):
    """An environment, and the trees of its wheels."""

    environment: Environment
    trees: tuple[StoredTree, ...]

    @property
    def is_there(self) -> bool:
        """Whether all wheels are still in the store, which other programs use, too."""
        return all(os.path.exists(part.path) for tree in self.trees for part in tree.parts.values() if part.path)


def made(env: Env, libraries: Iterable[str], script: str, systems: Iterable[System]) -> Made:
    """Make the environment that ``env`` asks for: see `deskgrid.client.environments.asked.checked_env`.

    ``libraries``: the modules that "mine" stands for. ``script``: the file that "script" stands for. ``systems``: the
    sorts of PCs. One for which there are no wheels is left out with a warning, unless no other is left. Raises
    `BagRejected`.
    """
    asked, store = _asked(env, libraries, script), WheelFolder()
    found: dict[tuple[bytes, str, str], tuple[Build, StoredTree]] = {}
    refusals = []
    for system in sorted(systems)[:BUILDS_LIMIT]:
        try:
            wheels = _wheels(asked, system, store)
        except BagRejected as error:
            refusals.append(error)
            continue
        tree = stored_paths([(wheel.name, wheel.path) for wheel in wheels])
        # What was chosen for an older C library serves a newer one, too.
        found.setdefault((tree.digest, *system[:2]), (_build(system, tree, wheels), tree))
    if not found:
        raise refusals[0] if refusals else BagRejected("no worker of this grid says what it runs on")
    for refusal in refusals:
        log.warning("no task of the bag can run on some PCs: %s", refusal)
    environment = Environment(cut(asked.label, NAME_BYTES), tuple([build for build, _ in found.values()]))
    return Made(environment, tuple([tree for _, tree in found.values()]))


def _asked(env: Env, libraries: Iterable[str], script: str) -> AskedEnvironment:
    parts = [mine.asked_of(libraries)] if "mine" in env else []
    if "script" in env and not script:
        raise BagRejected('"script" is for a program in a file, whose comment "# /// script" has its dependencies')
    parts += [asked_in(Path(script))] if "script" in env else []
    parts += [asked_in(item) for item in env if isinstance(item, Path)]
    lines = [item for item in env if isinstance(item, str) and item not in ("mine", "script")]
    parts += [asked_by(lines)] if lines else []
    return reduce(AskedEnvironment.and_also, parts)


def _wheels(asked: AskedEnvironment, system: System, store: WheelFolder) -> list[Wheel]:
    if not _allows(asked.python, system.python):
        raise BagRejected(
            f"{asked.label} is for Python {asked.python}, and the PCs have {system}: "
            + ("change its requires-python" if asked.label.endswith(".py") else "lock it for this Python, too")
        )
    log.info("resolving %s for %s", asked.label, system)
    return wheels_for(asked, system, store)


def _allows(asked: str, python: str) -> bool:
    """Whether "requires-python" allows a minor version of Python; pip knows about the third number."""
    major, minor = map(int, python.split("."))
    for found in filter(None, map(_CLAUSE.fullmatch, asked.split(","))):
        sign, there = found["sign"], (int(found["major"]), int(found["minor"] or 0))
        here = (major, minor if found["minor"] else 0)
        if found["more"].strip(".*"):  # a third number: some versions of that minor version are allowed
            sign = {"<": "<=", ">": ">=", "!=": "any"}.get(sign, sign)
        if not _HOLDS[sign](here, there):
            return False
    return True


def _build(system: System, tree: StoredTree, wheels: Sequence[Wheel]) -> Build:
    unpacked = sum([wheel.unpacked for wheel in wheels])
    return Build(*system, tree.digest, tree.size, unpacked)
