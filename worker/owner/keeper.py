"""Does what the policy for the owner says: stops the processes of tasks, lets them go on, or hands the tasks back."""

from collections.abc import Callable
from typing import Protocol

from deskgrid.worker.owner.policy import Courtesy, OwnerPolicy, Presence
from deskgrid.worker.windows.uptime import Instant

# Processes that have started since are stopped, too, as often as this. Seconds.
AGAIN_S = 1.0


class Stops(Protocol):
    """The part of `deskgrid.worker.run.executor.Executor` that this needs."""

    def pause(self, now: float) -> None: ...
    def go_on(self, now: float) -> None: ...
    def let_save(self) -> None: ...


class Yields(Protocol):
    """The part of `deskgrid.worker.session.Session` that this needs."""

    def pause(self, why: str, now: Instant) -> None: ...
    def hand_back(self, now: Instant, at_once: bool) -> None: ...
    def take_again(self) -> None: ...
    def saves_now(self, now: Instant) -> bool: ...


class OwnerKeeper:
    """``presence``: tells whether somebody uses the PC. ``say``: gets a line for people whenever something changes."""

    def __init__(
        self,
        courtesy: Courtesy,
        presence: Callable[[float], Presence],
        runs: Stops,
        session: Yields,
        say: Callable[[str], None],
    ) -> None:
        self._policy = OwnerPolicy(courtesy)
        self._presence = presence
        self._runs = runs
        self._session = session
        self._say = say
        self._is_in_use = False
        # When the processes were stopped last, since the PC is in use.
        self._stopped_at: float | None = None
        self._is_saving = False
        self._is_away = False

    def look(self, now: Instant) -> None:
        """Look whether somebody uses the PC, and do what follows from that."""
        doing = self._policy.look(self._presence(now.mono), now.mono)
        if doing == "works":
            self.go_on(now, "nobody uses this PC")
            return
        if doing == "away" and not self._is_away:
            self._is_away = True
            self._say(f"its tasks are handed back: {self._policy.why}")
            self._session.hand_back(now, self._policy.at_once)
        self._stop(now)

    def go_on(self, now: Instant, why: str) -> None:
        """Let the tasks go on, if they do not, and take others again. ``why``: for people."""
        if not self._is_in_use:
            return
        self._is_in_use, self._stopped_at, self._is_saving = False, None, False
        self._runs.go_on(now.mono)
        self._session.pause("", now)
        if self._is_away:
            self._is_away = False
            self._session.take_again()
        self._say(f"{why}: its tasks go on")

    def _stop(self, now: Instant) -> None:
        if not self._is_in_use:
            self._is_in_use = True
            self._say(f"its tasks are stopped: {self._policy.why}")
            self._session.pause(self._policy.why, now)
        if self._session.saves_now(now):
            if not self._is_saving:
                self._is_saving = True
                self._runs.let_save()
        elif self._stopped_at is None or now.mono - self._stopped_at >= AGAIN_S:
            self._stopped_at, self._is_saving = now.mono, False
            self._runs.pause(now.mono)
