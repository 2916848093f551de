"""What an executor says about files and checkpoints when its tasks have none."""

from pathlib import Path

from deskgrid import wire
from deskgrid.worker.run.checkpoint_files import CheckpointFiles
from deskgrid.worker.run.jobs import JobSaved


class WithoutFiles:
    """For executors of tests, whose tasks need no stored files."""

    def say(self, now: float) -> list[wire.Message]:
        return []

    def hear(self, message: wire.Message, now: float) -> None:
        raise AssertionError(f"nobody asked for {message!r:.100}")

    def reconnected(self) -> None:
        pass


class WithoutCheckpoints:
    """For executors of tests, whose tasks are not checkpointable."""

    @property
    def checkpoints(self) -> CheckpointFiles:
        return CheckpointFiles(Path("nowhere"))

    def saved(self) -> list[JobSaved]:
        return []

    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None: ...
