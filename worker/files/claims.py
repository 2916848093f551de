"""Whether people have what they name: asked before they are given files that others may have brought to this PC.

A file is known here by its content, whoever brought it. So a task that names a digest could read another person's file.
The broker knows who sent which parts.

Rule 1: nothing is taken from the cache or the wheel store for a tree until the broker has said that its owner sent all
parts of it, the tree itself and those of every file in it. A tree is a list that its owner made, so it proves nothing.
Rule 2: this is asked once for each owner and tree, as long as they are remembered.
Rule 3: after a new connection, or some silence, what was not answered is asked again.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from deskgrid import wire

# Trees that are known to be somebody's: a bag may bring one for each task. Each takes some 200 bytes.
KNOWN = 20_000
# Questions that wait for an answer at a time.
WINDOW = 16
# After this long without any answer, those that wait are asked again. Seconds.
SILENCE_S = 15.0
# Why somebody is not given a file.
NOT_SENT = "its files are not here: whoever submitted the task has not sent them to the broker"

# Called once, with the reason if the owner lacks something, else with "".
Then = Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Asking:
    """``left``: parts to ask for, and ``flying``: how many questions wait for an answer."""

    holder: str
    what: tuple[str, bytes]
    then: Then
    left: list[bytes] = field(default_factory=list)
    flying: int = 0


class Claims:
    """``now`` is monotonic seconds. ``numbers``: for requests."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        # Who has which trees, by owner and digest, the last ones at the end.
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._asking: OrderedDict[_Asking, None] = OrderedDict()
        self._asked: dict[int, tuple[_Asking, bytes]] = {}
        self._heard = 0.0

    def knows(self, owner: str, tree: bytes) -> bool:
        """Whether the broker has said that an owner has a tree and all of its files."""
        if (owner, tree) not in self._known:
            return False
        self._known.move_to_end((owner, tree))
        return True

    def ask(self, holder: str, owner: str, tree: bytes, parts: Collection[bytes], then: Then) -> None:
        """Ask whether the owner of ``holder`` has a tree. ``parts``: of all files in it."""
        digests = list(dict.fromkeys([tree, *parts]))
        some = [digests[start : start + wire.OFFER_PARTS] for start in range(0, len(digests), wire.OFFER_PARTS)]
        self._asking[_Asking(holder, (owner, tree), then, [b"".join(each) for each in some])] = None

    def drop(self, holder: str) -> None:
        """``holder`` was stopped: nobody wants to know any more."""
        for asking in [asking for asking in self._asking if asking.holder == holder]:
            self._end(asking)

    def say(self, now: float) -> Iterator[wire.Message]:
        """Yield the messages that are due."""
        if self._asked and now >= self._heard + SILENCE_S:
            self.reconnected()
        for asking in self._asking:
            while asking.left and len(self._asked) < WINDOW:
                if not self._asked:
                    self._heard = now
                number, parts = next(self._numbers), asking.left.pop()
                self._asked[number] = asking, parts
                asking.flying += 1
                yield wire.Claim(number, asking.holder, parts)

    def lacks(self, message: wire.Lacks, now: float) -> bool:
        """The broker says what an owner lacks; False if it was not asked here."""
        asking, _ = self._asked.pop(message.request, (None, b""))
        if asking is None:
            return False
        self._heard = now
        asking.flying -= 1
        if message.parts:
            self._end(asking)
            asking.then(NOT_SENT)
        elif not asking.left and not asking.flying:
            self._known[asking.what] = None
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
            self._end(asking)
            asking.then("")
        return True

    def failed(self, request: int, reason: str) -> bool:
        """The broker does not answer a question; False if it was not asked here."""
        asking, _ = self._asked.pop(request, (None, b""))
        if asking is None:
            return False
        self._end(asking)
        asking.then(reason)
        return True

    def reconnected(self) -> None:
        """Ask again for what was not answered."""
        for asking, parts in self._asked.values():
            asking.left.append(parts)
            asking.flying = 0
        self._asked.clear()

    def _end(self, asking: _Asking) -> None:
        del self._asking[asking]
        self._asked = {number: its for number, its in self._asked.items() if its[0] is not asking}
