"""Starts the processes of a worker, for its slots and for ranks of gangs, and knows all that have not ended yet."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deskgrid.worker.environments.site import Site
from deskgrid.worker.pc.shared_memory import Leftovers
from deskgrid.worker.run.accounts import Account, environment
from deskgrid.worker.run.cgroup import Groups
from deskgrid.worker.run.child import notes_file_of
from deskgrid.worker.run.folders import Folder
from deskgrid.worker.run.jobs import JobSaved
from deskgrid.worker.run.nursery import Direct, Nursery
from deskgrid.worker.run.process import Process, Tell
from deskgrid.worker.run.shared import Entry

Keep = Callable[[JobSaved, Path | None], JobSaved | None]

# How many threads libraries start, one for each processor unless they are told: by n tasks on n slots, n times n.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
# Where programs and libraries put temporary files.
TEMPORARY = ("TMPDIR", "TMP", "TEMP", "JOBLIB_TEMP_FOLDER")
# Nurseries of environments that are kept although nothing runs in them now.
_KEPT = 4


class Spawner:
    """``folder``: for the files of their checkpoints. ``arguments``: of each process. ``account``: whom they run as.

    ``capture_limit``: bytes kept of what a task prints to stdout, and to stderr.

    ``sites``: the environments that are ready, by key. ``processes``: those that have not ended, killed or not.
    ``nice``: how far they give way to others on this PC. ``groups``: how the kernel bounds the memory of some.
    """

    def __init__(
        self,
        folder: Folder,
        arguments: list[str],
        capture_limit: int,
        account: Account | None,
        keep: Keep,
        *,
        nice: int = 0,
        groups: Groups | None = None,
    ) -> None:
        self._groups = groups
        self._folder = folder
        self._arguments = arguments
        self._capture_limit = capture_limit
        self._account = account
        self._keep = keep
        self._nice = nice
        self._spawned = 0
        self._nurseries: dict[tuple[str, ...], Nursery | Direct] = {}
        self._leftovers = Leftovers(None if account is None else account.uid)
        self.sites: Mapping[str, Site] = {}
        self.processes: set[Process] = set()

    def spawn(
        self,
        slot: int,
        environment_key: str,
        tell: Tell,
        *,
        rank: bool = False,
        threads: int = 1,
        inherited: Sequence[int] = (),
    ) -> Process:
        """Start a process. Raises OSError. ``threads``: how many slots it has. ``inherited``: as `Process` takes it."""
        self._spawned += 1
        self._folder.renew()
        site = self.sites.get(environment_key)
        stem = self._folder.path / f"{slot}-{self._spawned}"
        temporary = stem.with_suffix(".tmp")
        temporary.mkdir(0o700)
        notes = Path(notes_file_of(str(stem)))
        notes.touch(0o600)
        account = None if site is None else self._account
        if account is not None:
            account.own(temporary)
        if self._account is not None:
            self._account.own(notes)
        given = environment(os.environ) if self._account is None else self._account.environment()
        variables = variables_of(given if site is None else site.variables(given), temporary, threads)
        about = ["" if site is None else site.identity, "rank" if rank else "", str(temporary)]
        try:
            process = Process(
                slot,
                stem,
                [*self._arguments, *about, *(f"{name}={value}" for name, value in variables.items())],
                tell,
                self._nursery(environment_key, site),
                environment="" if site is None else environment_key,
                capture_limit=self._capture_limit,
                account=account,
                keep=self._keep,
                inherited=inherited,
                groups=self._groups,
                before=self._leftovers.present(),
            )
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            notes.unlink(missing_ok=True)
            raise
        if self._account is not None and site is None:
            process.become(self._account, variables)
        self.processes.add(process)
        return process

    def _nursery(self, key: str, site: Site | None) -> Nursery | Direct:
        """Return the nursery of an environment; each has one, for it runs that environment's Python."""
        name = ("",) if site is None else (key, site.python)
        nursery = self._nurseries.pop(name, None)
        if nursery is not None and nursery.ended:
            nursery.close()
            nursery = None
        if nursery is None:
            python = [sys.executable, "-P"] if site is None else [site.python, "-I"]
            nursery = self._new_nursery(python, site)
        self._nurseries[name] = nursery
        idle = [each for each in self._nurseries if each not in (name, ("",)) and self._nurseries[each].empty]
        for each in idle[:-_KEPT]:
            self._nurseries.pop(each).close()
        return nursery

    def _new_nursery(self, python: list[str], site: Site | None) -> Nursery | Direct:
        # Also what its copies can read of themselves: below /proc, a process keeps the environment of its parent.
        how: dict[str, Any] = {"env": environment(os.environ) if self._account is None else self._account.environment()}
        if site is not None:
            how = how if self._account is None else self._account.process()
            how["env"] = site.variables(how["env"])
        log = self._folder.path / f"parent-{self._spawned}.log"
        return Direct(python, self._nice) if sys.platform == "win32" else Nursery(python, self._nice, log, how)

    @property
    def parents(self) -> list[int]:
        """The numbers of the parents of its processes."""
        return [each.pid for each in self._nurseries.values() if isinstance(each, Nursery)]

    def gone(self, process: Process) -> None:
        """A process has ended."""
        process.close()
        self.processes.discard(process)
        self._leftovers.ended(process.before)

    def sweep(self, now: float) -> None:
        """Remove what processes have left in this PC's memory. ``now`` is monotonic seconds."""
        idle = all(process.memory is None for process in self.processes)
        self._leftovers.sweep(now, self._made, idle=idle)

    def _made(self) -> set[Entry]:
        return {entry for process in self.processes for entry in process.made()}

    def close(self) -> None:
        """Kill every process with its children, apart from those that are ending: they have their moment."""
        for process in self.processes:
            if not process.ending:
                process.kill()
        for process in self.processes:
            process.close()
            self._leftovers.ended(process.before)
        self.processes.clear()
        for nursery in self._nurseries.values():
            nursery.close()
        self._nurseries.clear()
        self._leftovers.close()


def variables_of(given: Mapping[str, str], temporary: Path, threads: int) -> dict[str, str]:
    """Return the environment variables of a process. ``given``: those of its user. ``threads``: how many it may start.

    Who runs the worker may have set how many threads libraries start.
    """
    variables = {**dict.fromkeys(THREADS, str(threads)), "MPLBACKEND": "Agg", **given}
    variables |= dict.fromkeys(TEMPORARY, str(temporary))
    with suppress(OSError):
        if not os.access(variables.get("HOME") or "/", os.W_OK):
            variables["HOME"] = str(temporary)
    return variables
