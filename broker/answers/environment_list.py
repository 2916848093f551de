"""The environments of the bags that are kept, and the sorts of PCs that are known: what clients ask about both.

An environment is not stored: it is in the templates of the bags that use it, and its wheels are files of these bags.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential, owner_refusal
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.forecaster import Json
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.operations import AskError, Slices
from deskgrid.broker.work.workers import WorkerSessions

# Environments in one answer, those of the newest bags first; bags named with each; and how much of its key names it.
ROWS = 200
BAGS_NAMED = 20
NAME_CHARACTERS = 12
# What looking at one bag costs, or dropping one part.
_BAG_UNITS, _PART_UNITS = 5, 40


class EnvironmentList:
    """``workers``: all that are known, also those that are away."""

    def __init__(self, state: BrokerState, workers: WorkerSessions) -> None:
        self._state = state
        self._workers = workers
        # Drops files that a bag of an owner holds, and returns how many bytes less the owner has: `Transfers.release`.
        self.drop: Callable[[str, str, Sequence[bytes]], int] = lambda bag, owner, digests: 0

    def systems(self) -> Json:
        """The sorts of PCs, each with the number of workers whose own Python it is; those of most workers first."""
        found = Counter[wire.System]()
        for worker in self._workers.by_name.values():
            found.update({system: place == 0 for place, system in enumerate(worker.systems)})
        return {"systems": [[*system, many] for system, many in found.most_common(wire.BUILDS_LIMIT)]}

    def rows(self, who: Credential) -> Slices:
        """Every environment that a bag uses and whose wheels are here; each belongs to one owner.

        Only its owner and admins are told the digests of its trees.
        """
        found: dict[str, Json] = {}
        forgotten: set[str] = set()
        for bag in sorted(self._state.book.by_number.values(), key=lambda bag: -bag.row.number):
            yield _BAG_UNITS
            key, environment = bag.environment_key, bag.environment
            if environment is None or key in forgotten:
                continue
            if key not in found and len(found) == ROWS:
                break
            if key not in found and not self._has_wheels(bag.row.owner, environment):
                forgotten.add(key)
                continue
            tells = not owner_refusal(who, bag.row.id, bag.row.owner)
            _add(found.setdefault(key, _row(bag, environment, tells)), bag)
        return {"environments": list(found.values())}

    def _has_wheels(self, owner: str, environment: wire.Environment) -> bool:
        """Whether these were not released. Bags that have ended keep the environment's name."""
        return any(self._state.journal.parts.has(owner, build.tree) for build in environment.builds)

    def release(self, bag: OpenBag, parts: bytes) -> Slices:
        """Drop wheels of all bags that have the environment of ``bag``: no task needs them any more."""
        digests, dropped = wire.split_digests(parts), 0
        for other in list(self._state.book.by_number.values()):
            yield _BAG_UNITS
            if other.environment_key != bag.environment_key or not bag.environment_key:
                continue
            if not other.complete:
                raise AskError(f"bag {other.row.id} has not ended: its tasks need the environment")
            if self._state.book.by_number.get(other.row.number) is other:  # else somebody has forgotten it meanwhile
                dropped += self.drop(other.row.id, other.row.owner, digests)
                yield _PART_UNITS * len(digests)
        return {"size": dropped}


def _row(bag: OpenBag, environment: wire.Environment, tells: bool) -> Json:
    """The row of an environment; ``tells``: with the digests of its trees, which are empty otherwise."""
    trees = [build.tree.hex() if tells else "" for build in environment.builds]
    builds = [
        [*build.system, tree, build.size, build.unpacked] for build, tree in zip(environment.builds, trees, strict=True)
    ]
    names = {"environment": bag.environment_key[:NAME_CHARACTERS], "label": environment.label, "owner": bag.row.owner}
    return {**names, "builds": builds, "bags": [], "count": 0, "waits": 0}


def _add(row: Json, bag: OpenBag) -> None:
    row["count"] += 1
    row["waits"] += not bag.complete
    if len(row["bags"]) < BAGS_NAMED:
        row["bags"].append(bag.row.id)
