"""Starts the processes of a worker, for its slots and for ranks of gangs, and knows all that have not ended yet."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deskgrid.worker.environments.site import Site
from deskgrid.worker.run.accounts import Account
from deskgrid.worker.run.jobs import JobSaved
from deskgrid.worker.run.process import Process, Tell

Keep = Callable[[JobSaved, Path | None], JobSaved | None]


class Spawner:
    """``folder``: for the files of their checkpoints. ``arguments``: of each process. ``account``: whom they run as.

    ``capture_limit``: bytes kept of what a task prints to stdout, and to stderr.

    ``sites``: the environments that are ready, by key. ``processes``: those that have not ended, killed or not.
    """

    def __init__(
        self, folder: Path, arguments: list[str], capture_limit: int, account: Account | None, keep: Keep
    ) -> None:
        self._folder = folder
        self._arguments = arguments
        self._capture_limit = capture_limit
        self._account = account
        self._keep = keep
        self._spawned = 0
        self.sites: Mapping[str, Site] = {}
        self.processes: set[Process] = set()

    def spawn(
        self, slot: int, environment: str, tell: Tell, *, rank: str = "", inherited: Sequence[int] = ()
    ) -> Process:
        """Start a process. Raises OSError. ``rank``, ``inherited``: as `Process` takes them."""
        self._spawned += 1
        site = self.sites.get(environment)
        process = Process(
            slot,
            self._folder / f"{slot}-{self._spawned}",
            self._arguments,
            tell,
            self._account,
            capture_limit=self._capture_limit,
            keep=self._keep,
            site=None if site is None else (environment, site),
            rank=rank,
            inherited=inherited,
        )
        self.processes.add(process)
        return process

    def gone(self, process: Process) -> None:
        """A process has ended."""
        process.close()
        self.processes.discard(process)

    def close(self) -> None:
        """Kill every process with its children."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.close()
        self.processes.clear()
