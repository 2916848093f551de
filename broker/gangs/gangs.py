"""Drives the attempts of parallel tasks, from the scheduler's command to start one to its end.

Rule: only the session that was given a rank may report on it, or speak for it.
"""

from collections.abc import Callable, Mapping, Sequence

from deskgrid import wire
from deskgrid.broker.gangs.ends import Ends
from deskgrid.broker.gangs.gang import GangStage
from deskgrid.broker.gangs.rank_messages import RankMessages
from deskgrid.broker.gangs.recovery import GangRecovery
from deskgrid.broker.gangs.starts import Starts
from deskgrid.broker.gangs.table import GangAttempts, Handle
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.scheduler.model import Attempt

# What workers say of ranks.
RankMessage = wire.RanksReady | wire.RanksUnready | wire.RanksEnded | wire.Meet | wire.PmiBytes


class GangParts:
    """All parts of it. ``table``: the attempts that have workers."""

    def __init__(
        self,
        state: BrokerState,
        workers: Mapping[str, WorkerSession],
        handle: Handle,
        send_template: Callable[[WorkerSession, str], None],
    ) -> None:
        """Arguments as for `GangAttempts` and `Starts`."""
        self.table = GangAttempts(state, workers, handle)
        self.starts = Starts(self.table, send_template)
        self.ends = Ends(self.table, self.starts)
        self._rank_messages = RankMessages(self.table, self.ends)
        self.recovery = GangRecovery(self.table, self.starts, self.ends, self._rank_messages)

    def receive(self, worker: WorkerSession, message: RankMessage, now: float) -> None:
        """Handle a message of a worker."""
        if isinstance(message, wire.RanksEnded):
            self.ends.ended(worker, message, now)
        elif isinstance(message, wire.RanksReady):
            self.starts.ready(worker, message, now)
        elif isinstance(message, wire.RanksUnready):
            self.starts.unready(worker, message, now)
        elif isinstance(message, wire.Meet):
            self._rank_messages.meet(worker, message)
        else:
            self._rank_messages.pmi(worker, message, now)

    def expects(self, worker: WorkerSession, message: wire.RanksEnded) -> bool:
        """Whether a message has a large result of a rank that its sender was given, and that has not ended yet."""
        large = [result for result in message.results if not isinstance(result.payload, bytes)]
        found = [(self.table.at(worker, each.task, each.number, each.rank), each.rank) for each in large]
        return any(gang is not None and rank not in gang.ended for gang, rank in found)

    def begun_at(self, worker: str) -> Sequence[Attempt]:
        """The attempts that have begun and have ranks at a worker."""
        return [gang.attempt for gang in self.table.given_to(worker) if gang.stage != GangStage.PREPARING]

    def look(self, now: float) -> None:
        """Give up what has taken too long."""
        for task in list(self.table.timed):
            gang = self.table.find(task)
            if gang is not None and gang.until <= now:
                (self.starts.overdue if gang.stage == GangStage.PREPARING else self.ends.end_failed)(gang, now)
