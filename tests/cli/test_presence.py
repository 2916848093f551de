"""``deskgrid presence``: what it says of this session, and what it tells the workers of this PC."""

import os
import signal
import socket

import pytest

from deskgrid.worker.owner import desktop, watch
from deskgrid.worker.owner.helper import PresenceHelpers
from tests.cli.fakes import deskgrid


@pytest.mark.parametrize(("idle_s", "said"), [(None, "nothing tells"), (3.0, "no input for 3.0 s")])
def test_it_checks_what_tells_on_this_pc_and_in_this_session(
    monkeypatch: pytest.MonkeyPatch, idle_s: float | None, said: str
) -> None:
    monkeypatch.setattr(desktop, "ways", lambda environment: [lambda: None, lambda: idle_s])
    monkeypatch.setattr(watch, "what_probes_say", lambda: {"X11": "no DISPLAY"})
    result = deskgrid("presence", "--check")
    assert (result.exit_code, result.stdout) == (0, f"X11: no DISPLAY\nthis session: {said}\n")


linux = pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="only Linux has such sockets")


@linux
def test_where_nothing_tells_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desktop, "ways", lambda environment: [lambda: None])
    result = deskgrid("presence")
    assert (result.exit_code, result.stderr) == (
        2,
        "deskgrid: nothing in this session tells how long there was no input\n",
    )


@linux
def test_it_tells_the_workers_until_it_is_stopped_and_then_says_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers, heard, looks = PresenceHelpers(), list[list[float | None]](), list[int]()

    def way() -> float:
        looks.append(1)
        if len(looks) == 2:
            heard.append([idle_s for _, idle_s in helpers.idle_s(0.0)])
            os.kill(os.getpid(), signal.SIGTERM)
        return 3.0

    monkeypatch.setattr(desktop, "ways", lambda environment: [way])
    result = deskgrid("presence")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert heard == [[3.0]]
    assert list(helpers.idle_s(0.0)) == []
    helpers.close()
