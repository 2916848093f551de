"""The owner of a PC comes first: what the policy decides, look by look, and what the probes say together."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deskgrid.worker.owner import watch
from deskgrid.worker.owner.helper import PREFIX, SILENT_S, PresenceHelpers, Speaker
from deskgrid.worker.owner.keeper import OwnerKeeper
from deskgrid.worker.owner.other_systems import macos_idle_s, windows_idle_s
from deskgrid.worker.owner.policy import SOON, UNKNOWN, Courtesy, How, OwnerPolicy, Presence
from deskgrid.worker.owner.probes import Terminals, on_battery
from deskgrid.worker.owner.watch import combined
from deskgrid.worker.owner.x11 import NoX11, display_of
from deskgrid.worker.windows.uptime import Instant
from tests.waiting import eventually

IDLE_S, PATIENCE_S = 10.0, 100.0
THERE, GONE = Presence(0.0, seated=True), Presence(IDLE_S, seated=True)


def policy(how: How) -> OwnerPolicy:
    return OwnerPolicy(Courtesy(how, IDLE_S, PATIENCE_S))


# --- the policy ------------------------------------------------------------------------------------------------------


def test_tasks_are_stopped_while_somebody_is_there_and_handed_back_when_that_lasts() -> None:
    owner = policy("pause")
    assert owner.look(GONE, 0.0) == "works"
    assert owner.look(THERE, 1.0) == "pauses"
    assert owner.look(THERE, 1.0 + PATIENCE_S - 0.1) == "pauses"
    assert owner.look(THERE, 1.0 + PATIENCE_S) == "away"
    assert owner.look(GONE, 200.0) == "works"


@pytest.mark.parametrize("how", ["nice", "ignore"])
def test_others_do_not_ask(how: How) -> None:
    assert not Courtesy(how).asks


def test_what_nobody_can_tell_counts_as_use_only_if_somebody_said_pause() -> None:
    stops, default = policy("pause"), policy("auto")
    assert (stops.look(Presence(None), 0.0), stops.why) == ("pauses", UNKNOWN)
    assert default.look(Presence(None), 0.0) == "works"
    assert default.look(Presence(0.0), 1.0) == "works"  # a terminal is no seat
    assert default.look(THERE, 2.0) == "pauses"
    assert default.look(GONE, 3.0) == "works"
    assert default.look(Presence(None), 4.0) == "pauses"  # such as a helper that was killed


def test_other_use_counts_too() -> None:
    owner = policy("pause")
    assert owner.look(Presence(inf, "it runs on its battery"), 0.0) == "pauses"
    assert owner.why == "it runs on its battery"


def test_who_comes_and_goes_is_waited_for_longer_and_longer() -> None:
    owner, now = policy("leave"), 0.0
    waited = []
    for _ in range(6):
        assert owner.look(THERE, now) == "away"
        idle_s = 0.0
        while owner.look(Presence(idle_s, seated=True), now + idle_s) == "away":
            idle_s += IDLE_S
        waited.append(idle_s)
        now += idle_s + 1.0
    assert waited == [10.0, 20.0, 40.0, 80.0, 80.0, 80.0]
    now += SOON * IDLE_S
    assert owner.look(THERE, now) == "away"
    assert owner.look(GONE, now + IDLE_S) == "works"


# --- what is done ----------------------------------------------------------------------------------------------------


class _Pc:
    """What a keeper acts on: notes what it is told."""

    def __init__(self, how: How) -> None:
        self.told: list[str] = []
        self.presence, self.saves = GONE, False
        self.keeper = OwnerKeeper(
            Courtesy(how, IDLE_S, PATIENCE_S), lambda now: self.presence, self, self, lambda line: None
        )

    def look(self, at: float, presence: Presence) -> list[str]:
        self.told, self.presence = [], presence
        self.keeper.look(Instant(at, at))
        return self.told

    def pause(self, *told: Any) -> None:
        self.told.append(f"say {told[0]}" if len(told) > 1 else "stop")

    def go_on(self, now: float) -> None:
        self.told.append("go on")

    def let_save(self) -> None:
        self.told.append("let save")

    def hand_back(self, now: Instant, at_once: bool) -> None:
        self.told.append("hand back at once" if at_once else "hand back")

    def take_again(self) -> None:
        self.told.append("take again")

    def saves_now(self, now: Instant) -> bool:
        return self.saves


def test_a_keeper_stops_what_has_started_since_and_lets_tasks_save_before_they_are_handed_back() -> None:
    pc = _Pc("pause")
    assert pc.look(0.0, GONE) == []
    assert pc.look(1.0, THERE) == ["say somebody uses it", "stop"]
    assert pc.look(1.5, THERE) == []
    assert pc.look(2.0, THERE) == ["stop"]
    pc.saves = True
    assert pc.look(1.0 + PATIENCE_S, THERE) == ["hand back", "let save"]
    assert pc.look(2.0 + PATIENCE_S, THERE) == []
    pc.saves = False
    assert pc.look(12.0 + PATIENCE_S, THERE) == ["stop"]
    assert pc.look(300.0, GONE) == ["go on", "say ", "take again"]
    assert pc.look(301.0, GONE) == []


def test_an_owner_who_comes_while_tasks_save_is_told_of_once_and_they_go_on_when_he_has_gone() -> None:
    pc = _Pc("pause")
    pc.saves = True  # its window is about to close
    assert pc.look(1.0, THERE) == ["say somebody uses it", "let save"]
    assert pc.look(1.2, THERE) == []
    assert pc.look(2.0, GONE) == ["go on", "say "]


def test_a_keeper_hands_back_at_once() -> None:
    assert _Pc("leave").look(1.0, THERE) == ["hand back at once", "say somebody uses it", "stop"]
    assert _Pc("ignore").look(1.0, THERE) == []


# --- what tells ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyboards", "typed_s", "somebody", "idle_s", "seated"),
    [
        ([], None, None, None, False),  # a container
        ([], 5.0, None, 5.0, False),  # a server with a login from elsewhere
        ([], 5.0, False, 5.0, False),
        ([], None, False, inf, False),  # a login screen
        ([], 5000.0, True, None, True),  # somebody sits there, and nothing tells
        ([3.0, 7.0], 5.0, True, 3.0, True),
        ([3.0, None], None, True, None, True),  # a helper was killed
    ],
)
def test_what_probes_say_together(
    keyboards: list[float | None], typed_s: float | None, somebody: bool | None, idle_s: float | None, seated: bool
) -> None:
    assert combined(keyboards, typed_s, somebody) == Presence(idle_s, "", seated)


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "no DISPLAY"),
        ({"DISPLAY": "laptop:10.0"}, "another PC"),
        ({"DISPLAY": "localhost:10.0"}, "another PC"),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, "Wayland"),
        ({"DISPLAY": ":x"}, "no DISPLAY"),
    ],
)
def test_a_display_that_does_not_see_this_keyboard_is_not_asked(environment: dict[str, str], why: str) -> None:
    with pytest.raises(NoX11, match=why):
        display_of(environment)
    assert display_of({"DISPLAY": ":12.0"}) == 12


def _supply(folder: Path, name: str, **values: str) -> None:
    (folder / name).mkdir()
    for key, value in values.items():
        (folder / name / key).write_text(value + "\n")


def test_the_battery_of_a_mouse_is_not_that_of_the_pc(tmp_path: Path) -> None:
    assert not on_battery(tmp_path / "none")
    _supply(tmp_path, "mouse", type="Battery", scope="Device", status="Discharging")
    assert not on_battery(tmp_path)
    _supply(tmp_path, "BAT0", type="Battery", status="Discharging")
    assert on_battery(tmp_path)
    _supply(tmp_path, "AC", type="Mains", online="1")
    assert not on_battery(tmp_path)


TERMINAL = """
import os, pty, sys
master, slave = pty.openpty()
print(os.ttyname(slave), flush=True)
for _ in sys.stdin:
    os.write(master, b"x\\n")
    os.read(slave, 9)
    print("read", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who has made a terminal")
def test_what_a_task_reads_from_a_terminal_of_its_own_was_typed_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "pts").mkdir()
    argv = [sys.executable, "-c", TERMINAL]
    terminals = Terminals(tmp_path)
    assert terminals.idle_s(0.0) is None
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as task:
        assert task.stdin is not None
        assert task.stdout is not None
        own = Path(os.fsdecode(task.stdout.readline().strip()))
        (tmp_path / "pts" / own.name).symlink_to(own)
        assert terminals.idle_s(1.0) is None  # the only one of the PC

        master, slave = os.openpty()
        typed = Path(os.ttyname(slave))
        (tmp_path / "pts" / typed.name).symlink_to(typed)
        assert terminals.idle_s(2.0) == 0.0
        for path in (own, typed):
            os.utime(path, (0.0, 0.0))  # or else the same eight seconds
        assert terminals.idle_s(3.0) == 0.0  # whose time was set

        task.stdin.write(b"go\n")
        assert task.stdout.readline() == b"read\n"
        assert own.stat().st_atime > 0.0
        assert terminals.idle_s(10.0) == 7.0
        os.write(master, b"x\n")
        os.read(slave, 9)
        assert terminals.idle_s(11.0) == 0.0
        os.close(master)
        os.close(slave)


linux = pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="only Linux has such sockets")


@linux
def test_a_helper_is_heard_and_one_that_was_killed_is_silent() -> None:
    helpers = PresenceHelpers()
    speaker = Speaker()
    try:
        assert list(helpers.idle_s(0.0)) == []
        assert speaker.say(3.0) >= 1
        ((_, idle_s),) = helpers.idle_s(1.0)
        assert idle_s == 3.0
        ((_, idle_s),) = helpers.idle_s(5.0)
        assert idle_s == 7.0
        ((_, idle_s),) = helpers.idle_s(2.0 + SILENT_S)
        assert idle_s is None
        speaker.say(1.0)
        ((_, idle_s),) = helpers.idle_s(100.0)
        assert idle_s == 1.0
        speaker.close()
        assert list(helpers.idle_s(101.0)) == []
    finally:
        speaker.close() if speaker._socket.fileno() >= 0 else None
        helpers.close()


@linux
def test_a_silent_helper_whose_user_has_logged_out_is_forgotten(tmp_path: Path) -> None:
    helpers, speaker = PresenceHelpers(tmp_path), Speaker()
    speaker.say(3.0)
    assert len(list(helpers.idle_s(0.0))) == 1
    assert list(helpers.idle_s(1.0 + SILENT_S)) == []
    speaker.close()
    helpers.close()


SPEAKS = """
import json, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    sender.sendto(json.dumps({"idle_s": 0.0}).encode(), "\\0" + sys.argv[1])
print("said", flush=True)
sys.stdin.read()
"""


@linux
@pytest.mark.parametrize("ended", [False, True])
def test_what_a_task_says_or_somebody_who_is_gone_is_not_heard(ended: bool) -> None:
    helpers = PresenceHelpers()
    name = next(row for row in Path("/proc/net/unix").read_text().split() if f"@{PREFIX}{os.getpid()}" in row)
    argv = [sys.executable, "-c", SPEAKS, name[1:]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as task:
        assert task.stdout is not None
        assert task.stdout.readline() == b"said\n"
        if ended:
            task.communicate()
        assert list(helpers.idle_s(0.0)) == []
    helpers.close()


@linux
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"idle_s": "x"}', b'{"idle_s": -1}', b'{"idle_s": NaN}', b"\xff"]
)
def test_what_is_not_understood_says_nothing(data: bytes) -> None:
    helpers = PresenceHelpers()
    name = next(row for row in Path("/proc/net/unix").read_text().split() if f"@{PREFIX}{os.getpid()}" in row)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, f"\0{name[1:]}")
    assert list(helpers.idle_s(0.0)) == []
    helpers.close()


def test_windows_counts_milliseconds_that_begin_again() -> None:
    def last(found: Any) -> bool:
        found._obj.time = 2**32 - 500
        return True

    kernel = SimpleNamespace(GetTickCount=lambda: 1500)
    assert windows_idle_s(SimpleNamespace(GetLastInputInfo=last), kernel) == 2.0
    assert windows_idle_s(SimpleNamespace(GetLastInputInfo=lambda found: False), kernel) is None


def test_macos_says_nanoseconds() -> None:
    assert macos_idle_s(lambda *a, **k: SimpleNamespace(stdout='  "HIDIdleTime" = 2500000000\n')) == 2.5
    assert macos_idle_s(lambda *a, **k: SimpleNamespace(stdout=json.dumps({}))) is None

    def none(*arguments: Any, **options: Any) -> Any:
        raise FileNotFoundError

    assert macos_idle_s(none) is None


class Failing:
    """Probes of which the second answer fails; then somebody types."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        self._asked = 0

    def ask(self, now: float) -> Presence:
        self._asked += 1
        if self._asked == 2:
            raise OSError("the window system has gone")
        return Presence(0.0 if self._asked > 2 else 500.0, seated=True)

    def close(self) -> None:
        self.said["closed"] = "yes"


def test_a_probe_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SAMPLE_S", 0.01)
    told, probes = threading.Event(), Failing()
    looking = watch.PresenceWatch(told.set, tuple, cast(Any, probes))
    try:
        assert eventually(told.is_set)
        assert eventually(lambda: (looking.read(time.monotonic()).idle_s or 99.0) < 5.0)
        assert probes.said == {"all": "OSError: the window system has gone"}
    finally:
        looking.close()
    assert probes.said["closed"] == "yes"
