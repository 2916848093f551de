"""Which faults of the table are tried: those that a change may have to do with. ``PROOFS=all`` (`make soak`) tries all.

A fault is tried if its module has changed, its row, or what hunts it, since the last landing: the commit in which
`.ci/run` has passed here, or from which this branch has left the one that it follows. Where neither is known (there is
no git, no remote, only a part of the history, or a clone in which nothing was changed), one in four is tried.
"""

import inspect
import os
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.counting import everything, tried
from tests.grid.sweep import WEATHERS
from tests.live import ROOT
from tests.mutations.mutating import Mutation
from tests.mutations.scripts import SCRIPTS

TABLE, HERE, GRID = "tests/mutations/table.py", "tests/mutations/mutating.py", "tests/grid/"
# Where the last landing is not known, one fault in so many is tried.
ONE_IN = 4
# What `.ci/run` writes when it has passed, and branches that this one may follow.
PASSED = "refs/ci/passed"
FOLLOWED = ("@{upstream}", "refs/remotes/origin/HEAD")


def chosen(mutations: Sequence[Mutation], root: Path = ROOT) -> list[int]:
    """The numbers of those to try."""
    numbers = range(len(mutations))
    base = "" if everything() else last_landing(root)
    if not base:
        return list(tried(numbers, ONE_IN))
    changed = changed_files(root, base)
    if HERE in changed:
        return list(numbers)
    before = _table(root, base) if TABLE in changed else mutations
    return [
        number
        for number, each in enumerate(mutations)
        if each not in before or _file_of(each) in changed or _hunter_changed(each, changed)
    ]


def last_landing(root: Path) -> str:
    """The commit that changes are counted from; "" if it is not known."""
    head = _git(root, "rev-parse", "--verify", "HEAD").strip()
    if passed := _git(root, "merge-base", "HEAD", PASSED).strip():
        return passed
    bases = [_git(root, "merge-base", "HEAD", branch).strip() for branch in FOLLOWED]
    return next((base for base in bases if base and base != head), "")


def changed_files(root: Path, base: str) -> set[str]:
    """What is not as it was in that commit, new files included."""
    found = _git(root, "diff", "--name-only", "--no-renames", "-z", base)
    return set((found + _git(root, "ls-files", "--others", "--exclude-standard", "-z")).split("\0")) - {""}


def _git(root: Path, *arguments: str) -> str:
    """What git says; "" if it fails."""
    # Where a hook of git has these tests run, its variables name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, env=environment, capture_output=True, encoding="utf-8", check=False
        )
    except OSError:
        return ""
    return "" if done.returncode else done.stdout


def _table(root: Path, base: str) -> Sequence[Mutation]:
    """The table of that commit; nothing if it cannot be read today."""
    made: dict[str, Any] = {"MUTATIONS": ()}
    try:
        exec(_git(root, "show", f"{base}:{TABLE}"), made)
    except Exception:
        return ()
    rows: Sequence[Mutation] = made["MUTATIONS"]
    return rows


def _file_of(mutation: Mutation) -> str:
    spec = find_spec(mutation.where.partition(":")[0])
    return _in_checkout(spec.origin if spec else None)


def _hunter_changed(mutation: Mutation, changed: set[str]) -> bool:
    if mutation.weather in WEATHERS:
        return any(name.startswith(GRID) for name in changed)
    return _in_checkout(inspect.getsourcefile(SCRIPTS[mutation.weather])) in changed


def _in_checkout(file: str | None) -> str:
    return Path(file or "/").resolve().relative_to(ROOT.resolve()).as_posix() if file else ""
