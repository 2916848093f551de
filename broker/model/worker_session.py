"""What the broker knows of one worker process."""

import math
from dataclasses import dataclass, field
from typing import Literal

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.scheduler.state.avoided import Kind
from deskgrid.wire.status import Presence


@dataclass(slots=True)
class EnvironmentAt:
    """An environment on a worker. ``reason``: why it failed; ``times``: how often; ``again_at``: when it is tried.

    ``returned``: messages in a row with which the worker handed tasks back that need it.
    """

    state: Literal["asked", "ready", "failed"] = "asked"
    reason: str = ""
    times: int = 0
    again_at: float = 0.0
    returned: int = 0


@dataclass(slots=True)
class WorkerSession:
    """One worker process, from its first `Join` until it is forgotten. ``state``: up, away or lost."""

    name: str
    session: str
    who: Credential
    peer: bytes
    join: wire.Join
    heard: float
    opened: float
    state: Presence = "away"
    ended: int = 0
    sent_windows: str | None = None
    # Whether it was told that its PC is drained, so that it leaves.
    told_drain: bool = False
    # `last_closes`: when the last announced window closes. `known_until`: the later of that and the end of the open
    # window; a worker that fell silent is remembered until then. An open-ended window does not count, because its
    # worker may be gone for good.
    last_closes: float = -math.inf
    known_until: float = 0.0
    # The environments that it is to have or could not prepare, by key; and what it was told last.
    environments: dict[str, EnvironmentAt] = field(default_factory=dict)
    told_environments: tuple[wire.EnvironmentWanted, ...] = ()
    # Why it gets none of some kinds of work, as far as the workers' answers tell.
    why_rests: dict[Kind, str] = field(default_factory=dict)
    templates: set[str] = field(default_factory=set)
    # `lately`: the bag of the last result. `unready`: roughly how many slots have not returned a result of that bag
    # yet.
    lately: int = 0
    unready: int = 0
    # As last measured: `speed` is 1 for the fastest PC; `loads`: means of 1, 30 and 120 s, or none.
    speed: float = 1.0
    loads: tuple[float, ...] = ()
    # Whether its window is over, and only what runs may end.
    ending: bool = False
    # Why it has stopped its tasks; empty: it has not.
    paused: str = ""

    @property
    def load(self) -> float:
        """How much of its processors others than our tasks use, from 0 to 1: the mean of the longest time."""
        return self.loads[-1] if self.loads else 0.0

    @property
    def systems(self) -> list[wire.System]:
        """What sorts of PC it is, one for each of its Pythons, its own first; none: it cannot have environments."""
        join = self.join
        if not join.platform:
            return []
        return [wire.System(python, join.platform, join.major, join.minor) for python in join.pythons]

    def first_runs(self, bag: int, count: int) -> int:
        """How many of the next ``count`` results of ``bag`` are the first on their slots after those of another bag."""
        if bag != self.lately:
            self.lately, self.unready = bag, self.join.slots
        first = min(self.unready, count)
        self.unready -= first
        return first
