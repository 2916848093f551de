"""Passes on what the ranks of an attempt say to each other through the broker: at meetings, and by PMI-1."""

from deskgrid import wire
from deskgrid.broker.gangs.ends import Ends
from deskgrid.broker.gangs.gang import GangAttempt, GangStage
from deskgrid.broker.gangs.pmi import KEPT_BYTES_OF_OWNER, LINE_BYTES, PmiError, PmiServer
from deskgrid.broker.gangs.table import GangAttempts
from deskgrid.broker.model.worker_session import WorkerSession

# Values that ranks of all gangs have gathered, or are gathering. Bytes.
GATHERED_BYTES = 16 * wire.MEETING_BYTES


class RankMessages:
    """``ends``: is told when a rank says something that ends its gang."""

    def __init__(self, table: GangAttempts, ends: Ends) -> None:
        self._table = table
        self._ends = ends

    def meet(self, worker: WorkerSession, message: wire.Meet) -> None:
        """A rank has come to a meeting."""
        gang = self._of(worker, message)
        if gang is None:
            return
        meetings, before, size = gang.meetings, gang.meetings.held, gang.meetings.size
        told = meetings.come(message, max(0, GATHERED_BYTES - self._table.gathered))
        self._table.gathered += meetings.size - size
        if meetings.held > before:
            self._table.state.journal.ranks.met(message.task, meetings.held)
        self._table.tell_ranks(gang, told)

    def pmi(self, worker: WorkerSession, message: wire.PmiBytes, now: float) -> None:
        """A rank speaks to MPI's process manager."""
        gang = self._of(worker, message)
        if gang is None or not gang.bag.row.options.mpi:
            return
        try:
            replies = self.manager_of(gang).receive(message.rank, message.start, message.data)
        except PmiError as error:
            failure = wire.Failure("MPIError", str(error)).packed()
            facts = (int(wire.Outcome.ERROR), now - gang.began, failure, b"", b"", message.rank)
            self._ends.rank_ended(gang, wire.RankResult._make((*gang.attempt, *facts)), now)
            return
        for rank, start, data in replies:
            self._table.tell(gang.ranks[rank].worker, wire.PmiBytes(*gang.attempt, rank, start, data))

    def _of(self, worker: WorkerSession, message: wire.Meet | wire.PmiBytes) -> GangAttempt | None:
        """The gang of a rank that speaks, if the rank may speak now."""
        gang = self._table.at(worker, message.task, message.number, message.rank)
        if gang is None or gang.stage not in (GangStage.RUNNING, GangStage.GATHERING) or message.rank in gang.ended:
            return None
        return gang

    def manager_of(self, gang: GangAttempt) -> PmiServer:
        """The process manager of an attempt."""
        if gang.pmi is None:
            (task, number), ranks = gang.attempt, self._table.state.journal.ranks
            owner, said = gang.bag.row.owner, self._table.pmi_bytes

            def keep(rank: int, ends: int, line: bytes) -> None:
                size = len(line) + LINE_BYTES
                if said[owner] + size > KEPT_BYTES_OF_OWNER:
                    most = f"{KEPT_BYTES_OF_OWNER // 2**20} MiB"
                    raise PmiError(f"all gangs of its submitter said more than {most} to MPI's process manager")
                said[owner] += size
                ranks.keep_line(task, rank, ends, line)

            # MPICH makes names of shared memory of it, which another grid's gang on the same PC must not have.
            name = f"deskgrid_{gang.bag.row.id}_{task}_{number}"
            gang.pmi = PmiServer(name, [rank.worker for rank in gang.ranks], keep)
        return gang.pmi
