"""Which PCs are woken: those whose window is open while work waits, and that are off. Pure.

Rule 1: only PCs are woken whose table in windows.toml says so.
Rule 2: a PC with a worker that is connected is on, whatever its windows say. It is left alone.
Rule 3: the network card of a PC is known from its last introduction, also after a restart of the broker.
"""

from collections.abc import Mapping

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.work.opened import opened

# Seconds between two looks; and until a PC that has not come is woken again: it may take minutes to start.
LOOK_S = 10.0
AGAIN_S = 600.0
# PCs that are woken at one look: a room that starts all at once may blow a fuse.
AT_ONCE = 10


class Waking:
    """``look_at``: when to look again."""

    def __init__(self, state: BrokerState, connected: Mapping[bytes, WorkerSession]) -> None:
        """``connected``: the workers that are connected, by their connections."""
        self._state = state
        self._connected = connected
        self.look_at = 0.0
        self._macs = state.journal.recovery.macs()
        if state.credentials is not None and self._macs:
            # A key may have been revoked just before the broker was killed, or its file removed while it was off.
            let_in = {row.credential.name for row in state.credentials.rows() if not row.revoked}
            self._macs = {pc: mac for pc, mac in self._macs.items() if pc in let_in}
        self._woken: dict[str, float] = {}

    def joined(self, join: wire.Join, who: Credential) -> None:
        """A worker has introduced itself: only a PC with a key is remembered."""
        if who.role == "worker":
            self._woken.pop(who.name, None)
            mac = join.mac
            if mac is not None and mac != self._macs.get(who.name) and self._state.disk.state != "full":
                self._macs[who.name] = mac
                self._state.journal.keep_mac(who.name, mac)

    def let_go(self, pc: str) -> None:
        """The key of a PC was revoked."""
        if self._macs.pop(pc, None) is not None:
            self._state.journal.forget_mac(pc)

    def look(self, now: float) -> None:
        """Wake the PCs that are needed now, some at each look."""
        self.look_at = now + LOOK_S
        state, windows = self._state, self._state.windows_file.content
        if not (windows.wakes and len(state.scheduler.grid.categories)):
            return
        posix, on = state.wall.posix(now), {worker.who.name for worker in self._connected.values()}
        is_open: dict[str, bool] = {}
        due = [
            name
            for name in self._macs
            if name not in on and name not in state.drains.of and now >= self._woken.get(name, -AGAIN_S) + AGAIN_S
        ]
        for name in sorted(due, key=lambda name: (self._woken.get(name, -AGAIN_S), name)):
            if len(state.wakes) >= AT_ONCE:
                break
            address, table = windows.wake_for(name), windows.table_for(name)
            if address is None or table is None:
                continue
            if table not in is_open:
                is_open[table] = opened(table, posix) is not None
            if is_open[table]:
                self._woken[name] = now
                state.wakes.append((self._macs[name], address))
                state.note("pc-woken", name=name, mac=self._macs[name])
