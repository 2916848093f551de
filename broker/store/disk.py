"""Whether the disk of the broker's home has room, and which messages are refused while it has none.

- ``ok``: everything is accepted.
- ``low``: the free space is kept for the results of accepted tasks, so submissions are refused.
- ``full``: a write failed. Messages that have to be written are refused. Workers keep their results and send them again
  when there is room, so nothing is lost, and the broker holds nothing in memory for them.

Rule: a message is refused before any part of it is carried out. The broker returns to ``ok`` by itself.
"""

import math
from typing import Literal, Protocol

from deskgrid import wire
from deskgrid.broker.store.journal import JournalFull
from deskgrid.wire.questions import QUESTIONS

State = Literal["ok", "low", "full"]

# Submissions leave this much free for the results of accepted tasks: a few of the largest results, or some hundred
# thousand small ones. On a small disk the reserve is a twentieth of the disk. The state ``low`` ends when 1.5 times the
# reserve is free, so that the state does not flutter.
RESERVE_BYTES = 256 * 1024 * 1024
RESERVE_SHARE = 20
RELIEF = 1.5
# How often the free space is checked, with one system call. Seconds.
LOOK_S = 1.0
# How often the broker tries to write to a full disk. The pause doubles each time the disk is full again within CALM_S
# of having had room, because each time all peers have to introduce themselves again. Seconds.
TRIAL_S = 1.0
TRIAL_MOST_S = 60.0
CALM_S = 120.0


class Storage(Protocol):
    """The methods of `deskgrid.broker.store.journal.Journal` that `Disk` needs."""

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
        # Bytes that submissions may have before the free space is checked again.
        self._room = math.inf
        self._pause = TRIAL_S
        self._relieved_at = -CALM_S

    @property
    def refusal(self) -> str:
        """Why submissions are refused; empty when they are accepted."""
        if self.state == "ok":
            return ""
        what = f"is full ({self.reason})" if self.state == "full" else f"is nearly full ({self.reason})"
        return self._in_words(what)

    def refusal_of(self, size: int) -> str:
        """Why a submission with ``size`` bytes is refused; empty when there is room for it."""
        if self.refusal or size <= self._room:
            return self.refusal
        return self._in_words(f"has no room for {size // 1024:,} KiB more ({self.free_bytes // 1024:,} KiB free)")

    def took(self, size: int) -> None:
        """A submission with ``size`` bytes is written."""
        self._room -= size

    def _in_words(self, what: str) -> str:
        return f"the disk of the broker's home {self._place} {what}; accepted bags continue; try again later"

    def takes(self, message: wire.Message) -> bool:
        """Whether ``message`` can be carried out now. (Submissions are refused one by one, elsewhere.)"""
        if self.state != "full":
            return True
        if isinstance(message, wire.Ask):
            return message.what in QUESTIONS and not QUESTIONS[message.what].writes
        kept = wire.Finished | wire.Saved | wire.Blob | wire.Offer | wire.Part
        return not isinstance(message, (kept, *wire.FROM_RANKS))

    def records(self, message: wire.Message) -> bool:
        """Whether the large payloads of ``message`` may be written to files. Keeps room for those of a submission."""
        if not self.takes(message):
            return False
        if isinstance(message, wire.Submit | wire.Blob | wire.Part):
            size = sum(map(len, wire.large_of(message)))
            if self.refusal_of(size):
                return False
            self.took(size)
        return True

    def failed(self, reason: str, now: float) -> None:
        """A write failed, and its transaction was rolled back."""
        relapse = now - self._relieved_at < CALM_S
        self._pause = min(2 * self._pause, TRIAL_MOST_S) if relapse else TRIAL_S
        self._become("full", reason, now)
        self._look_at = now + self._pause

    def look(self, now: float) -> bool:
        """Check the disk, if a check is due; True when the state changed."""
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
        """The state, by the free space."""
        self.free_bytes, total = self._storage.free()
        reserve = min(RESERVE_BYTES, total / RESERVE_SHARE)
        self._room = self.free_bytes - reserve
        return "low" if self.free_bytes < (reserve if self.state == "ok" else reserve * RELIEF) else "ok"

    def _become(self, state: State, reason: str, now: float) -> None:
        self.state, self.reason, self.since = state, reason, now
