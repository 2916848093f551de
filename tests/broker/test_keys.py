"""The broker's keys: made once, readable by their owner only, and never used when they are not."""

import os
from pathlib import Path

import pytest

from broker.joinline import parse_join_line
from broker.keys import KeysError, load_keys, write_private

FILES = ("broker", "client", "worker")
posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no permission bits")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def refusal(home: Path) -> str:
    with pytest.raises(KeysError) as error:
        load_keys(home)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_keys_are_made_once_and_read_back(tmp_path: Path) -> None:
    made = load_keys(tmp_path)
    assert load_keys(tmp_path) == made
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == list(FILES)
    publics = [made.server[0], *(pair[0] for pair in made.roles.values())]
    assert len(set(publics)) == len(FILES)
    assert {len(key) for pair in (made.server, *made.roles.values()) for key in pair} == {32}


def test_a_key_that_is_gone_is_made_again_and_the_others_stay(tmp_path: Path) -> None:
    before = load_keys(tmp_path)
    (tmp_path / "keys" / "client").unlink()
    after = load_keys(tmp_path)
    assert after.server == before.server
    assert after.roles["worker"] == before.roles["worker"]
    assert after.roles["client"] != before.roles["client"]


def test_a_public_key_stands_for_its_role(tmp_path: Path) -> None:
    ring = load_keys(tmp_path)
    assert ring.role_of(ring.roles["worker"][0]) == "worker"
    assert ring.role_of(ring.roles["client"][0]) == "client"
    assert ring.role_of(ring.server[0]) is None
    assert ring.role_of(bytes(32)) is None


def test_the_line_of_a_role_carries_its_pair_and_the_brokers_public_key(tmp_path: Path) -> None:
    ring = load_keys(tmp_path)
    line = parse_join_line(str(ring.line("client", "lab-server", 7077)), "client")
    assert line.keys is not None
    assert (line.keys.server, (line.keys.public, line.keys.secret)) == (ring.server[0], ring.roles["client"])
    assert ring.server[1] not in (line.keys.server, line.keys.public, line.keys.secret)


@posix_only
@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_keys_are_readable_by_their_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        load_keys(tmp_path)
    finally:
        os.umask(before)
    assert mode(tmp_path / "keys") == 0o700
    assert {mode(tmp_path / "keys" / name) for name in FILES} == {0o600}


@posix_only
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("wider", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, name: str, wider: int) -> None:
    load_keys(tmp_path)
    path = tmp_path / "keys" / name
    path.chmod(wider)
    assert f"chmod 600 {path}" in refusal(tmp_path)
    path.chmod(0o600)
    load_keys(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(63), bytes(65), b"public key\n"])
def test_a_damaged_key_is_refused(tmp_path: Path, content: bytes) -> None:
    load_keys(tmp_path)
    path = tmp_path / "keys" / "worker"
    path.write_bytes(content)
    assert f"{path} is not a key file" in refusal(tmp_path)


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
