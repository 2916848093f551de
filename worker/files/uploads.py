"""The files that tasks left, on their way to the broker, one task after the other.

Rule 1: the parts are offered first, and only those that the broker lacks are sent, few at a time. A part counts as sent
when the broker has confirmed that it is in its journal.
Rule 2: after a new connection, or some silence (the broker has no room, say), what is not confirmed is offered again.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deskgrid import wire
from deskgrid.worker.files.errands import Errands
from deskgrid.worker.files.task_folder import Collected, Source

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
    holder: str
    files: Collected
    then: Then
    # Parts that are not confirmed; those of them to offer; and those that the broker lacks.
    left: dict[bytes, Source]
    offers: deque[bytes]
    lacking: deque[bytes]


class Uploads:
    """``now`` is monotonic seconds."""

    def __init__(self, errands: Errands, numbers: Iterator[int]) -> None:
        """``numbers``: for requests."""
        self._errands = errands
        self._numbers = numbers
        self._waiting: deque[_Upload] = deque()
        # The parts behind each request: those of an offer, or one that is being sent.
        self._offered: dict[int, list[bytes]] = {}
        self._sending: dict[int, tuple[bytes, int]] = {}
        self._reading = 0
        self._read: deque[tuple[_Upload, bytes, bytes]] = deque()
        self._heard = 0.0

    def add(self, holder: str, files: Collected, then: Then) -> None:
        """Send the files of an attempt."""
        self._waiting.append(_Upload(holder, files, then, dict(files.parts), deque(files.parts), deque()))

    def drop(self, holder: str) -> None:
        """An attempt was stopped: nobody needs its files."""
        if self._waiting and self._waiting[0].holder == holder:
            self._forget_requests()
        self._waiting = deque(upload for upload in self._waiting if upload.holder != holder)

    def say(self, now: float) -> Iterator[wire.Message]:
        """Yield the messages that are due."""
        if not self._waiting:
            return
        upload = self._waiting[0]
        if not (self._offered or self._sending or self._reading or self._read):
            self._heard = now
        elif now >= self._heard + SILENCE_S:
            self.reconnected()
            self._heard = now
        if upload.offers and not self._offered:
            yield self._offer(upload)
        while self._read and self._sent_bytes() < WINDOW_BYTES:
            which, digest, data = self._read.popleft()
            if which is upload and digest in upload.left:
                number = next(self._numbers)
                self._sending[number] = digest, len(data)
                yield wire.Part(number, upload.holder, digest, wire.payload_of(data))
        while upload.lacking and self._has_room():
            self._begin_reading(upload, upload.lacking.popleft())

    def _has_room(self) -> bool:
        """Whether another part may be read and sent. One that is being read may turn out to be a whole one."""
        size = self._reading * wire.PART_BYTES + sum([len(data) for *_, data in self._read]) + self._sent_bytes()
        return size < 2 * WINDOW_BYTES and self._reading + len(self._read) + len(self._sending) < WINDOW

    def _sent_bytes(self) -> int:
        return sum([size for _, size in self._sending.values()])

    def _offer(self, upload: _Upload) -> wire.Message:
        some = [upload.offers.popleft() for _ in range(min(len(upload.offers), wire.OFFER_PARTS))]
        number = next(self._numbers)
        self._offered[number] = some
        return wire.Offer(number, upload.holder, b"".join(some), upload.files.size, 0, 0)

    def _begin_reading(self, upload: _Upload, digest: bytes) -> None:
        self._reading += 1
        self._errands.do(upload.left[digest].read, lambda found: self._has_read(upload, digest, found))

    def _has_read(self, upload: _Upload, digest: bytes, found: bytes | Exception) -> None:
        self._reading -= 1
        if upload not in self._waiting:
            return
        if isinstance(found, Exception):
            self._end(upload, f"a file that the task left cannot be read any more: {found}")
        else:
            self._read.append((upload, digest, found))

    def lacks(self, message: wire.Lacks, now: float) -> None:
        """The broker says which of the offered parts it lacks."""
        offered = self._offered.pop(message.request, None)
        if offered is not None:
            self._heard = now
            upload, lacking = self._waiting[0], set(wire.split_digests(message.parts))
            upload.lacking += [digest for digest in offered if digest in lacking]
            self._confirm(upload, [digest for digest in offered if digest not in lacking])

    def kept(self, message: wire.Kept, now: float) -> None:
        """The broker has a part."""
        sent = self._sending.pop(message.request, None)
        if sent is not None:
            self._heard = now
            self._confirm(self._waiting[0], [sent[0]])

    def _confirm(self, upload: _Upload, digests: list[bytes]) -> None:
        for digest in digests:
            upload.left.pop(digest, None)
        if not upload.left:
            self._end(upload, "")

    def failed(self, request: int, reason: str) -> None:
        """The broker refuses the files."""
        if request in self._offered or request in self._sending:
            self._end(self._waiting[0], reason)

    def reconnected(self) -> None:
        """Offer again what is not confirmed."""
        self._forget_requests()
        if self._waiting:
            upload = self._waiting[0]
            upload.offers, upload.lacking = deque(upload.left), deque()

    def _end(self, upload: _Upload, reason: str) -> None:
        self._forget_requests()
        self._waiting.remove(upload)
        upload.then(reason)

    def _forget_requests(self) -> None:
        self._offered.clear()
        self._sending.clear()
        self._read.clear()
