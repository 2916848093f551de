"""Who is let in: the token, the cookie, and the name by which a request calls the server."""

import socket
from pathlib import Path

import pytest

from deskgrid.web.access import COOKIE_S, Access, TokenError, read_token

ACCESS = Access("t" * 43, "deskgrid-7078", frozenset(["grid.example.org"]))
NOW = 1_800_000_000.0


def given(access: Access = ACCESS, now: float = NOW) -> str:
    """The header with which a browser brings its cookie back."""
    return access.cookie(now, secure=False).partition(";")[0]


def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "home" / "web.token"
    token = read_token(path)
    assert len(token) >= 43
    assert read_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "web.token"
    path.write_text("t" * 43)
    path.chmod(0o644)
    with pytest.raises(TokenError, match="can be read by others: chmod 600"):
        read_token(path)


@pytest.mark.parametrize("text", ["", "short", "two words that are long enough", "\x00" * 43])
def test_a_token_that_can_be_guessed_or_does_not_travel_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "web.token"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(TokenError, match="holds no token"):
        read_token(path)


def test_a_folder_in_place_of_the_token_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "web.token").mkdir(mode=0o700)
    with pytest.raises(TokenError, match="cannot be used"):
        read_token(tmp_path / "web.token")


def test_a_cookie_lets_in_until_it_ends() -> None:
    assert ACCESS.is_cookie(given(), NOW)
    assert ACCESS.is_cookie(f"other=1; {given()}; more=2", NOW + COOKIE_S - 1)
    assert not ACCESS.is_cookie(given(), NOW + COOKIE_S + 1)


def test_a_cookie_cannot_be_made_or_lengthened_without_the_token() -> None:
    name, _, value = given().partition("=")
    until, _, signed = value.partition(".")
    for forged in (f"{int(until) + 1}.{signed}", until, f"{until}.", f".{signed}", signed, "", "é.é"):
        assert not ACCESS.is_cookie(f"{name}={forged}", NOW)
    assert not ACCESS.is_cookie("", NOW)
    assert not ACCESS.is_cookie("[]=;;;=", NOW)


def test_a_new_token_ends_all_cookies() -> None:
    assert not Access("u" * 43, "deskgrid-7078").is_cookie(given(), NOW)


def test_the_cookie_of_another_port_does_not_count() -> None:
    assert not Access("t" * 43, "deskgrid-7079").is_cookie(given(), NOW)


def test_scripts_and_other_sites_do_not_get_the_cookie() -> None:
    assert "; HttpOnly; SameSite=Lax" in ACCESS.cookie(NOW, secure=False)
    assert ACCESS.cookie(NOW, secure=True).endswith("; Secure")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7078",
        "10.1.2.3",
        "[::1]:7078",
        "localhost",
        "LOCALHOST:1",
        "grid.example.org",
        "grid.example.org.:80",
    ],
)
def test_addresses_and_known_names_are_taken(host: str) -> None:
    assert ACCESS.is_host(host)
    assert ACCESS.is_host(f"{socket.gethostname()}:7078")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "a b", "[::1"]
)
def test_other_names_are_not(host: str) -> None:
    assert not ACCESS.is_host(host)


def test_only_the_whole_token_is_the_token() -> None:
    assert ACCESS.is_token("t" * 43)
    assert ACCESS.is_bearer("Bearer " + "t" * 43)
    for wrong in ("", "t" * 42, "t" * 44, "ü" * 43):
        assert not ACCESS.is_token(wrong)
        assert not ACCESS.is_bearer(f"Bearer {wrong}")
    assert not ACCESS.is_bearer("Basic " + "t" * 43)
