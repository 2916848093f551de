"""The version that peers tell each other first: the number of the wire format, and the commit of a build from git."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgpack
import pytest

from deskgrid import wire
from deskgrid.wire.codec import FIELDS
from deskgrid.wire.fields import AtMost, Integer, Many, Optional, Rows, Word, fields_of
from deskgrid.wire.messages import INTRODUCTIONS, MOST
from deskgrid.wire.task_options import TaskOptions
from deskgrid.wire.version import PROTOCOL, VERSION, commit_of, protocol_of, unlike

# The fingerprint of all messages, by number of the wire format. If a message has changed, peers with the old one must
# not be let in: raise PROTOCOL, and add a line with the fingerprint that the test prints. Never change a line, unless
# its number is in no build that somebody else has.
FINGERPRINTS = {
    1: "c812e4795c786a0a",
    2: "5a9ef2f0eb90a65c",
    3: "98bc652ab309f7f9",
    4: "c7a67619f88a3f82",
    5: "03b9f5a119ffd11d",
    6: "8fb965d83c43accc",
}

COMMIT = "0123456789abcdef0123456789abcdef01234567"


# --- the number ------------------------------------------------------------------------------------------------------


def _told(field: Any) -> Iterator[str]:
    """Yield all that a field is, with what is in it."""
    yield f"{type(field).__name__} {field} {field.pattern.pattern if isinstance(field, Word) else ''}"
    if isinstance(field, Optional | Many):
        yield from _told(field.inner)
    elif isinstance(field, Rows):
        yield from _fields(field.kind)


def _fields(kind: type) -> Iterator[str]:
    for name, field in fields_of(kind).items():
        yield name
        yield from _told(field)


def fingerprint() -> str:
    """A digest of all messages: their tags, their fields and what these may hold."""
    told = [
        f"{tag} {kind.__name__} {MOST[kind]}\n" + "\n".join(_fields(kind)) for tag, kind in enumerate(wire.MESSAGES)
    ]
    assert len(FIELDS) == len(told)
    return hashlib.sha256("\n".join([*told, *_fields(TaskOptions)]).encode()).hexdigest()[:16]


def test_a_message_that_has_changed_raises_the_number() -> None:
    found = fingerprint()
    assert max(FINGERPRINTS) == PROTOCOL, "add the fingerprint of the new number"
    assert FINGERPRINTS[PROTOCOL] == found, f"a message has changed: raise PROTOCOL, and note {found!r}"


class _Row(NamedTuple):
    x: Annotated[int, Integer(0, 1)]


class _NextRow(NamedTuple):
    x: Annotated[int, Integer(0, 2)]


class _Message(NamedTuple):
    a: Annotated[int, Integer(0, 1)]
    b: Annotated[tuple[_Row, ...], AtMost(3)]
    c: Annotated[int, Integer(0, 1)] | None


class _Renamed(NamedTuple):
    a: Annotated[int, Integer(0, 1)]
    d: Annotated[tuple[_Row, ...], AtMost(3)]
    c: Annotated[int, Integer(0, 1)] | None


class _Moved(NamedTuple):
    b: Annotated[tuple[_Row, ...], AtMost(3)]
    a: Annotated[int, Integer(0, 1)]
    c: Annotated[int, Integer(0, 1)] | None


class _OtherRow(NamedTuple):
    a: Annotated[int, Integer(0, 1)]
    b: Annotated[tuple[_NextRow, ...], AtMost(3)]
    c: Annotated[int, Integer(0, 1)] | None


class _Longer(NamedTuple):
    a: Annotated[int, Integer(0, 1)]
    b: Annotated[tuple[_Row, ...], AtMost(4)]
    c: Annotated[int, Integer(0, 1)] | None


class _Required(NamedTuple):
    a: Annotated[int, Integer(0, 1)]
    b: Annotated[tuple[_Row, ...], AtMost(3)]
    c: Annotated[int, Integer(0, 1)]


@pytest.mark.parametrize("changed", [_Renamed, _Moved, _OtherRow, _Longer, _Required])
def test_the_fingerprint_notices_every_kind_of_change(changed: type) -> None:
    assert [*_fields(_Message)] != [*_fields(changed)]


def test_introductions_and_refusals_are_what_they_always_were() -> None:
    """Whoever understands nothing else understands these."""
    tags = {kind.__name__: wire.MESSAGES.index(kind) for kind in (*INTRODUCTIONS, wire.Refused)}
    assert tags == {"Join": 0, "Hello": 16, "Enrol": 25, "Refused": 14}
    assert [next(iter(FIELDS[kind])) for kind in INTRODUCTIONS] == ["version"] * 3
    assert list(FIELDS[wire.Refused]) == ["reason"]


@pytest.mark.parametrize(
    ("version", "number"),
    [("0.1.0", 0), ("0.1.0+wire7", 7), ("0.1.0+wire12.gabc", 12), ("0.1.0+wirex", 0), (VERSION, PROTOCOL)],
)
def test_the_number_is_in_the_version(version: str, number: int) -> None:
    assert protocol_of(version) == number


def test_peers_of_one_number_understand_each_other_whatever_they_are_called() -> None:
    assert unlike("0.3.0+wire4.gabc", "0.2.0+wire4") == ""


def test_whoever_is_older_is_said_in_one_sentence() -> None:
    assert unlike("0.1.0", "0.2.0+wire4") == (
        "you are older than this broker: it speaks wire format 4 (deskgrid 0.2.0+wire4), and you speak an early wire "
        "format (0.1.0); install its version"
    )
    assert unlike("0.3.0+wire5", "0.2.0+wire4") == (
        "this broker is older than you: it speaks wire format 4 (deskgrid 0.2.0+wire4), and you speak wire format 5 "
        "(0.3.0+wire5); update it, or install its version"
    )


@pytest.mark.parametrize("kind", INTRODUCTIONS)
def test_the_version_is_read_from_an_introduction_that_cannot_be_decoded(kind: Any) -> None:
    data = msgpack.packb([wire.MESSAGES.index(kind), "0.9.0+wire9", {"something": ["else"]}])
    with pytest.raises(wire.ProtocolError):
        wire.decode(data)
    assert wire.version_in(data) == "0.9.0+wire9"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x93\x00",
        msgpack.packb(7),
        msgpack.packb([0]),
        msgpack.packb([0, 7]),
        msgpack.packb([0, ["0.9.0"]]),
        msgpack.packb([14, "no introduction"]),
    ],
)
def test_nothing_else_has_a_version(data: bytes) -> None:
    assert wire.version_in(data) == ""


# --- the commit ------------------------------------------------------------------------------------------------------


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_this_checkout_has_the_commit_that_git_tells() -> None:
    place = Path(__file__).parents[2]
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=place, capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip("this is no checkout")
    assert commit_of(place) == asked.stdout[:12]
    assert VERSION.endswith(f".g{asked.stdout[:12]}")


@pytest.mark.parametrize("form", ["branch", "packed", "detached", "work tree"])
def test_the_commit_of_a_checkout_is_known_however_git_keeps_it(tmp_path: Path, form: str) -> None:
    git = tmp_path / ".git"
    if form == "work tree":
        git = tmp_path / "other" / ".git" / "worktrees" / "x"
        _write(tmp_path / ".git", f"gitdir: {git}\n")
        _write(git / "commondir", "../..\n")
        _write(tmp_path / "other" / ".git" / "refs" / "heads" / "main", f"{COMMIT}\n")
    elif form == "branch":
        _write(git / "refs" / "heads" / "main", f"{COMMIT}\n")
    elif form == "packed":
        _write(git / "packed-refs", f"# pack-refs\n{COMMIT[::-1]} refs/heads/other\n{COMMIT} refs/heads/main\n")
    _write(git / "HEAD", f"{COMMIT}\n" if form == "detached" else "ref: refs/heads/main\n")
    assert commit_of(tmp_path) == COMMIT[:12]


def test_what_is_installed_or_unpacked_keeps_the_commit_of_its_build(tmp_path: Path) -> None:
    _write(tmp_path / "site" / "deskgrid" / "broker" / "x", "")
    (tmp_path / "site" / f"deskgrid-0.1.0+wire1.g{COMMIT[:12]}.dist-info").mkdir()
    (tmp_path / "site" / "deskgridlike-1+x.gffffffffffff.dist-info").mkdir()
    assert commit_of(tmp_path / "site") == COMMIT[:12]
    _write(tmp_path / "sdist" / "PKG-INFO", f"Name: deskgrid\nVersion: 0.1.0+wire1.g{COMMIT[:12]}\nSummary: x\n")
    assert commit_of(tmp_path / "sdist") == COMMIT[:12]


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none\n", "rubbish\n", "\xff"])
def test_without_a_commit_there_is_none(tmp_path: Path, head: str) -> None:
    assert commit_of(tmp_path) == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head, encoding="latin-1")
    assert commit_of(tmp_path) == ""
    _write(tmp_path / ".git" / "packed-refs", "")
    assert commit_of(tmp_path) == ""
    _write(tmp_path / "PKG-INFO", "Name: deskgrid\nVersion: 0.1.0\n")
    assert commit_of(tmp_path) == ""
