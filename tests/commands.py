"""Commands of deskgrid in processes of their own, as a service manager runs them."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.live import ROOT

PATIENCE_S = 60.0


@dataclass(slots=True)
class Command:
    """A command of deskgrid that goes on until its input is closed. ``log``: where its stderr goes; None: nowhere."""

    arguments: list[str]
    place: Path
    log: Path | None = None
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start it, or another one in its place."""
        with open(os.devnull if self.log is None else self.log, "ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deskgrid.cli", *self.arguments, "--until-stdin-closes"],
                cwd=ROOT,
                env=os.environ | {"TMPDIR": str(self.place)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """End it in good order, by force if need be."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_S)
        self.process.kill()
        self.process.wait()
