"""The clock of a worker's tasks: it stands still while they are stopped, so that no limit of time counts a pause."""


class TaskClock:
    """All arguments and results are seconds; ``now`` is monotonic."""

    def __init__(self) -> None:
        self._stood = 0.0
        self._since: float | None = None

    @property
    def stands(self) -> bool:
        """Whether the tasks are stopped."""
        return self._since is not None

    def stop(self, now: float) -> None:
        """The tasks have been stopped."""
        if self._since is None:
            self._since = now

    def go_on(self, now: float) -> float:
        """The tasks go on. Returns how long they were stopped."""
        lasted = 0.0 if self._since is None else max(0.0, now - self._since)
        self._stood, self._since = self._stood + lasted, None
        return lasted

    def read(self, now: float) -> float:
        """What this clock shows."""
        return (now if self._since is None else min(now, self._since)) - self._stood

    def standing(self, now: float) -> float:
        """How long the tasks have been stopped; 0.0 if they are not."""
        return 0.0 if self._since is None else max(0.0, now - self._since)
