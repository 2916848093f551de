"""A failure in the broker costs at most the peer that caused it: others go on, and nothing is lost."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle as turns
from pathlib import Path

import pytest

from deskgrid.broker.auth.roles import Credential, Role
from deskgrid.scheduler.state.rests import LONGEST_REST_S, SILENT_REST_S
from deskgrid.wire import TaskOptions
from deskgrid.worker.deliveries import Deliveries
from deskgrid.worker.gangs import WorkerGangs
from tests.counting import COUNTS, tried
from tests.grid import broker_node
from tests.grid.builders import bag
from tests.grid.clients import ClientNode
from tests.grid.faulting import ERRORS, SETTLE, VICTIM, Fault, Injected, Penalties, methods, watch, watched
from tests.grid.grid import VirtualGrid, for_seconds, open_ended
from tests.grid.victims import VictimPC, VictimProgram
from tests.grid.witness import expect
from tests.grid.worker_node import WorkerNode

# So often that a PC says something while it is on. Seconds of virtual time, as all here.
HEARTBEAT_S = 0.5
# After a failure that is nobody's the broker is careful for a while, and would blame whoever is there at the next one.
CAREFUL_S = 12.0
# Of the methods, `make test` lets one in so many raise, and `make soak` each.
ONE_IN = 5
# Honest work of each episode, and how long it may take: a PC that is refused keeps its work until its lease is over.
WORK = [0.1, 0.3, 0.2, 1.2]
DONE_S = 90.0
WINDOW_S = 1_000.0
# Gangs of two, which may have ranks on the victim's PC.
GANGS, PAIR = [0.2, 0.4, 0.3], TaskOptions(ranks=(2, 2), gang=True)


@dataclass(slots=True)
class Stage:
    """A virtual grid with honest people, on which one thing after the other goes wrong."""

    grid: VirtualGrid
    faults: Penalties
    credentials: dict[str, Credential]
    episodes: int = 0
    raised: list[Fault] = field(default_factory=list)

    def episode(self, fault: Fault | None = None) -> None:
        """Two victims do everything, while ``fault`` is armed, beside honest work."""
        grid, number = self.grid, self.episodes
        self.episodes += 1
        names = [f"{VICTIM}{number}-{which}" for which in ("program", "pc", "gangs-pc")]
        roles: tuple[Role, ...] = ("admin", "worker", "worker")
        self.credentials |= {name: Credential(name, role) for name, role in zip(names, roles, strict=True)}
        grid.world.note("episode {}: {}", number, fault)
        if fault is not None:
            self.faults.arm(fault)
        program, pc, client = VictimProgram(grid, names[0]), VictimPC(grid, names[1]), grid.client()
        # Its window is long enough for gangs, and closes before those of others: they go there first.
        other = VictimPC(grid, names[2], for_seconds(WINDOW_S))
        plan = bag(WORK, f"honest{number}", size=2)
        gangs = bag(GANGS, f"gangs{number}", options=PAIR)
        gangs.forget = fault is None or fault.where != SETTLE
        # Whose order makes the broker fail while it settles is to blame; honest people give none then.
        plan.forget = fault is None or fault.where != SETTLE
        client.submit(plan)
        client.submit(gangs)
        grid.run_until(lambda: program.done and client.idle, DONE_S, f"the end of honest work beside {fault}")
        grid.run(1.0)
        self.faults.disarm()
        if fault is not None:
            self._judge(fault, {each.role: each.refused for each in (program, pc, other)})
        program.hang_up()
        pc.stop()
        other.stop()
        client.leave()
        if fault is not None and fault.where == SETTLE:
            grid.run(CAREFUL_S)

    def _judge(self, fault: Fault, refused: dict[str, bool]) -> None:
        culprit = self.faults.raised
        if culprit is None:
            return  # it was not called so often this time
        self.raised.append(fault)
        if fault.where == VICTIM:
            # A PC is only cut off: refused, its worker would exit. That memory runs out is nobody's fault.
            blamed = not issubclass(fault.error, MemoryError)
            clients = {name: blamed and name == culprit and not name.endswith("-pc") for name in refused}
            expect(refused == clients, "{}: refused are {}", fault, refused)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    credentials = dict(broker_node.CREDENTIALS)
    monkeypatch.setattr(broker_node, "CREDENTIALS", credentials)
    faults, grid = Penalties(), VirtualGrid(1, tmp_path / "home")
    grid.broker.heartbeat_s = HEARTBEAT_S
    grid.broker.start()
    watch(faults, grid.broker.sessions, monkeypatch.setattr)
    grid.restart_broker(0.0)
    grid.run(0.1)
    grid.broker.expected = (Injected,)
    with closing(grid):
        for number in range(2):
            grid.worker(f"pc{number}", slots=2)
        yield Stage(grid, faults, credentials)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("where", [VICTIM, SETTLE])
def test_an_exception_anywhere_in_the_sessions_costs_nobody_but_its_victim(
    stage: Stage, where: str, after: bool
) -> None:
    stage.episode()
    called = {method: times for (method, at), times in sorted(stage.faults.called.items()) if at == where}
    assert called
    # Every second method raises before its work, and the others after it.
    called = dict(tried(list(called.items())[after::2], ONE_IN))
    errors = turns(ERRORS)
    for method, times in called.items():
        stage.episode(Fault(method, where, after, next(errors), 1 + stage.episodes % max(1, min(3, times - 1))))
    stage.grid.calm()
    stage.grid.finish()
    COUNTS.append(f"faults: {len(stage.raised)} of {len(called)} methods raised ({where}), nobody else was harmed")
    # What only an order reaches is not reached while settling, for honest people give none then.
    assert len(stage.raised) > len(called) * (0.9 if where == VICTIM else 0.6)


class Fragile(WorkerNode):
    """A PC whose agent dies of an exception, and is started again."""

    faults: Penalties

    def _turn(self) -> None:
        self.faults.entered(VICTIM, self.name)
        try:
            super()._turn()
        except Injected:
            self.crash()
            self.world.after(1.0, self.start)
        finally:
            self.faults.entered("", "")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_exception_anywhere_in_a_workers_gangs_costs_nothing_but_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    faults = Penalties()
    for kind in (WorkerGangs, Deliveries):
        for name, function in methods(kind):
            monkeypatch.setattr(kind, name, watched(faults, f"{kind.__name__}.{name}", function))
    raised = total = 0
    with closing(VirtualGrid(1, tmp_path / "home")) as grid:
        grid.broker.start()
        fragile = Fragile(grid.world, grid.port, grid.witness, "fragile", open_ended, slots=2, delay_s=0.002)
        fragile.faults = faults
        grid.workers["fragile"] = fragile
        fragile.start()
        for number in range(2):
            grid.worker(f"pc{number}", slots=2)
        grid.run(6.0)
        errors, times = turns(ERRORS), 0
        waiting: list[str | None] = [None]
        while waiting:
            method, times = waiting.pop(), times + 1
            if method is not None:
                faults.arm(Fault(method, VICTIM, after, next(errors)))
            client = grid.client()
            for name, fates in (("ok", "ok"), ("raise", "raise")):
                client.submit(bag(GANGS, f"{name}{times}", fate=fates, options=PAIR))
            done = partial(_idle, client)
            grid.run_until(done, DONE_S + SILENT_REST_S, f"the end of gangs beside a fault in {method}")
            raised += faults.raised is not None
            faults.disarm()
            faults.raised = None
            client.leave()
            grid.run(LONGEST_REST_S)  # it is trusted again
            if method is None:
                waiting += sorted({name for (name, at) in faults.called if at == VICTIM})
                total = len(waiting)
        grid.calm()
        grid.finish()
    COUNTS.append(f"faults: {raised} of {total} methods of a worker's gangs raised, and all gangs ended, once")
    assert raised > 0.7 * total


def _idle(client: ClientNode) -> bool:
    return bool(client.watched) and client.idle
