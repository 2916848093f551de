"""How many parts of files are on their way to the broker."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from deskgrid import wire
from deskgrid.client import bag_files
from deskgrid.client.link import Link
from deskgrid.client.sources import stored_pieces
from deskgrid.wire.joinline import parse_join_line

PARTS = 8


class FakeLink:
    """A broker that lacks all parts, and confirms each only when the client waits for that. ``most``: on their way."""

    def __init__(self, line: str) -> None:
        self.join = parse_join_line(line, "client")
        self.flying = self.most = self.sent = 0

    def number(self) -> int:
        return 1

    def send(self, message: wire.Offer | wire.Part, answered: Callable[[Any], None]) -> None:
        if isinstance(message, wire.Offer):
            answered(wire.Lacks(message.request, message.parts))
            return
        self.sent += 1
        self.flying += 1
        self.most = max(self.most, self.flying)

    def waiter(self) -> "FakeWaiter":
        return FakeWaiter(self)


class FakeWaiter:
    """Its answer comes when somebody waits for it."""

    def __init__(self, link: FakeLink) -> None:
        self._link = link
        self._answer: Any = None

    def __call__(self, answer: Any) -> None:
        self._answer = answer

    def get(self) -> Any:
        if self._answer is None:
            self._link.flying -= 1
        return self._answer or wire.Kept(1)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        pytest.param("client@127.0.0.1:7399/insecure", 1, id="over a network, of which a cut repeats one at most"),
        pytest.param(
            "client@ipc:/tmp/deskgrid-local-x/socket", 4, id="to a broker on this machine, which always has one"
        ),
    ],
)
def test_so_many_parts_are_on_their_way(line: str, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    link = FakeLink(line)
    monkeypatch.setattr(bag_files, "Waiter", link.waiter)
    files = bag_files.BagFiles(cast(Link, link), bag_files.KnownFiles(), "bag")
    # Of different content: the same part would be sent once.
    data = b"".join([bytes([number]) * wire.PART_BYTES for number in range(PARTS)])
    files.need([stored_pieces([memoryview(data)])])
    files.send()
    assert link.sent == PARTS + 1, "each part, and the list of files"
    # The list of files is small, so it may go with them.
    assert parts <= link.most <= parts + 1
