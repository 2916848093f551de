"""Join lines: what an administrator pastes on forty PCs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.wire.joinline import JoinLine, JoinLineError, Keys, Side, parse_address, parse_join_line, read_join_line

KEYS = Keys(bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96)))
LINE = JoinLine("worker", "lab-server.example", 7077, KEYS)

sides: st.SearchStrategy[Side] = st.sampled_from(["worker", "client"])
key = st.binary(min_size=32, max_size=32)
hosts = st.sampled_from(["lab-server", "lab-server.example", "10.0.0.1", "[::1]", "[2001:db8::17]", "[fe80::1%eth0]"])
lines = st.builds(JoinLine, sides, hosts, st.integers(0, 65_535), st.none() | st.builds(Keys, key, key, key))


@given(lines)
def test_a_join_line_is_read_back_as_it_was_made(line: JoinLine) -> None:
    assert parse_join_line(str(line), line.side) == line


@given(lines)
def test_a_join_line_needs_no_quoting_in_any_shell(line: JoinLine) -> None:
    special = set(" \t\n\"'`$&|;<>()*?!#~^\\{}") - set("[]%")  # brackets only in IPv6 hosts
    assert not special & set(str(line))


@pytest.mark.parametrize("encoding", ["ascii", "utf-8-sig", "utf-16"])
def test_a_file_with_a_join_line_may_come_from_powershell(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "lab.join"
    file.touch(mode=0o600)
    file.write_bytes(f"{LINE}\r\n".encode(encoding))
    assert read_join_line(f"@{file}", "worker") == LINE


@pytest.mark.parametrize("data", [b"\xff\xfea", b"worker@\xff"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "lab.join"
    file.touch(mode=0o600)
    file.write_bytes(data)
    with pytest.raises(JoinLineError, match="cannot be read"):
        read_join_line(f"@{file}", "worker")


def test_the_line_of_a_private_grid_names_its_socket() -> None:
    line = parse_join_line("client@ipc:/tmp/deskgrid-local-x/socket\n", "client")
    assert line == JoinLine("client", "ipc:/tmp/deskgrid-local-x/socket", 0, None)
    assert (line.is_local, line.endpoint) == (True, "ipc:///tmp/deskgrid-local-x/socket")
    assert (line.address, str(line)) == (line.host, "client@ipc:/tmp/deskgrid-local-x/socket")
    assert parse_address(line.host) == (line.host, 0)
    assert (LINE.is_local, LINE.address) == (False, "lab-server.example:7077")
    with pytest.raises(JoinLineError, match="for a client; you need the one that begins with worker@"):
        parse_join_line(str(line), "worker")
    with pytest.raises(JoinLineError, match="not a join line"):
        parse_join_line("client@ipc:relative/socket", "client")


def test_blanks_around_a_pasted_line_do_not_matter() -> None:
    assert parse_join_line(f"  {LINE}\r\n", "worker") == LINE


def test_the_secret_shows_in_no_representation() -> None:
    assert KEYS.secret.hex() not in repr(LINE)
    assert repr(KEYS.secret) not in repr(LINE)
    assert repr(KEYS.secret) not in repr(KEYS)
    assert repr(KEYS.public) in repr(KEYS)


def test_the_endpoint_is_what_zeromq_wants() -> None:
    assert LINE.endpoint == "tcp://lab-server.example:7077"
    assert JoinLine("client", "[::1]", 7077, None).endpoint == "tcp://[::1]:7077"


@pytest.mark.parametrize("side", ["worker", "client"])
def test_a_line_for_the_other_side_is_refused_by_name(side: Side) -> None:
    other: Side = "client" if side == "worker" else "worker"
    text = str(JoinLine(other, "lab-server", 7077, KEYS))
    with pytest.raises(JoinLineError, match=f"for a {other}; you need the one that begins with {side}@"):
        parse_join_line(text, side)


def test_a_line_that_was_cut_anywhere_is_refused() -> None:
    text = str(LINE)
    for end in range(len(text)):
        with pytest.raises(JoinLineError):
            parse_join_line(text[:end], "worker")


def test_a_line_with_any_one_character_of_its_keys_changed_is_refused() -> None:
    text = str(LINE)
    for place in range(text.index("/") + 1, len(text)):
        wrong = "A" if text[place] != "A" else "B"
        with pytest.raises(JoinLineError):
            parse_join_line(text[:place] + wrong + text[place + 1 :], "worker")


def test_the_host_of_a_line_may_be_edited() -> None:
    edited = parse_join_line(str(LINE).replace(LINE.host, "10.0.0.7"), "worker")
    assert (edited.host, edited.keys) == ("10.0.0.7", LINE.keys)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a join line"),
        ("lab-server:7077", "not a join line"),
        ("worker@lab-server", "not a join line"),
        ("worker@lab-server:", "not a join line"),
        ("worker@:7077", "not a join line"),
        ("worker@lab-server:70777", "not a join line"),
        ("worker@lab-server:٣", "not a join line"),
        ("admin@lab-server:7077", "not a join line"),
        ("worker@lab server:7077", "not a join line"),
        ("worker@lab-server:7077/", "not a join line"),
        (str(LINE) + "!", "not a join line"),
        (str(LINE).replace("/", " "), "not a join line"),
        (f"deskgrid worker --join {LINE}", "not a join line"),
        (str(LINE)[:-1], "damaged|cut"),  # Python 3.15 reads what is there
        (f"worker@lab-server:7077/{'é' * 128}", "damaged"),
        (str(LINE)[:-4], "cut"),
        ("worker@lab-server:7077/AAAA", "cut"),
        (str(LINE) + "AAAA", "checksum"),
        ("worker@lab-server:7077", "cut"),
    ],
)
def test_a_damaged_line_is_refused_and_its_keys_are_not_repeated(text: str, reason: str) -> None:
    with pytest.raises(JoinLineError, match=reason) as error:
        parse_join_line(text, "worker")
    assert "AAAA" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("0.0.0.0:7077", "0.0.0.0", 7077), ("[::]:0", "[::]", 0), ("*:65535", "*", 65_535), ("lab:0080", "lab", 80)],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text", ["", ":", "7077", ":7077", "lab:", "lab:-1", "lab:65536", "lab:1e3", "lab:²", "lab:" + "9" * 5000, "a b:1"]
)
def test_another_address_is_refused(text: str) -> None:
    with pytest.raises(JoinLineError, match="an address is HOST:PORT, not"):
        parse_address(text)
