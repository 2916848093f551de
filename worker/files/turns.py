"""What several attempts wait for, so that none of them has to wait until another has all of its own."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Items by holder: those of one holder stay in order, and the holders take turns."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Item]:
        return (item for queue in self._queues.values() for item in queue)

    def add(self, holder: str, items: Iterable[Item]) -> None:
        """Put items behind the others of their holder."""
        if found := list(items):
            self._queues.setdefault(holder, deque()).extend(found)

    def put_back(self, holder: str, item: Item) -> None:
        """Put an item before the others of its holder."""
        self._queues.setdefault(holder, deque()).appendleft(item)

    def take(self) -> tuple[str, Item]:
        """Take the next item, of the holder whose turn it is. Raises KeyError if there is none."""
        holder, queue = next(iter(self._queues.items()), ("", None))
        if queue is None:
            raise KeyError("nothing waits")
        item = queue.popleft()
        if queue:
            self._queues.move_to_end(holder)
        else:
            del self._queues[holder]
        return holder, item

    def drop(self, holder: str) -> None:
        """Nobody needs the items of a holder."""
        self._queues.pop(holder, None)
