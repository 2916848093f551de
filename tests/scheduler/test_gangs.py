"""Parallel tasks: all slots of a gang are taken in one step, it ends as one, and it waits in the place that it had."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.invariants import check_gangs
from deskgrid.scheduler.model import Attempt, AttemptOutcome, IllegalEvent, InvariantBroken, State
from deskgrid.scheduler.need import Need, of_memory
from deskgrid.scheduler.parallel.base import Host, Keep, ParallelJob, ParallelView, Site, Start
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.parallel.patience import patience_ends
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.placing.gangs import AGAIN_S
from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.queues.task_ranges import spans_of
from deskgrid.scheduler.state import jobs
from deskgrid.scheduler.state.avoided import Person
from deskgrid.scheduler.views.snapshot import worker_view
from tests.scheduler.builders import Grid, fcfs, packing, pgs
from tests.scheduler.test_views import bags

PAIR = Need(2, 2)


class First:
    """First come, first served: the head takes slots in the order of their PCs, or keeps those that it will have."""

    name = "first"

    def decide(self, view: ParallelView) -> Iterator[Start | Keep]:
        for job in list(view.waiting):
            starts = [start for site in view.sites if (start := _start(view, site, job)) is not None]
            if starts:
                yield starts[0]
                continue
            kept = [(host, host.slots // job.need.slots) for site in view.sites[:1] for host in site.hosts]
            at = max([at for site in view.sites[:1] for host in site.hosts for at, _ in host.frees], default=view.now)
            yield Keep(job, tuple(kept), at)
            return


def _start(view: ParallelView, site: Site, job: ParallelJob) -> Start | None:
    lacks, ranks = job.need.least, []
    for host in site.hosts:
        many = min(lacks, host.idle // job.need.slots) if host.suits(job.need) else 0
        if many and host.closes - view.now > job.runtime:
            ranks.append((host, many))
            lacks -= many
    return None if lacks else Start(job, tuple(ranks), job.need.seconds(job.runtime, job.need.least), {site.name: 1.0})


class Told:
    """Does what a test says, once."""

    name = "told"

    def __init__(self, steps: Callable[[ParallelView], Sequence[Start | Keep]]) -> None:
        self.steps = steps

    def decide(self, view: ParallelView) -> Iterator[Start | Keep]:
        yield from self.steps(view)


def with_first(policy: Policy | None = None) -> Grid:
    """A grid with the parallel policy of these tests."""
    chosen: Any = policy or packing()
    chosen.parallel = First()
    return Grid(chosen)


class Lab:
    """A grid, driven by hand, and the gangs that have begun on it."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.grid = with_first(policy)
        self.gangs: dict[int, cmd.StartGang] = {}

    def pcs(self, *names: str, uptime: float = math.inf, slots: int = 1, **more: Any) -> None:
        for name in names:
            self.grid.pc(name, uptime, slots, **({"site": "lab"} | more))

    def submit(self, *runtimes: float, need: Need = PAIR, **more: Any) -> list[int]:
        return self.grid.tasks(*runtimes, need=need, **more)

    def starts(self) -> dict[int, str]:
        """After a pass: the gangs that begin, and the PCs of their ranks."""
        begun = [command for command in self.grid.tell(ev.PassDue()) if isinstance(command, cmd.StartGang)]
        for command in begun:
            self.gangs[command.attempt.task] = command
            self.grid.attempts[command.attempt.task] = command.attempt
        return {command.attempt.task: " ".join([place.worker for place in command.ranks]) for command in begun}

    def began(self, task: int) -> None:
        assert self.grid.tell(ev.GangBegan(self.grid.attempts[task])) == []

    def end(
        self, task: int, outcome: AttemptOutcome = AttemptOutcome.DONE, worker: str = "a", elapsed: float = 1.0
    ) -> list[Any]:
        """A gang ends; what is told to whom."""
        ended = ev.EndedAttempt(self.grid.attempts[task], outcome, elapsed)
        return told(self.grid.tell(ev.AttemptsEnded(worker, [ended])))


def told(commands: Sequence[cmd.Command]) -> list[Any]:
    """Workers that are to stop something, and the tasks that have ended."""
    found: list[Any] = []
    for command in commands:
        assert isinstance(command, cmd.Stop | cmd.Settle)
        found.append(command.worker if isinstance(command, cmd.Stop) else [a.task for a in command.attempts])
    return found


# --- they start ------------------------------------------------------------------------------------------------------


def places(lab: Lab, task: int) -> dict[int, str]:
    """On which PC each rank is that has not ended with all others there, and is known to be there."""
    gang = lab.grid.inside.gangs.running[task]
    here = {number: place.worker for number, place in zip(gang.numbers, gang.ranks, strict=bool(gang.ranks))}
    return here | {number: row[0].worker.name for number, row in gang.back.items()}


def test_a_gang_starts_on_all_its_slots_or_not_at_all() -> None:
    lab = Lab()
    lab.pcs("a")
    (task,) = lab.submit(10)
    assert lab.starts() == {}
    assert lab.grid.state(task) == State.WAITING
    lab.pcs("b")
    assert lab.starts() == {task: "a b"}
    assert lab.gangs[task] == cmd.StartGang(
        Attempt(task, 1), [cmd.RankPlace("a", (0,)), cmd.RankPlace("b", (0,))], 10.0, {"lab": 1.0}
    )
    assert lab.grid.state(task) == State.SENT
    assert lab.starts() == {}
    assert lab.end(task) == [[task]]


def test_ranks_are_on_pcs_of_one_site_that_can_reach_each_other() -> None:
    lab = Lab()
    lab.pcs("a")
    lab.pcs("b", site="hall")
    lab.pcs("c", reachable=False)
    (task,) = lab.submit(10)
    assert lab.starts() == {}
    assert [site.name for site in lab.grid.inside.gangs.sites] == ["c", "hall", "lab"]
    lab.grid.leave("b")
    assert [site.name for site in lab.grid.inside.gangs.sites] == ["c", "lab"]
    lab.grid.leave("c")
    lab.pcs("c", reachable=False, slots=2)
    assert lab.starts() == {task: "c c"}


def test_each_rank_has_the_slots_memory_and_labels_that_it_needs() -> None:
    lab = Lab()
    lab.pcs("a", slots=3, amounts=of_memory(10), labels=frozenset({"gpu"}))
    lab.pcs("b", slots=4, amounts=of_memory(10))
    need = Need(2, 2, slots=1, amounts=of_memory(4))
    first = lab.submit(10, need=need)
    other = lab.submit(10, need=need, bag=1)
    lab.submit(10, need=Need(gang=True, labels=frozenset({"gpu"}), amounts=of_memory(3)), bag=2)
    assert lab.starts() == {first[0]: "a a", other[0]: "b b"}
    assert [machine.host.amounts for machine in lab.grid.inside.gangs.machines.values()] == [of_memory(2)] * 2
    assert lab.end(first[0]) == [[first[0]]]
    assert list(lab.starts().values()) == ["a"]


def test_a_gang_starts_only_where_it_ends_before_the_first_of_its_windows() -> None:
    lab = Lab()
    lab.pcs("a", uptime=100)
    lab.pcs("b", uptime=9)
    (task,) = lab.submit(10)
    assert lab.starts() == {}
    lab.grid.refresh("b", 11)
    assert lab.starts() == {task: "a b"}


def _bad(view: ParallelView, job: ParallelJob, hosts: Sequence[Host]) -> list[Start]:
    """Starts that cannot be, whatever a policy thinks."""
    a, b, far = hosts
    away = Host("gone", a.site, 4, 4, idle=4)
    return [
        Start(job, ((a, 1),), 1.0),
        Start(job, ((a, 3),), 1.0),
        Start(job, ((a, 1), (a, 1)), 1.0),
        Start(job, ((a, 1), (far, 1)), 1.0),
        Start(job, ((b, 2),), 1.0),
        Start(job, ((a, 2), (b, 0)), 1.0),
        Start(job, ((away, 2),), 1.0),
        Start(job, ((a, 2),), math.inf),
        Start(job, ((a, 2),), 100.0),
        Start(ParallelJob(99, job.need, 1.0, 0.0), ((a, 2),), 1.0),
    ]


def test_a_start_that_cannot_be_is_not_carried_out() -> None:
    lab = Lab()
    lab.pcs("a", slots=4, uptime=100)
    lab.pcs("b")
    lab.pcs("c", site="hall", slots=4)
    (task,) = lab.submit(10)
    lab.grid.tasks(*[1.0] * 98, done=range(1, 99))
    lab.submit(1, done=[99])
    wrong: list[Start] = []

    def steps(view: ParallelView) -> list[Start]:
        hosts = {host.name: host for site in view.sites for host in site.hosts}
        wrong[:] = _bad(view, view.waiting[0], [hosts[name] for name in "abc"])
        return wrong

    policy: Any = lab.grid.scheduler.policy
    policy.parallel = Told(steps)
    assert lab.starts() == {}
    assert lab.grid.scheduler.counters.unfit == len(wrong)
    lab.grid.tell(ev.PolicyChanged(packing()))
    assert lab.starts() == {task: "c c"}


def test_a_policy_that_says_nothing_of_gangs_gets_the_default() -> None:
    lab = Lab()
    lab.grid.tell(ev.PolicyChanged(fcfs()))
    lab.pcs("a", slots=2)
    (task,) = lab.submit(10)
    assert lab.starts() == {task: "a a"}


def test_the_policy_is_not_asked_again_when_nothing_has_changed() -> None:
    lab, asked = Lab(), list[float]()
    policy: Any = lab.grid.scheduler.policy

    def steps(view: ParallelView) -> list[Start]:
        asked.append(view.now)
        return []

    policy.parallel = Told(steps)
    lab.pcs("a", slots=2)
    lab.submit(10)
    for _ in range(3):
        lab.starts()
    assert asked == [0.0]
    lab.grid.wait(1)
    lab.pcs("b")
    lab.starts()
    assert asked == [0.0, 1.0]


def test_a_bounded_pass_starts_as_many_as_it_may_and_the_next_one_goes_on() -> None:
    lab = Lab()
    lab.pcs("a", slots=4)
    lab.submit(10, 10)
    assert len(lab.grid.tell(ev.PassDue(1))) == 1
    assert lab.grid.scheduler.unfinished
    assert len(lab.grid.tell(ev.PassDue(1))) == 1


def test_a_large_bag_becomes_jobs_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST", 3)
    lab = Lab()
    tasks = lab.submit(*[10.0] * 8, retries=1)
    more = lab.submit(*[10.0] * 2, bag=1)
    lab.starts()
    (queue,) = lab.grid.inside.gangs.queues.values()
    assert queue.tasks == tasks[:3]
    lab.grid.cancel(tasks[1], tasks[4])
    lab.starts()
    assert queue.tasks == [tasks[0], tasks[2], tasks[3]]
    lab.pcs("a", slots=2)
    assert lab.starts() == {tasks[0]: "a a"}
    assert lab.end(tasks[0], AttemptOutcome.ERROR) == []
    assert queue.tasks == [tasks[0], tasks[2], tasks[3], tasks[5]]
    lab.submit(*[10.0] * 2, bag=1, grows=True)
    lab.grid.cancel(*tasks)
    lab.starts()
    assert more[0] in lab.gangs


# --- single tasks beside them ----------------------------------------------------------------------------------------


def test_slots_kept_for_a_gang_take_single_tasks_that_end_before() -> None:
    lab = Lab(pgs())
    lab.pcs("a", "b")
    (long,) = lab.grid.tasks(20, bag=1)
    lab.grid.expect(a=[long])
    (task,) = lab.submit(10)
    shorter, too_long = lab.grid.tasks(19, 21, bag=1)
    lab.grid.expect(b=[shorter])
    assert lab.grid.queues() == {}
    lab.grid.wait(19)
    lab.grid.end(shorter)
    assert lab.grid.tell_pass() == {}
    lab.grid.wait(1)
    lab.grid.end(long)
    assert lab.starts() == {task: "a b"}
    assert lab.end(task) == [[task]]
    lab.grid.expect(a=[too_long])


def test_slots_are_no_longer_kept_when_the_gang_that_waited_is_gone() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (long,) = lab.grid.tasks(20, bag=1)
    lab.grid.expect(a=[long])
    (task,) = lab.submit(10)
    (other,) = lab.grid.tasks(50, bag=1)
    lab.grid.expect()
    lab.grid.cancel(task)
    lab.grid.expect(b=[other])


def test_while_a_gang_is_overdue_single_tasks_run_beside_it_that_are_shorter_than_it_is_late() -> None:
    lab = Lab()
    policy: Any = lab.grid.scheduler.policy
    policy.parallel = default_policy()
    lab.pcs("a", "b", "c")
    (late,) = lab.submit(1)
    assert lab.starts() == {late: "a b"}
    lab.began(late)
    lab.submit(10, need=Need(3, 3), bag=2)
    short, long = lab.grid.tasks(1.5, 30, bag=1)
    lab.grid.expect()
    lab.grid.wait(1.5)
    lab.grid.expect()  # c is kept from 2 on
    lab.grid.wait(1)
    assert lab.grid.scheduler.wakes_at == 2.0
    lab.grid.expect()  # from 4 on
    assert lab.grid.scheduler.wakes_at == 4.0
    lab.grid.wait(1.5)
    lab.grid.expect(c=[short])  # from 7 on
    lab.grid.wait(100)
    lab.grid.end(short)
    lab.grid.expect(c=[long])


def test_what_is_kept_in_windows_to_come_keeps_no_slot_now() -> None:
    lab = Lab()
    policy: Any = lab.grid.scheduler.policy
    lab.pcs("a", uptime=100)
    lab.pcs("b", uptime=100)
    lab.grid.tell(ev.WorkerLeft("b", planned=True, windows=[(200, 100)]))

    def steps(view: ParallelView) -> list[Start | Keep]:
        (site,) = view.sites
        (opens, _, host), *_ = view.coming(site)
        return [Keep(view.waiting[0], ((site.hosts[0], 1), (host, 1)), opens)]

    policy.parallel = Told(steps)
    lab.submit(10)
    (single,) = lab.grid.tasks(50, bag=1)
    lab.grid.expect(a=[single])


def test_as_many_slots_are_kept_as_the_ranks_need() -> None:
    for policy in (packing(), fcfs()):
        lab = Lab(policy)
        lab.pcs("a", slots=4)
        lab.grid.wait(60)  # all slots of a PC are used now
        lab.grid.tasks(20, bag=1)
        assert len(lab.grid.tell_pass()) == 1
        (gang,) = lab.submit(10, need=Need(slots=3, gang=True))
        assert lab.starts() == {gang: "a"}
        lab.began(gang)
        (wide,) = lab.submit(10, need=Need(slots=4), bag=2)
        singles = lab.grid.tasks(30, 30, bag=3)
        lab.end(gang)
        lab.grid.expect()
        lab.grid.cancel(wide)
        assert sorted(task for tasks in lab.grid.tell_pass().values() for task in tasks) == singles


def test_a_policy_that_knows_no_runtimes_gets_no_slot_that_is_kept() -> None:
    lab = Lab(fcfs())
    lab.pcs("a", "b")
    (long,) = lab.grid.tasks(100, bag=1)
    lab.grid.tell_pass()
    (gang,) = lab.submit(10)
    short, other = lab.grid.tasks(1, 1, bag=2)
    lab.grid.expect()
    lab.grid.end(long, elapsed=100.0)
    assert len(lab.starts()[gang]) == 3
    lab.end(gang)
    assert sorted(task for tasks in lab.grid.tell_pass().values() for task in tasks) == [short, other]


def test_it_is_known_since_when_slots_are_kept_and_the_policy_is_asked_again_when_they_are_not_free_in_time() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (running,) = lab.submit(10)
    lab.starts()
    lab.began(running)
    (waits,) = lab.submit(10, bag=1)
    reserved = lab.grid.inside.gangs.reserved
    assert lab.starts() == {}
    assert lab.grid.inside.gangs.reserved == {waits: (10.0, 0.0)}
    lab.grid.wait(10.0)
    assert lab.starts() == {}
    assert lab.grid.inside.gangs.reserved == {waits: (10.0, 0.0)}
    assert lab.grid.scheduler.wakes_at == 10.0 + AGAIN_S
    lab.end(running)
    assert lab.starts() == {waits: "a b"}
    assert lab.grid.inside.gangs.reserved == {}
    assert reserved == {}


def test_a_piece_of_a_task_goes_to_no_slot_that_is_kept() -> None:
    lab = Lab()
    lab.pcs("a", "b", uptime=1000)
    (long,) = lab.grid.tasks(200, bag=1)
    lab.grid.expect(a=[long])
    lab.submit(10)
    (piece,) = lab.grid.tasks(5000, bag=2, min_piece=1.0)
    lab.grid.expect()
    lab.grid.pc("c", 1000, site="zoo")
    lab.grid.expect(c=[piece])


def test_a_gang_takes_the_place_of_a_copy() -> None:
    lab = Lab(fcfs())
    lab.pcs("a", "b")
    (task,) = lab.grid.tasks(1, bag=1, copies=True)
    assert lab.grid.tell_pass() in ({"a": [task]}, {"b": [task]})
    lab.grid.wait(10)
    assert len(lab.grid.tell_pass()) == 1  # the copy
    (gang,) = lab.submit(10, need=Need(gang=True))
    commands = lab.grid.tell(ev.PassDue())
    assert [type(command).__name__ for command in commands] == ["Stop", "StartGang"]
    assert lab.grid.state(gang) == State.SENT


# --- whose turn it is ------------------------------------------------------------------------------------------------


def test_owners_take_turns_and_bags_of_higher_priority_come_first() -> None:
    lab = Lab()
    lab.pcs("a", slots=2)
    anns = lab.submit(1000, 1000, key=CategoryKey("ann"))
    bobs = lab.submit(10, bag=1, key=CategoryKey("bob"))
    urgent = lab.submit(10, bag=2, key=CategoryKey("bob", 1))
    assert lab.starts() == {anns[0]: "a a"}
    assert lab.end(anns[0], elapsed=1000.0) == [[anns[0]]]
    assert lab.starts() == {urgent[0]: "a a"}
    lab.end(urgent[0])
    assert lab.starts() == {bobs[0]: "a a"}
    lab.end(bobs[0])
    assert lab.starts() == {anns[1]: "a a"}


def test_what_is_short_overtakes_only_what_has_the_same_turn() -> None:
    lab = Lab()
    policy: Any = lab.grid.scheduler.policy
    policy.parallel = default_policy()
    lab.pcs("a", slots=2)
    anns = lab.submit(1000, 10, key=CategoryKey("ann"))
    lab.grid.wait(1)
    bobs = lab.submit(2000, bag=1, key=CategoryKey("bob"))
    lab.grid.wait(1)
    urgent = lab.submit(900, bag=2, key=CategoryKey("ann", 1))
    assert lab.starts() == {urgent[0]: "a a"}
    lab.end(urgent[0], elapsed=900.0)
    assert lab.starts() == {bobs[0]: "a a"}
    lab.end(bobs[0], elapsed=2000.0)
    assert lab.starts() == {anns[0]: "a a"}


def test_when_a_start_changes_the_turns_the_policy_is_asked_again() -> None:
    lab = Lab()
    lab.pcs("a", slots=4)
    anns = lab.submit(1000, 1000, key=CategoryKey("ann"))
    bobs = lab.submit(1000, 10, bag=1, key=CategoryKey("bob"))
    assert list(lab.starts()) == [anns[0], bobs[0]]


def test_limits_and_licences_hold() -> None:
    lab = Lab()
    lab.grid.tell(ev.LicencesCounted({"lic": 1}))
    lab.pcs("a", slots=8)
    limited = lab.submit(10, 10, key=CategoryKey(limit=1, bag=0))
    licensed = lab.submit(10, 10, bag=1, key=CategoryKey(licences=(("lic", 1),)))
    assert list(lab.starts()) == [limited[0], licensed[0]]
    lab.began(licensed[0])
    assert lab.grid.tell(ev.TasksCancelled(spans_of(licensed[:1]))) == [cmd.Stop("a", [lab.grid.attempts[licensed[0]]])]
    assert lab.starts() == {}  # until it has stopped, the licence is in use
    lab.grid.tell(ev.AttemptsReturned("a", [lab.grid.attempts[licensed[0]]]))
    assert list(lab.starts()) == [licensed[1]]
    lab.end(limited[0])
    assert list(lab.starts()) == [limited[1]]


def test_a_paused_bag_starts_no_gang() -> None:
    lab = Lab()
    tasks = lab.submit(10, 10)
    lab.grid.tell(ev.BagGated(0, barred=True))
    lab.pcs("a", slots=2)
    assert lab.starts() == {}
    assert [lab.grid.state(task) for task in tasks] == [State.BARRED] * 2
    more = lab.submit(10, barred=True)
    lab.grid.tell(ev.BagGated(0, barred=False))
    lab.grid.tell(ev.TasksRouted(spans_of([*tasks, *more])))
    assert lab.starts() == {tasks[0]: "a a"}
    lab.grid.tell(ev.BagGated(0, barred=True))
    lab.grid.tell(ev.TasksRouted(spans_of([*tasks, *more])))
    assert [lab.grid.state(task) for task in (*tasks, *more)] == [State.SENT, State.BARRED, State.BARRED]


def gated(lab: Lab, barred: bool, tasks: Sequence[int], seconds: float) -> None:
    """Bag 0 is paused, or goes on; then time passes."""
    lab.grid.tell(ev.BagGated(0, barred=barred))
    lab.grid.tell(ev.TasksRouted(spans_of(tasks)))
    assert lab.starts() == {}
    lab.grid.wait(seconds)


def patience_of(lab: Lab) -> list[float]:
    """When the patience of each job ends that waits."""
    return [patience_ends(job) for queue in lab.grid.inside.gangs.queues.values() for job in queue.jobs]


def test_while_its_bag_is_paused_a_gang_does_not_lose_patience() -> None:
    lab = Lab()
    lab.grid.inside.policy.parallel = default_policy()  # type: ignore[attr-defined]
    tasks = lab.submit(1000)
    gated(lab, False, tasks, 2000.0)
    gated(lab, True, tasks, 9000.0)
    gated(lab, False, tasks, 100.0)
    gated(lab, True, tasks, 600.0)
    gated(lab, False, tasks, 1000.0)
    assert patience_of(lab) == [9600 + 5 * 1000]
    lab.pcs("a", "b")
    (short,) = lab.submit(1, bag=1)
    assert lab.starts() == {short: "a b"}
    lab.end(short)
    lab.grid.wait(5 * 1000 - 3100)
    lab.submit(1, bag=1)
    assert lab.starts() == {tasks[0]: "a b"}


def test_while_its_bag_waits_for_others_a_gang_does_not_lose_patience() -> None:
    lab = Lab()
    tasks = lab.submit(1000, barred=True)
    lab.grid.wait(50.0)
    tasks += lab.submit(2000, barred=True)
    gated(lab, True, tasks, 250.0)
    gated(lab, False, tasks, 10.0)
    assert patience_of(lab) == [300 + 5 * 1000, 300 + 5 * 2000]
    tasks += lab.submit(1000)
    gated(lab, True, tasks, 40.0)
    tasks += lab.submit(3000, barred=True)
    gated(lab, False, tasks, 0.0)
    assert patience_of(lab)[2:] == [310 + 40 + 5 * 1000, 310 + 40 + 5 * 3000]


# --- they end --------------------------------------------------------------------------------------------------------


def test_the_first_failure_ends_all_ranks_and_retries_are_of_the_whole() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    (task,) = lab.submit(10, need=Need(3, 3), retries=1)
    lab.starts()
    lab.began(task)
    assert lab.end(task, AttemptOutcome.ERROR, "b") == ["a", "c"]
    assert lab.starts() == {task: "a b c"}
    assert lab.end(task, AttemptOutcome.TIMEOUT, "a") == ["b", "c", [task]]
    assert lab.grid.state(task) == State.FAILED


def test_the_third_crash_ends_it_also_if_all_were_on_one_pc() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10)
    assert [lab.starts() and lab.end(task, AttemptOutcome.CRASH, "b") for _ in range(3)] == [
        ["a"],
        ["a"],
        ["a", [task]],
    ]
    assert not lab.grid.inside.quarantine.workers, "all are of one person"


def test_a_gang_may_be_the_trial_of_a_pc_in_quarantine() -> None:
    lab = Lab()
    lab.pcs("a", "b", slots=2)
    tasks = lab.submit(10, 10, 10, need=Need(gang=True))
    crashing = lab.grid.tasks(1, 1, 1, bag=5)
    for task in crashing:
        lab.grid.inside.quarantine.failed("b", 0, Person("ann", str(task)), 0.0, alone=False)
        lab.grid.cancel(task)
    assert list(lab.starts().values()) == ["a", "a"]
    assert lab.starts() == {}
    lab.grid.wait(11)
    assert lab.starts() == {tasks[2]: "b"}


def test_what_is_learned_and_charged_is_of_the_task_and_its_slots() -> None:
    lab = Lab()
    lab.pcs("a", slots=4)
    (task,) = lab.submit(100, need=Need(4, 4, speedup=Amdahl(0.0)))
    lab.starts()
    assert lab.gangs[task].runtime == 25.0
    account = lab.grid.inside.shares.account("")
    assert account.out_s == 100.0
    lab.end(task, elapsed=50.0)
    assert (account.out_s, account.used(0.0)) == (0.0, 200.0)
    assert lab.grid.inside.tasks.bags[0].took == 200.0


def test_when_one_pc_is_gone_the_others_stop_and_the_task_waits_in_its_place() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    first, second = lab.submit(10, 10)
    assert lab.starts() == {first: "a b"}
    lab.began(first)
    lab.grid.wait(4)
    attempt = lab.grid.attempts[first]
    assert lab.grid.tell(ev.WorkerLeft("b", planned=False)) == [cmd.Stop("a", [attempt])]
    assert lab.grid.scheduler.counters.kills == 1
    assert lab.grid.scheduler.counters.wasted_s == 8.0
    assert lab.starts() == {first: "a c"}
    assert lab.grid.answer([attempt]) == []
    lab.pcs("b", holds=[ev.HeldAttempt(attempt, 0, 4.0, 1)])
    assert lab.grid.inside.tasks.errors(first) == 0
    assert lab.grid.state(second) == State.WAITING


def test_a_gang_that_is_being_prepared_is_no_kill() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    lab.submit(10)
    lab.starts()
    lab.grid.tell(ev.WorkerLeft("b", planned=True))
    assert lab.grid.scheduler.counters.kills == 0
    assert lab.grid.scheduler.counters.planned_kills == 0


def test_a_gang_that_could_not_begin_pauses() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10)
    lab.starts()
    attempt = lab.grid.attempts[task]
    with pytest.raises(IllegalEvent):
        lab.grid.tell(ev.GangRefused(attempt, -1.0))
    assert told(lab.grid.tell(ev.GangRefused(attempt, 5.0))) == ["a", "b"]
    assert lab.grid.tell(ev.GangRefused(attempt, 5.0)) == []
    assert lab.grid.tell(ev.GangBegan(attempt)) == []
    assert lab.starts() == {}
    assert lab.grid.scheduler.wakes_at == 5.0
    lab.grid.wait(5)
    assert lab.starts() == {task: "a b"}


def test_a_gang_that_begins_later_ends_later() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10)
    lab.starts()
    lab.grid.wait(3)
    lab.began(task)
    (site,) = lab.grid.inside.gangs.sites
    assert [running.ends for running in site.running] == [13.0]
    assert [host.frees for host in site.hosts] == [[(13.0, 1)]] * 2
    lab.began(task)


def test_a_gang_ends_while_a_worker_has_still_to_stop_another_task() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    (task,) = lab.submit(10)
    lab.starts()
    lab.began(task)
    lab.grid.tell(ev.LicencesCounted({"lic": 1}))
    (single,) = lab.grid.tasks(5.0, bag=7, key=CategoryKey(licences=(("lic", 1),)))
    assert lab.grid.tell_pass() == {"c": [single]}
    lab.grid.cancel(single)
    assert lab.grid.inside.owed
    lab.grid.end(task)
    assert lab.grid.state(task) == State.DONE
    assert lab.grid.inside.owed


def test_a_worker_that_hands_a_rank_back_ends_the_gang() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10)
    lab.starts()
    assert told(lab.grid.tell(ev.AttemptsReturned("a", [lab.grid.attempts[task]]))) == ["b"]
    assert lab.grid.state(task) == State.WAITING


def test_a_silent_worker_of_a_gang_owes_the_answer_and_all_others_stop() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10, timeout=20.0)
    lab.starts()
    lab.began(task)
    attempt = lab.grid.attempts[task]
    lab.grid.wait(26)
    lab.grid.refresh("a", math.inf)
    commands = lab.grid.tell(ev.PassDue())
    assert told(commands) == ["a", "b"]
    assert lab.grid.scheduler.counters.overdue == 1
    assert lab.starts() == {}
    lab.grid.tell(ev.AttemptsReturned("a", [attempt]))
    assert lab.starts() == {task: "a b"}


def test_a_worker_that_is_silent_about_gangs_of_one_person_too_often_gets_no_gangs_and_none_of_that_persons_work() -> (
    None
):
    lab = Lab()
    lab.pcs("a", "b", slots=2)
    for _ in range(3):
        assert not lab.grid.inside.rests.until
        assert lab.grid.inside.avoided.until(CategoryKey(), "a") is None
        tasks = lab.submit(10, timeout=20.0, need=Need(gang=True))
        lab.starts()
        lab.began(tasks[0])
        lab.grid.wait(100)
        lab.grid.refresh("a", math.inf)
        lab.grid.tell(ev.PassDue())
        for task in tasks:
            lab.grid.tell(ev.AttemptsReturned("a", [lab.grid.attempts[task]]))
        lab.grid.cancel(*tasks)
    assert "a" in lab.grid.inside.rests.until
    assert lab.grid.inside.avoided.until(CategoryKey(), "a") is not None
    assert not lab.grid.inside.quarantine.workers


def test_a_gang_that_is_being_prepared_is_not_late() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10, timeout=20.0)
    lab.starts()
    for _ in range(10):
        lab.grid.wait(100)
        lab.grid.say_alive()
        assert lab.starts() == {}
    lab.began(task)
    lab.grid.wait(26)
    lab.grid.say_alive()
    assert told(lab.grid.tell(ev.PassDue())) == ["a", "b"]


def test_without_a_timeout_a_gang_may_take_long_as_long_as_its_workers_are_known() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10)
    lab.starts()
    lab.began(task)
    lab.grid.wait(200)
    lab.grid.say_alive()
    assert lab.starts() == {}
    assert lab.grid.state(task) == State.SENT
    lab.grid.wait(1e7)
    lab.grid.say_alive()
    assert told(lab.grid.tell(ev.PassDue())) == ["a", "b"]


# --- some ranks end before others ------------------------------------------------------------------------------------


def test_ranks_that_have_ended_leave_their_slots_and_their_worker_may_leave() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    (task,) = lab.submit(10, need=Need(3, 3))
    assert lab.starts() == {task: "a b c"}
    lab.began(task)
    attempt = lab.grid.attempts[task]
    lab.grid.wait(4)
    account = lab.grid.inside.shares.account("")
    assert lab.grid.tell(ev.RanksEnded(attempt, [0])) == []
    assert lab.grid.tell(ev.RanksEnded(attempt, [0])) == []  # it is known
    assert (account.out_s, account.used(0.0)) == (20.0, 4.0)
    assert lab.grid.tell(ev.WorkerLeft("a", planned=True)) == []
    assert places(lab, task) == {1: "b", 2: "c"}
    lab.grid.wait(6)
    assert lab.end(task, worker="a", elapsed=10.0) == [[task]]
    assert (account.out_s, account.used(0.0)) == (0.0, 24.0)
    assert lab.grid.scheduler.counters.kills == 0


def test_slots_of_ranks_that_have_ended_take_other_work() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10)
    lab.starts()
    lab.began(task)
    lab.grid.tell(ev.RanksEnded(lab.grid.attempts[task], [1]))
    assert list(lab.starts().values()) == []
    (other,) = lab.submit(10, need=Need(gang=True), bag=1)
    assert lab.starts() == {other: "b"}
    with pytest.raises(IllegalEvent):
        lab.grid.tell(ev.RanksEnded(lab.grid.attempts[task], [0]))
    assert lab.grid.tell(ev.RanksEnded(Attempt(task, 99), [0])) == []
    lab.grid.predict({task: 20.0})
    assert [running.ends for running in lab.grid.inside.gangs.sites[0].running] == [10.0, 20.0]


def test_a_gang_of_which_ranks_have_ended_survives_a_new_connection_of_another() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    (task,) = lab.submit(10, need=Need(3, 3))
    lab.starts()
    lab.began(task)
    attempt = lab.grid.attempts[task]
    lab.grid.tell(ev.RanksEnded(attempt, [1]))
    lab.grid.leave("b")
    lab.pcs("c", holds=[ev.HeldAttempt(attempt, 0, 1.0, 2)])
    assert lab.grid.state(task) == State.SENT
    assert lab.grid.pc("c", holds=[ev.HeldAttempt(attempt, 0, 1.0, 1)], site="lab") == {"a": [task], "c": [task]}


def test_after_a_restart_ranks_that_had_ended_are_not_awaited() -> None:
    lab = Lab()
    lab.pcs("b")
    attempt = Attempt(0, 0)
    lab.submit(10, need=Need(3, 3), held=[attempt])
    assert lab.grid.tell(ev.RanksEnded(attempt, [0])) == []
    assert lab.grid.tell(ev.RanksEnded(attempt, [2])) == []
    lab.pcs("c", holds=[ev.HeldAttempt(attempt, 0, 3.0, 1)])
    assert places(lab, 0) == {1: "c"}
    assert lab.grid.scheduler.is_gang_back(attempt)
    assert lab.grid.tell(ev.GangBegan(attempt)) == []
    assert lab.grid.state(0) == State.SENT
    lab.grid.attempts[0] = attempt
    assert lab.end(0, worker="c") == [[0]]


def test_after_a_restart_ranks_that_are_back_and_end_are_awaited_no_more() -> None:
    lab = Lab()
    attempt = Attempt(0, 0)
    lab.submit(10, held=[attempt])
    lab.pcs("a", holds=[ev.HeldAttempt(attempt, 0, 3.0, 0)])
    assert lab.grid.tell(ev.RanksEnded(attempt, [0])) == []
    assert not lab.grid.scheduler.is_gang_back(attempt)
    lab.pcs("b", holds=[ev.HeldAttempt(attempt, 0, 3.0, 1)])
    assert lab.grid.tell(ev.GangBegan(attempt)) == []
    assert lab.grid.state(0) == State.SENT


# --- connections and restarts ----------------------------------------------------------------------------------------


def held(lab: Lab, task: int, **ranks: str) -> dict[str, list[ev.HeldAttempt]]:
    """What workers still hold of a gang: the ranks of each."""
    attempt = lab.grid.attempts[task]
    return {
        name: [ev.HeldAttempt(attempt, slot, 4.0, int(rank)) for slot, rank in enumerate(its.split())]
        for name, its in ranks.items()
    }


def test_a_gang_survives_a_new_connection_of_a_worker_that_still_has_all_its_ranks() -> None:
    lab = Lab()
    lab.pcs("a", "b", slots=2)
    (task,) = lab.submit(10, need=Need(4, 4))
    assert lab.starts() == {task: "a a b b"}
    lab.began(task)
    lab.pcs("b", slots=2, holds=held(lab, task, b="2 3")["b"])
    assert lab.grid.state(task) == State.SENT
    assert lab.grid.scheduler.has_gang(lab.grid.attempts[task])
    assert told(lab.grid.tell(ev.WorkerJoined("b", 2, math.inf, site="lab", holds=held(lab, task, b="2")["b"]))) == [
        "a",
        "b",
    ]
    assert lab.grid.state(task) == State.WAITING
    assert not lab.grid.scheduler.has_gang(lab.grid.attempts[task])


@pytest.mark.parametrize(
    "changes", [{"slots": 1}, {"site": "elsewhere"}, {"amounts": of_memory(3)}, {"labels": frozenset()}]
)
def test_a_worker_that_comes_back_with_less_or_elsewhere_loses_the_gang(changes: dict[str, Any]) -> None:
    lab = Lab()
    lab.pcs("a", "b", slots=2, amounts=of_memory(8), labels=frozenset({"gpu"}))
    (task,) = lab.submit(10, need=Need(2, 2, slots=2, amounts=of_memory(4), labels=frozenset({"gpu"})))
    lab.starts()
    lab.began(task)
    attempt = lab.grid.attempts[task]
    holds = [ev.HeldAttempt(attempt, slot, 4.0, 1) for slot in range(2)]
    facts: dict[str, Any] = {"slots": 2, "site": "lab", "amounts": of_memory(8), "labels": frozenset({"gpu"})} | changes
    assert "a" in told(lab.grid.tell(ev.WorkerJoined("b", uptime=math.inf, holds=holds, **facts)))
    assert lab.grid.state(task) == State.WAITING


def test_ranks_that_come_back_elsewhere_after_a_restart_are_not_back() -> None:
    lab, task = restored()
    attempt = lab.grid.attempts[task]
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    assert not lab.grid.scheduler.is_gang_back(attempt)
    lab.grid.pc("b", site="elsewhere", holds=held(lab, task, b="0")["b"])
    assert not lab.grid.scheduler.is_gang_back(attempt)
    lab.pcs("b", holds=held(lab, task, b="0")["b"])
    assert lab.grid.scheduler.is_gang_back(attempt)
    lab.began(task)
    assert lab.grid.scheduler.is_gang_back(attempt)
    lab.end(task)
    assert not lab.grid.scheduler.is_gang_back(attempt)


def restored(**more: Any) -> tuple[Lab, int]:
    """A gang of two ranks has run since before a restart."""
    lab = Lab()
    attempt = Attempt(0, 0)
    (task,) = lab.submit(10, held=[attempt], **more)
    lab.grid.attempts[task] = attempt
    return lab, task


def test_after_a_restart_a_gang_goes_on_when_all_its_ranks_are_back() -> None:
    lab, task = restored()
    lab.grid.wait(1)
    assert lab.grid.scheduler.has_gang(lab.grid.attempts[task])
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    assert lab.starts() == {}
    assert places(lab, task) == {1: "a"}
    with pytest.raises(IllegalEvent):
        lab.grid.tell(ev.GangBegan(lab.grid.attempts[task]))
    lab.pcs("b", holds=held(lab, task, b="0")["b"])
    lab.began(task)
    assert lab.grid.state(task) == State.SENT
    gang = lab.grid.inside.gangs.running[task]
    assert places(lab, task) == {0: "b", 1: "a"}
    assert (len(gang.slots), gang.seconds, lab.grid.now - gang.since, gang.began) == (2, 10.0, 4.0, True)
    assert lab.end(task) == [[task]]


def test_a_worker_that_connects_again_before_all_ranks_are_back_says_anew_what_it_has() -> None:
    lab, task = restored()
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    lab.pcs("b", holds=held(lab, task, b="0")["b"])
    lab.began(task)
    assert lab.grid.state(task) == State.SENT


def test_what_cannot_be_a_rank_of_a_gang_is_stopped() -> None:
    lab, task = restored()
    twice = held(lab, task, a="0")["a"] * 2
    beyond = [ev.HeldAttempt(lab.grid.attempts[task], 7, 1.0, 1)]
    assert lab.grid.pc("a", site="lab", holds=[*twice, *beyond]) == {"a": [task, task]}


def test_ranks_that_never_come_back_end_the_others() -> None:
    lab, task = restored()
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    assert told(lab.grid.tell(ev.HoldExpired())) == ["a"]
    assert lab.grid.state(task) == State.WAITING
    assert not lab.grid.inside.lost


def test_a_gang_of_which_no_rank_comes_back_waits_when_the_hold_expires() -> None:
    lab, task = restored(barred=True)
    assert lab.grid.tell(ev.HoldExpired()) == []
    assert lab.grid.state(task) == State.BARRED
    assert not lab.grid.inside.lost


def test_an_awaited_gang_may_end_or_be_cancelled() -> None:
    lab, task = restored()
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    assert lab.end(task, AttemptOutcome.ERROR, "b") == ["a", [task]]
    lab, task = restored()
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    assert lab.end(task, worker="a") == [[task]]
    lab, task = restored()
    lab.pcs("a", holds=held(lab, task, a="1")["a"])
    assert lab.grid.cancel(task) == {"a": [task]}


# --- PCs are unequal -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [pgs(), packing(), packing(confidence=0.9)], ids=["pgs", "packing", "confident"])
def test_a_single_task_fits_where_its_runtime_at_that_speed_does(policy: Policy) -> None:
    grid = Grid(policy)
    grid.pc("slow", 100, speed=0.5)
    (long, short) = grid.tasks(60, 40)
    grid.expect(slow=[short])
    assert grid.inside.slots.slots[0].due == 80.0
    grid.wait(80)
    grid.end(short, elapsed=80.0, worker="slow")
    assert grid.inside.tasks.bags[0].took == 40.0
    grid.pc("quick", 100)
    grid.expect(quick=[long])


def test_slots_of_all_speeds_are_found_by_what_is_left_of_them() -> None:
    grid = Grid(pgs())
    grid.pc("a", 100, speed=0.5)
    grid.pc("b", 60)
    grid.pc("c", 100, speed=2.0)
    tasks = grid.tasks(55, 45, 150)
    grid.expect(a=tasks[1:2], b=tasks[:1], c=tasks[2:])


def test_plans_and_last_places_take_the_speeds_of_pcs_into_account() -> None:
    grid = Grid(packing(confidence=0.9))
    grid.pc("slow", 100, speed=0.5, windows=[(200, 100)])
    grid.pc("quick", 100, windows=[(200, 100)])
    tasks = grid.tasks(90, 90, 45, 40)
    assert grid.tell_pass() == {"slow": [tasks[2]], "quick": [tasks[0]]}
    grid.wait(91)
    grid.end(tasks[0], elapsed=91.0, worker="quick")
    grid.end(tasks[2], elapsed=90.0, worker="slow")
    grid.leave("slow")
    grid.leave("quick")
    grid.tell_pass()
    grid.wait(110)
    grid.pc("quick", 100)
    grid.expect(quick=[tasks[1]])


def test_a_chance_is_taken_where_a_task_is_likely_to_end_at_that_speed() -> None:
    grid = Grid(packing(confidence=0.9))
    grid.pc("slow", 100, speed=0.5)
    learned = grid.tasks(*[10.0] * 12)
    for task, seconds in zip(learned, (5, 10, 20, 40) * 3, strict=True):
        grid.tell_pass()
        running = next(t for t in learned if grid.state(t) == State.SENT)
        grid.end(running, elapsed=2.0 * seconds, worker="slow")
        del task
    (task,) = grid.tasks(10.0)
    assert grid.tell_pass() == {"slow": [task]}
    grid.wait(10)
    assert grid.view.expected_free(0) > 20.0


def test_a_slot_that_a_gang_has_is_expected_to_be_free_when_the_gang_ends() -> None:
    lab = Lab()
    lab.pcs("a", slots=2)
    lab.submit(10)
    lab.starts()
    assert [lab.grid.view.expected_free(number) for number in (0, 1)] == [10.0, 10.0]
    assert [(at.free, at.closes) for at in lab.grid.view.open_slots()] == [(10.0, math.inf)] * 2


def test_any_slot_may_be_asked_for_whatever_its_speed() -> None:
    grid = Grid(fcfs())
    for name, speed in (("a", 0.5), ("b", 1.0), ("c", 0.7)):
        grid.pc(name, 100, speed=speed)
    (task,) = grid.tasks(1)
    grid.tell_pass()
    assert grid.state(task) == State.SENT
    view = grid.view
    found = {view.slot_with_room(place) for place in range(view.slots_with_room())}
    assert len(found) == view.slots_with_room() == 2


def test_a_worker_that_becomes_faster_fits_more() -> None:
    lab = Lab(pgs())
    lab.pcs("a", uptime=100, speed=0.123)
    (task,) = lab.grid.tasks(50)
    lab.grid.expect()
    assert lab.grid.inside.slots.workers["a"].speed == 0.12
    lab.grid.tell(ev.WorkerMeasured("gone", 1.0, 0.0))
    lab.grid.tell(ev.WorkerMeasured("a", 0.123, 0.01))
    assert not lab.grid.inside.dirty
    lab.grid.tell(ev.WorkerMeasured("a", 0.999, 0.5))
    lab.grid.expect(a=[task])
    worker = worker_view(lab.grid.inside, "a", 0.0, 9, 9)
    assert (worker.speed, worker.load, worker.site) == (0.999, 0.5, "lab")
    with pytest.raises(IllegalEvent):
        lab.grid.tell(ev.WorkerMeasured("a", 0.0, 0.5))
    with pytest.raises(IllegalEvent):
        lab.grid.tell(ev.WorkerMeasured("a", 1.0, 1.5))


def test_a_gang_on_a_worker_that_becomes_slower_ends_when_it_was_to_end() -> None:
    lab = Lab()
    lab.pcs("a", slots=2)
    lab.submit(10)
    lab.starts()
    lab.grid.tell(ev.WorkerMeasured("a", 0.5, 0.0))
    assert [slot.due for slot in lab.grid.inside.slots.slots.values()] == [10.0, 10.0]


def test_checkpoints_of_a_slow_worker_tell_what_is_left_at_speed_one() -> None:
    grid = Grid(packing())
    grid.pc("a", 1000, speed=0.5)
    (task,) = grid.tasks(100, bag=1, min_piece=1.0)
    grid.expect(a=[task])
    grid.tell(ev.CheckpointKept(grid.attempts[task], None, 50.0, 1.0))
    assert grid.scheduler.left_s(task) == 75.0


# --- labels and memory of single tasks -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [pgs(), packing(), fcfs()], ids=lambda policy: policy.name)
def test_single_tasks_go_only_where_their_labels_are(policy: Policy) -> None:
    grid = Grid(policy)
    (picky,) = grid.tasks(10, bag=1, need=Need(labels=frozenset({"gpu"})))
    (plain,) = grid.tasks(10)
    grid.pc("a")
    grid.expect(a=[plain])
    grid.pc("b", labels=frozenset({"gpu", "matlab"}))
    grid.expect(b=[picky])


@pytest.mark.parametrize("policy", [pgs(), packing(), fcfs()], ids=lambda policy: policy.name)
def test_never_more_of_a_workers_memory_is_promised_than_it_has(policy: Policy) -> None:
    grid = Grid(policy)
    grid.pc("a", slots=4, amounts=of_memory(10))
    tasks = grid.tasks(10, 10, 10, 10, bag=1, need=Need(amounts=of_memory(4)))
    assert sum(map(len, grid.tell_pass().values())) == 2
    plain = grid.tasks(10, 10)
    assert sum(map(len, grid.tell_pass().values())) == 2
    running = [task for task in tasks if grid.state(task) == State.SENT]
    grid.end(*plain)
    assert grid.tell_pass() == {}
    grid.end(running[0])
    assert sum(map(len, grid.tell_pass().values())) == 1


def test_a_gang_counts_the_memory_of_single_tasks() -> None:
    lab = Lab()
    lab.pcs("a", slots=4, amounts=of_memory(10))
    (single,) = lab.grid.tasks(10, bag=1, need=Need(amounts=of_memory(4)))
    lab.grid.tell_pass()
    (task,) = lab.submit(10, need=Need(2, 2, amounts=of_memory(4)))
    assert lab.starts() == {}
    lab.grid.end(single)
    assert lab.starts() == {task: "a a"}


def test_memory_of_a_silent_worker_is_in_use_until_it_answers() -> None:
    grid = Grid(pgs())
    grid.pc("a", slots=2, amounts=of_memory(10))
    first, second = grid.tasks(10, 10, bag=1, need=Need(amounts=of_memory(6)), timeout=20.0)
    grid.expect(a=[first])
    grid.wait(100)
    grid.say_alive()
    (given_up,) = grid.tell(ev.PassDue())
    assert isinstance(given_up, cmd.GiveUp)
    assert grid.tell_pass() == {}
    grid.tell(ev.AttemptsReturned("a", given_up.attempts))
    assert sum(map(len, grid.tell_pass().values())) == 1
    assert {grid.state(first), grid.state(second)} == {State.SENT, State.WAITING}


def test_a_worker_that_comes_back_with_a_task_has_promised_its_memory() -> None:
    grid = Grid(pgs())
    grid.pc("a", slots=2, amounts=of_memory(10))
    first, _ = grid.tasks(10, 10, bag=1, need=Need(amounts=of_memory(6)))
    grid.expect(a=[first])
    grid.leave("a", planned=False)
    grid.pc("a", slots=2, amounts=of_memory(10), holds=[grid.holds(first, 1.0)])
    grid.expect()


@pytest.mark.parametrize("less", [{"amounts": of_memory(5)}, {"labels": frozenset()}])
def test_a_worker_that_comes_back_with_less_than_its_task_needs_is_to_stop_it(less: dict[str, Any]) -> None:
    grid = Grid(pgs())
    has: dict[str, Any] = {"amounts": of_memory(10), "labels": frozenset({"gpu"})}
    grid.pc("a", **has)
    (task,) = grid.tasks(10, bag=1, need=Need(amounts=of_memory(6), labels=frozenset({"gpu"})))
    grid.expect(a=[task])
    assert grid.pc("a", **has | less, holds=[grid.holds(task, 1.0)]) == {"a": [task]}
    assert grid.state(task) == State.WAITING
    grid.expect()


def test_checkpointable_tasks_count_their_memory_too() -> None:
    grid = Grid(packing())
    grid.pc("a", 1000, slots=2, amounts=of_memory(10))
    grid.tasks(5000, 5000, bag=1, need=Need(amounts=of_memory(6)), min_piece=1.0)
    assert sum(map(len, grid.tell_pass().values())) == 1


# --- predictions, and what is shown ----------------------------------------------------------------------------------


def test_jobs_take_new_predictions() -> None:
    lab = Lab()
    tasks = lab.submit(10, 10)
    lab.starts()
    (queue,) = lab.grid.inside.gangs.queues.values()
    lab.grid.predict({tasks[1]: 5.0})
    assert [job.runtime for job in queue.jobs] == [10.0, 5.0]
    lab.grid.tell(ev.BagPredicted(0, 7.0))
    assert [job.runtime for job in queue.jobs] == [7.0, 7.0]


def test_the_end_of_a_gang_moves_with_its_prediction() -> None:
    lab = Lab()
    lab.pcs("a", slots=4)
    (task,) = lab.submit(10, need=Need(4, 4, speedup=Amdahl(0.0)))
    (instant,) = lab.submit(0, bag=1)
    lab.starts()
    lab.grid.wait(1)
    lab.grid.predict({task: 20.0})
    (site,) = lab.grid.inside.gangs.sites
    assert [running.ends for running in site.running] == [5.0]
    assert lab.grid.scheduler.outlived({task: 4.0}, 1.0) == {}
    assert set(lab.grid.scheduler.outlived({task: 6.0}, 1.0)) == {task}
    for _ in range(2):
        lab.grid.tell(ev.BagPredicted(0, 8.0))
        assert [running.ends for running in site.running] == [2.0]
    lab.end(task)
    lab.grid.wait(1)
    assert lab.starts() == {instant: "a a"}
    assert lab.grid.scheduler.outlived({instant: 1.0}, 2.0).keys() == {instant}
    lab.grid.predict({instant: 3.0})
    assert [running.ends for running in site.running] == [5.0]


def test_what_a_slow_pc_needed_counts_at_speed_one() -> None:
    grid = Grid(pgs())
    grid.pc("slow", 100, speed=0.5)
    (task,) = grid.tasks(10)
    grid.expect(slow=[task])
    grid.wait(30)
    assert grid.scheduler.outlived({task: 19.0}, 30.0) == {}
    assert grid.scheduler.outlived({task: 30.0}, 30.0)[task] >= 15.0


def test_windows_to_come_are_known_of_pcs_that_are_up_and_away() -> None:
    lab, seen = Lab(), list[Any]()
    policy: Any = lab.grid.scheduler.policy

    def steps(view: ParallelView) -> list[Start]:
        found = [[(o, c, host.name) for o, c, host in view.coming(site)] for site in view.sites]
        seen.extend([found, view.singles])
        return []

    policy.parallel = Told(steps)
    lab.pcs("a", uptime=10, windows=[(20, 5)])
    lab.pcs("b", uptime=10)
    lab.pcs("c", uptime=10, site="hall")
    lab.grid.tell(ev.WorkerLeft("b", planned=True, windows=[(15, 9)]))
    lab.grid.tell(ev.UptimeRefreshed("never", 0.0, [(1, 2)]))
    lab.submit(5)
    lab.starts()
    assert seen == [[[], [(15, 24, "b"), (20, 25, "a")]], False]
    lab.grid.wait(16)
    lab.submit(10)
    lab.starts()
    assert seen[2] == [[], [(17, 24, "b"), (20, 25, "a")]]  # it is late by a second, and may be late by another
    lab.grid.wait(3)
    lab.submit(10)
    lab.starts()
    assert seen[4] == [[], [(20, 25, "a"), (23, 24, "b")]]
    lab.grid.wait(0.5)
    lab.submit(10)
    lab.starts()
    assert seen[6] == [[], [(20, 25, "a")]]


def test_a_gang_is_one_task_and_its_slots_are_busy() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    first, second = lab.submit(10, 10)
    lab.starts()
    lab.began(first)
    lab.grid.wait(4)
    (bag,) = bags(lab.grid.scheduler, lab.grid.now)
    assert (bag.running, bag.total) == (1, 2)
    assert [worker_view(lab.grid.inside, name, 4.0, 9, 9).busy for name in "ab"] == [1, 1]
    attempt = lab.grid.attempts[first]
    assert lab.grid.scheduler.find(attempt) == ("a", 0.0)
    assert lab.grid.scheduler.find(Attempt(first, 99)) is None
    assert lab.grid.scheduler.find(Attempt(second, 99)) is None
    assert lab.grid.scheduler.attempts_at("a") == [attempt]


def test_a_bag_that_is_forgotten_leaves_nothing() -> None:
    lab = Lab()
    (task,) = lab.submit(10)
    other = lab.submit(10, bag=1)
    lab.grid.cancel(task, *other)
    lab.grid.tell(ev.BagForgotten(0))
    assert lab.grid.inside.gangs.queues
    lab.grid.tell(ev.BagForgotten(1))
    assert not lab.grid.inside.gangs.queues


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda s: s.gangs.running[0].slots.pop(), "slots of the gang"),
        (lambda s: s.gangs.running.clear(), "gangs of slots"),
        (lambda s: setattr(s.gangs.sites[0], "idle", 5), "idle slots of site"),
        (lambda s: setattr(s.gangs.machines["a"], "occupied", of_memory(5)), "amounts of gangs"),
        (lambda s: setattr(s.slots.slots[2], "closes", 5.0), "slot 2 is kept"),
        (lambda s: s.gangs.queues.clear(), "whether tasks of"),
        (lambda s: next(iter(s.gangs.queues.values())).tasks.pop(), "jobs in order"),
    ],
)
def test_the_check_finds(spoil: Callable[[Any], object], what: str) -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    lab.submit(10, 10)
    lab.starts()
    spoil(lab.grid.inside)
    with pytest.raises(InvariantBroken, match=what):
        check_gangs(lab.grid.inside)
