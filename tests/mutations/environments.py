"""Scripts that have to notice faults in what prepares environments, and in what is placed where."""

from contextlib import closing, suppress
from pathlib import Path
from threading import Lock

from deskgrid import wire
from deskgrid.broker.work.environments import AGAIN_S
from deskgrid.scheduler.policies import make_policy
from deskgrid.worker.environments import install
from deskgrid.worker.environments.environments import Environments, _Making
from deskgrid.worker.environments.install import WheelRefused
from deskgrid.worker.environments.store import NoRoom, WheelStore
from tests.broker.office import Office
from tests.broker.test_environments import Pc, owner, template
from tests.scheduler import test_environments as placing
from tests.scheduler.forecast import test_ahead as estimates
from tests.wheels import make_wheel


def at_the_broker(seed: int, home: Path) -> None:
    """A task waits for its environment; two PCs that refuse it alike hold its bag, and one PC does not."""
    with closing(Office(home)) as office:
        pcs = [Pc(office, name) for name in ("a", "b")]
        bag = owner(office).submit([b"0"] * 9, template=template())
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
        make_wheel(home / "e", "bad", "1.0", {"bad-1.0.data/scripts/pyvenv.cfg": ""}),
        make_wheel(home / "f", "bad", "1.0", {"zeros": bytes(install.RATIO_FROM_BYTES + 1)}),
    ]
    for number, wheel in enumerate(wheels):
        (home / f"unpacked-{number}").mkdir()
        with suppress(WheelRefused):
            for _ in install.unpack(str(wheel), str(home / f"unpacked-{number}")):
                pass
            raise AssertionError(f"{wheel} was unpacked")
    place = install._TargetEnvironment(str(home), "", "", "", {str(home / "pyvenv.cfg").casefold()})
    with suppress(WheelRefused):
        place.check(str(home / "pyvenv.cfg"))
        raise AssertionError("a file of Python was replaced")


def on_a_pc(seed: int, home: Path) -> None:
    """What is known of wheels is checked, and there is room for so many bytes and no more."""
    facts = {"name": "bad", "version": "1.0", "bytes": 1, "scripts": {"../bad": ["os", "getcwd"]}}
    with suppress(ValueError):
        install.about_of(facts)
        raise AssertionError("a program may be anywhere")
    store = WheelStore(home / "wheels", 10)
    with suppress(NoRoom), store.room_for(6), store.room_for(6):
        raise AssertionError("there is more room than there may be")
    making = _Making(wire.EnvironmentWanted("key", "bag", bytes(32), "ann", "3.11"), 0.0, home)
    environments = Environments.__new__(Environments)
    environments._store, environments._lock, environments._parts = store, Lock(), {"other": ("ann", {"a": 3})}
    environments._check_share(making, {"b": 2})
    with suppress(NoRoom):
        environments._check_share(making, {"c": 1})
        raise AssertionError("one person has more than a share")
