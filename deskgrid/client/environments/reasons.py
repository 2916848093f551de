"""Says in one line why pip found no wheels, and what to do about it."""

import re
from collections.abc import Callable

from deskgrid.client.environments.asked import AskedEnvironment, name_in
from deskgrid.wire import System

_NONE = re.compile(r"Could not find a version that satisfies the requirement (.+?) \(from versions: (.*)\)")
_INVALID = re.compile(r"Invalid requirement: (?:'(.+?)'|(\S+))")
# Also of pip's newer versions, which show the condition in a line of its own.
_CONDITION = re.compile(r"Invalid(?:Marker| requirement: '.+?'): (?:Invalid marker: '(.+?)'|.+ marker .+\n\s+(.+))")
_ADDRESS = re.compile(r"Invalid URL '(.*?)'")
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


def reason(said: str, asked: AskedEnvironment, system: System, versions: Callable[[str], str]) -> str:
    """Return one line about what pip said. ``versions(name)``: what pip says of a distribution on this machine."""
    return f"the environment {asked.label!r} for {system}: {_why(said, asked, versions)}"


def _why(said: str, asked: AskedEnvironment, versions: Callable[[str], str]) -> str:
    if found := _ADDRESS.search(said):
        return _no_requirement(next((line for line in asked.lines if line.endswith(found[1])), found[1]))
    for pattern, say in _SAID:
        if found := pattern.search(said):
            return f"{say(found)}{_advice(asked)}"
    if found := _NONE.search(said) or _NO_MATCH.search(said):
        return f"{_missing(said, found, versions)}{_advice(asked)}"
    if _OFFLINE.search(said):
        return "no package index can be reached from here"
    if found := _PROGRAM.search(said):
        return found[1][:400]
    # Of an exception that pip did not expect, the last line says what it was.
    errors = [
        line.removeprefix("ERROR: ")
        for line in said.splitlines()
        if line.startswith("ERROR: ") and line != "ERROR: Exception:"
    ]
    return next(iter(errors or said.strip().splitlines()[-1:]), "pip failed")[:400]


def _contradiction(found: re.Match[str]) -> str:
    sides = [
        re.sub(r"^The user requested (\(constraint\) )?", "you ask for ", line.strip())
        for line in found[1].splitlines()
    ]
    return f"its requirements contradict each other: {'; '.join(sides)}"


def _no_requirement(said: str) -> str:
    return f"{said!r} is not a requirement: give a name such as numpy, also with versions, as in numpy==2.4.6"


def _no_condition(found: re.Match[str]) -> str:
    return f"{found[1] or found[2]!r} after the semicolon is not a condition, such as sys_platform == 'win32'"


# What pip says, and what we say instead.
_SAID: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_UNSUPPORTED, lambda found: f"{found[1].rpartition('/')[2]} was made for other PCs"),
    (_CONFLICT, _contradiction),
    (_CONDITION, _no_condition),
    (_INVALID, lambda found: _no_requirement(found[1] or found[2])),
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
            "give its path in the place of its name"
        )
    return f"no package index has {wanted} for these PCs: is its name right, and is it made for them?"


def _advice(asked: AskedEnvironment) -> str:
    if asked.label.startswith("mine"):
        return ' ("mine" asks for the versions that are installed here; name requirements instead to ask for others)'
    if asked.pinned:
        return " (its hashes allow nothing else: lock it for these PCs, too)"
    return ""
