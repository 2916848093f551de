"""Says in one line why pip found no wheels, and what to do about it."""

import re
from collections.abc import Callable

from deskgrid.client.environments.asked import Asked, name_in
from deskgrid.wire import System

_NONE = re.compile(r"Could not find a version that satisfies the requirement (.+?) \(from versions: (.*)\)")
_NO_MATCH = re.compile(r"No matching distribution found for (.+)")
_CONFLICT = re.compile(r"(?s)The conflict is caused by:\n(.+?)\n\n")
_UNSUPPORTED = re.compile(r"(\S+\.whl) is not a supported wheel on this platform")
_OTHER_PYTHON = re.compile(r"Package '(.+?)' requires a different Python: \S+ not in (\S+)")
_IGNORED = re.compile(r"require a different python version: (.+)")
_BUILT = re.compile(r"(?s)\[\d+ lines? of output\]\n(.*)\n\s*\[end of output\]")
_OFFLINE = re.compile(r"NewConnectionError|Max retries exceeded|ConnectionError|Temporary failure in name resolution")
# Of a program that pip ran, such as git: what it said, or else which one it was.
_PROGRAM = re.compile(r"^\s*(?:fatal: |× )(.+)", re.MULTILINE)
# Versions that are shown: the newest ones.
_VERSIONS = 5


def reason(said: str, asked: Asked, system: System, versions: Callable[[str], str]) -> str:
    """Return one line about what pip said. ``versions(name)``: what pip says of a distribution on this machine."""
    return f"the environment {asked.label!r} for {system}: {_why(said, asked, versions)}"


def _why(said: str, asked: Asked, versions: Callable[[str], str]) -> str:
    for pattern, say in _SAID:
        if found := pattern.search(said):
            return f"{say(found)}{_advice(asked)}"
    if found := _NONE.search(said) or _NO_MATCH.search(said):
        return f"{_missing(said, found, versions)}{_advice(asked)}"
    if _OFFLINE.search(said):
        return "no package index can be reached from here"
    if found := _PROGRAM.search(said):
        return found[1][:400]
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return next(iter(errors or said.strip().splitlines()[-1:]), "pip failed")[:400]


def _contradiction(found: re.Match[str]) -> str:
    return f"its requirements contradict each other: {'; '.join([line.strip() for line in found[1].splitlines()])}"


# What pip says, and what we say instead.
_SAID: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_UNSUPPORTED, lambda found: f"{found[1].rpartition('/')[2]} was made for other PCs"),
    (_CONFLICT, _contradiction),
    (_OTHER_PYTHON, lambda found: f"{found[1]} is for Python {found[2]}"),
    (re.compile("DO NOT MATCH THE HASHES"), lambda found: "a wheel is not what its hash says: lock it again"),
)


def reason_of_build(said: str) -> str:
    """Return the end of what a project's build said."""
    found = _BUILT.search(said)
    lines = [line.strip() for line in (found[1] if found else said).splitlines() if line.strip()]
    return " ".join(lines[-3:])[-600:]


def _missing(said: str, found: re.Match[str], versions: Callable[[str], str]) -> str:
    wanted = found[1].partition(" (from")[0]
    name, _, version = wanted.partition("==")
    ignored = found_ignored[1].split("; ") if (found_ignored := _IGNORED.search(said)) else []
    if needed := next((each for each in ignored if each.startswith(f"{version} ")), ""):
        return f"{wanted} is for another Python: {needed}"
    others = found[2].split(", ") if found.re is _NONE and found[2] not in ("", "none") else []
    if others:
        return f"there is no wheel of {wanted}; there are {', '.join(others[-_VERSIONS:])}"
    if _OFFLINE.search(said):
        return f"no package index can be reached from here, and {wanted} is not in the cache"
    if name_in(name) in versions(name_in(name)).lower():
        return (
            f"{wanted} exists, but no wheel of it fits these PCs: allow other versions, or build a wheel for them and "
            "name its path in env=[...]"
        )
    return f"no package index has {wanted} for these PCs: is its name right, and is it made for them?"


def _advice(asked: Asked) -> str:
    if asked.label.startswith("mine"):
        return ' ("mine" asks for the versions that are installed here; env=[...] can ask for others)'
    if asked.pinned:
        return " (its hashes allow nothing else: lock it for these PCs, too)"
    return ""
