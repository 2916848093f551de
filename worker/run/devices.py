"""Which graphics cards each process of tasks has. Programs find only these, by the variables of their drivers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deskgrid.resources import GPU
from deskgrid.wire import RESOURCE_UNIT, TaskOptions, counted

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


class HeldDevices(NamedTuple):
    """Devices that a process has, and how much of each: in thousandths. None: it finds what its variables say."""

    names: tuple[str, ...] | None = None
    share: int = 0

    def variables(self) -> dict[str, str]:
        """The variables of a process that has these and no others."""
        return {} if self.names is None else dict.fromkeys(VARIABLES, ",".join(self.names))


# Of a PC of which nobody counts the cards.
WHATEVER_THERE_IS = HeldDevices()


class Devices:
    """``names``: what the driver calls the graphics cards of this PC; none: tasks find whatever there is."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        # What a task has that needs none.
        self.none = HeldDevices(()) if names else WHATEVER_THERE_IS

    def choose(self, options: TaskOptions, others: Iterable[HeldDevices], before: HeldDevices) -> HeldDevices:
        """Return what a task gets of the devices, beside what ``others`` have.

        What it had ``before`` comes first, so that its process can stay. A part of a device is one of the device that
        has least left, and enough.
        """
        needs = dict(counted(options.resources)).get(GPU, 0) if self._names else 0
        if not needs:
            return self.none
        share = min(needs, RESOURCE_UNIT)
        many = min(-(-needs // RESOURCE_UNIT), len(self._names))
        used = defaultdict[str, int](int)
        for other in others:
            for name in other.names or ():
                used[name] += other.share
        mine = before.names or ()
        # Those with too little left come last: rounding and what is just being stopped may leave no better one.
        order = sorted(
            self._names, key=lambda name: (used[name] + share > RESOURCE_UNIT, name not in mine, -used[name])
        )
        return HeldDevices(tuple(sorted(order[:many], key=self._names.index)), share)
