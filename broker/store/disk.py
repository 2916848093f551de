"""Whether the disk of the broker's home takes what has to be written down, and what is refused while it does not.

- ``ok``: everything is taken.
- ``low``: little is free, and that is kept for the results of what was accepted: no submissions.
- ``full``: a write failed. Nothing is taken that would have to be written: results stay at their workers, who say
  them again when there is room, so nothing is lost, and nothing is kept in memory for it.

Rule: a message is refused before anything of it is carried out. It all ends by itself.
"""

from typing import Literal, Protocol

from deskgrid import wire
from deskgrid.broker.store.journal import JournalFull

State = Literal["ok", "low", "full"]

# What submissions leave free for the results of what was accepted: a few of the largest, some hundred thousand small
# ones. On a small disk a twentieth of it. Ended only when half as much again is free, so that it does not flutter.
RESERVE_BYTES = 256 * 1024 * 1024
RESERVE_SHARE = 20
RELIEF = 1.5
# How often the free space is looked at. Seconds; it is one system call.
LOOK_S = 1.0
# While nothing can be written, a trial is made so often; each time it is full again within CALM_S of having had room,
# the pause doubles: every such time costs all peers a new introduction.
TRIAL_S = 1.0
TRIAL_MOST_S = 60.0
CALM_S = 120.0
# Questions that need nothing written down, and so are answered whatever the disk does.
READS = frozenset({"ping", "status", "bags", "progress", "explain", "logs", "policy", "keys"})


class Storage(Protocol):
    """What this file needs of `deskgrid.broker.store.journal.Journal`."""

    def free(self) -> tuple[int, int]: ...
    def trial(self) -> None: ...


class Disk:
    """The state of one home's disk; ``place`` names it in messages. ``now`` is the broker's clock."""

    def __init__(self, storage: Storage, place: str) -> None:
        self.state: State = "ok"
        self.free_bytes = 0
        self.reason = ""
        self.since = 0.0
        self._storage = storage
        self._place = place
        self._look_at = 0.0
        self._pause = TRIAL_S
        self._relieved_at = -CALM_S

    @property
    def refusal(self) -> str:
        """Why no submission is taken; empty when they are."""
        if self.state == "ok":
            return ""
        what = f"is full ({self.reason})" if self.state == "full" else f"is nearly full ({self.reason})"
        return f"the disk of the broker's home {self._place} {what}; what was accepted goes on; try again later"

    def takes(self, message: wire.Message) -> bool:
        """Whether ``message`` of a peer can be carried out as things are. (Submissions are looked at one by one.)"""
        if self.state != "full":
            return True
        if isinstance(message, wire.Ask):
            return message.what in READS
        return not isinstance(message, wire.Finished | wire.Blob)

    def records(self, message: wire.Message) -> bool:
        """Whether what ``message`` brings may be written down: only then is it worth making files of it."""
        return self.takes(message) and not (isinstance(message, wire.Submit | wire.Blob) and self.refusal)

    def failed(self, reason: str, now: float) -> None:
        """A write did not succeed; nothing of its transaction is there."""
        relapse = now - self._relieved_at < CALM_S
        self._pause = min(2 * self._pause, TRIAL_MOST_S) if relapse else TRIAL_S
        self._become("full", reason, now)
        self._look_at = now + self._pause

    def look(self, now: float) -> bool:
        """Look whether something changed, when it is time to; True when it did."""
        if now < self._look_at:
            return False
        self._look_at = now + (self._pause if self.state == "full" else LOOK_S)
        if self.state == "full" and not self._has_room():
            return False
        found = self._judged()
        if found == self.state:
            return False
        if self.state == "full":
            self._relieved_at = now
        self._become(found, f"{self.free_bytes // 1024:,} KiB free" if found == "low" else "", now)
        return True

    def _has_room(self) -> bool:
        try:
            self._storage.trial()
        except JournalFull:
            return False
        return True

    def _judged(self) -> State:
        """By the space that is free."""
        self.free_bytes, total = self._storage.free()
        reserve = min(RESERVE_BYTES, total / RESERVE_SHARE)
        return "low" if self.free_bytes < (reserve if self.state == "ok" else reserve * RELIEF) else "ok"

    def _become(self, state: State, reason: str, now: float) -> None:
        self.state, self.reason, self.since = state, reason, now
