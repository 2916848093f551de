"""The broker's keys: made once, readable only by their owner, and refused if others can read them."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid.broker.auth.keys import OWN, KeyRing, KeysError
from deskgrid.broker.auth.roles import Credential, CredentialError, Known, checked_credential
from deskgrid.broker.store.journal import Journal
from deskgrid.private_files import write_private
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import parse_join_line

FILES = ("admin", "broker", "client", "worker")
ANN = Credential("ann", "submitter")
posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no permission bits")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def refusal(home: Path) -> str:
    with pytest.raises(KeysError) as error:
        KeyRing(home)
    assert "\n" not in str(error.value)
    return str(error.value)


def publics(ring: KeyRing) -> dict[str, bytes]:
    """The public keys of the home's own credentials."""
    keys = {name: ring.line(name, "lab", 1).keys for name in OWN}
    return {name: pair.public for name, pair in keys.items() if pair is not None}


def test_keys_are_made_once_and_read_back(tmp_path: Path) -> None:
    made, again = KeyRing(tmp_path), KeyRing(tmp_path)
    assert (again.server, publics(again)) == (made.server, publics(made))
    assert sorted(path.name for path in (tmp_path / "keys").iterdir() if path.is_file()) == list(FILES)
    assert len({made.server[0], *publics(made).values()}) == len(FILES)
    assert {len(key) for key in (*made.server, *publics(made).values())} == {32}


def test_a_key_that_is_gone_is_made_again_and_the_others_stay(tmp_path: Path) -> None:
    before = KeyRing(tmp_path)
    (tmp_path / "keys" / "client").unlink()
    after = KeyRing(tmp_path)
    assert after.server == before.server
    assert publics(after)["worker"] == publics(before)["worker"]
    assert publics(after)["client"] != publics(before)["client"]


@pytest.mark.parametrize(("name", "role"), [("worker", "lab"), ("client", "submitter"), ("admin", "admin")])
def test_a_public_key_stands_for_its_credential(tmp_path: Path, name: str, role: str) -> None:
    ring = KeyRing(tmp_path)
    who = ring.who(publics(ring)[name])
    assert who is not None
    assert (who.name, who.role) == (name, role)


def test_an_unknown_key_stands_for_nobody(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    for unknown in (ring.server[0], bytes(32), b"", new_pair()[0]):
        assert ring.who(unknown) is None


def test_a_join_line_carries_its_pair_and_the_brokers_public_key_but_not_its_secret_one(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    line = parse_join_line(str(ring.line("client", "lab-server", 7077)), "client")
    assert line.keys is not None
    assert (line.keys.server, line.keys.public) == (ring.server[0], publics(ring)["client"])
    assert ring.server[1] not in (line.keys.server, line.keys.public, line.keys.secret)


def test_the_homes_lines_are_written_into_it_for_its_owner_only(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.announce("lab-server", 7077)
    for name in OWN:
        path = tmp_path / f"{name}.join"
        assert path.read_text() == f"{ring.line(name, 'lab-server', 7077)}\n"
        assert mode(path) == 0o600 or os.name != "posix"


# --- adding and revoking ---------------------------------------------------------------------------------------------


def test_an_added_credential_is_let_in_also_after_a_restart_and_its_secret_is_not_kept(tmp_path: Path) -> None:
    public, secret = new_pair()
    ring = KeyRing(tmp_path)
    ring.add(ANN, public, 0.0)
    assert ring.who(public) == KeyRing(tmp_path).who(public) == ANN
    assert ring.rows() == [*map(Known, (Credential("admin", "admin"), ANN, Credential("client", "submitter"), LAB))]
    everything = b"".join(path.read_bytes() for path in (tmp_path / "keys").rglob("*") if path.is_file())
    assert secret not in everything


LAB = Credential("worker", "lab")


def test_a_revoked_credential_is_unknown_at_once_and_after_a_restart(tmp_path: Path) -> None:
    public, _ = new_pair()
    ring = KeyRing(tmp_path)
    ring.add(ANN, public, 0.0)
    before = ring.changes
    assert ring.revoke("ann") == ""
    assert ring.changes > before
    assert ring.who(public) is None
    assert KeyRing(tmp_path).who(public) is None


@pytest.mark.parametrize("name", OWN)
def test_a_revoked_credential_of_the_home_is_replaced_by_a_new_pair_and_line(tmp_path: Path, name: str) -> None:
    ring = KeyRing(tmp_path)
    ring.announce("lab-server", 7077)
    before = publics(ring)
    assert ring.revoke(name) == str(tmp_path / f"{name}.join")
    after = publics(ring)
    assert ring.who(before[name]) is None
    assert {other for other in OWN if before[other] != after[other]} == {name}
    assert publics(KeyRing(tmp_path)) == after
    assert (tmp_path / f"{name}.join").read_text() == f"{ring.line(name, 'lab-server', 7077)}\n"


def test_adding_the_same_once_more_changes_nothing(tmp_path: Path) -> None:
    public, _ = new_pair()
    ring = KeyRing(tmp_path)
    ring.add(ANN, public, 0.0)
    before = ring.changes
    ring.add(ANN, public, 0.0)
    assert (ring.changes, len(ring.rows())) == (before, 4)


def test_a_name_or_a_key_stands_for_one_credential(tmp_path: Path) -> None:
    public, _ = new_pair()
    ring = KeyRing(tmp_path)
    ring.add(ANN, public, 0.0)
    other, _ = new_pair()
    wrong: list[tuple[Credential, bytes, str]] = [
        (ANN, other, "already; revoke it first"),
        (Credential("ann", "admin"), other, "already; revoke it first"),
        (Credential("client", "submitter"), other, "already; revoke it first"),
        (Credential("ben", "submitter"), public, "already in use, as ann"),
        (Credential("client", "submitter"), publics(ring)["client"], "already in use"),
        (Credential("ben", "submitter"), b"short", "not a public key"),
    ]
    for credential, key, reason in wrong:
        with pytest.raises(CredentialError, match=reason):
            ring.add(credential, key, 0.0)
    assert len(ring.rows()) == 4
    assert ring.who(public) == ANN


def test_what_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    for name in ("ann", "broker", ""):
        with pytest.raises(CredentialError, match="there is no key"):
            ring.revoke(name)


def test_there_is_an_end_to_how_many_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.broker.auth.keys.CREDENTIALS_LIMIT", 2)
    ring = KeyRing(tmp_path)
    ring.add(ANN, new_pair()[0], 0.0)
    ring.add(Credential("ben", "admin"), new_pair()[0], 0.0)
    with pytest.raises(CredentialError, match="there are 2 credentials"):
        ring.add(Credential("cem", "worker"), new_pair()[0], 0.0)


@pytest.mark.parametrize("change", ["add", "revoke"])
def test_what_cannot_be_written_down_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ring, (public, _) = KeyRing(tmp_path), new_pair()
    ring.add(ANN, public, 0.0)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deskgrid.broker.auth.keys.write_private", full)
    with pytest.raises(CredentialError, match="No space left on device"):
        ring.revoke("ann") if change == "revoke" else ring.add(Credential("ben", "admin"), new_pair()[0], 0.0)
    assert ring.who(public) == ANN
    assert len(ring.rows()) == 4


# --- files -----------------------------------------------------------------------------------------------------------


@posix_only
@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_keys_are_readable_by_their_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        KeyRing(tmp_path).add(ANN, new_pair()[0], 0.0)
    finally:
        os.umask(before)
    assert mode(tmp_path / "keys") == 0o700
    assert {mode(tmp_path / "keys" / name) for name in (*FILES, "added")} == {0o600}


@posix_only
@pytest.mark.parametrize("name", [*FILES, "added"])
@pytest.mark.parametrize("wider", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, name: str, wider: int) -> None:
    KeyRing(tmp_path).add(ANN, new_pair()[0], 0.0)
    path = tmp_path / "keys" / name
    path.chmod(wider)
    assert f"chmod 600 {path}" in refusal(tmp_path)
    path.chmod(0o600)
    KeyRing(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(63), bytes(65), b"public key\n"])
def test_a_damaged_key_is_refused(tmp_path: Path, content: bytes) -> None:
    KeyRing(tmp_path)
    path = tmp_path / "keys" / "worker"
    path.write_bytes(content)
    assert f"{path} is not a key file" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"ann": 1}',
        b'{"ann": ["submitter"]}',
        b'{"ann": ["king", "%s"]}' % (b"0" * 40),
        b'{"a n": ["admin", "%s"]}' % (b"0" * 40),
        b'{"ann": ["admin", "000"]}',
        b'{"ann": ["admin", "00000"]}',
        b'{"ann": ["admin", 1]}',
    ],
)
def test_a_damaged_list_of_credentials_is_refused(tmp_path: Path, content: bytes) -> None:
    KeyRing(tmp_path)
    path = tmp_path / "keys" / "added"
    write_private(path, content)
    assert f"{path} is not a list of credentials" in refusal(tmp_path)


def test_a_folder_in_place_of_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys" / "broker").mkdir(parents=True, mode=0o700)
    (tmp_path / "keys" / "broker").chmod(0o700)
    assert "cannot use" in refusal(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("mine")
    assert f"cannot use {tmp_path / 'keys'}" in refusal(tmp_path)


@posix_only
def test_a_private_file_takes_the_place_of_one_that_others_could_read(tmp_path: Path) -> None:
    path = tmp_path / "worker.join"
    for old in (path, tmp_path / "worker.join.part"):
        old.write_text("older and longer than what comes")
        old.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@posix_only
def test_the_journal_is_readable_by_its_owner_only_also_one_that_was_not(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    with closing(Journal(home)) as journal:
        journal.add_template("d", "command", b"")
        journal.commit()
        files = list(home.glob("journal*"))
        assert len(files) > 1
        assert (mode(home), {mode(path) for path in files}) == (0o700, {0o600})
    (home / "journal.sqlite3").chmod(0o644)
    with closing(Journal(home)):
        assert mode(home / "journal.sqlite3") == 0o600


# --- keys that mean something already --------------------------------------------------------------------------------


def flipped(public: bytes) -> bytes:
    """Other bytes that mean the same key."""
    return public[:-1] + bytes([public[-1] ^ 0x80])


@pytest.mark.parametrize("form", [bytes, flipped])
@pytest.mark.parametrize("whose", ["broker", *OWN, "ann", "lab3-07", "revoked"])
def test_a_key_that_means_something_already_lets_nobody_else_in(
    tmp_path: Path, whose: str, form: Callable[[bytes], bytes]
) -> None:
    ring = KeyRing(tmp_path)
    known = {"broker": ring.server[0], **publics(ring)} | {
        name: new_pair()[0] for name in ("ann", "lab3-07", "revoked")
    }
    lab = Credential("worker", "lab")
    ring.add(ANN, known["ann"], 0.0)
    for name in ("lab3-07", "revoked"):
        ring.enrol(lab, name, known[name], 0.0)
    ring.revoke("revoked")
    for again in (ring, KeyRing(tmp_path)):
        with pytest.raises(CredentialError, match="that key is already in use, as "):
            again.enrol(lab, "thief", form(known[whose]), 1.0)
        for role in ("submitter", "worker", "lab", "admin"):
            with pytest.raises(CredentialError, match="that key is already in use, as "):
                again.add(checked_credential("thief", role), form(known[whose]), 1.0)
        assert "thief" not in {row.credential.name for row in again.rows()}
