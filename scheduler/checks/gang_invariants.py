"""Checks that what is known of parallel tasks agrees, as in `deskgrid.scheduler.checks.invariants`: for tests."""

from collections.abc import Iterator

from deskgrid.scheduler.model import State, agree, near
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.gangs import Machine, host_of
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Gang, Slot
from deskgrid.scheduler.state.suitable import free_memory


def check_gangs(grid: SchedulerState) -> None:
    """Raise `InvariantBroken` if gangs, waiting parallel tasks, sites or PCs are not what they should be."""
    table = grid.gangs
    parallel = [category for category in grid.categories.by_key.values() if category.parallel]
    agree("parallel tasks are looked after", table.awake or not parallel, True)
    agree("gangs of slots", {slot.gang for slot in _taken(grid)} - set(table.running.values()), set())
    for gang in table.running.values():
        _check_gang(grid, gang)
    waiting: dict[CategoryKey, list[int]] = {}
    for task, state in grid.tasks.each():
        if state == State.WAITING and (category := grid.tasks.known(task).bag.category).parallel:
            waiting.setdefault(category.key, []).append(task)
    for key, tasks in waiting.items():
        agree(f"whether tasks of {key} wait", key in table.queues, True)
        agree(f"tasks of {key} that wait", bool(tasks), True)
    for key, queue in table.queues.items():
        queue.check(waiting.get(key, []))
    if table.awake:
        _check_machines(grid)
    _check_kept(grid)


def _taken(grid: SchedulerState) -> Iterator[Slot]:
    return (slot for slot in grid.slots.slots.values() if slot.gang is not None)


def _check_gang(grid: SchedulerState, gang: Gang) -> None:
    """A gang is whole: it has all its slots, and nothing else is there. Or it is awaited since a restart."""
    task, number = gang.attempt
    state = grid.tasks.state(task)
    has = [slot for slot in _taken(grid) if slot.gang is gang]
    agree(f"slots of the gang of task {task}", sorted(slot.number for slot in gang.slots), [s.number for s in has])
    for slot in has:
        agree(f"attempts on slot {slot.number}", [sent.attempt for sent in slot.sent], [gang.attempt])
        near(f"seconds of a gang on slot {slot.number}", slot.sent[0].runtime, gang.seconds * slot.speed)
        agree(f"gang on slot {slot.number} began", slot.started >= gang.since, True)
    agree(f"ranks of task {task} that are back, and over", gang.back.keys() & gang.over, set())
    if state == State.HELD:
        agree(
            f"the gang of task {task}, which is awaited",
            (gang.running, task in grid.lost and grid.lost[task].number),
            (None, number),
        )
        back = [slot for _, row in sorted(gang.back.items()) for slot in row]
        agree(f"ranks of task {task} that are back", back, gang.slots)
        return
    agree(f"state of task {task}, which has a gang", state, State.SENT)
    assert gang.running is not None  # between two events it never is
    need, running = gang.bag.need, gang.running
    agree(f"ranks of task {task}", need.least <= gang.size <= need.most, True)
    agree(f"task {task} has ranks that have not ended", bool(gang.ranks), True)
    places = [(slot.worker.name, slot.position) for slot in gang.slots]
    ranks = [(place.worker, position) for place in gang.ranks for position in place.slots]
    agree(f"places of the ranks of task {task}", ranks, places)
    agree(f"slots of each rank of task {task}", {len(place.slots) for place in gang.ranks}, {need.slots})
    agree(f"sites of task {task}", {host.site for host, _ in running.ranks}, {running.site})
    for host, many in running.ranks:
        agree(f"ranks of task {task} on {host.name}", many, [place.worker for place in gang.ranks].count(host.name))
    agree(f"task {task} is among those that run at its site", running.site.running.count(running), 1)
    near(f"seconds of task {task}", running.ends - running.started, gang.seconds, largest=running.ends)
    near(f"what task {task} is charged", gang.out_s, gang.seconds * len(gang.slots))


def _check_machines(grid: SchedulerState) -> None:
    """Hosts are what their workers are, and the sums of sites match those of their hosts."""
    table = grid.gangs
    agree("machines", {name: machine.worker for name, machine in table.machines.items()}, grid.slots.workers)
    hosts = [host for site in table.sites for host in site.hosts]
    agree("hosts", {id(host) for host in hosts}, {id(machine.host) for machine in table.machines.values()})
    agree("sites by name", [site.name for site in table.sites], sorted(site.name for site in table.sites))
    for site in table.sites:
        agree(f"slots of site {site.name}", site.slots, sum(host.slots for host in site.hosts))
        agree(f"idle slots of site {site.name}", site.idle, sum(host.idle for host in site.hosts))
        ends = [running.ends for running in site.running]
        agree(f"what runs at site {site.name}, by ends", ends, sorted(ends))
        here = {gang.running for gang in table.running.values() if gang.running and gang.running.site is site}
        agree(f"what runs at site {site.name}", set(site.running), here)
    for name, machine in table.machines.items():
        _check_machine(grid, name, machine)


def _check_machine(grid: SchedulerState, name: str, machine: Machine) -> None:
    table, worker, host = grid.gangs, machine.worker, machine.host
    whole = {task: gang for task, gang in table.running.items() if gang.running is not None}
    has = {task: sum(slot.worker is worker for slot in gang.slots) for task, gang in whole.items()}
    agree(f"gangs on {name}", {t: many for t, (_, many) in machine.gangs.items()}, {t: n for t, n in has.items() if n})
    needs = sum(n // gang.bag.need.slots * gang.bag.need.memory for task, gang in whole.items() for n in [has[task]])
    agree(f"memory of gangs on {name}", machine.occupied, needs)
    agree(f"more memory of {name} is promised than there is", free_memory(grid, worker) < 0.0, False)
    if name in table.touched or any(slot.number in grid.dirty for slot in worker.slots):
        return
    free = [
        slot.position
        for slot in worker.slots
        if not (slot.sent or slot.queue) and slot.owes is None and slot.position < worker.width
    ]
    rests = grid.rests.shuts_until(name, [ends for ends, _ in machine.gangs.values()]) is not None
    free = [] if grid.quarantine.shuts_out(worker) or rests else free
    agree(f"idle slots of {name}", sorted(slot.position for slot in machine.free), free)
    agree(f"how many slots of {name} are idle", host.idle, len(free))
    agree(f"memory of {name}", host.memory, free_memory(grid, worker))
    agree(f"ends on {name}", host.frees, sorted(host.frees))
    true = host_of(worker, host.site, len(worker.slots))
    kept = (host.slots, host.closes, host.speed, host.load, host.labels)
    agree(f"host {name}", kept, (true.slots, true.closes, true.speed, true.load, true.labels))


def _check_kept(grid: SchedulerState) -> None:
    """Slots that are not kept close with their workers."""
    kept = grid.gangs.kept
    for number, slot in grid.slots.slots.items():
        agree(f"slot {number} is kept", slot.closes < slot.worker.ends_at and number not in kept, False)
    agree("kept slots", {number: slot for number, slot in kept.items() if grid.slots.slots.get(number) is not slot}, {})
