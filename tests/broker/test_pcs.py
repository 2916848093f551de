"""PCs with keys of their own: what the broker records about them, and which key owns a name."""

import json
import os
from pathlib import Path

import pytest

from deskgrid.broker.auth import keys as keys_module
from deskgrid.broker.auth.keys import KeyRing, KeysError
from deskgrid.broker.auth.roles import Credential, CredentialError, Known
from deskgrid.wire.dealer import new_pair
from tests.broker.office import LAB

PC1 = Credential("lab3-07", "worker")
posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no permission bits")


def enrol(ring: KeyRing, name: str = "lab3-07", public: bytes | None = None, line: Credential = LAB) -> bytes:
    """Enrol a PC; its public key."""
    public = public or new_pair()[0]
    assert ring.enrol(line, name, public, 100.0) == (name, public)
    return public


def refused(ring: KeyRing, name: str, public: bytes | None = None, line: Credential = LAB) -> str:
    """Why a PC cannot enrol; nothing has changed."""
    before = ring.rows()
    with pytest.raises(CredentialError) as error:
        ring.enrol(line, name, public or new_pair()[0], 100.0)
    assert ring.rows() == before
    assert str(error.value).isprintable()
    return str(error.value)


def pcs(ring: KeyRing) -> list[Known]:
    return [known for known in ring.rows() if known.credential.role == "worker"]


def test_an_enrolled_pc_is_known_by_its_key_also_after_a_restart(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)
    for each in (ring, KeyRing(tmp_path)):
        assert each.who(public) == PC1
        assert pcs(each) == [Known(PC1, 100.0)]


def test_enrolling_the_same_key_again_changes_nothing(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)
    (file,) = (tmp_path / "keys" / "pcs").iterdir()
    before = file.stat().st_mtime_ns, ring.changes
    assert ring.enrol(LAB, "lab3-07", public, 200.0) == ("lab3-07", public)
    assert (file.stat().st_mtime_ns, ring.changes) == before
    assert pcs(ring) == [Known(PC1, 100.0)]


@pytest.mark.parametrize("name", ["lab3-07", "LAB3-07"])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_enrolled_name_belongs_to_its_key(tmp_path: Path, name: str, restarted: bool) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)
    ring = KeyRing(tmp_path) if restarted else ring
    why = "lab3-07 is enrolled with another key: `deskgrid keys forget lab3-07` if the PC was reinstalled or moved"
    assert refused(ring, name) == why
    assert ring.who(public) == PC1


def test_each_pc_has_a_file_and_enrolling_one_writes_no_other(tmp_path: Path) -> None:
    ring, folder = KeyRing(tmp_path), tmp_path / "keys" / "pcs"
    enrol(ring, "pc1")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "keys").rglob("*") if path.is_file()}
    enrol(ring, "pc2")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sorted(path.name for path in folder.iterdir()) == ["pc1.pc", "pc2.pc"]


@posix_only
def test_the_file_of_a_pc_is_its_owners_only_and_refused_when_others_can_touch_it(tmp_path: Path) -> None:
    enrol(KeyRing(tmp_path))
    (file,) = (tmp_path / "keys" / "pcs").iterdir()
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    file.chmod(0o620)
    with pytest.raises(KeysError, match=f"chmod 600 {file}"):
        KeyRing(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda row: b"",
        lambda row: b"\xff",
        lambda row: b"[1]",
        lambda row: json.dumps({**row, "name": "other"}).encode(),
        lambda row: json.dumps({**row, "name": "../x"}).encode(),
        lambda row: json.dumps({**row, "public": "00"}).encode(),
        lambda row: json.dumps({**row, "public": "zz" * 32}).encode(),
        lambda row: json.dumps({**row, "since": None}).encode(),
        lambda row: json.dumps({"name": row["name"]}).encode(),
    ],
)
def test_a_damaged_file_is_refused_with_its_path(tmp_path: Path, change: object) -> None:
    assert callable(change)
    enrol(KeyRing(tmp_path))
    (file,) = (tmp_path / "keys" / "pcs").iterdir()
    file.write_bytes(change(json.loads(file.read_text())))
    with pytest.raises(KeysError, match=f"{file} is not the key of a PC"):
        KeyRing(tmp_path)


def test_what_a_killed_broker_left_half_written_is_no_pc(tmp_path: Path) -> None:
    public = enrol(KeyRing(tmp_path))
    (tmp_path / "keys" / "pcs" / "pc9.pc.part").write_text("{")
    ring = KeyRing(tmp_path)
    assert [known.credential for known in pcs(ring)] == [PC1]
    assert ring.who(public) == PC1


# --- names and keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pc1~2", "", ".", "..", "a/b", "a b", "ä", "a" * 65, "a\n", "\x1b[31m", "-x"])
def test_a_name_that_is_none_cannot_enrol(tmp_path: Path, name: str) -> None:
    assert "a name is 1 to 64 letters" in refused(KeyRing(tmp_path), name)
    assert not list((tmp_path / "keys" / "pcs").iterdir())


@pytest.mark.parametrize("name", ["lab3-07.uni.example", "LAB3_07", "7", "a" * 64, "a.pc.part", "x.pc"])
def test_names_as_hosts_have_them_can_enrol(tmp_path: Path, name: str) -> None:
    public = enrol(KeyRing(tmp_path), name)
    assert KeyRing(tmp_path).who(public) == Credential(name, "worker")


@pytest.mark.parametrize("name", ["worker", "client", "admin", "ann"])
def test_a_pc_cannot_have_the_name_of_another_credential(tmp_path: Path, name: str) -> None:
    ring = KeyRing(tmp_path)
    ring.add(Credential("ann", "submitter"), new_pair()[0], 0.0)
    assert f"there is a key {name!r} already" in refused(ring, name)


def test_nobody_else_can_have_the_name_of_a_pc(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    enrol(ring)
    for role in ("submitter", "worker", "lab", "admin"):
        with pytest.raises(CredentialError, match="there is a PC 'lab3-07' already; forget it first"):
            ring.add(Credential("lab3-07", role), new_pair()[0], 0.0)


def test_a_key_stands_for_one_pc_also_when_it_was_revoked(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)
    assert refused(ring, "other", public) == "that key is already in use, as lab3-07"
    ring.revoke("lab3-07")
    assert refused(ring, "other", public) == "that key is already in use, as lab3-07"
    keys = ring.line("admin", "lab", 1).keys
    assert keys is not None
    assert refused(ring, "other", keys.public) == "that key is already in use, as admin"


@pytest.mark.parametrize("public", [b"x", bytes(31), bytes(33)])
def test_what_is_no_key_cannot_enrol(tmp_path: Path, public: bytes) -> None:
    assert refused(KeyRing(tmp_path), "pc1", public) == "that is not a public key"


# --- revoking and forgetting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_a_revoked_pc_is_unknown_and_its_name_stays_taken(tmp_path: Path, restarted: bool) -> None:
    ring = KeyRing(tmp_path)
    public, before = enrol(ring), ring.changes
    assert ring.revoke("lab3-07") == ""
    assert ring.changes > before
    ring = KeyRing(tmp_path) if restarted else ring
    assert ring.who(public) is None
    assert pcs(ring) == [Known(PC1, 100.0, revoked=True)]
    why = "lab3-07 was revoked: only `deskgrid keys forget lab3-07` frees the name"
    assert refused(ring, "lab3-07") == refused(ring, "lab3-07", public) == why
    with pytest.raises(CredentialError, match="was revoked before"):
        ring.revoke("lab3-07")


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_forgotten_pc_is_unknown_and_its_name_is_free(tmp_path: Path, revoked: bool, restarted: bool) -> None:
    ring = KeyRing(tmp_path)
    public, before = enrol(ring), ring.changes
    if revoked:
        ring.revoke("lab3-07")
    ring.forget("lab3-07")
    assert ring.changes > before
    ring = KeyRing(tmp_path) if restarted else ring
    assert (ring.who(public), pcs(ring)) == (None, [])
    assert ring.who(enrol(ring)) == PC1
    assert ring.who(public) is None


@pytest.mark.parametrize("name", ["lab3-08", "LAB3-07", "worker", "ann", ""])
def test_only_a_pc_can_be_forgotten_and_by_its_exact_name(tmp_path: Path, name: str) -> None:
    ring = KeyRing(tmp_path)
    ring.add(Credential("ann", "submitter"), new_pair()[0], 0.0)
    public = enrol(ring)
    with pytest.raises(CredentialError, match="there is no PC"):
        ring.forget(name)
    assert ring.who(public) == PC1


def test_a_pc_whose_file_was_moved_away_is_not_said_to_be_forgotten(tmp_path: Path) -> None:
    ring, folder = KeyRing(tmp_path), tmp_path / "keys" / "pcs"
    public, before = enrol(ring), ring.changes
    folder.rename(tmp_path / "moved")
    with pytest.raises(CredentialError, match=r"there is no PC 'lab3-07' in .*pcs: its file was moved or removed"):
        ring.forget("lab3-07")
    assert (ring.who(public), ring.changes) == (PC1, before)
    (tmp_path / "moved").rename(folder)
    ring.forget("lab3-07")
    assert (ring.who(public), KeyRing(tmp_path).who(public)) == (None, None)


def test_a_new_line_of_the_lab_leaves_its_pcs_in(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)
    ring.revoke("worker")
    assert ring.who(public) == KeyRing(tmp_path).who(public) == PC1


# --- lines -----------------------------------------------------------------------------------------------------------


def test_a_closed_line_lets_in_nobody_new_also_after_a_restart_until_it_is_opened(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)
    ring.let_enrol(False)
    for each in (ring, KeyRing(tmp_path)):
        assert not each.enrolling
        assert "an admin can change that with `deskgrid keys enrol on`" in refused(each, "pc2")
        assert each.who(public) == PC1
        assert each.enrol(LAB, "lab3-07", public, 0.0) == ("lab3-07", public)  # it may not have heard the answer
    ring.let_enrol(True)
    enrol(KeyRing(tmp_path), "pc2")


def test_a_pc_that_an_admin_adds_has_the_key_of_its_line_also_while_the_labs_is_closed(tmp_path: Path) -> None:
    ring, public = KeyRing(tmp_path), new_pair()[0]
    ring.let_enrol(False)
    ring.add(PC1, public, 7.0)
    ring.add(PC1, public, 8.0)
    ring = KeyRing(tmp_path)
    assert pcs(ring) == [Known(PC1, 7.0)]
    assert ring.enrol(PC1, "lab3-07", new_pair()[0], 0.0) == ("lab3-07", public)
    assert "this line is for the PC lab3-07 alone" in refused(ring, "pc2", line=PC1)


def test_one_line_cannot_fill_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "ENROLLED_LIMIT", 2)
    ring = KeyRing(tmp_path)
    other = Credential("lab4", "lab")
    ring.add(other, new_pair()[0], 0.0)
    for name in ("evil1", "evil2"):
        enrol(ring, name)
    for each in (ring, KeyRing(tmp_path)):
        assert "2 PCs have enrolled with this line; forget those that are not yours" in refused(each, "evil3")
    enrol(ring, "honest", line=other)
    ring.add(Credential("ann", "submitter"), new_pair()[0], 0.0)
    ring.forget("evil1")
    enrol(ring, "pc1")


def test_pcs_and_people_together_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "CREDENTIALS_LIMIT", 2)
    ring = KeyRing(tmp_path)
    enrol(ring)
    ring.add(Credential("ann", "submitter"), new_pair()[0], 0.0)
    assert "there are 2 credentials" in refused(ring, "pc2")
    with pytest.raises(CredentialError, match="there are 2 credentials"):
        ring.add(Credential("ben", "submitter"), new_pair()[0], 0.0)


def test_what_cannot_be_written_down_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = KeyRing(tmp_path)
    public = enrol(ring)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deskgrid.broker.auth.pcs.write_private", full)
    monkeypatch.setattr("deskgrid.broker.auth.keys.write_private", full)
    assert "No space left on device" in refused(ring, "pc2")
    for change in (lambda: ring.revoke("lab3-07"), lambda: ring.let_enrol(False)):
        with pytest.raises(CredentialError, match="No space left on device"):
            change()
    assert (ring.who(public), ring.enrolling) == (PC1, True)
