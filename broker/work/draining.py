"""Carries out drains (`deskgrid.broker.model.drains`): the scheduler and the workers are told. Pure.

Rule: a worker is told only when nothing runs on it any more, or when somebody wants everything back at once. Then it
closes its window, after its tasks have saved, and stays away until the drain ends.
"""

from collections.abc import Collection

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.drains import chosen
from deskgrid.broker.model.forecaster import Json
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.rows import DrainRow
from deskgrid.broker.work.operations import AskError
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.scheduler import events as ev


class Draining:
    """Orders to drain PCs, and what follows from them in time."""

    def __init__(self, state: BrokerState, workers: WorkerSessions) -> None:
        self._state = state
        self._workers = workers

    def rows(self) -> Json:
        """All drains, by name of the PC."""
        drains, posix = self._state.drains, self._state.wall.posix(self._state.now)
        return {
            "drains": [
                {"pc": pc, "by": row.by, "left_s": None if row.until is None else max(0.0, row.until - posix)}
                for pc, row in sorted(drains.of.items())
            ]
        }

    def drain(self, args: Json, who: Credential) -> Json:
        """Drain PCs. ``seconds`` None: until somebody undoes it; ``now``: they hand back what runs at once."""
        state, seconds = self._state, args["seconds"]
        pcs = self._chosen(args["pcs"], self._known(), "PC")
        until = None if seconds is None else state.wall.posix(state.now) + seconds
        running = 0
        for pc in pcs:
            state.drains.put(DrainRow(pc, who.name, until))
            state.note("pc-drained", name=pc, who=who.name, **({} if seconds is None else {"for_s": seconds}))
            for session in self._workers.of_pc(pc):
                state.scheduler.handle(ev.WorkerDrained(session.name, True), state.now)
                session.told_drain = bool(args["now"]) or session.told_drain
                if session.told_drain:
                    self._workers.tell_plan(session)
                running += self._busy(session)
        return {"pcs": pcs, "running": running}

    def undo(self, args: Json, who: Credential) -> Json:
        """End drains: these PCs get work again."""
        pcs = self._chosen(args["pcs"], self._state.drains.of, "drained PC")
        for pc in pcs:
            self._state.note("pc-undrained", name=pc, who=who.name)
            self._end(pc)
        return {"pcs": pcs}

    def look(self, now: float) -> None:
        """End the drains that have had their time, and tell the workers on which nothing runs any more."""
        drains = self._state.drains
        for pc in drains.over(self._state.wall.posix(now)):
            self._state.note("pc-undrained", name=pc)
            self._end(pc)
        for pc in drains.of:
            for session in self._workers.of_pc(pc):
                if session.state == "up" and not session.told_drain and not self._busy(session):
                    session.told_drain = True
                    self._workers.tell_plan(session)

    def _end(self, pc: str) -> None:
        self._state.drains.drop(pc)
        for session in self._workers.of_pc(pc):
            session.told_drain = False
            self._state.scheduler.handle(ev.WorkerDrained(session.name, session.ending), self._state.now)
            self._workers.tell_plan(session)

    def _busy(self, session: WorkerSession) -> int:
        """How many slots of a worker run something, or may still run it."""
        up = self._state.scheduler.grid.slots.workers.get(session.name)
        slots = () if up is None else up.slots
        return sum([bool(slot.sent) or slot.copy is not None or slot.owes is not None for slot in slots])

    def _known(self) -> set[str]:
        """The names of all PCs that are known, also of those that are away."""
        store = self._state.credentials
        rows = [] if store is None else store.rows()
        keys = {row.credential.name for row in rows if row.credential.role == "worker" and not row.revoked}
        return {*keys, *self._state.drains.of, *(session.join.name for session in self._workers.by_name.values())}

    @staticmethod
    def _chosen(patterns: list[str], names: Collection[str], what: str) -> list[str]:
        if not patterns:
            raise AskError("name a PC")
        try:
            return chosen(patterns, names, what)
        except ValueError as error:
            raise AskError(str(error)) from error
