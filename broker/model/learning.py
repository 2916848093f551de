"""What the broker learns about runtimes, windows and speeds, across bags and restarts:
`deskgrid.scheduler.prediction`, with a journal.

Rule 1: a result costs nothing here. Results are taken over when a bag has 1, 2, 4, 8 ... of them, and when it is
complete; of many results, only the latest ones.
Rule 2: only tasks that are done teach. The broker knows a function by the bag's owner and the digest of its template,
and a program by the bag's owner and name. So a changed function of the same name still has a history, and nobody
teaches the broker about another user's function or program, not even if the two are the same.
Rule 3: what was learned is written down every few seconds. If the broker is killed, it has learned a bit less.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from deskgrid.broker.model.bags import ASSUMED_RUNTIME_S, OpenBag
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import LearnedRow
from deskgrid.scheduler.forecast.correction import Correction, Score
from deskgrid.scheduler.forecast.picture import Durations
from deskgrid.scheduler.prediction.earlier import EarlierBags
from deskgrid.scheduler.prediction.hours import DAY, HOUR, Hours, Week
from deskgrid.scheduler.prediction.kept import Learned
from deskgrid.scheduler.prediction.runtimes import Features, Runtimes
from deskgrid.scheduler.prediction.speeds import Speeds

# How often it is written down. Seconds.
WRITE_S = 10.0
# The most rows written at once: each has at most 1,600 bytes. The others follow soon after.
ROWS = 100

# The last time of which the day of the week is asked: windows may be announced for later. POSIX seconds.
LAST_TIME = 1e11


class WeekHere(Week):
    """The week as clocks show it where the broker is."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall

    def into(self, now: float) -> float:
        """Seconds since Monday 0:00."""
        here = datetime.fromtimestamp(min(max(self._wall.posix(now), 0.0), LAST_TIME), UTC).astimezone()
        return here.weekday() * DAY + here.hour * HOUR + here.minute * 60.0


class Learning:
    """Learns from bags, and predicts those whose submitters gave no predictions.

    ``hours``: how PCs keep their hours; ``speeds``: how fast they are; ``earlier``: what predictions were worth in
    earlier bags. The scheduler adds to all of them.
    """

    def __init__(self, journal: Journal, wall: WallClock) -> None:
        self._journal = journal
        self._runtimes = Runtimes()
        self.hours, self.speeds, self.earlier = Hours(WeekHere(wall)), Speeds(), EarlierBags()
        # How earlier estimates of the ends of bags held.
        self.correction = Correction()
        self._write_at = -math.inf
        learned = self._learned()
        for row in journal.learned.rows():
            if row.kind in learned:
                values = array("d")
                values.frombytes(row.values)
                learned[row.kind].restore(row.name, values)
        for known in learned.values():
            known.fresh.clear()

    def _learned(self) -> dict[str, Learned]:
        """All that is written down, by kind."""
        return {
            "hours": self.hours,
            "speeds": self.speeds,
            "ratios": self.earlier,
            "scores": self.correction,
            **self._runtimes.learned,
        }

    def expected(self, bag: OpenBag) -> float:
        """How long nearly all tasks of a bag take, in seconds, as far as that is known."""
        bag.prediction = None
        for features in _kinds(bag):
            if self._runtimes.knows(features) and (found := self._runtimes.predict(features)):
                bag.prediction = features.bag, found
                return found.highest
        return ASSUMED_RUNTIME_S

    def learn(self, bag: OpenBag) -> None:
        """Take over the latest results of a bag."""
        runs = bag.runs.take()
        features = _features(bag, first=bag.runs.only_first)
        kind, judged = bag.prediction or ("", None)
        if kind != features.bag:
            judged = None
        if bag.complete:
            self._runtimes.end(features.bag)
            features = features._replace(bag="")  # only its function and its program can still use them
        for seconds, worker in runs:
            self._runtimes.observe(features._replace(pc=worker), seconds, judged)

    def spread(self, bag: OpenBag, running: Sequence[float]) -> Durations | None:
        """How long the tasks of a bag take, in full; None if nothing is known of such tasks.

        ``running``: how long its running tasks have run, in seconds.
        """
        if bag.runs.count:
            self.learn(bag)
        for features in _kinds(bag):
            if self._runtimes.knows(features) and (found := self._runtimes.spread(features, running)):
                return Durations(found.points, found.own, found.wide)
        return None

    def judge(self, owner: str, scores: Sequence[Score]) -> None:
        """A bag of ``owner`` has ended: this is how estimates of its end held."""
        for each in scores:
            self.correction.learn(owner, each)

    def forget(self) -> None:
        """Forget everything."""
        self.hours.forget()
        self.speeds.forget()
        self.earlier.forget()
        self._runtimes, self.correction = Runtimes(), Correction()
        self._journal.learned.forget()

    def write_down(self, now: float) -> None:
        """Write what is new into the journal, if it is time."""
        if now < self._write_at:
            return
        for kind, known in self._learned().items():
            names = list(known.fresh)[:ROWS]
            for name in names:
                del known.fresh[name]
            if names:
                rows = [LearnedRow(kind, name, array("d", known.kept(name)).tobytes()) for name in names]
                self._journal.learned.add(rows, {kind: known.names})
                self._write_at = now + WRITE_S
        if any(known.fresh for known in self._learned().values()):
            self._write_at = now


def _features(bag: OpenBag, first: bool) -> Features:
    """``first``: of the first runs on slots. They are a kind of their own, as if they were of another function."""
    kind = f"{bag.row.owner}\n{'first ' if first else ''}"
    return Features(f"{kind}{bag.row.number}", f"{kind}{bag.row.template}", f"{kind}{bag.row.name}")


def _kinds(bag: OpenBag) -> Iterator[Features]:
    """The kinds of runs that a bag can be predicted from, the best first."""
    if not (bag.runs.count and bag.runs.only_first):
        yield _features(bag, first=False)
    yield _features(bag, first=True)
