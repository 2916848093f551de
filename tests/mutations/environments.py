"""Scripts that have to notice faults in what prepares environments, and in what is placed where."""

from contextlib import closing
from pathlib import Path

from deskgrid import wire
from deskgrid.broker.environments import AGAIN_S
from deskgrid.scheduler.policies import make_policy
from deskgrid.worker.environments.install import Refused, unpack
from tests.broker.office import Office
from tests.broker.test_environments import ANN, Pc, template
from tests.scheduler import test_environments as placing
from tests.scheduler.forecast import test_ahead as estimates
from tests.wheels import make_wheel


def at_the_broker(seed: int, home: Path) -> None:
    """A task waits for its environment; two PCs that refuse it alike hold its bag, and one PC does not."""
    with closing(Office(home)) as office:
        pcs = [Pc(office, name) for name in ("a", "b")]
        bag = office.client(ANN).submit([b"0"] * 9, template=template())
        key = pcs[0].first().key
        for pc in pcs:
            assert pc.work() == []
        pcs[0].refuse(key)
        pcs[0].refuse(key)
        assert not office.bag(bag).held
        pcs[1].say(key, wire.Readiness.TROUBLE, package="bad-1.0.whl", reason="it is bad")
        office.settle()
        assert not office.bag(bag).held
        pcs[1].waits(AGAIN_S)
        assert pcs[1].first().key == key
        pcs[1].refuse(key)
        office.settle()
        assert office.bag(bag).held
        assert office.bag(bag).barred


def in_the_scheduler(seed: int, home: Path) -> None:
    """A task is placed only where its environment is ready."""
    for policy in ("pgs", "packing", "fcfs"):
        placing.test_a_task_waits_until_its_environment_is_ready_on_a_worker_with_room(make_policy(policy))
        placing.test_tasks_without_an_environment_take_the_slots_that_others_cannot_have(make_policy(policy))
    placing.test_a_copy_starts_only_where_the_environment_is_ready()
    placing.test_a_parallel_task_starts_where_its_environment_is_ready_on_all_its_pcs()
    estimates.test_tasks_wait_for_their_environment_and_others_do_not()


def of_wheels(seed: int, home: Path) -> None:
    """Wheels that nobody should use are refused."""
    wheels = [
        make_wheel(home / "a", "bad", "1.0", {"bad.py": "x"}, record={"bad.py": "sha256=" + 43 * "A"}),
        make_wheel(home / "b", "bad", "1.0", {"A.py": "", "a.PY": ""}),
        make_wheel(home / "c", "bad", "1.0", {"../bad.py": ""}),
        make_wheel(home / "d", "bad", "1.0", {"bad.py": "x"}, record={"bad.py": ""}),
    ]
    for number, wheel in enumerate(wheels):
        try:
            unpack(str(wheel), str(home / f"unpacked-{number}"))
        except Refused:
            continue
        raise AssertionError(f"{wheel} was unpacked")
