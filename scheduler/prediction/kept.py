"""What was learned, by name: what was used last, within bounds. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

# Names that are kept, and owners.
KEPT = 500

T = TypeVar("T")


def owner_of(name: str) -> str:
    """Whose it is: what stands before the first line break of its name; the whole name if it has none."""
    return name.partition("\n")[0]


class Learned(Protocol):
    """What was learned of one kind, by name, for whoever keeps it from one life of the driver to the next.

    ``fresh``: names of which something is new since somebody emptied this.
    """

    fresh: dict[str, None]

    @property
    def names(self) -> Collection[str]:
        """The names of which something is known."""

    def kept(self, name: str) -> list[float]:
        """What is known of a name, to be kept for `restore`; nothing if the name is unknown."""

    def restore(self, name: str, kept: Sequence[float], /) -> None:
        """Go on with what `kept` returned in an earlier life; anything else is ignored."""


class LeastRecentlyUsed(dict[str, T]):
    """Values by name: those that were used last. If there are too many, an owner who has most of them loses one."""

    def __init__(self) -> None:
        super().__init__()
        self._owners: Counter[str] = Counter()

    def use(self, name: str, new: Callable[[], T]) -> T:
        """The value of a name, which was used last from now on; ``new`` makes one if there is none."""
        value = self.pop(name, None)
        if value is None:
            value = new()
            self._owners[owner_of(name)] += 1
            if len(self) >= KEPT:
                most = max(self._owners.values())
                self.drop(next(old for old in self if self._owners[owner_of(old)] == most))
        self[name] = value
        return value

    def drop(self, name: str) -> None:
        """Forget a value, if it is there."""
        if self.pop(name, None) is not None:
            self._owners[owner_of(name)] -= 1
            if not self._owners[owner_of(name)]:
                del self._owners[owner_of(name)]
