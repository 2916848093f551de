"""Starts the processes of a worker, for its slots and for ranks of gangs, and knows all that have not ended yet."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deskgrid.worker.environments.site import EnvironmentSite
from deskgrid.worker.pc.shared_memory import Leftovers
from deskgrid.worker.run.accounts import environment, kept_variables
from deskgrid.worker.run.beneath import remove
from deskgrid.worker.run.cgroup import Groups
from deskgrid.worker.run.child import notes_file_of
from deskgrid.worker.run.devices import WHATEVER_THERE_IS, HeldDevices
from deskgrid.worker.run.folders import NOTES, WorkerFolder
from deskgrid.worker.run.jobs import Job, JobSaved, RankJob
from deskgrid.worker.run.nursery import Direct, Nursery, guard
from deskgrid.worker.run.pool import RUN, AccountPlace, Accounts, NoAccount
from deskgrid.worker.run.process import Process, Tell
from deskgrid.worker.run.shared import Entry
from deskgrid.worker.run.templates import UnpackedTemplate

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
    """``folder``: for the files of their checkpoints. ``arguments``: of each process. ``accounts``: whom they run as.

    ``capture_limit``: bytes kept of what a task prints to stdout, and to stderr.

    ``sites``: the environments that are ready, by key, and the other Pythons of this PC, by version. ``nice``: how far
    processes give way to others on this PC.
    ``groups``: how the kernel bounds the memory of some.
    """

    def __init__(
        self,
        folder: WorkerFolder,
        arguments: list[str],
        capture_limit: int,
        accounts: Accounts,
        keep: Keep,
        *,
        nice: int = 0,
        groups: Groups | None = None,
    ) -> None:
        self._groups = groups
        self._folder = folder
        self._arguments = arguments
        self._capture_limit = capture_limit
        self.accounts = accounts
        self._keep = keep
        self._nice = nice
        self._spawned = 0
        self._parents = 0
        self._guard: Nursery | None = None
        self._nurseries: dict[tuple[str, ...], Nursery | Direct] = {}
        self._leftovers = Leftovers([place.uid for place in accounts.places if place.uid is not None])
        # Whose each process is.
        self._owners: dict[Process, str] = {}
        self.sites: Mapping[str, EnvironmentSite] = {}

    @property
    def processes(self) -> set[Process]:
        """The processes that have not ended, killed or not."""
        return set(self._owners)

    def key_of(self, job: Job | RankJob) -> str:
        """In which of the sites a job has to run; "": in none, but on the worker's own Python."""
        python = job.options.python or ""
        return job.environment or (python if python in self.sites else "")

    def warm(self) -> None:
        """Have what starts processes ready, before it is known whose they are to be."""
        with suppress(OSError):
            self._nursery("", None, self.accounts.places[0])

    def spawn(
        self,
        slot: int,
        environment_key: str,
        owner: str,
        tell: Tell,
        *,
        rank: bool = False,
        threads: int = 1,
        devices: HeldDevices = WHATEVER_THERE_IS,
        inherited: Sequence[int] = (),
    ) -> Process:
        """Start a process of ``owner``. Raises `NoAccount`, and OSError.

        ``threads``: how many slots it has. ``devices``: the graphics cards that it finds. ``inherited``: as `Process`
        takes it.
        """
        place = self.accounts.take(owner)
        if place is None:
            raise NoAccount(self.accounts.count)
        self._spawned += 1
        with suppress(OSError):  # what follows says what is wrong
            self._folder.renew()
        temporary = self._folder_of(place) / f"{slot}-{self._spawned}.tmp"
        try:
            temporary.mkdir(0o700)
            site = self.sites.get(environment_key)
            if site is not None and site.folder:
                self.accounts.let_in(owner, Path(site.folder).parent)
            how: dict[str, Any] = {
                "tell": tell,
                "rank": rank,
                "threads": threads,
                "devices": devices,
                "inherited": inherited,
            }
            process = self._process(slot, environment_key, site, place, temporary, **how)
        except BaseException:
            remove(temporary.parent, temporary.name)
            temporary.with_suffix(NOTES).unlink(missing_ok=True)
            self.accounts.release(owner)
            raise
        self._owners[process] = owner
        return process

    def _folder_of(self, place: AccountPlace) -> Path:
        """Where the files of a process are that it shares with us."""
        return self._folder.path if place.account is None else place.area / RUN

    def _process(
        self,
        slot: int,
        environment_key: str,
        site: EnvironmentSite | None,
        place: AccountPlace,
        temporary: Path,
        *,
        tell: Tell,
        rank: bool,
        threads: int,
        devices: HeldDevices,
        inherited: Sequence[int],
    ) -> Process:
        account = None if site is None else place.account
        stem = temporary.with_suffix("")
        notes = Path(notes_file_of(str(stem)))
        notes.touch(0o600)
        if place.account is not None:
            place.account.own(notes)
        if account is not None:
            account.own(temporary)
        given = environment(os.environ) if place.account is None else place.account.environment()
        variables = variables_of(given if site is None else site.variables(given), temporary, threads)
        variables |= devices.variables()
        about = [str(place.area), "" if site is None else site.identity, "rank" if rank else "", str(temporary)]
        process = Process(
            slot,
            stem,
            [*self._arguments, *about, *(f"{name}={value}" for name, value in variables.items())],
            tell,
            self._nursery(environment_key, site, place),
            environment="" if site is None else environment_key,
            devices=devices,
            capture_limit=self._capture_limit,
            account=account,
            keep=self._keep,
            inherited=inherited,
            groups=self._groups,
            before=self._leftovers.present(),
        )
        if place.account is not None and site is None:
            process.become(place.account, variables)
        return process

    def body(self, template: UnpackedTemplate, owner: str) -> dict[str, Any]:
        """A template as a process of ``owner`` gets it, who can read its modules. Raises OSError."""
        if not template.body.get("folder"):
            return template.body
        return template.body | {"folder": str(self.accounts.give(owner, Path(template.body["folder"])))}

    def _nursery(self, key: str, site: EnvironmentSite | None, place: AccountPlace) -> Nursery | Direct:
        """Return the nursery of an environment; each has one, for it runs that environment's Python, as its user."""
        name = ("",) if site is None else (key, site.python, str(place.area))
        nursery = self._nurseries.pop(name, None)
        if nursery is not None and nursery.ended:
            nursery.close()
            nursery = None
        if nursery is None:
            nursery = self._new_nursery(site, place)
        self._nurseries[name] = nursery
        idle = [each for each in self._nurseries if each not in (name, ("",)) and self._nurseries[each].empty]
        for each in idle[:-_KEPT]:
            self._nurseries.pop(each).close()
        return nursery

    def _new_nursery(self, site: EnvironmentSite | None, place: AccountPlace) -> Nursery | Direct:
        python = _own_python() if site is None else site.command
        # Whatever its copies become: they show what it had when it began, as /proc/self/environ.
        variables = environment(os.environ) if place.account is None else kept_variables()
        windows = sys.platform == "win32"
        return Direct([*python, *_UTF_8], self._nice) if windows else self._guarded(python, variables, site, place)

    def _guarded(
        self, python: list[str], variables: dict[str, str], site: EnvironmentSite | None, place: AccountPlace
    ) -> Nursery:
        if self._guard is not None and self._guard.ended:
            self._guard.close()
            self._guard = None
        if self._guard is None:
            self._guard = guard(_own_python(), self._nice, self._log(), variables)
        if site is None:
            return self._guard.parent(self._log())
        how = {} if place.account is None else place.account.process()
        return self._guard.program(python, {**how, "env": site.variables(how.get("env", variables))}, self._log())

    def _log(self) -> Path:
        self._parents += 1
        return self._folder.path / f"parent-{self._parents}.log"

    @property
    def parents(self) -> list[int]:
        """The numbers of the guard, and of the parents that are up."""
        guards = [] if self._guard is None else [self._guard.pid]
        return guards + [each.pid for each in self._nurseries.values() if isinstance(each, Nursery) and each.up]

    def gone(self, process: Process) -> None:
        """A process has ended."""
        process.close()
        if (owner := self._owners.pop(process, None)) is not None:
            self.accounts.release(owner)
        self._leftovers.ended(process.before)

    def sweep(self, now: float) -> None:
        """Remove what processes have left in this PC's memory. ``now`` is monotonic seconds."""
        self._leftovers.sweep(now, self._made)

    def _made(self) -> set[Entry]:
        return {entry for process in self.processes for entry in process.made()}

    def close(self) -> None:
        """Kill every process with its children, apart from those that are ending: they have their moment."""
        for process in self.processes:
            if not process.ending:
                process.kill()
        for process in self.processes:
            self.gone(process)
        for nursery in self._nurseries.values():
            nursery.close()
        self._nurseries.clear()
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        self._leftovers.close()


def _own_python() -> list[str]:
    """The worker's Python. "-u" is for C code that prints: else its lines would stay, and come with a later task."""
    return [sys.executable, "-P", "-u"]


# The encoding of all text, as on other systems: that of a Windows PC depends on its language.
_UTF_8 = ("-X", "utf8")


def variables_of(given: Mapping[str, str], temporary: Path, threads: int) -> dict[str, str]:
    """Return the environment variables of a process. ``given``: those of its user. ``threads``: how many it may start.

    DESKGRID_TASK tells our client, in whichever process, that it is in a task, which cannot submit.

    Who runs the worker may have set how many threads libraries start.
    """
    variables = {**dict.fromkeys(THREADS, str(threads)), "MPLBACKEND": "Agg", **given, "DESKGRID_TASK": "1"}
    variables |= dict.fromkeys(TEMPORARY, str(temporary))
    if sys.platform == "win32":
        variables.setdefault("PYTHONUTF8", "1")
    with suppress(OSError):
        if not os.access(variables.get("HOME") or "/", os.W_OK):
            variables["HOME"] = str(temporary)
    return variables
