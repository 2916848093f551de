"""Invariants of every run, checked at every send, every commit and every answer, and again at the end.

The witness keeps records of its own, only from the messages and the journal's rows, so that it does not share the
broker's mistakes.
"""

from collections import Counter

import msgpack

from deskgrid import wire
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.result_blocks import recorded
from deskgrid.broker.work.attempts import REMEMBERED_S
from deskgrid.scheduler.core import CRASH_LIMIT
from tests.broker.records import bytes_in
from tests.grid.environments import EnvironmentBook
from tests.grid.fakes import Executions
from tests.grid.holdings import Holdings
from tests.grid.tasks import Task, answer_of, task_of

NOBODY = 0  # the attempt number of a cancelled task's row


class Broken(AssertionError):
    """An invariant does not hold."""


def expect(holds: bool, what: str, *values: object) -> None:
    """Raise `Broken` unless it holds; ``what`` is a format for ``values``."""
    if not holds:
        raise Broken(what.format(*values))


class Witness:
    """The books of one run."""

    def __init__(self) -> None:
        self.executions = Executions()
        self.holdings = Holdings()
        self.environments = EnvironmentBook()
        self.tasks: dict[tuple[str, int], Task] = {}
        self.timeouts: dict[str, float | None] = {}
        # Bags whose tasks may be cancelled: somebody has asked for it.
        self.cancelled: set[str] = set()
        # Bags that may be forgotten: what was told or recorded of them no longer counts.
        self.forgotten: set[str] = set()
        # How many items of each bag a client was told are accepted.
        self.told: dict[str, int] = {}
        # Rows of the journal as they were when first committed: (task, outcome, number, payload) by (bag, item).
        self.recorded: dict[tuple[str, int], tuple[int, int, int, bytes]] = {}
        self.newest: dict[int, int] = {}
        # Tasks that may have two attempts at once. Either may count, and either may be stopped.
        self.copied: set[int] = set()
        # How many ranks the newest attempt of each parallel task has.
        self.sizes: dict[int, int] = {}
        # How many results came in each message.
        self.deliveries: list[int] = []
        # How many messages of each kind the broker has sent.
        self.said: Counter[type[wire.Message]] = Counter()
        # Attempts of this life of the broker that were done when they were the newest, and over which connection it was
        # said: they have to count.
        self._due: dict[tuple[int, int], bytes] = {}
        self._where: dict[int, tuple[str, int]] = {}
        self._submits: dict[tuple[bytes, int], tuple[str, int]] = {}
        self._seen = 0

    # --- what the broker gets and sends ------------------------------------------------------------------------------

    def received(self, peer: bytes, message: wire.Message, now: float, lease_s: float) -> None:
        """A message reached the broker."""
        self.holdings.received(peer, message, now, lease_s)
        if isinstance(message, wire.Submit):
            self._submits[peer, message.request] = (message.bag, message.first + len(message.payloads))
        elif isinstance(message, wire.Finished):
            self.deliveries.append(len(message.results))
            done = {(row.task, row.number) for row in message.results if row.outcome == wire.Outcome.DONE}
            held = {attempt for attempt in done if self.holdings.holds(peer, *attempt)}
            self._due |= {attempt: peer for attempt in held if attempt[0] not in self.copied}
        elif isinstance(message, wire.Join | wire.Prepared):
            self.environments.heard(peer, message)

    def sent(self, peer: bytes, message: wire.Message, uncommitted: bool, now: float, lease_s: float) -> None:
        """The broker sends a message."""
        # What is no message is refused at once; that says nothing of what was accepted. Work is given at once, unless a
        # restart is to remember it. A part of a file is known by its digest, and right whatever becomes of the journal.
        short = isinstance(message, wire.Assign) and all(work.runtime < REMEMBERED_S for work in message.work)
        may_be_lost = wire.Refused | wire.Blob | wire.Checkpoint | wire.PrepareRanks | wire.Part
        early = uncommitted and not short and not isinstance(message, may_be_lost)
        expect(not early, "{} is sent before the journal is committed", type(message).__name__)
        self.said[type(message)] += 1
        if isinstance(message, wire.Assign):
            for work in message.work:
                self._assigned(peer, work)
                self.sizes.pop(work.task, None)  # the number was of a gang whose submission a crash undid
                if work.options.copies:
                    self.copied.add(work.task)
                wrong = self.holdings.given(peer, work, now, lease_s)
                expect(not wrong, "{}", wrong)
        elif isinstance(message, wire.PrepareRanks):
            (work,) = message.work
            if self.newest.get(work.task) != work.number:
                self._assigned(peer, work)
                self.sizes[work.task] = message.size
            expect(self.sizes[work.task] == message.size, "a gang of {} is one of {}", self.sizes, message.size)
        elif isinstance(message, wire.Prepare):
            self.environments.told(message)
        elif isinstance(message, wire.Taken):
            self._taken(message)
        elif isinstance(message, wire.Rejoin):
            self.holdings.lost_touch(peer)
            # Of a worker that was lost nothing is read until it is in again: by then others may have its tasks.
            self._due = {attempt: by for attempt, by in self._due.items() if by != peer}
        elif isinstance(message, wire.Accepted):
            self._accepted(peer, message.request)
        elif isinstance(message, wire.Outcomes):
            for request in message.receipts:
                self._accepted(peer, request)

    def _accepted(self, peer: bytes, request: int) -> None:
        bag, total = self._submits[peer, request]
        self.told[bag] = max(total, self.told.get(bag, 0))

    def _taken(self, message: wire.Taken) -> None:
        for ref in message.attempts:
            if self._due.pop((ref.task, ref.number), None) is not None:
                place = self._where[ref.task]
                gone = place[0] in self.cancelled or place[0] in self.forgotten
                expect(
                    gone or place in self.recorded, "{} was done by its newest attempt, and that did not count", place
                )

    def _assigned(self, peer: bytes, work: wire.Work) -> None:
        task = task_of(bytes(work.payload))
        place = (task.bag, task.item)
        expect(self.tasks.get(place) == task, "task {} carries the payload of {}, changed", work.task, place)
        expect(work.number > self.newest.get(work.task, -1), "attempt {} of task {} is not new", work.number, work.task)
        expect(place not in self.recorded, "{} has ended and is assigned again", place)
        wrong = self.environments.wrong(peer, task.bag, work.environment)
        expect(not wrong, "{}", wrong)
        self.newest[work.task] = work.number
        self._where[work.task] = place

    # --- what the broker holds ---------------------------------------------------------------------------------------

    def settled(self, sessions: Sessions, now: float) -> None:
        """The broker has decided: does it agree with itself?"""
        scheduler = sessions.state.scheduler
        scheduler.check(now)
        up = {name for name, worker in sessions.workers.by_name.items() if worker.state == "up"}
        expect(
            up == set(scheduler.grid.slots.workers),
            "up are {}, with slots {}",
            up,
            set(scheduler.grid.slots.workers),
        )
        for peer, worker in sessions.workers.by_peer.items():
            known = sessions.workers.by_name.get(worker.name) is worker and worker.peer == peer
            expect(known, "connection {} is of {}, who is not there", peer, worker.name)
        for number, bag in sessions.state.book.by_number.items():
            counted = scheduler.grid.tasks.bags[number]
            held = (bag.settled, bag.total)
            expect(held == (counted.settled, counted.total), "bag {}: {} settled of {}", bag.row.id, *held)

    def committed(self, journal: Journal) -> None:
        """The journal took a transaction: look at the results that are new."""
        ids = {bag.number: bag.id for bag in journal.recovery.bags()}
        for seq, row in recorded(journal.db, bytes_in, self._seen):
            self._seen = seq
            if row.bag not in ids:
                continue  # its bag was forgotten in the same transaction
            place = (ids[row.bag], row.item)
            expect(place not in self.recorded, "{} is recorded twice", place)
            self.recorded[place] = (row.task, row.outcome, row.number, bytes_in(row.payload))
            self._judge(place, row.worker)

    def _judge(self, place: tuple[str, int], worker: str) -> None:
        task, outcome, number, payload = self.recorded[place]
        if outcome == wire.Outcome.CANCELLED:
            expect(place[0] in self.cancelled, "{} is recorded as cancelled, and nobody asked for it", place)
            return
        expect(self._where.get(task) == place, "the answer of {} is recorded for {}", self._where.get(task), place)
        counts = number == self.newest[task] or task in self.copied
        expect(counts, "{}: recorded {}, newest is {}", place, number, self.newest[task])
        if task in self.sizes:
            self._judge_gang(place, worker)
            return
        ran = self.executions.answers.get((task, number))
        expect(ran is not None, "{}: attempt {} of task {} never ended anywhere", place, number, task)
        assert ran is not None
        expect(ran[0] == outcome, "{}: recorded is not how the PC said that it ended", place)
        expect(_without_places(payload, outcome) == ran[1], "{}: recorded is not what the PC answered", place)
        expect(worker.split("~")[0] == ran[2], "{}: recorded for {}, but ran on {}", place, worker, ran[2])
        self._expect_end(self.tasks[place], wire.Outcome(outcome))

    def _judge_gang(self, place: tuple[str, int], worker: str) -> None:
        """The result of a gang is those of all its ranks, or the failure of one of them."""
        task, outcome, number, payload = self.recorded[place]
        answers = self.executions.of_ranks.answers
        found = [answers.get((task, number, rank)) for rank in range(self.sizes[task])]
        if outcome == wire.Outcome.DONE:
            said = [None if answer is None else answer[:2] for answer in found]
            expected = [(wire.Outcome.DONE, part) for part in wire.split_ranks(payload) or ()]
            expect(said == expected, "{}: its ranks said {}, and recorded is {}", place, said, expected)
        else:
            failure = wire.read_failure(payload)
            answer = None if failure.rank is None else found[failure.rank]
            expect(answer is not None, "{}: recorded is a failure of rank {}, which never ended", place, failure.rank)
            assert answer is not None
            where = f"rank {failure.rank} of {self.sizes[task]} on {worker}: "
            right = answer[0] == outcome and worker.split("~")[0] == answer[2] and failure.message.startswith(where)
            expect(right, "{}: recorded is {} on {}, and its rank said {}", place, failure.message, worker, answer)
        self._expect_end(self.tasks[place], wire.Outcome(outcome))

    def _expect_end(self, task: Task, outcome: wire.Outcome) -> None:
        timeout = self.timeouts[task.bag]
        right = wire.Outcome.DONE
        if timeout is not None and task.seconds >= timeout:
            right = wire.Outcome.TIMEOUT
        elif task.fate == "raise":
            right = wire.Outcome.ERROR
        elif task.fate == "crash" and task.times >= CRASH_LIMIT:
            # The broker counts anew when it was restarted: then a task may get beyond its crashes.
            survived = self.executions.crashed[task.bag, task.item] == task.times
            right = outcome if survived and outcome == wire.Outcome.DONE else wire.Outcome.CRASH
        expect(outcome == right, "{} ended as {}, not {}", task, outcome.name, right.name)

    def restarted(self, journal: Journal) -> None:
        """A new broker opened the journal: all that was committed and told is there."""
        self.holdings.forget_all()
        self.environments.forget_all()
        self._due.clear()
        db, ids = journal.db, {bag.number: bag.id for bag in journal.recovery.bags()}
        # Of a bag that was forgotten some may still be there.
        found = [row for _, row in recorded(db, bytes_in) if row.bag in ids]
        rows = {(ids[row.bag], row.item): (row.task, row.outcome, row.number, row.payload) for row in found}
        expect(len(rows) == len(found), "of {} results some are of one task", len(found))
        for place, row in self.recorded.items():
            if place[0] not in self.forgotten:
                expect(rows.get(place) == row, "{} was recorded as {}, and is {}", place, row, rows.get(place))
        query = "SELECT id, sum(count) FROM batches JOIN bags ON bag = number GROUP BY id"
        totals = dict(db.execute(query).fetchall())
        for bag, told in self.told.items():
            if bag not in self.forgotten:
                expect(totals.get(bag, 0) >= told, "bag {}: told {}, found {}", bag, told, totals.get(bag, 0))

    # --- what clients see --------------------------------------------------------------------------------------------

    def seen(self, bag: str, row: wire.BagResult) -> None:
        """A client was given a result."""
        found = self.recorded.get((bag, row.item))
        expect(found is not None, "a client sees item {} of {}, which is not recorded", row.item, bag)
        assert found is not None
        _, outcome, number, payload = found
        expect((row.outcome, row.payload) == (outcome, payload), "item {} of {}: not what is recorded", row.item, bag)
        if outcome != wire.Outcome.CANCELLED and found[0] not in self.sizes:
            answer = answer_of(self.tasks[bag, row.item], number, wire.Outcome(outcome))
            expect(_without_places(payload, outcome) == answer, "item {} of {}: the wrong answer", row.item, bag)

    # --- the end -----------------------------------------------------------------------------------------------------

    def everything_ended(self) -> None:
        """Each accepted task has its one row."""
        for bag, total in self.told.items():
            if bag in self.cancelled & self.forgotten:
                continue  # both may have happened in one transaction, which leaves no trace
            missing = [item for item in range(total) if (bag, item) not in self.recorded]
            expect(not missing, "items {} of bag {} were accepted and never ended", missing, bag)

    def files_of_forgotten(self, sessions: Sessions) -> list[str]:
        """Bags that were forgotten, and whose files are still there."""
        rows = sessions.state.journal.db.execute("SELECT bag FROM holders").fetchall()
        return [bag for (bag,) in rows if bag in self.forgotten]

    @staticmethod
    def nothing_left(sessions: Sessions) -> None:
        """Every bag was forgotten: the broker holds nothing of any."""
        state, scheduler = sessions.state, sessions.state.scheduler
        left: dict[str, object] = {
            "bags": state.book.by_id or state.book.by_number or state.book._where or state.book._firsts,
            "news": state.fresh or state.pending or state._work or state._words,
            "tasks": list(scheduler.grid.tasks.each()) or scheduler.grid.tasks.bags,
            "failures": scheduler.grid.tasks._errors or scheduler.grid.tasks._crashes,
            "bound": scheduler.grid.bound or scheduler.grid.lost,
            "waiting": len(scheduler.grid.categories),
            "progress": list(scheduler.grid.tasks.progress),
            "gangs": scheduler.grid.gangs.running or len(sessions.workers.attempts.gangs.table),
        }
        for table in (
            "bags",
            "batches",
            "results",
            "sent",
            "checkpoints",
            "gangs",
            "ranks",
            "gang_lines",
        ):  # unused templates go with the next bag that is forgotten
            left[f"journal: {table}"] = state.journal.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for what, held in left.items():
            expect(not held, "all bags are forgotten, and the broker still holds {}: {}", what, held)


def _without_places(payload: bytes, outcome: int) -> bytes:
    """What the PC said of a crash, without what the broker adds: on which PCs the task has crashed."""
    if outcome != wire.Outcome.CRASH:
        return payload
    kind, message, trace, pickled = msgpack.unpackb(payload)
    return wire.Failure(kind, message.partition(" (crashed ")[0], trace, pickled).packed()
