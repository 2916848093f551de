"""What a task leaves: its files are taken from its folder and sent to the broker before its end is reported."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from deskgrid import wire
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.background import Background, FileWork, TookTooLong
from deskgrid.worker.files.inputs import has_files
from deskgrid.worker.files.places import Places
from deskgrid.worker.files.task_folder import Collected, OutputsRefused
from deskgrid.worker.files.uploads import Uploads
from deskgrid.worker.run.jobs import JobEnded

# Called once, with the end as it is to be reported.
Then = Callable[[JobEnded], None]


@dataclass(slots=True, eq=False)
class _PendingOutputs:
    """An attempt that has ended, and whose files are on their way."""

    holder: str
    ended: JobEnded
    then: Then
    work: FileWork | None = None


class OutputFiles:
    """``places``: where the folders of tasks are. ``tidy`` removes the folder of a holder."""

    def __init__(self, places: Places, background: Background, uploads: Uploads, tidy: Callable[[str], None]) -> None:
        self._places = places
        self._background = background
        self._uploads = uploads
        self._tidy = tidy
        self._leaving: dict[str, _PendingOutputs] = {}

    def leave(self, holder: str, ended: JobEnded, patterns: Sequence[str] | None, then: Then) -> None:
        """Send the files of an attempt: those that match, or those that its result names."""
        leaving = self._leaving[holder] = _PendingOutputs(holder, ended, then)
        place = self._places.of(holder)
        assert place is not None  # since it was handed on
        leaving.work = self._background.do(
            partial(task_folder.collect, place.area, holder, patterns or None, place.uid),
            lambda found: self._collected(leaving, found),
            holder,
        )

    def leaving(self, holders: Iterable[str]) -> list[JobEnded]:
        """How these attempts ended, whose files are on their way."""
        return [self._leaving[holder].ended for holder in holders]

    def drop(self, holder: str) -> JobEnded | None:
        """An attempt was stopped: nobody needs its files. Returns how it had ended, if it had."""
        leaving = self._leaving.pop(holder, None)
        if leaving is None:
            return None
        if leaving.work is not None:
            leaving.work.drop()
        self._uploads.drop(holder)
        return leaving.ended

    def _collected(self, leaving: _PendingOutputs, found: Collected | Exception) -> None:
        if self._leaving.get(leaving.holder) is not leaving:
            self._tidy(leaving.holder)
        elif isinstance(found, Exception):
            told = isinstance(found, OutputsRefused | TookTooLong)
            self._left(leaving, (), str(found) if told else f"its files: {found}")
        else:
            self._uploads.add(leaving.holder, found, lambda reason: self._left(leaving, found.trees, reason))

    def _left(self, leaving: _PendingOutputs, trees: Sequence[bytes], reason: str) -> None:
        """The files of an attempt are with the broker, or cannot be."""
        ended = leaving.ended
        del self._leaving[leaving.holder]
        if reason:
            failed = failure(ended.slot, (ended.task, ended.number), "OutputsRefused", reason, ended.elapsed)
            leaving.then(failed._replace(stdout=ended.stdout, stderr=ended.stderr))
        else:
            whole, payload = _without_mark(ended.payload)
            leaving.then(ended._replace(payload=wire.wrap(trees, payload, whole=whole)))
        self._tidy(leaving.holder)


def failure(slot: int, attempt: tuple[int, int], kind: str, reason: str, elapsed: float) -> JobEnded:
    """The end of an attempt whose files are at fault."""
    account = wire.Failure(kind, reason).packed()
    return JobEnded(slot, *attempt, wire.Outcome.ERROR, elapsed, account, b"", b"")


def _without_mark(payload: wire.Payload) -> tuple[bool, wire.Payload]:
    """What a process reported of a job that left files: whether its value is one of them, and the payload otherwise."""
    if not has_files(payload):
        return False, payload
    data = bytes(payload)
    return data[1:2] == b"\1", wire.payload_of(data[4:])
