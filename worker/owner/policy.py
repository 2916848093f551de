"""What becomes of the tasks of a PC while its owner uses it. Pure: ``now`` is monotonic seconds.

Rule 1: somebody uses the PC from the moment of an input until there has been none for `Courtesy.idle_s`.
Rule 2: what nobody can tell counts as use if the tasks are to stop, and not if nobody said what is to become of them:
a server has no owner who sits there. Once something could tell, silence counts as use.
Rule 3: a PC whose owner comes and goes all the time is left alone for longer and longer.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

How = Literal["auto", "pause", "nice", "leave", "ignore"]
Doing = Literal["works", "pauses", "away"]

# How long nobody must have used the PC, and how long tasks stay stopped before they are handed back. Seconds.
IDLE_S, PATIENCE_S = 600.0, 1200.0
# Who comes back within so many times the idle time, when the tasks were handed back, is waited for twice as long the
# next time, but at most so many times.
SOON, DOUBLED = 6.0, 3
# What is said when nothing on the PC tells.
UNKNOWN = "nobody can tell whether somebody uses it"


@dataclass(frozen=True, slots=True)
class Courtesy:
    """``how`` tasks treat the owner. ``idle_s``: seconds without input. ``patience_s``: until they are handed back.

    ``given``: somebody has said it on this PC, so the broker's ``windows.toml`` does not.

    ``how`` "auto": pause if anything can tell whether somebody uses the PC, else nice. With "nice" and "ignore", tasks
    go on: how far they give way is another option.
    """

    how: How = "ignore"
    idle_s: float = IDLE_S
    patience_s: float = PATIENCE_S
    given: bool = False

    @property
    def asks(self) -> bool:
        """Whether it makes any difference who uses the PC."""
        return self.how in ("auto", "pause", "leave")


class Presence(NamedTuple):
    """What the probes say. ``idle_s``: seconds since the last input; None: nobody can tell. ``busy``: in what other way
    the PC is used, if it is.

    ``seated``: whether one of them knows the keyboard and the mouse of this PC, and not only some terminals.
    """

    idle_s: float | None
    busy: str = ""
    seated: bool = False


class OwnerPolicy:
    """What to do, look by look. ``why``: why the tasks do not run; empty if they do."""

    def __init__(self, courtesy: Courtesy) -> None:
        self._courtesy = courtesy
        self.doing: Doing = "works"
        self.why = ""
        self._known = courtesy.how in ("pause", "leave")
        self._since = 0.0
        # When the owner had gone last, after tasks were handed back; and how often he came back soon after that.
        self._gone_at: float | None = None
        self._returns = 0

    @property
    def at_once(self) -> bool:
        """Whether tasks are handed back as they are, without saving first."""
        return self._courtesy.how == "leave"

    def look(self, presence: Presence, now: float) -> Doing:
        """Decide again."""
        self._known |= presence.seated and self._courtesy.asks
        self.why = self._use(presence) if self._known else ""
        if not self.why:
            self._gone_at = now if self.doing == "away" else self._gone_at
            self.doing = "works"
        elif self.doing == "works":
            self._since, self.doing = now, "pauses"
        if self.doing == "pauses" and (self.at_once or now - self._since >= self._courtesy.patience_s):
            self.doing = "away"
            soon = self._gone_at is not None and self._since - self._gone_at < SOON * self._courtesy.idle_s
            self._returns = min(self._returns + 1, DOUBLED) if soon else 0
        return self.doing

    def _use(self, presence: Presence) -> str:
        """In what way the PC is used; empty if it is not."""
        if presence.busy:
            return presence.busy
        if presence.idle_s is None:
            return UNKNOWN
        enough = self._courtesy.idle_s * 2.0**self._returns
        return "somebody uses it" if presence.idle_s < enough else ""
