"""What an executor says about files and checkpoints when its tasks have none."""

from pathlib import Path

from deskgrid import wire
from deskgrid.worker.gangs import RunsRanks
from deskgrid.worker.run.checkpoint_files import CheckpointFiles
from deskgrid.worker.run.jobs import GangStart, JobSaved, PrintedOutput, RankJob, RankKey, RankReport, RankStopped


class NoRanks:
    """For executors of tests that are never asked for a gang."""

    @property
    def templates(self) -> set[str]:
        return set()

    def uses(self, environment: str) -> bool:
        return False

    def prepare(self, job: RankJob) -> None:
        raise AssertionError(f"nobody asked for {job!r:.100}")

    def begin(self, key: RankKey, gang: GangStart, now: float) -> None:
        raise AssertionError(f"nobody prepared {key}")

    def poll(self, now: float) -> list[RankReport]:
        return []

    def running(self, now: float) -> dict[RankKey, float]:
        return {}

    def stop(self, task: int, number: int, now: float) -> list[RankStopped]:
        return []

    def met(self, key: RankKey, serial: int, reason: str, values: wire.Payload) -> None: ...

    def pmi(self, key: RankKey, data: bytes, now: float) -> None: ...

    def shown(self, key: RankKey, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        return None


class WithoutFiles:
    """For executors of tests, whose tasks need no stored files."""

    @property
    def ranks(self) -> RunsRanks:
        return NoRanks()

    def say(self, now: float) -> list[wire.Message]:
        return []

    def hear(self, message: wire.Message, now: float) -> None:
        raise AssertionError(f"nobody asked for {message!r:.100}")

    def reconnected(self) -> None:
        pass

    def shown(self, task: int, number: int, stdout: int, stderr: int, most: int) -> PrintedOutput | None:
        return None


class WithoutCheckpoints:
    """For executors of tests, whose tasks are not checkpointable."""

    @property
    def checkpoints(self) -> CheckpointFiles:
        return CheckpointFiles(Path("nowhere"))

    def saved(self) -> list[JobSaved]:
        return []

    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None: ...
