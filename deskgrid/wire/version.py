"""What this build calls itself, and the number of the wire format that it speaks.

A version is ``0.1.0+wire1.g1a2b3c4d5e6f``: the release, the number of the wire format, and the commit of a build from
git. Peers tell each other their versions first. Those with the same number understand each other, whatever their
releases. A version without a number is older than all that have one.

Rule: whatever changes, an introduction (`deskgrid.wire.messages.INTRODUCTIONS`) keeps its tag and begins with the
version, and a refusal keeps its tag and its field: so that peers which understand nothing else can say why.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

RELEASE = "0.1.0"
# Raise this whenever a message changes. `tests/wire/test_version.py` notices that.
PROTOCOL = 6

# Where deskgrid is: a checkout, a folder with its source, or one that packages are installed in.
_PLACE = Path(__file__).parents[2]
_NUMBER = re.compile(r"\+wire([0-9]{1,9})(?:\.|$)")
# Hexadecimal digits of a commit that are told.
_DIGITS = 12
_COMMIT = re.compile(rf"\.g([0-9a-f]{{{_DIGITS}}})\b")
_HASH = re.compile(r"[0-9a-f]{40,64}")


def commit_of(place: Path) -> str:
    """Return the first digits of the commit that the build in ``place`` was made from; "" if that is not known."""
    with suppress(OSError, UnicodeDecodeError):
        if (place / "deskgrid" / "broker").is_dir():  # installed: the version is in the name of a folder
            told = " ".join(name for name in os.listdir(place) if re.match(r"deskgrid-.*\.dist-info$", name))
        elif (notes := place / "PKG-INFO").is_file():  # an unpacked source distribution
            told = notes.read_text("utf-8").partition("\nVersion: ")[2].partition("\n")[0]
        else:
            return _head(place / ".git")[:_DIGITS]
        return found[1] if (found := _COMMIT.search(told)) else ""
    return ""


def _head(git: Path) -> str:
    """Return the commit that is checked out; reading files takes a hundredth of the time that git needs to start."""
    if git.is_file():  # of a second work tree
        git = git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()
    common = git
    with suppress(FileNotFoundError):
        common = git / (git / "commondir").read_text("utf-8").strip()
    head = (git / "HEAD").read_text("utf-8").strip()
    if head.startswith("ref: "):
        ref = head.removeprefix("ref: ")
        try:
            head = (common / ref).read_text("utf-8").strip()
        except FileNotFoundError:
            rows = (common / "packed-refs").read_text("utf-8").splitlines()
            head = next((row.partition(" ")[0] for row in rows if row.endswith(f" {ref}")), "")
    return head if _HASH.fullmatch(head) else ""


VERSION = f"{RELEASE}+wire{PROTOCOL}" + (f".g{_commit}" if (_commit := commit_of(_PLACE)) else "")


def protocol_of(version: str) -> int:
    """Return the number of the wire format of a peer; 0 for one from before there were numbers."""
    found = _NUMBER.search(version)
    return int(found[1]) if found else 0


def unlike(theirs: str, ours: str = VERSION) -> str:
    """Return why a broker of version ``ours`` does not understand a peer of version ``theirs``; "" if it does."""
    number, mine = protocol_of(theirs), protocol_of(ours)
    if number == mine:
        return ""
    spoken = f"wire format {number}" if number else "an early wire format"
    if number < mine:
        older = "you are older than this broker", "install its version"
    else:
        older = "this broker is older than you", "update it, or install its version"
    return f"{older[0]}: it speaks wire format {mine} (deskgrid {ours}), and you speak {spoken} ({theirs}); {older[1]}"
