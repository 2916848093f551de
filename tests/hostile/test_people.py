"""What people may ask of their bags, beside PCs that answer as they like and a broker that is killed."""

import random
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.broker.model.home_files import LICENCES
from deskgrid.scheduler.placing.copying import AGAIN_S
from tests.broker.office import LEASE_S, Office, OfficeLine
from tests.counting import COUNTS
from tests.hostile.forging import account
from tests.hostile.lab import Lab
from tests.peers import BareWorker, Client

# Licences of the grid, and how many steps a run has in which they are asked for.
TOTAL, STEPS = 3, 150
RUNTIME = 50.0
LICENSED = wire.TaskOptions(licences=("lic=1",), retries=3)
Attempt = tuple[int, int]


# --- copies ----------------------------------------------------------------------------------------------------------


def test_whatever_a_pc_answers_for_a_copy_but_its_result_the_original_counts(tmp_path: Path) -> None:
    office = Office(tmp_path)
    bag = office.client().submit([b"0"], runtime=RUNTIME, options=wire.TaskOptions(copies=True))
    honest, liar = office.worker("honest"), office.worker("liar")
    honest.join()
    (original,) = honest.work()
    liar.join()
    office.wait(1.6 * RUNTIME, honest, liar)
    (copy,) = liar.work()
    task, number = copy.task, copy.number
    told = wire.payload_of(account("E", "e", "", b""))
    for claimed in (original.number, number + 1, number + 10**6, 0):
        liar.finish(copy._replace(number=claimed), payload=b"forged")
        liar.send(wire.Returned((wire.Ref(task, claimed),)))
    liar.send(wire.Saved(task, number, 1, 0.99, 1.0, 0.0, 0, 18, b"not checkpointable"))
    for outcome in (wire.Outcome.ERROR, wire.Outcome.CRASH, wire.Outcome.DONE):
        liar.send(wire.Finished((wire.Result(task, number, int(outcome), 1.0, told, b"", b""),)))
        office.settle()
    office.sessions.state.scheduler.check(office.now)
    row = office.client().ask("progress", bag=bag)
    assert (row["done"], row["failed"], row["running"]) == (0, 0, 1)
    honest.finish(original, payload=b"mine")
    (result,) = office.client().results(bag)
    assert (result.outcome, bytes(result.payload), result.worker) == (0, b"mine", "honest")
    office.close()


def test_a_copy_that_gives_way_again_and_again_is_not_started_too_often_and_leaves_no_trace(tmp_path: Path) -> None:
    office, times = Office(tmp_path), 60
    client = office.client()
    tail = client.submit([b"0"], runtime=RUNTIME, options=wire.TaskOptions(copies=True))
    slow, other = office.worker("slow"), office.worker("other")
    slow.join()
    (original,) = slow.work()
    other.join()
    office.wait(1.6 * RUNTIME, slow, other)
    old = list[wire.Work]()
    for _ in range(times):
        old += other.work()
        short = client.submit([b"1"], runtime=1.0)
        assert other.expect(wire.Stop).attempts == (wire.Ref(old[-1].task, old[-1].number),)
        (work,) = other.work()
        other.finish(*old[:-1], payload=b"late")  # it goes on with what it was told to stop
        other.finish(work)
        client.ask("forget", bag=short)
        office.wait(1.0, slow, other)
        assert not taken_by(other), "copies are started again and again"
        office.wait(AGAIN_S, slow, other)
        office.sessions.state.scheduler.check(office.now)
    rows = office.journal.db.execute("SELECT count(*) FROM copies").fetchone()
    assert rows[0] <= 1
    assert client.ask("progress", bag=tail)["done"] == 0
    slow.finish(original, payload=b"mine")
    (result,) = client.results(tail)
    assert bytes(result.payload) == b"mine"
    office.close()


# --- licences --------------------------------------------------------------------------------------------------------


def test_a_licence_of_a_cancelled_task_is_free_when_its_pc_has_stopped_it_or_its_lease_is_over(
    tmp_path: Path,
) -> None:
    (tmp_path / LICENCES).write_text("lic = 1\n")
    office = Office(tmp_path)
    office.sessions.home_watch.look(office.now)
    client, names = office.client(), ("pc1", "pc2")
    pcs = [office.worker(name) for name in names]
    for pc in pcs:
        pc.join()
    for how in ("returned", "result", "forged and lost"):
        bag, following = (client.submit([b"0"], runtime=RUNTIME, options=LICENSED) for _ in range(2))
        office.settle()
        (holder,) = [pc for pc in pcs if taken_by(pc)]
        (work,) = holder.work()
        client.ask("cancel", bag=bag, items=None)
        office.settle()
        assert not any(map(taken_by, pcs)), f"two tasks have one licence: {how}"
        other = next(pc for pc in pcs if pc is not holder)
        ref = wire.Ref(work.task, work.number)
        other.send(wire.Returned((ref,)), wire.Finished((wire.Result(*ref, 0, 1.0, wire.payload_of(b""), b"", b""),)))
        office.settle()
        assert not any(map(taken_by, pcs)), f"somebody else has given it back: {how}"
        if how == "returned":
            holder.send(wire.Returned((ref,)))
        elif how == "result":
            holder.finish(work)
        else:
            holder.close()
            pcs.remove(holder)
            office.wait(LEASE_S - 1.0, *pcs)
            assert not any(map(taken_by, pcs)), "the PC may still run it"
            office.wait(2.0, *pcs)
        office.settle()
        (next_one,) = [pc for pc in pcs if taken_by(pc)]
        next_one.finish(*next_one.work())
        assert len(client.results(following)) == 1
        office.sessions.state.scheduler.check(office.now)
    office.close()


def taken_by(pc: BareWorker) -> list[wire.Work]:
    """The work that a PC has been sent and has not begun; other messages to it are dropped."""
    line = pc.line
    assert isinstance(line, OfficeLine)
    while line.inbox:
        pc._is_work(wire.decode(line.inbox.popleft()))
    return pc._assigned


def test_the_licences_of_tasks_that_a_silent_pc_was_sent_ahead_are_in_use_until_it_hands_them_back(
    tmp_path: Path,
) -> None:
    (tmp_path / LICENCES).write_text("lic = 2\n")
    office = Office(tmp_path)
    office.sessions.home_watch.look(office.now)
    client, silent = office.client(), office.worker("silent")
    silent.join()
    client.submit([b""], runtime=0.1)
    silent.finish(*silent.work())  # a PC that has answered gets work ahead
    client.submit([b""] * 2, runtime=0.1, options=wire.TaskOptions(timeout=1.0, licences=("lic=1",)))
    work = silent.work(2)
    other = office.worker("other")
    other.join()
    for _ in range(5):
        office.wait(2.0, silent, other)
    assert not taken_by(other)
    silent.send(wire.Returned(tuple([wire.Ref(each.task, each.number) for each in work])))
    office.settle()
    assert len([*taken_by(other), *taken_by(silent)]) == 2
    office.close()


class Storm:
    """A grid with `TOTAL` licences, on which the dice decide what happens next.

    ``running``: what runs at each PC, also at those that nobody hears any more, until their leases are over (``gone``).
    """

    def __init__(self, home: Path, seed: int) -> None:
        (home / LICENCES).write_text(f"lic = {TOTAL}\n")
        self.office, self.dice, self.step, self.most = Office(home), random.Random(seed), 0, 0
        self.office.sessions.home_watch.look(self.office.now)
        self.client = self.office.client()
        self.pcs = dict[str, BareWorker]()
        self.running, self.gone = dict[str, dict[Attempt, wire.Work]](), dict[str, float]()
        self.bags = list[str]()
        self._told = wire.payload_of(account("E", "e", "", b""))

    def go_on(self) -> None:
        """Do something, and look whether there are enough licences for what runs."""
        many = [self.join, *[self.submit, self.wait] * 2, *[self.end] * 4]
        self.step += 1
        (
            self.join
            if len(self.pcs) < 2
            else self.dice.choice([*many, self.forge, self.cancel, self.pause, self.lose])
        )()
        self.office.settle()
        for name, pc in self.pcs.items():
            self.running[name] |= {(work.task, work.number): work for work in taken_by(pc)}
            pc._assigned.clear()
        for name in [name for name, until in self.gone.items() if self.office.now >= until]:
            del self.gone[name], self.running[name]
        used = sum(map(len, self.running.values()))
        self.most = max(self.most, used)
        assert used <= TOTAL, f"step {self.step}: {used} licences are in use"
        self.office.sessions.state.scheduler.check(self.office.now)

    def join(self) -> None:
        name = f"pc{self.step}"
        self.pcs[name], self.running[name] = self.office.worker(name), {}
        self.pcs[name].join(slots=self.dice.randint(1, 4))

    def submit(self) -> None:
        dice = self.dice
        options = wire.TaskOptions(
            licences=("lic=1",),
            timeout=dice.choice((None, 1.0)),
            retries=dice.choice((0, 5)),
            limit=dice.choice((None, None, 1, 2)),
            priority=dice.randint(-1, 1),
            after=tuple(dice.sample(self.bags, min(len(self.bags), dice.choice((0, 0, 1))))),
            when="ended",
            probes=tuple(range(dice.randint(0, 2))),
        )
        tasks = [b""] * dice.randint(1, 5)
        self.bags.append(self.client.submit(tasks, runtime=dice.choice((0.1, RUNTIME)), options=options))

    def _at_work(self) -> tuple[str, Attempt]:
        found = [(name, attempt) for name in self.pcs for attempt in self.running[name]]
        return self.dice.choice(found or [("", (0, 0))])

    def _say(self, name: str, attempt: Attempt, outcome: int) -> None:
        result = wire.Result(*attempt, outcome, 0.1, self._told, b"", b"")
        self.pcs[name].send(wire.Finished((result,)))

    def end(self) -> None:
        name, attempt = self._at_work()
        if name:
            del self.running[name][attempt]
            self._say(name, attempt, self.dice.choice((0, 0, 1, 2)))

    def forge(self) -> None:
        (name, attempt), liar = self._at_work(), self.dice.choice(list(self.pcs))
        if name != liar:
            self.pcs[liar].send(wire.Returned((wire.Ref(*attempt),)))
            self._say(liar, attempt, 0)

    def cancel(self) -> None:
        if self.bags:
            self.client.ask("cancel", bag=self.dice.choice(self.bags), items=self.dice.choice((None, [0])))

    def pause(self) -> None:
        for bag in self.bags:
            if self.client.ask("progress", bag=bag)["waiting"]:
                self.client.ask(self.dice.choice(("pause", "resume", "resume")), bag=bag)

    def lose(self) -> None:
        name = self.dice.choice(list(self.pcs))
        self.pcs.pop(name).close()
        self.gone[name] = self.office.now + LEASE_S

    def wait(self) -> None:
        self.office.wait(self.dice.choice((0.5, LEASE_S / 2)), *self.pcs.values())


@pytest.mark.parametrize("seed", range(6))
def test_no_licence_is_used_twice_whatever_pcs_answer_and_whoever_is_lost(tmp_path: Path, seed: int) -> None:
    storm = Storm(tmp_path, seed)
    for _ in range(STEPS):
        storm.go_on()
    COUNTS.append(f"hostile: {TOTAL} licences in {STEPS} steps, seed {seed}: at most {storm.most} in use")
    assert storm.most == TOTAL
    storm.office.close()


# --- a broker that is killed -----------------------------------------------------------------------------------------


def test_bags_after_each_other_go_on_after_a_kill_at_each_link_and_nobody_pays_twice(place: Lab) -> None:
    client, worker = place.client(), place.bare_worker("pc")
    worker.join()
    first = client.submit([b"0"], runtime=RUNTIME)
    second = client.submit([b"1"], runtime=RUNTIME, options=wire.TaskOptions(after=(first,)))
    third = client.submit([b"2"], runtime=RUNTIME, options=wire.TaskOptions(after=(first, second), when="ended"))
    never = client.submit([b"3"], runtime=RUNTIME, options=wire.TaskOptions(after=(second,)))

    def killed(*held: wire.Work) -> tuple[Client, BareWorker]:
        """The broker is killed and started again. The PC comes back with what it holds."""
        place.restart()
        back = place.bare_worker("pc")
        back.session = worker.session
        back.join(running=tuple([wire.Running(work.task, work.number, 0, 1.0) for work in held]))
        return place.client(), back

    for number, outcome in enumerate((wire.Outcome.DONE, wire.Outcome.ERROR, wire.Outcome.DONE)):
        (work,) = worker.work()
        assert work.payload == b"%d" % number
        client, worker = killed(work)
        worker.finish(work, outcome=outcome, payload=account("E", "e", "", b""), elapsed=RUNTIME)
    client, worker = killed()
    rows = {bag: client.ask("progress", bag=bag) for bag in (first, second, third, never)}
    ends = [(row["done"], row["failed"], row["cancelled"]) for row in rows.values()]
    assert ends == [(1, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]
    assert "cannot run: it comes after bag" in rows[never]["note"]
    (usage,) = client.ask("shares")["shares"]
    assert usage["promised_s"] == usage["running"] == 0
    assert 0.0 <= usage["used_s"] < RUNTIME, "a PC has claimed more time than there was"
