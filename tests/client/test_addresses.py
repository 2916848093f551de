"""A broker's host with several addresses: it is found on whichever of them it listens."""

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deskgrid.addresses import endpoints
from deskgrid.client.grid import Grid
from deskgrid.errors import GridUnreachable
from deskgrid.wire.joinline import JoinLine
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of hosts, as a name server says."""
    known: dict[str, list[str]] = {}
    numeric = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *options: Any, **more: Any) -> list[tuple[Any, ...]]:
        if host[0].isdigit():
            return numeric(host, port, *options, **more)
        if host not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(None, None, None, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of 127.0.0.1 on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_each_address_is_dialled_as_what_it_is(named: dict[str, list[str]]) -> None:
    named |= {"six": ["::1"], "four": ["10.0.0.1"], "::1": ["::1"]}
    assert endpoints(JoinLine("client", "six", 7, None)) == ["tcp://[::1]:7"]
    assert endpoints(JoinLine("client", "four", 7, None)) == ["tcp://10.0.0.1:7"]
    assert endpoints(JoinLine("client", "[::1]", 7, None)) == ["tcp://[::1]:7"]
    assert endpoints(JoinLine("client", "nobody", 7, None)) == ["tcp://nobody:7"]
    assert endpoints(JoinLine("client", "ipc:/tmp/x", 0, None)) == ["ipc:///tmp/x"]


@pytest.mark.parametrize("order", [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_of_several_addresses_the_one_that_answers_comes_first(
    named: dict[str, list[str]], listening: int, order: tuple[str, ...]
) -> None:
    named["both"] = list(order)
    assert endpoints(JoinLine("client", "both", listening, None))[0] == f"tcp://127.0.0.1:{listening}"


def test_a_grid_is_found_on_the_second_address_although_something_listens_on_the_first(
    named: dict[str, list[str]], fake: FakeGrid, impatient: None
) -> None:
    named["both"] = ["127.0.0.2", "127.0.0.1"]
    port = fake.broker.port
    with socket.create_server(("127.0.0.2", port)), Grid(f"client@both:{port}/insecure") as grid:
        assert grid.submit(abs, -1).result(PATIENCE_S) == 1


def test_the_diagnosis_names_each_address_that_was_tried(named: dict[str, list[str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    named["both"] = ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(GridUnreachable, match=r"refused \(127\.0\.0\.1\); .*refused \(127\.0\.0\.2\)"):
        Grid(f"client@both:{port}/insecure", timeout=0.1)
    with pytest.raises(GridUnreachable, match="not known"):
        Grid(f"client@nobody:{port}/insecure", timeout=0.1)


@pytest.mark.skipif(sys.platform == "win32", reason="no such sockets there")
def test_a_socket_that_is_not_there_is_told() -> None:
    with pytest.raises(GridUnreachable, match=r"ipc:/nowhere/socket: No such file"):
        Grid("client@ipc:/nowhere/socket", timeout=0.1)
