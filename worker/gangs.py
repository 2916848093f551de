"""The ranks of gangs at a worker: prepared, begun together with those elsewhere, and ended as one.

Rule 1: slots are held for ranks that have not begun for no longer than their lease.
Rule 2: ranks that have begun go on while the broker is away. What they said and had no answer to, and how they ended,
is said again on each new connection.
Rule 3: the broker decides when a gang ends. A worker that has several ranks of it waits for `Stop`, too.
Rule 4: what ranks have printed that are stopped is sent as that of ranks that end, with the outcome DEPARTED.

Pure: ``now`` is monotonic seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deskgrid import wire
from deskgrid.worker.deliveries import Deliveries
from deskgrid.worker.run.jobs import (
    GangStart,
    JobEnded,
    PrintedOutput,
    Program,
    RankEnded,
    RankJob,
    RankKey,
    RankMeets,
    RankReady,
    RankRefused,
    RankReport,
    RankSaid,
    RankStopped,
)
from deskgrid.worker.templates import Templates

AttemptKey = tuple[int, int]


class RunsRanks(Protocol):
    """The part of `deskgrid.worker.run.ranks.Ranks` that this needs."""

    def prepare(self, job: RankJob) -> None: ...
    def begin(self, key: RankKey, gang: GangStart, now: float) -> None: ...
    def poll(self, now: float) -> list[RankReport]: ...
    def running(self, now: float) -> dict[RankKey, float]: ...
    def stop(self, task: int, number: int, now: float) -> list[RankStopped]: ...
    def met(self, key: RankKey, serial: int, reason: str, values: wire.Payload) -> None: ...
    def pmi(self, key: RankKey, data: bytes, now: float) -> None: ...
    def shown(self, key: RankKey, stdout: int, stderr: int, most: int) -> PrintedOutput | None: ...


@dataclass(slots=True)
class _GangRank:
    """``slots``: that it occupies. ``meets``: what it said about a meeting and has no answer to.

    ``said``: its last bytes to the process manager, which have no answer; ``before``: how many went before them.
    """

    slots: list[int]
    ready: bool = False
    meets: list[wire.Meet] = field(default_factory=list)
    said: bytes = b""
    before: int = 0


@dataclass(slots=True)
class _LocalRanks:
    """The ranks of one attempt here that have not ended, by number. ``until``: when its lease ends."""

    work: wire.Work
    size: int
    until: float
    ranks: dict[int, _GangRank]
    prepared: bool = False
    begun: bool = False

    @property
    def key(self) -> AttemptKey:
        return self.work.task, self.work.number

    @property
    def ready(self) -> bool:
        return all(rank.ready for rank in self.ranks.values())

    def job(self, number: int) -> RankJob:
        work, slots = self.work, self.ranks[number].slots
        return RankJob(
            work.task,
            work.number,
            number,
            self.size,
            slots[0],
            len(slots),
            work.template,
            work.payload,
            work.options,
            work.environment or "",
            Program(work.owner, work.program or ""),
        )


class WorkerGangs:
    """``out``: where messages are put. ``free_port``: finds a port of this PC for a gang whose rank 0 is here."""

    def __init__(
        self, runs: RunsRanks, templates: Templates, free_port: Callable[[], int], out: list[wire.Message]
    ) -> None:
        self._runs = runs
        self._templates = templates
        self._free_port = free_port
        self._out = out
        # Why no ranks begin here at the moment; empty: they may.
        self._paused = ""
        self._parts: dict[AttemptKey, _LocalRanks] = {}
        # The port that was said for each attempt that is ready.
        self._ports: dict[AttemptKey, int] = {}
        self._results = Deliveries[wire.RankResult](lambda row: (row.task, row.number, row.rank), wire.RanksEnded)

    @property
    def occupied(self) -> set[int]:
        """The slots that ranks have."""
        return {slot for part in self._parts.values() for rank in part.ranks.values() for slot in rank.slots}

    @property
    def unwritten(self) -> int:
        """The number of results that the broker has not confirmed."""
        return len(self._results.unwritten)

    @property
    def idle(self) -> bool:
        """Whether there are no ranks here."""
        return not self._parts

    def next_lease(self, now: float) -> float:
        """Return the seconds until a lease may end."""
        return min((part.until - now for part in self._parts.values() if not part.begun), default=float("inf"))

    # --- what the broker says ----------------------------------------------------------------------------------------

    def receive(self, message: wire.Message, now: float) -> None:
        """Handle a message about ranks."""
        match message:
            case wire.StartRanks():
                self._begin(message, now)
            case wire.Met():
                self._met(message)
            case wire.PmiBytes():
                self._hear(message, now)
            case wire.RanksTaken(ranks=ranks):
                self._out += self._results.taken([tuple(ref) for ref in ranks])

    def prepare(self, message: wire.PrepareRanks, busy: Callable[[int], bool], now: float) -> None:
        """Get ranks ready. ``busy``: whether a slot runs something."""
        if not message.work or not message.ranks:
            return
        (work,) = message.work
        part = _LocalRanks(work, message.size, now + message.lease, {})
        for number, slot in message.ranks:
            part.ranks.setdefault(number, _GangRank([])).slots.append(slot)
        occupied = self.occupied
        if part.key in self._parts:
            return  # it came twice
        if self._paused:
            self._refuse(part, self._paused)
            return
        if taken := [slot for _, slot in message.ranks if slot in occupied or busy(slot)]:
            self._refuse(part, f"slot {taken[0]} of this worker is not free")
            return
        self._parts[part.key] = part

    def _begin(self, message: wire.StartRanks, now: float) -> None:
        part = self._parts.get((message.task, message.number))
        if part is None or part.begun or not part.ready or len(message.hosts) != part.size:
            return
        part.begun = True
        gang = GangStart(message.hosts, message.port, tuple(sorted(part.ranks)))
        for number in gang.local:
            self._runs.begin((*part.key, number), gang, now)

    def _met(self, message: wire.Met) -> None:
        part = self._parts.get((message.task, message.number))
        for number, rank in part.ranks.items() if part is not None else ():
            if any(meet.serial == message.serial for meet in rank.meets):
                rank.meets.clear()
                self._runs.met((message.task, message.number, number), message.serial, message.reason, message.values)

    def _hear(self, message: wire.PmiBytes, now: float) -> None:
        """Pass on what the process manager answers to a rank, but nothing twice: ``start`` says to what."""
        part = self._parts.get((message.task, message.number))
        rank = None if part is None else part.ranks.get(message.rank)
        if rank is not None and rank.before < message.start <= rank.before + len(rank.said):
            rank.said = rank.said[message.start - rank.before :]
            rank.before = message.start
            self._runs.pmi((message.task, message.number, message.rank), message.data, now)

    def stop(self, stop: wire.Stop, now: float) -> None:
        """End ranks, or give up their slots. Whoever calls this confirms it."""
        for ref in stop.attempts:
            if (ref.task, ref.number) in self._parts:
                self.collect(now)
                self._drop((ref.task, ref.number), now)

    def pause(self, why: str, now: float) -> None:
        """Begin no ranks from now on, because of ``why``; empty: begin them again. Those that have begun stay."""
        self._paused = why
        for part in [part for part in self._parts.values() if why and not part.begun]:
            self._drop(part.key, now)
            self._refuse(part, why)

    # --- what happens here -------------------------------------------------------------------------------------------

    def feed(self, now: float) -> None:
        """Prepare the ranks whose template is here; give up those whose lease is over."""
        for part in list(self._parts.values()):
            if part.begun:
                continue
            if now >= part.until:
                self._drop(part.key, now)
                self._refuse(part, "its lease is over: nobody said in time that it begins")
            elif not part.prepared and (failure := self._templates.failure(part.work.template)) is not None:
                self._fail(part, *failure, now)
            elif not part.prepared:
                missing = self._templates.missing(part.work.template)
                self._out += missing or []
                if missing is None:
                    part.prepared = True
                    for number in part.ranks:
                        self._runs.prepare(part.job(number))

    def collect(self, now: float) -> None:
        """Send what has happened to the ranks."""
        for report in self._runs.poll(now):
            key = report.key[:2]
            part = self._parts.get(key)
            rank = None if part is None else part.ranks.get(report.key[2])
            if part is None or rank is None:
                continue
            match report:
                case RankReady():
                    rank.ready = True
                    if part.ready:
                        self._ports[key] = self._free_port() if 0 in part.ranks else 0
                        self._tell_ready(part)
                case RankRefused(reason=reason):
                    self._drop(key, now)
                    self._refuse(part, reason)
                case RankEnded(ended=ended):
                    self._end(part, report.key[2], ended)
                case RankSaid(what=bytes() as data):
                    self._out += _pmi_bytes(report.key, rank.before + len(rank.said), data)
                    rank.said += data
                case RankSaid(what=RankMeets() as meets):
                    _, _, serial, gathers, overdue, value = meets
                    rank.meets.append(wire.Meet(*report.key, serial, gathers, overdue, value))
                    self._out.append(rank.meets[-1])

    def _tell_ready(self, part: _LocalRanks) -> None:
        self._out.append(wire.RanksReady(*part.key, self._ports[part.key]))

    def _refuse(self, part: _LocalRanks, reason: str) -> None:
        self._out.append(wire.RanksUnready(*part.key, reason))

    def _fail(self, part: _LocalRanks, outcome: wire.Outcome, kind: str, reason: str, now: float) -> None:
        """End an attempt whose template cannot be used."""
        if outcome is not wire.Outcome.ERROR:  # this PC is to blame
            self._drop(part.key, now)
            self._refuse(part, reason)
            return
        payload = wire.Failure(kind, reason).packed()
        number = min(part.ranks)
        slot = part.ranks[number].slots[0]
        self._end(part, number, JobEnded(slot, *part.key, outcome, 0.0, payload, b"", b""))
        self._drop(part.key, now)

    def _end(self, part: _LocalRanks, number: int, ended: JobEnded) -> None:
        """Send the result of a rank."""
        rank = part.ranks.pop(number)
        if not part.ranks:
            self._forget(part.key)
        result = wire.RankResult(
            *part.key, int(ended.outcome), ended.elapsed, ended.payload, ended.stdout, ended.stderr, number
        )
        self._deliver(rank.slots[0], result)

    def _deliver(self, slot: int, result: wire.RankResult) -> None:
        self._results.keep(slot, result)
        self._out += self._results.send([result])

    def _drop(self, key: AttemptKey, now: float) -> None:
        """Stop the ranks of an attempt here; send what they have printed."""
        part = self._parts.get(key)
        self._forget(key)
        for (*_, number), elapsed, stdout, stderr in self._runs.stop(*key, now):
            if part is not None and number in part.ranks and (stdout or stderr):
                said = wire.RankResult(*key, int(wire.Outcome.DEPARTED), elapsed, b"", stdout, stderr, number)
                self._deliver(part.ranks[number].slots[0], said)

    def _forget(self, key: AttemptKey) -> None:
        self._parts.pop(key, None)
        self._ports.pop(key, None)

    # --- what the worker holds ---------------------------------------------------------------------------------------

    def held(self, now: float) -> Iterator[wire.Running]:
        """Yield every rank here."""
        elapsed = self._runs.running(now)
        for key, part in self._parts.items():
            for number, rank in part.ranks.items():
                seconds = elapsed.get((*key, number), 0.0) if part.begun else None
                yield wire.Running(*key, rank.slots[0], seconds, number)

    def ended(self) -> Iterator[wire.Running]:
        """Yield the ranks whose results follow."""
        for slot, row in self._results.unwritten.values():
            if row.outcome == wire.Outcome.DEPARTED:
                continue  # it was stopped
            yield wire.Running(row.task, row.number, slot, row.elapsed, row.rank)

    def take_all_back(self, now: float) -> list[wire.Running]:
        """Stop all ranks; return what was held."""
        held = list(self.held(now))
        for key in list(self._parts):
            self._drop(key, now)
        return held

    def deliver_all(self) -> None:
        """Send every result again that the broker has not confirmed, on a new connection."""
        self._out += self._results.send(self._results.reconnected())

    def reconnected(self) -> None:
        """The broker knows this worker again: say again what may have been lost with the last connection."""
        for key, part in self._parts.items():
            if key in self._ports and not part.begun:
                self._tell_ready(part)
            for number, rank in part.ranks.items():
                self._out += rank.meets
                self._out += _pmi_bytes((*key, number), rank.before, rank.said)


def _pmi_bytes(key: RankKey, start: int, data: bytes) -> Sequence[wire.Message]:
    """What a rank says to its process manager, in messages."""
    size = wire.PMI_BYTES
    return [wire.PmiBytes(*key, start + place, data[place : place + size]) for place in range(0, len(data), size)]
