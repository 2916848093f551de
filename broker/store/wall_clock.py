"""What time it is. The broker's own clock only goes forward, while the clock of its machine can be set."""

# Smaller differences are left as they are: they come from a clock that is being adjusted slowly. Seconds.
JUMP_S = 2.0


class WallClock:
    """``at_zero``: POSIX seconds when the broker's clock was 0."""

    def __init__(self, at_zero: float) -> None:
        self._at_zero = at_zero

    def posix(self, now: float) -> float:
        """``now`` of the broker's clock in POSIX seconds."""
        return self._at_zero + now

    def broker_time(self, posix: float) -> float:
        """What the broker's clock showed, or will show, at ``posix`` seconds."""
        return posix - self._at_zero

    def follow(self, now: float, posix: float) -> float:
        """It is ``posix`` seconds by the machine's clock.

        Returns by how many seconds that clock has jumped, or 0. A jump forward may also mean that the machine slept:
        then the broker's clock stood still.
        """
        jump = posix - self.posix(now)
        if abs(jump) < JUMP_S:
            return 0.0
        self._at_zero += jump
        return jump
