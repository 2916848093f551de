"""One environment in a process of its own, in the Python that has its packages. It gets its orders over a pipe."""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.catalogue import ENVIRONMENTS, Place, workload
from benchmarks.proc import MARK, with_mark

ROOT = Path(__file__).resolve().parents[1]
# Where `make bench-peers` puts the virtual environments.
PEERS = Path(__file__).with_name(".peers")
# Time limits in seconds: for a start, and for one workload. The slowest system takes half of these. The last is for
# workloads of deskgrid only, which run a million tasks, or simulate them twice.
START_S = 90.0
PATIENCE_S = 240.0
OWN_PATIENCE_S = 1800.0
# How long a stop may take; remaining processes are then killed. Seconds.
STOP_S = 30.0
# How many characters of a failed process's output are shown, from the end.
TAIL = 2000


class Failed(Exception):
    """An order was not carried out; one line says why."""


class NotThere(Exception):
    """The environment is not installed here; one line says what is missing."""


def python_of(place: Place) -> Path:
    """The interpreter that has the environment's packages. Raises `NotThere`."""
    if not place.peer:
        return Path(sys.executable)
    python = PEERS / place.peer / "bin" / "python"
    if not python.exists():
        raise NotThere(f"make bench-peers has not made {place.peer}")
    return python


def _environment(python: Path, temporary: Path) -> dict[str, str]:
    """Variables as in its activated virtual environment. Our tasks are importable; temporary files go to our folder."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PYTHONPATH": str(ROOT), "PATH": path, "TMPDIR": str(temporary)}


class Remote:
    """The process of the environment ``key``, for as long as a ``with`` block lasts. Raises `NotThere`.

    When the block ends, all processes that it has started are gone.
    """

    def __init__(self, key: str) -> None:
        python = python_of(ENVIRONMENTS[key])
        self.key = key
        self._mark = secrets.token_hex(8)
        # A short name, because some systems put sockets there, whose paths are limited to about a hundred characters.
        self._folder = tempfile.TemporaryDirectory(prefix="dgb-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name, "log")
        temporary = Path(self._folder.name, "t")
        temporary.mkdir()
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [str(python), "-P", "-m", "benchmarks.driver", key],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(python, temporary) | {MARK: self._mark},
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._orders, self._answers = process, process.stdin, process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        for pid in with_mark(self._mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._folder.cleanup()

    def start(self, workers: int, faults: bool) -> Mapping[str, Any]:
        """Start the system; seconds to the first result, and versions. Raises `NotThere` or `Failed`."""
        return self._order({"do": "start", "workers": workers, "faults": faults}, "started", START_S)

    def run(self, name: str, size: Mapping[str, float]) -> Mapping[str, float | None]:
        """The figures of a workload. Raises `Failed`."""
        seconds = PATIENCE_S if workload(name).workers else OWN_PATIENCE_S
        return self._order({"do": "run", "workload": name, "size": size}, "figures", seconds)

    def _order(self, order: Mapping[str, object], what: str, seconds: float) -> Mapping[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        if not select.select([self._answers], [], [], seconds)[0]:
            self._process.kill()
            raise Failed(f"no answer within {seconds:g} s")
        answer: dict[str, Any] = json.loads(self._answers.readline() or "{}")
        if "missing" in answer:
            raise NotThere(answer["missing"])
        if what not in answer:
            raise Failed(answer.get("failed", "its process ended"))
        found: Mapping[str, Any] = answer[what]
        return found

    def said(self) -> str:
        """The end of its output, which may tell why it failed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
