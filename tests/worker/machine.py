"""``deskgrid worker`` as a process of its own, as on a PC, for tests of what it leaves for others to see."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.live import ROOT, WORKER
from tests.waiting import PATIENCE_S, eventually


class WorkerProcess:
    """``arguments`` of ``deskgrid worker``; ``prefix``: what the command line begins with."""

    def __init__(self, log: Path, arguments: Sequence[str], prefix: Sequence[str] = (), **environment: str) -> None:
        self._log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-P", "-m", "deskgrid.cli", *WORKER, *arguments, "--until-stdin-closes"],
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
            )

    @property
    def said(self) -> str:
        """All that workers with this log have said."""
        return self._log.read_text(encoding="utf-8")

    def joined(self, times: int = 1) -> bool:
        """Whether a worker with this log has joined so many times, once it has."""
        eventually(lambda: self.said.count(" joined ") >= times or self.process.poll() is not None, PATIENCE_S)
        return self.said.count(" joined ") >= times

    def ends(self) -> int:
        """The code with which it ends by itself."""
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        """End it as its parent's end would."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


@contextmanager
def worker_process(
    log: Path, *arguments: str, prefix: Sequence[str] = (), **environment: str
) -> Iterator[WorkerProcess]:
    """A worker's process, which has ended afterwards, in good order if it can."""
    worker = WorkerProcess(log, arguments, prefix, **environment)
    try:
        yield worker
    finally:
        try:
            worker.stop()
        finally:
            worker.kill()
