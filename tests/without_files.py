"""What an executor says about files when its tasks have none."""

from deskgrid import wire


class WithoutFiles:
    """For executors of tests, whose tasks need no stored files."""

    def say(self, now: float) -> list[wire.Message]:
        return []

    def hear(self, message: wire.Message, now: float) -> None:
        raise AssertionError(f"nobody asked for {message!r:.100}")

    def reconnected(self) -> None:
        pass
