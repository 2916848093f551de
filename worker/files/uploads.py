"""The files that tasks left, on their way to the broker; the tasks take turns.

Rule 1: the parts are offered first, and only those that the broker lacks are sent, few at a time. A part counts as sent
when the broker has confirmed that it is in its journal.
Rule 2: after a new connection, or some silence (the broker has no room, say), what is not confirmed is offered again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from deskgrid import wire
from deskgrid.worker.files.background import Background
from deskgrid.worker.files.task_folder import Collected, PartOrigin
from deskgrid.worker.files.turns import Turns

# Bytes that are on their way: one part, so that a cut repeats no more. The next is read meanwhile. And how many parts,
# if they are small.
WINDOW_BYTES = wire.PART_BYTES
WINDOW = 32
# After this long without an answer the parts are offered again. Seconds.
SILENCE_S = 15.0
# Called at the end, with the reason if the files cannot be kept.
Then = Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Upload:
    """``left``: the parts that are not confirmed; ``offers``: those of them to offer."""

    holder: str
    files: Collected
    then: Then
    left: dict[bytes, PartOrigin]
    offers: deque[bytes] = field(default_factory=deque)


class Uploads:
    """``now`` is monotonic seconds."""

    def __init__(self, background: Background, numbers: Iterator[int]) -> None:
        """``numbers``: for requests."""
        self._background = background
        self._numbers = numbers
        self._uploads: OrderedDict[str, _Upload] = OrderedDict()
        # The parts that the broker lacks; those that are being read; those that were; and those that are being sent.
        self._lacking = Turns[bytes]()
        self._reading = 0
        self._read: deque[tuple[_Upload, bytes, bytes]] = deque()
        self._sending: dict[int, tuple[_Upload, bytes, int]] = {}
        # The parts behind each offer.
        self._offered: dict[int, tuple[_Upload, list[bytes]]] = {}
        self._heard = 0.0

    def add(self, holder: str, files: Collected, then: Then) -> None:
        """Send the files of an attempt."""
        self._uploads[holder] = _Upload(holder, files, then, dict(files.parts), deque(files.parts))

    def drop(self, holder: str) -> None:
        """An attempt was stopped: nobody needs its files."""
        self._uploads.pop(holder, None)
        self._lacking.drop(holder)
        self._read = deque(row for row in self._read if row[0].holder != holder)
        for number in [number for number, row in self._sending.items() if row[0].holder == holder]:
            del self._sending[number]
        for number in [number for number, row in self._offered.items() if row[0].holder == holder]:
            del self._offered[number]

    def say(self, now: float) -> Iterator[wire.Message]:
        """Yield the messages that are due."""
        if not (self._offered or self._sending or self._reading or self._read):
            self._heard = now
        elif now >= self._heard + SILENCE_S:
            self.reconnected()
            self._heard = now
        if not self._offered:
            yield from self._offer()
        while self._read and self._sent_bytes() < WINDOW_BYTES:
            upload, digest, data = self._read.popleft()
            if digest in upload.left:
                number = next(self._numbers)
                self._sending[number] = upload, digest, len(data)
                yield wire.Part(number, upload.holder, digest, wire.payload_of(data))
        while self._lacking and self._has_room():
            self._begin_reading(*self._lacking.take())

    def _has_room(self) -> bool:
        """Whether another part may be read and sent. One that is being read may turn out to be a whole one."""
        size = self._reading * wire.PART_BYTES + sum([len(data) for *_, data in self._read]) + self._sent_bytes()
        return size < 2 * WINDOW_BYTES and self._reading + len(self._read) + len(self._sending) < WINDOW

    def _sent_bytes(self) -> int:
        return sum([size for *_, size in self._sending.values()])

    def _offer(self) -> Iterator[wire.Message]:
        """Offer some parts of the attempt whose turn it is."""
        upload = next((each for each in self._uploads.values() if each.offers), None)
        if upload is not None:
            self._uploads.move_to_end(upload.holder)
            some = [upload.offers.popleft() for _ in range(min(len(upload.offers), wire.OFFER_PARTS))]
            number = next(self._numbers)
            self._offered[number] = upload, some
            yield wire.Offer(number, upload.holder, b"".join(some), upload.files.size, 0, 0)

    def _begin_reading(self, holder: str, digest: bytes) -> None:
        upload = self._uploads[holder]
        self._reading += 1
        self._background.do(upload.left[digest].read, lambda found: self._has_read(upload, digest, found), holder)

    def _has_read(self, upload: _Upload, digest: bytes, found: bytes | Exception) -> None:
        self._reading -= 1
        if self._uploads.get(upload.holder) is not upload:
            return
        if isinstance(found, Exception):
            self._end(upload, f"a file that the task left cannot be read any more: {found}")
        else:
            self._read.append((upload, digest, found))

    def lacks(self, message: wire.Lacks, now: float) -> None:
        """The broker says which of the offered parts it lacks."""
        upload, offered = self._offered.pop(message.request, (None, []))
        if upload is not None:
            self._heard = now
            lacking = set(wire.split_digests(message.parts))
            self._lacking.add(upload.holder, [digest for digest in offered if digest in lacking])
            self._confirm(upload, [digest for digest in offered if digest not in lacking])

    def kept(self, message: wire.Kept, now: float) -> None:
        """The broker has a part."""
        upload, digest, _ = self._sending.pop(message.request, (None, b"", 0))
        if upload is not None:
            self._heard = now
            self._confirm(upload, [digest])

    def _confirm(self, upload: _Upload, digests: list[bytes]) -> None:
        for digest in digests:
            upload.left.pop(digest, None)
        if not upload.left:
            self._end(upload, "")

    def failed(self, request: int, reason: str) -> None:
        """The broker refuses the files."""
        upload = self._offered.get(request, self._sending.get(request, (None,)))[0]
        if upload is not None:
            self._end(upload, reason)

    def reconnected(self) -> None:
        """Offer again what is not confirmed."""
        self._offered.clear()
        self._sending.clear()
        self._read.clear()
        self._lacking = Turns()
        for upload in self._uploads.values():
            upload.offers = deque(upload.left)

    def _end(self, upload: _Upload, reason: str) -> None:
        self.drop(upload.holder)
        upload.then(reason)
