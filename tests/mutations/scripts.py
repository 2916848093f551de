"""Scripted runs for faults that random runs are unlikely to find: each succeeds, or raises."""

import math
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from deskgrid import wire
from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.bags import ASSUMED_RUNTIME_S, OpenBag
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.model.forecaster import Ticket
from deskgrid.broker.model.home_files import LICENCES
from deskgrid.broker.model.learning import Learning
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import BagRow
from deskgrid.broker.work.retention import DAY_S, LOOK_S
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.forecast.ahead import CERTAIN, forecast
from deskgrid.scheduler.forecast.correction import Correction, Estimate, score
from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureTask,
    PictureWindow,
)
from deskgrid.scheduler.model import Attempt, AttemptOutcome, State
from deskgrid.scheduler.placing.first import BAGS
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.prediction.earlier import EarlierBags, Past
from deskgrid.scheduler.prediction.ratios import Ratios
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.deadlines import GRACE_S
from deskgrid.scheduler.state.failures import STREAK
from deskgrid.wire import TaskOptions
from deskgrid.wire.dealer import new_pair
from tests.broker.office import ADMIN, Office, OfficeLine
from tests.forecaster import InlineForecaster
from tests.grid.builders import bag, executions
from tests.grid.clients import ClientNode
from tests.grid.grid import VirtualGrid
from tests.grid.hostile import HostileSubmitter, HostileWorker
from tests.grid.late import late_answer
from tests.grid.pieces import pieces, saved_by_others
from tests.grid.raid import raid
from tests.grid.witness import expect
from tests.grid.worker_node import WorkerNode
from tests.mutations import environments, gangs, pickles, tasks, web
from tests.mutations.crowd import crowd
from tests.mutations.files import at_the_broker, in_folders, on_a_pc
from tests.peers import BareWorker, Peer
from tests.scheduler import test_avoided as no_room
from tests.scheduler import test_blame as faults
from tests.scheduler import test_people as turns
from tests.scheduler import test_quarantine as whose
from tests.scheduler.test_two_attempts import (
    test_a_copy_gives_way_to_any_task_that_its_slot_is_sent as a_copy_gives_way,
)
from tests.scheduler.test_two_attempts import (
    test_an_original_that_fails_leaves_the_copy_alone_and_the_failure_does_not_count as an_original_that_fails,
)

KEEP_DAYS = 0.01
# Seconds of work beside a broken PC: time for three crashes, then one after each rest, of 10, 20, 40 and 80 seconds.
WORK_S = 120
CRASHES = STREAK + 4
# How long a task takes that gets a copy: longer than a lease, so that the loss of a PC is known before the copy ends.
TAIL_S = 30.0


def broken_pc(seed: int, home: Path) -> None:
    """Everything crashes on one of two PCs: no task is given up for that, and few are tried there."""
    grid = VirtualGrid(seed, home)
    grid.witness.executions.broken.add("broken")
    with closing(grid):
        grid.broker.start()
        for name in ("broken", "good"):
            grid.worker(name)
        client = grid.client()
        client.submit(bag([1.0] * WORK_S))
        grid.run_until(lambda: client.idle, 2.0 * WORK_S, "all done")
        crashes = grid.counters["crashes"]
        expect(STREAK <= crashes <= CRASHES, "{} tasks crashed on the broken PC", crashes)
        grid.finish()


def _copied(grid: VirtualGrid) -> tuple[WorkerNode, ClientNode]:
    """A task runs on a slow PC and, as a copy, on another one. The slow PC, and the client that submitted it."""
    grid.witness.executions.slow["slow"] = 10.0
    grid.broker.start()
    slow, client = grid.worker("slow"), grid.client()
    grid.run(1.0)
    plan = bag([TAIL_S], "tail")
    plan.options = wire.TaskOptions(copies=True)
    client.submit(plan)
    grid.run(1.0)
    grid.worker("quick")
    grid.run_until(lambda: grid.counters["copies"] > 0, 2 * TAIL_S, "a copy")
    grid.run(1.0)
    return slow, client


def copy(seed: int, home: Path) -> None:
    """A copy gives way to other work, is started again, and ends first: the original is stopped."""
    a_copy_gives_way({"min_piece": 60.0})
    grid = VirtualGrid(seed, home)
    with closing(grid):
        slow, client = _copied(grid)
        client.submit(bag([1.0], "other"))
        grid.run_until(lambda: grid.counters["done"] == 1, 3.0, "the work that the copy gave way to")
        grid.run_until(lambda: client.idle, 2 * TAIL_S, "the answer of the second copy")
        grid.run(1.0)
        expect(slow.idle, "the slow PC was not stopped")
        expect(grid.counters["attempts"] == 2, "{} attempts of two tasks", grid.counters["attempts"])
        grid.finish()


def copy_alone(seed: int, home: Path) -> None:
    """A PC and the broker are gone; the copy goes on, and counts."""
    an_original_that_fails(AttemptOutcome.ERROR)
    grid = VirtualGrid(seed, home)
    with closing(grid):
        slow, client = _copied(grid)
        if seed % 2:
            grid.restart_broker(0.5)
        slow.crash()
        grid.run(1.0)
        before = grid.counters["attempts"]
        grid.run_until(lambda: client.idle, 2 * TAIL_S, "the answer of the copy")
        expect(grid.counters["attempts"] == before, "the task was begun anew")
        grid.finish()


def blame(seed: int, home: Path) -> None:
    """Whose fault a failure is: nobody pays for what somebody else, or a PC, has done."""
    whose.test_a_worker_on_which_task_after_task_crashes_gets_no_more_of_them()
    whose.test_each_rest_is_twice_as_long_as_the_last_up_to_a_limit()
    whose.test_one_person_with_many_bags_that_crash_puts_no_worker_in_quarantine()
    faults.test_other_bags_of_the_same_person_go_on_there_and_those_of_others()
    faults.test_in_a_bag_that_fails_everywhere_no_pc_is_put_aside_and_few_tasks_are_tried_again()
    faults.test_a_rest_ends_when_the_bag_turns_out_to_fail_everywhere()
    faults.test_it_comes_before_the_others_of_its_bag()
    faults.test_a_task_that_fails_is_tried_next_on_another_pc(make_policy("fcfs"), AttemptOutcome.ERROR, 0)
    faults.test_a_task_that_fails_there_too_fails()
    faults.test_after_three_in_a_row_a_pc_gets_nothing_of_a_bag_for_longer_and_longer(AttemptOutcome.ERROR)
    faults.test_that_no_process_starts_counts_against_no_task_and_keeps_one_persons_work_from_the_pc()
    faults.test_bags_of_an_environment_that_starts_on_no_pc_are_to_be_held()


def full_pc(seed: int, home: Path) -> None:
    """A PC has no room for some tasks: they wait, or go to another one, and all others go on there."""
    no_room.test_other_workers_are_tried_first()
    no_room.test_a_lone_worker_is_tried_again_after_longer_and_longer_rests_and_the_task_never_fails()
    no_room.test_work_of_other_kinds_goes_on_there()


def full_disk(seed: int, home: Path) -> None:
    """The disk is full while tasks run: their results wait, and count when there is room again."""
    grid = VirtualGrid(seed, home)
    with closing(grid):
        grid.broker.start()
        grid.worker("pc", slots=2)
        client = grid.client()
        client.submit(bag([5.0] * 8))
        for _ in range(2):
            grid.run(3.0)
            grid.broker.fill_disk(10.0)
            grid.run(12.0)
        grid.run_until(lambda: client.idle, 60.0, "all done when there is room")
        expect(executions(grid) == [1] * 8, "executed {} times", executions(grid))
        grid.finish()


def kept(seed: int, home: Path) -> None:
    """A bag that has ended is kept for its days, however often the broker is restarted; one that has not, for ever."""
    grid = VirtualGrid(seed, home)
    grid.broker.keep_days = KEEP_DAYS
    with closing(grid):
        grid.broker.start()
        grid.worker("pc", slots=2)
        client = grid.client()
        client.submit(bag([1.0], "short"))
        client.submit(bag([2 * KEEP_DAYS * DAY_S], "long"))
        grid.run_until(
            lambda: "short" in client.watched and client.watched["short"].complete, 10.0, "the short bag has ended"
        )
        grid.witness.forgotten.add("short")
        grid.run(KEEP_DAYS * DAY_S / 2)
        grid.restart_broker(1.0)
        grid.run(KEEP_DAYS * DAY_S / 2 - 10.0)
        there = set(grid.broker.sessions.state.book.by_id)
        expect(there == {"short", "long"}, "kept are {}", there)
        grid.run(2 * LOOK_S)
        there = set(grid.broker.sessions.state.book.by_id)
        expect(there == {"long"}, "after its days kept are {}", there)
        grid.run_until(lambda: client.idle, 2 * KEEP_DAYS * DAY_S, "the long bag has ended")
        grid.finish()


def revoked(seed: int, home: Path) -> None:
    """A worker whose key is revoked is told so, and what it was given goes to another at once."""
    with closing(Office(home)) as office:
        keys = office.sessions.state.credentials = KeyRing(home)
        lab = Credential("lab", "worker")
        keys.add(lab, new_pair()[0], 0.0)
        worker, other, admin = BareWorker(OfficeLine(office, lab), "lab"), office.worker("other"), office.client(ADMIN)
        worker.join()
        bag = office.client().submit([b"0"], runtime=1.0)
        worker.work()
        other.join()
        admin.ask("keys revoke", name="lab")
        expect(all(row.revoked for row in keys.rows() if row.credential == lab), "the key is still known")
        other.finish(*other.work(), payload=b"right")
        expect(admin.ask("progress", bag=bag)["done"] == 1, "what the other worker did is not there")


def black_hole(seed: int, home: Path) -> None:
    """A worker of many slots takes all it is given, says that it lives, and answers nothing: others do the work."""
    with closing(Office(home)) as office:
        hole, good = office.worker("hole"), office.worker("good")
        hole.join(slots=64)
        client = office.client()
        bag = client.submit([b"0"] * 4, timeout=1.0)
        taken = len(hole.work(4))
        good.join()
        for _ in range(14):
            office.wait(1.0, hole, good)
            office.sessions.state.scheduler.check(office.now)
            done = client.ask("progress", bag=bag)["done"]
            if office.now > 1.0 + GRACE_S and done < taken:
                good.finish(*good.work())
        expect(client.ask("progress", bag=bag)["done"] == taken, "the black hole kept some of {} tasks", taken)


def thief(seed: int, home: Path) -> None:
    """A PC cannot have the name of another, neither with a key of its own nor with the lab's line."""
    with closing(Office(home)) as office:
        keys, lab, public = KeyRing(home), Credential("worker", "lab"), new_pair()[0]
        office.sessions.state.credentials = keys
        keys.enrol(lab, "pc1", public, 0.0)
        thief = BareWorker(OfficeLine(office, Credential("pc2", "worker")), "pc1")
        thief.send(thief.introduction())
        office.settle()
        expect(not office.sessions.workers.by_name, "a PC joined under the name of another")
        holder = Peer(OfficeLine(office, lab))
        holder.send(wire.Enrol(wire.VERSION, "pc1", new_pair()[0]))
        expect(isinstance(holder.receive(), wire.Refused), "a name was given away")
        keys.revoke("pc1")
        holder.send(wire.Enrol(wire.VERSION, "pc1", public))
        expect(isinstance(holder.receive(), wire.Refused), "a revoked PC has enrolled again by itself")
        holder.send(wire.Enrol(wire.VERSION, "pc3", keys.server[0]))
        expect(isinstance(holder.receive(), wire.Refused), "a PC has enrolled with the broker's own key")
        admin = office.client(ADMIN)
        for what, again in (("keys forget", False), ("keys forget", True)):
            admin.send(wire.Ask(7, what, wire.pack_record({"name": "pc1"}), again))
            expect(isinstance(admin.receive(), wire.Answer), "an order that was carried out fails")


def people(seed: int, home: Path) -> None:
    """A pause, a licence that is in use, and what people used survive the broker; limits and turns are kept."""
    (home / LICENCES).write_text("matlab = 1\n", encoding="utf-8")
    with closing(Office(home)) as office:
        office.sessions.home_watch.look(office.now)
        ann, pc = office.client(Credential("ann", "submitter")), office.worker("pc1")
        pc.join()
        before = ann.submit([b"before"], runtime=0.6)
        after = ann.submit([b"after"], options=wire.TaskOptions(after=(before,)))
        work = pc.work()
        office.now += 5.0
        pc.finish(*work, outcome=wire.Outcome.CRASH, payload=b"\x90", elapsed=5.0)
        ann.ask("cancel", bag=before)
        office.settle()  # whether the bag after it can run is decided in a turn of its own
        expect(ann.ask("progress", bag=after)["cancelled"] == 1, "a bag can run although the one before it cannot")
        licences = wire.TaskOptions(licences=("matlab=1",), limit=1)
        ann.submit([b"0", b"1"], runtime=0.2, options=licences)
        pc.work()
        paused = ann.submit([b"paused"], runtime=0.6)
        ann.ask("pause", bag=paused)
        office.now += 2.0
        office.settle()
    with closing(Office(home)) as office:
        office.sessions.home_watch.look(office.now)
        ann = office.client(Credential("ann", "submitter"))
        other = office.worker("pc2")
        other.join(slots=3)
        office.settle()
        bags = {row["bag"]: row for row in ann.ask("bags")["bags"]}
        expect(bags[paused]["paused"] and not bags[paused]["running"], "a bag is not paused any more")
        running = sum(row["running"] for row in bags.values())
        expect(running == 0, "{} tasks run with a licence that is in use", running)
        (share,) = ann.ask("shares")["shares"]
        expect(share["used_s"] > 0.0, "what ann used is forgotten")
        limited = ann.submit([b"0"] * 3, runtime=0.6, options=wire.TaskOptions(limit=1))
        office.settle()
        expect(ann.ask("progress", bag=limited)["running"] == 1, "a limit is not kept")
    for contested in (True, False):
        grid = Scheduler(make_policy("packing"))
        grid.handle(ev.UsageRestored({"ann": 1e6 if contested else 0.0}), 0.0)
        for number, owner in enumerate(("ann", "ben")):
            grid.handle(ev.TasksSubmitted(number, number, 1, [50.0 - number], key=CategoryKey(owner)), 0.0)
        grid.handle(ev.WorkerJoined("pc", 1, math.inf), 0.0)
        grid.handle(ev.PassDue(), 0.0)
        expect((grid.state(0) == State.SENT) != contested, "it is the turn of {}", "ben" if contested else "ann")
    _plan_with_others_ahead()
    turns.test_who_has_nothing_on_a_slot_gets_the_next_free_one_beside_somebody_who_is_busy(make_policy("fcfs"), 1e6)


def _plan_with_others_ahead() -> None:
    """A plan does not put people first who are too far ahead."""
    grid = Scheduler(make_policy("packing", margin=0.0, queue_s=0.0, confidence=0.0))
    for number, owner, runtime in ((0, "ben", 10.0), (3, "ann", 140.0)):
        grid.handle(ev.TasksSubmitted(number, number // 3, 1, [runtime], key=CategoryKey(owner)), 0.0)
    grid.handle(ev.WorkerJoined("small", 1, 11.0), 0.0)
    grid.handle(ev.WorkerJoined("other", 1, 150.0), 0.0)
    grid.handle(ev.PassDue(), 0.0)
    grid.handle(ev.UsageRestored({"ann": 1e6}), 1.0)
    for number, owner, runtimes in ((1, "ann", [99.0]), (2, "ben", [60.0, 60.0])):
        grid.handle(ev.TasksSubmitted(number, number + 1, len(runtimes), runtimes, key=CategoryKey(owner)), 1.0)
    grid.handle(ev.UptimeRefreshed("away", 0.0, ((101.0, 61.0), (201.0, 61.0))), 1.0)
    grid.handle(ev.WorkerJoined("pc", 1, 100.0, ((300.0, 61.0), (400.0, 61.0))), 1.0)
    grid.handle(ev.PassDue(), 1.0)
    expect(grid.state(2) != State.SENT, "a plan puts ann first, however far ahead she is")


def probes(seed: int, home: Path) -> None:
    """Probes come first, and none is placed twice in a pass in which somebody else has a turn, too."""
    grid = Scheduler(make_policy("pgs", queue_length=0))
    for number in range(BAGS):
        grid.handle(ev.TasksSubmitted(number, number, 1, [500.0], probes=[number], key=CategoryKey("ann")), 0.0)
    grid.handle(ev.TasksSubmitted(BAGS, BAGS, 1, [5.0], probes=[BAGS], key=CategoryKey("ann")), 0.0)
    grid.handle(ev.TasksSubmitted(BAGS + 1, BAGS + 1, 1, [5.0], key=CategoryKey("ben")), 0.0)
    grid.handle(ev.WorkerJoined("pc", 3, 20.0), 0.0)
    grid.handle(ev.PassDue(), 0.0)
    grid.check(0.0)
    expect(len(grid.grid.bound) == 2, "{} tasks are on slots", len(grid.grid.bound))
    with closing(Office(home)) as office:
        client, worker = office.client(), office.worker()
        client.submit([b"0", b"1", b"2"], runtime=60.0, options=wire.TaskOptions(probes=(2,)))
        worker.join()
        (work,) = worker.work()
        expect(work.payload == b"2", "{} is begun first", work.payload)


def licences(seed: int, home: Path) -> None:
    """Licences of tasks that a PC is told to stop, or was sent ahead, are in use until it has answered."""
    key = CategoryKey(licences=(("lic", 1),))
    for silent in (False, True):
        grid = Scheduler(make_policy("pgs"))
        grid.trust.heard["pc"] = 0.0
        grid.handle(ev.LicencesCounted({"lic": 2}), 0.0)
        grid.handle(ev.TasksSubmitted(0, 0, 2, [0.1], timeout=1.0, key=key), 0.0)
        grid.handle(ev.WorkerJoined("pc", 1, math.inf), 0.0)
        grid.handle(ev.PassDue(), 0.0)
        sent = [Attempt(task, grid.grid.bound[task].number) for task in (0, 1)]
        if silent:
            grid.handle(ev.UptimeRefreshed("pc", math.inf), 60.0)
            grid.handle(ev.PassDue(), 60.0)
        else:
            grid.handle(ev.TasksCancelled([(0, 2)]), 60.0)
        free = grid.grid.categories.licences.free("lic")
        expect(free == 0, "{} licences are free before the PC has answered", free)
        grid.handle(ev.AttemptsReturned("other", sent), 60.0)
        expect(grid.grid.categories.licences.free("lic") == free, "another PC has given licences back")
        grid.handle(ev.AttemptsReturned("pc", sent), 60.0)
        free = grid.grid.categories.licences.free("lic")
        expect(free == 2, "only {} licences are free", free)
        grid.check(60.0)


def other_attempt(seed: int, home: Path) -> None:
    """A PC answers for another attempt of the task that it has: that does not count."""
    grid = Scheduler(make_policy("pgs"))
    grid.handle(ev.TasksSubmitted(0, 0, 1, [5.0]), 0.0)
    grid.handle(ev.WorkerJoined("pc", 1, math.inf), 0.0)
    grid.handle(ev.PassDue(), 0.0)
    task, number = grid.grid.bound[0].attempt
    for other in (number - 1, number + 1):
        grid.handle(ev.AttemptsEnded("pc", [ev.EndedAttempt(Attempt(task, other), AttemptOutcome.DONE, 5.0)]), 5.0)
        expect(grid.state(task) == State.SENT, "attempt {} counts for attempt {}", other, number)


def liar(seed: int, home: Path) -> None:
    """A PC that answers at once gets most tasks, and others fail at once: neither makes tasks look short."""
    with closing(Journal(home)) as journal:
        known = OpenBag(BagRow(1, "b", "sweep", "command", "ann", "digest", TaskOptions(), False, False, 0.0), False)
        learning = Learning(journal, WallClock(0.0))
        for turn in range(200):
            known.runs.add([10.0], 0, f"pc{turn % 3}")
            known.runs.add([0.0] * 40, 0, "liar")
            learning.learn(known)
        learning.write_down(0.0)
        journal.commit()
        expect(learning.expected(known) > 5.0, "tasks of 10 s are expected to take {}", learning.expected(known))
    with closing(Office(home)) as office:
        client, worker = office.client(), office.worker()
        worker.join()
        client.submit([b"0", b"1"], runtime=None)
        worker.finish(*worker.work(), outcome=wire.Outcome.ERROR, elapsed=0.0)
        worker.finish()  # a message without an answer
        office.settle()
        estimates = [each.estimate_s for each in office.sessions.state.book.by_number.values()]
        expect(estimates == [ASSUMED_RUNTIME_S], "expected are {}", estimates)
        learned = [row.name for row in office.journal.learned.rows()]
        expect(any(name.endswith("digest") for name in learned), "what was learned is {}", learned)
    earlier = EarlierBags()
    for number, ratio in enumerate((1.0, 1e5, 1.0)):
        bag_of = Ratios(Past(earlier, ["ann\nsweep"], number))
        for pc in ("pc1", "pc2", "pc3"):
            bag_of.add([ratio] * 20, 10.0, pc)
        bag_of.add([0.0001] * 70, 1.0, "liar")
        bag_of.teach()
    known_ratios = Past(earlier, ["ann\nsweep"], 9).known
    expect(known_ratios[len(known_ratios) // 2] == 1.0, "most ratios are {}", known_ratios)
    expect(known_ratios[-1] == 1.0, "some ratios are {}", known_ratios)


def foretold(seed: int, home: Path) -> None:
    """Whoever asks again and again when a bag will be done has one forecast made; absurd ends do not spoil others."""
    with closing(Office(home)) as office:
        client, worker = office.client(), office.worker()
        worker.join()
        bag = client.submit([b"0"] * 30, runtime=10.0)
        told = [client.ask("eta", bag=bag)["median_s"] for _ in range(20)]
        forecaster = office.sessions.state.forecaster
        made = len(forecaster.made) if isinstance(forecaster, InlineForecaster) else -1
        expect(made == 1, "{} forecasts were made at once", made)
        expect(200.0 < told[0] < 700.0, "300 s of work take {}", told[0])
    correction = Correction()
    for _ in range(100):
        correction.learn("a", score(0, Estimate(10.0, 5.0, 20.0), 1e12))
    high = correction.corrected("a", 0, Estimate(10.0, 5.0, 20.0)).high
    expect(high < 1e5, "ten seconds may take {}", high)
    busy = PicturePC("pc", (PictureWindow(0.0, 90.0), PictureWindow(1_000.0, math.inf)), 1, (PictureTask(1, 0, 60.0),))
    kinds = {1: Group(1, Durations((100.0,), 50.0), 100.0, 100.0), 2: Group(1, Durations((40.0,), 50.0), 40.0, 40.0)}
    bags = tuple(PictureBag(number, (kind,), 1) for number, kind in kinds.items())
    found = forecast(Picture((busy,), bags), Random(seed), 1, CERTAIN)
    ends = [round(end) for (end,) in found.values()]
    expect(ends == [1_100, 80], "tasks of 100 s and 40 s, of which only one fits into a window, end at {}", ends)
    one_at_a_time = PictureBag(1, (Group(4, Durations((10.0,), 50.0)),), 4, licences=(("matlab", 1),))
    free = tuple([PicturePC(f"pc{number}", (PictureWindow(0.0, math.inf),)) for number in range(4)])
    ((end,),) = forecast(Picture(free, (one_at_a_time,), licences=(("matlab", 1),)), Random(seed), 1, CERTAIN).values()
    expect(round(end) == 40, "four tasks of 10 s with the same licence take {}", end)


def imagined(seed: int, home: Path) -> None:
    """Answers to "what if": each change has its effect, nobody asks without limit, and tasks do not get lost."""
    with closing(Office(home)) as office:
        for number in range(4):
            office.worker(f"a{number}").join(uptime=7200.0)
        office.worker("b").join(site="b", uptime=0.0, windows=[(3600.0, 36000.0)])
        client = office.client()
        bag = client.submit([b"0"] * 4, runtime=60.0)
        office.settle()
        (_, row) = client.ask("whatif", bag=bag, changes=[{"without": ["a*"]}])["rows"]
        expect(row["median_s"] > 3600.0, "what PCs run is lost without them: {}", row)
        client.ask("cancel", bag=bag)
        bag = client.submit([b"0"] * 40, runtime=60.0)
        changes = [{"split": 4}, {"begins_s": 3000.0}, {"without": ["b"]}, {"more": [{"like": "a*", "many": 4}]}]
        rows = client.ask("whatif", bag=bag, changes=changes)["rows"]
        now, split, later, same, faster = (row["median_s"] for row in rows)
        expect(0.5 * now < split < 1.1 * now, "split tasks take {} instead of {}", split, now)
        expect(later > 3000.0, "a bag begins before its time, and ends after {}", later)
        expect(0.9 * now < same < 1.1 * now and faster < 0.8 * now, "{}, {}, and {} with more PCs", now, same, faster)
        told = client.ask("advise", bag=client.submit([b"0"], runtime=40_000.0))
        expect(told["misfits"] is not None, "a task that fits no window is not told")
        office.sessions.state.forecaster = waits = _NeverMade()
        for _ in range(9):
            client.send(wire.Ask(client.number(), "advise", wire.pack_record({"bag": bag})))
        for _ in range(9):
            office.settle()
        expect(len(waits.tickets) <= 4, "one client has {} forecasts made at once", len(waits.tickets))


class _NeverMade:
    """Makes no forecast."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        return self.ask(picture, "ends", {}, "")

    def ask(self, picture: Picture, what: str, args: dict[str, Any], owner: str) -> Ticket:
        self.tickets.append(Ticket())
        return self.tickets[-1]


SCRIPTS = {
    "environments at the broker": environments.at_the_broker,
    "environments in the scheduler": environments.in_the_scheduler,
    "gangs in the scheduler": gangs.in_the_scheduler,
    "wheels": environments.of_wheels,
    "environments on a PC": environments.on_a_pc,
    "scope": tasks.of_scope,
    "output": tasks.of_output,
    "accounts": tasks.of_accounts,
    "reports": tasks.of_reports,
    "pickles": pickles.of_scripts,
    "web page": web.access_to_the_page,
    "people": people,
    "black hole": black_hole,
    "raid": lambda seed, home: raid(seed, home, [HostileWorker, HostileSubmitter]),
    "late answer": late_answer,
    "pieces": pieces,
    "saved by others": saved_by_others,
    "broken pc": broken_pc,
    "full pc": full_pc,
    "blame": blame,
    "full disk": full_disk,
    "kept": kept,
    "revoked": revoked,
    "thief": thief,
    "files at the broker": at_the_broker,
    "files on a PC": on_a_pc,
    "files in folders": in_folders,
    "copy": copy,
    "copy alone": copy_alone,
    "other attempt": other_attempt,
    "liar": liar,
    "imagined": imagined,
    "foretold": foretold,
    "probes": probes,
    "licences": licences,
    "crowd": crowd,
}
