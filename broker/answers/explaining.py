"""Why a parallel task waits, in sentences for people."""

from datetime import UTC, datetime

from deskgrid.broker.answers.colocation import Colocation, Pc, most_pcs, most_together
from deskgrid.broker.gangs.starts import Starts
from deskgrid.broker.gangs.table import GangAttempt, GangAttempts, GangStage
from deskgrid.broker.model.need_notes import WAIT
from deskgrid.broker.model.needs import MPI, PYTHON, amounts_of, labels_of
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.durations import DAY_S, precise
from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.model import State
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.choices import PLAIN, Sharing
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.patience import patience_ends
from deskgrid.scheduler.policies import parallel_policy
from deskgrid.scheduler.state.timers import Timer

# How a note ends of a bag whose tasks need longer windows than there are.
LONGER = "the tasks wait for longer windows"
# Workers that are named in one sentence.
NAMED = 8


class Explaining:
    """Answers for parallel tasks."""

    def __init__(self, table: GangAttempts, starts: Starts) -> None:
        self._table = table
        self._state = table.state
        self._starts = starts

    def together(self, need: Need, runtime: float, now: float) -> Colocation:
        """How many ranks of a task with this need and runtime can be together, and when."""
        found = self._pcs(now)
        requirement = Requirement(self._state.scheduler.policy.requirement.margin)
        return most_together(found, need, need.seconds(runtime, need.least), requirement)

    def _pcs(self, now: float) -> list[Pc]:
        return [self._pc(worker, now) for worker in self._table.workers.values()]

    def _pc(self, worker: WorkerSession, now: float) -> Pc:
        grid, join = self._state.scheduler.grid, worker.join
        up, away = grid.slots.workers.get(worker.name), grid.away.get(worker.name)
        windows: list[tuple[float, float]] = []
        if up is not None:
            windows.append((0.0, up.ends_at - now))
        coming = up.windows if up is not None else away.windows if away is not None else ()
        windows += [(window.opens - now, window.opens + window.lasts - now) for window in coming]
        site = join.site if join.address is not None else f"{join.site}/{worker.name}"
        sharing = self._sharing()
        slots = int(min(sharing.mpl * (join.processors or join.slots), join.slots))
        speed = self._state.scheduler.speed(worker.name)
        return Pc(site, slots, speed, amounts_of(join), labels_of(join), windows, sharing.apart)

    def _sharing(self) -> Sharing:
        """How the policy in force lets tasks share a PC, as far as it says."""
        policy = parallel_policy(self._state.scheduler.policy)
        return policy.where.sharing if isinstance(policy, Composed) else PLAIN

    def text(self, task: int, state: State, now: float) -> list[str] | None:
        """Why a parallel task is where it is; None if there is no more to say than of any task."""
        bag, item = self._state.book.item(task)
        gang = self._table.find(task)
        start = f"task {item} (predicted {precise(self._state.scheduler.runtime(task))})"
        if gang is not None and state in (State.SENT, State.HELD):
            return [f"{start} {_under_way(gang)}"]
        refusal = self._starts.last_refusal(task)
        last = [f"its last start failed: {refusal}"] if refusal else []
        if state == State.PAUSED and refusal:
            again_s = max(0.0, self._state.scheduler.grid.timers.at[Timer.PAUSE].get(task, now) - now)
            return [f"{start} pauses, and is tried again in {precise(again_s)}", *last]
        if state != State.WAITING:
            return None
        waits = f"{start} waits: {self._wanting(bag.need, task, now)}"
        return [waits, *self._kept(task, now), *self._impatient(bag.need, task, now), *self._resting(), *last]

    def _kept(self, task: int, now: float) -> list[str]:
        """Since when slots are kept for it, and when it should begin."""
        reserved = self._state.scheduler.grid.gangs.reserved.get(task)
        if reserved is None:
            return []
        late = reserved.at <= now
        begins = "when the overdue tasks there end" if late else f"by {self._when(reserved.at - now, now)}"
        return [f"slots have been kept for it for {precise(now - reserved.since)}; it should begin {begins}"]

    def _impatient(self, need: Need, task: int, now: float) -> list[str]:
        """Whether it has waited for so long that it comes first, where others may overtake."""
        policy, scheduler = parallel_policy(self._state.scheduler.policy), self._state.scheduler
        job = ParallelJob(task, need, scheduler.runtime(task), scheduler.grid.tasks.known(task).came)
        if not (isinstance(policy, Composed) and policy.which.overtakes and patience_ends(job) <= now):
            return []
        return [f"it has waited for {precise(now - job.arrived)}, so nothing that comes later delays it"]

    def _resting(self) -> list[str]:
        """Which workers get no gangs for a while."""
        names = sorted(self._state.scheduler.grid.rests.until)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        why = "not ready for gangs in time, or gave them up, and get none for a while"
        return [f"these PCs were {why}: {', '.join(names[:NAMED])}{more}"] if names else []

    def _wanting(self, need: Need, task: int, now: float) -> str:
        seconds = need.seconds(self._state.scheduler.runtime(task), need.least)
        what = f"it needs {_wanted(need)} for {precise(seconds)}"
        if not self._table.workers:
            return f"{what}; no worker is connected"
        if apart := self._apart(need, now):
            return f"{what}; {apart}"
        found = self.together(need, self._state.scheduler.runtime(task), now)
        if found.ranks < need.least:
            return f"{what}; {self._too_few(need, found, now)}"
        if found.starts_in_s > 0.0:
            return f"{what}; so many are together {self._from(found.starts_in_s, now)}"
        return f"{what}; enough slots exist now, but they are busy or reserved"

    def never(self, need: Need, runtime: float, now: float) -> str:
        """What is told of tasks for which there are never enough slots together for long enough; empty if there are."""
        found = self.together(need, runtime, now)
        if found.ranks >= need.least:
            return ""
        seconds = precise(need.seconds(runtime, need.least))
        if apart := self._apart(need, now):
            return f"a task needs {_wanted(need)} for {seconds}; {apart}; {WAIT}"
        return f"a task needs {_wanted(need)} for {seconds}; {self._too_few(need, found, now)}: {LONGER}"

    def _apart(self, need: Need, now: float) -> str:
        """Why no site has enough PCs, if the policy in force gives each rank one of its own; else nothing."""
        if not (self._sharing().apart and 0 < (most := most_pcs(self._pcs(now), need)) < need.least):
            return ""
        name = self._state.scheduler.policy.name
        return f"{name} gives each rank a PC of its own, and no site has more than {most} for it"

    def _too_few(self, need: Need, found: Colocation, now: float) -> str:
        if not found.ranks:
            known = any(pc.room(need) for pc in self._pcs(now))
            return f"no PC that is known has that{' for so long' if known else ''}"
        return f"at most {found.ranks * need.slots} are together {self._from(found.starts_in_s, now)}"

    def _from(self, seconds: float, now: float) -> str:
        when = self._when(seconds, now)
        return when if seconds <= 0.0 else f"from {when} on"

    def _when(self, seconds: float, now: float) -> str:
        """``now``, ``18:00``, or ``Tuesday 18:00``."""
        if seconds <= 0.0:
            return "now"
        here = datetime.fromtimestamp(self._state.wall.posix(now), UTC).astimezone()
        at = datetime.fromtimestamp(self._state.wall.posix(now) + seconds, UTC).astimezone()
        today = here.date() == at.date()
        day = "" if today else f"{at:%A} " if seconds < 6 * DAY_S else f"{at:%d %B} "
        return f"{day}{at:%H:%M}"


def _wanted(need: Need) -> str:
    """``8 slots of one site``, with what else it needs."""
    slots = need.least * need.slots
    what = f"{slots} slots of one {'PC' if need.least == 1 else 'site'}"
    if need.least > 1 and need.slots > 1:
        what += f", {need.slots} on one PC for each of {need.least} ranks"
    others = [label for label in sorted(need.labels) if label != MPI and not label.startswith(PYTHON)]
    others += ["MPI"] if MPI in need.labels else []
    return f"{what}, with {' and '.join(others)}," if others else what


def _under_way(gang: GangAttempt) -> str:
    names = gang.workers
    on = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    if gang.stage == GangStage.PREPARING:
        missing = [name for name in names if name not in gang.ready]
        return f"is being prepared on {on}; not ready yet: {', '.join(missing[:NAMED])}"
    if gang.stage == GangStage.GATHERING:
        missing = [name for name in gang.awaited if name not in gang.ready]
        return f"was running when the broker stopped, and waits for {', '.join(missing[:NAMED])} to come back"
    if gang.stage == GangStage.ENDING:
        return f"has failed, and is being stopped on {on}"
    have = "has" if len(gang.ended) == 1 else "have"
    ended = f"; {len(gang.ended)} of its {len(gang.ranks)} ranks {have} ended" if gang.ended else ""
    return f"runs on {on}{ended}"
