"""PCs with real sessions and processes, and a broker of a few lines that begins gangs on them.

Every message is encoded and decoded on its way, as on the network. The broker is here to be asked, and to do what a
test tells it; the real one has its own tests.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgpack

from deskgrid import wire
from deskgrid.worker.environments.store import WheelStore
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.stage import FileStage
from deskgrid.worker.pc.address import free_port, interface_of
from deskgrid.worker.run.executor import Executor
from deskgrid.worker.run.mpi import Mpi
from deskgrid.worker.run.pool import Accounts
from deskgrid.worker.session import Identity, Session
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import OpenEnded, UptimePlan
from tests.files.fakes import Store
from tests.waiting import eventually

LOCAL = "127.0.0.1"
LEASE_S = 30.0


class Pc:
    """A worker without its socket: ``say`` is called with what it sends, until it is cut off."""

    def __init__(
        self,
        place: Path,
        name: str,
        slots: int,
        wake: Callable[[], None],
        *,
        mpi: Mpi | None,
        plan: UptimePlan | None = None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.place = place / name
        area = self.place / "area"
        area.mkdir(parents=True)
        self.executor = Executor(slots, name, wake, accounts=Accounts(area), mpi=mpi)
        cache, wheels = FileCache(self.place / "cache", 10**9), WheelStore(self.place / "wheels", 10**9)
        self.stage = FileStage(self.executor, cache, area, wake, wheels=wheels)
        identity = Identity(name, f"session-{name}", name, "lab", ("3.11",), slots, address=LOCAL, mpi=mpi is not None)
        self.session = Session(identity, plan or OpenEnded(), self.stage, False, lambda: free_port(LOCAL, None))
        self.opening = 0
        self.joins: list[wire.Join] = []
        self.online = True

    def pids(self) -> set[int]:
        """The processes that it has, killed ones included until they have ended."""
        return {process.pid for process in self.executor.processes}

    def close(self) -> None:
        self.executor.close()
        self.stage.close()


@dataclass
class Gang:
    """One attempt. ``places``: the PC and the slots of each rank."""

    task: int
    places: Sequence[tuple[Pc, Sequence[int]]]
    work: wire.Work
    ready: dict[str, int] = field(default_factory=dict)
    unready: list[str] = field(default_factory=list)
    results: dict[int, wire.RankResult] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    started: bool = False
    # By serial, then rank.
    meetings: dict[int, dict[int, wire.Meet]] = field(default_factory=dict)
    space: dict[str, str] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    heard: dict[int, bytes] = field(default_factory=dict)

    @property
    def pcs(self) -> list[Pc]:
        return list({pc.name: pc for pc, _ in self.places}.values())

    @property
    def ended(self) -> bool:
        return len(self.results) == len(self.places)


class FakeBroker:
    """``starts``: whether it begins a gang as soon as all are ready. ``takes``: whether it confirms results."""

    def __init__(self, place: Path) -> None:
        self.place = place
        # MPICH makes names of shared memory of it, which tests beside this one must not have.
        self.kvs = f"kvs_{uuid4().hex}"
        self.woken = threading.Event()
        self.pcs: list[Pc] = []
        self.gangs: dict[int, Gang] = {}
        self.templates: dict[str, bytes] = {}
        self.store = Store()
        self.beats: list[wire.Heartbeat] = []
        self.left: list[wire.Leave] = []
        self.finished: list[wire.Result] = []
        self.starts = True
        self.takes = True

    def pc(
        self,
        name: str = "pc1",
        slots: int = 1,
        *,
        mpi: bool = False,
        ports: tuple[int, int] | None = None,
        plan: UptimePlan | None = None,
    ) -> Pc:
        """Another PC, which joins in the next turn."""
        how = Mpi(interface_of(LOCAL), ports) if mpi else None
        self.pcs.append(Pc(self.place, name, slots, self.woken.set, mpi=how, plan=plan))
        return self.pcs[-1]

    def say(self, pc: Pc, message: wire.Message) -> None:
        """Send a message, if the connection is there."""
        if pc.online:
            pc.session.receive(wire.decode(wire.encode(message)), read_clocks())

    def cut(self, pc: Pc) -> None:
        """The connection to a PC breaks."""
        pc.online = False
        pc.session.disconnected()

    def connect(self, pc: Pc) -> None:
        """It is there again."""
        pc.online = True
        pc.session.reconnected()

    def turn(self) -> None:
        """Let every PC do what is due, and answer."""
        for pc in self.pcs:
            for message in pc.session.tick(read_clocks()):
                if pc.online:
                    self.hear(pc, wire.decode(wire.encode(message)))

    def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Take turns until something is so."""

        def now() -> bool:
            self.turn()
            return bool(condition())

        assert eventually(now, seconds), [(gang.ready, gang.unready, gang.results) for gang in self.gangs.values()]

    # --- gangs -------------------------------------------------------------------------------------------------------

    def gang(
        self,
        template: bytes,
        payload: bytes,
        *places: tuple[Pc, Sequence[int]],
        lease: float = LEASE_S,
        **options: Any,
    ) -> Gang:
        """Prepare a gang with a rank for each of ``places``."""
        digest, task = hashlib.sha256(template).hexdigest(), len(self.gangs) + 1
        self.templates[digest] = template
        chosen = wire.TaskOptions(ranks=(len(places), len(places)), gang=True, slots=len(places[0][1]), **options)
        work = wire.Work(task, task, places[0][1][0], digest, 10.0, chosen, 0, payload)
        gang = self.gangs[task] = Gang(task, places, work)
        self.until(lambda: all(pc.session.joined for pc in gang.pcs))
        for pc in gang.pcs:
            rows = [wire.RankSlot(rank, slot) for rank, (at, slots) in enumerate(places) if at is pc for slot in slots]
            here = (work._replace(slot=rows[0].slot),)
            self.say(pc, wire.PrepareRanks(pc.opening, lease, len(places), tuple(rows), here))
        return gang

    def start(self, gang: Gang, *pcs: Pc) -> None:
        """Begin a gang, on some of its PCs or on all."""
        gang.started = True
        hosts = (LOCAL,) * len(gang.places)
        port = gang.ready[gang.places[0][0].name]
        for pc in pcs or gang.pcs:
            self.say(pc, wire.StartRanks(gang.task, gang.task, hosts, port))

    def stop(self, gang: Gang) -> None:
        """End a gang."""
        for pc in gang.pcs:
            self.say(pc, wire.Stop((wire.Ref(gang.task, gang.task),)))

    def ran(self, gang: Gang, seconds: float = 20.0) -> list[wire.RankResult]:
        """The results of all ranks, once all have ended."""
        self.until(lambda: gang.ended, seconds)
        return [gang.results[rank] for rank in range(len(gang.places))]

    # --- what PCs say ------------------------------------------------------------------------------------------------

    def hear(self, pc: Pc, message: wire.Message) -> None:
        match message:
            case wire.Join():
                pc.opening = message.opening
                pc.joins.append(message)
                self.say(pc, wire.Welcome(wire.VERSION, "broker", pc.name, 60.0, 60.0, None, 1e6))
            case wire.Heartbeat():
                self.beats.append(message)
            case wire.Leave():
                self.left.append(message)
            case wire.Fetch(digest=digest):
                self.say(pc, wire.Blob(digest, self.templates[digest]))
            case wire.Finished(results=rows):
                self.finished += rows
                self.say(pc, wire.Taken(tuple(wire.Ref(row.task, row.number) for row in rows)))
            case wire.Returned(attempts=refs):
                for gang in [self.gangs[ref.task] for ref in refs if ref.task in self.gangs]:
                    gang.returned.append(pc.name)
            case wire.Want() | wire.Offer() | wire.Part() | wire.Claim():
                self.say(pc, self.store.answer(message))
            case _:
                self._hear_of_ranks(pc, message)

    def _hear_of_ranks(self, pc: Pc, message: wire.Message) -> None:
        match message:
            case wire.RanksReady() | wire.RanksUnready():
                self._ready(pc, message)
            case wire.RanksEnded(results=rows):
                self._ended(pc, rows)
            case wire.Meet():
                self._meet(message)
            case wire.PmiBytes():
                self._pmi(message)
            case _:
                assert isinstance(message, wire.Prepared), f"unforeseen: {message!r:.200}"

    def _ready(self, pc: Pc, message: wire.RanksReady | wire.RanksUnready) -> None:
        gang = self.gangs[message.task]
        if isinstance(message, wire.RanksUnready):
            gang.unready.append(message.reason)
            return
        gang.ready[pc.name] = message.port
        if self.starts and len(gang.ready) == len(gang.pcs) and not gang.started:
            self.start(gang)

    def _ended(self, pc: Pc, rows: Sequence[wire.RankResult]) -> None:
        for row in rows:
            self.gangs[row.task].results[row.rank] = row
        if self.takes:
            self.say(pc, wire.RanksTaken(tuple(wire.RankRef(row.task, row.number, row.rank) for row in rows)))

    def _meet(self, message: wire.Meet) -> None:
        gang = self.gangs[message.task]
        here = gang.meetings.setdefault(message.serial, {})
        if not message.overdue:
            here[message.rank] = message
        missing = [rank for rank in range(len(gang.places)) if rank not in here]
        reason = f"rank {missing[0]} ({gang.places[missing[0]][0].name}) did not come" if missing else ""
        if missing and not message.overdue:
            return
        values = b"" if not message.gathers or missing else msgpack.packb([here[rank].data for rank in sorted(here)])
        for pc in gang.pcs:
            self.say(pc, wire.Met(message.task, message.number, message.serial, reason, values))

    # --- PMI-1, as in MPICH's "PMI-1 wire protocol" -------------------------------------------------------------------

    def _pmi(self, message: wire.PmiBytes) -> None:
        gang, rank = self.gangs[message.task], message.rank
        heard = gang.heard.get(rank, b"")
        gang.heard[rank] = heard = heard[: message.start] + message.data
        if heard.endswith(b"\n"):
            line = heard.rstrip(b"\n").rpartition(b"\n")[2].decode()
            self._answer(gang, rank, dict(word.split("=", 1) for word in line.split()))

    def _answer(self, gang: Gang, rank: int, said: dict[str, str]) -> None:
        size = len(gang.places)
        match said["cmd"]:
            case "init":
                self._tell(gang, rank, "response_to_init pmi_version=1 pmi_subversion=1 rc=0")
            case "get_maxes":
                self._tell(gang, rank, "maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0")
            case "get_appnum":
                self._tell(gang, rank, "appnum appnum=0 rc=0")
            case "get_my_kvsname":
                self._tell(gang, rank, f"my_kvsname kvsname={self.kvs} rc=0")
            case "get_universe_size":
                self._tell(gang, rank, f"universe_size size={size} rc=0")
            case "put":
                gang.space[said["key"]] = said["value"]
                self._tell(gang, rank, "put_result rc=0 msg=success")
            case "get":
                found = {"PMI_process_mapping": self._mapping(gang)} | gang.space
                answer = f"rc=0 value={found[said['key']]}" if said["key"] in found else "rc=-1 msg=key_not_found"
                self._tell(gang, rank, f"get_result {answer}")
            case "barrier_in":
                gang.waiting[rank] = 1
                if len(gang.waiting) == size:
                    gang.waiting.clear()
                    for each in range(size):
                        self._tell(gang, each, "barrier_out rc=0")
            case "finalize":
                self._tell(gang, rank, "finalize_ack rc=0")

    @staticmethod
    def _mapping(gang: Gang) -> str:
        counts = [sum(at is pc for at, _ in gang.places) for pc in gang.pcs]
        return f"(vector,{','.join(f'({place},1,{count})' for place, count in enumerate(counts))})"

    def _tell(self, gang: Gang, rank: int, text: str) -> None:
        start = len(gang.heard[rank])
        self.say(gang.places[rank][0], wire.PmiBytes(gang.task, gang.task, rank, start, f"cmd={text}\n".encode()))


@contextmanager
def fake_broker(place: Path) -> Iterator[FakeBroker]:
    """A broker; afterwards all its PCs have ended."""
    broker = FakeBroker(place)
    try:
        yield broker
    finally:
        for pc in broker.pcs:
            pc.close()
