"""What if: questions about a grid, or a bag, that is imagined otherwise. Pure.

Rule 1: a question changes nothing. It takes a picture of the grid, and the process that makes forecasts does the rest.
Rule 2: pictures for these questions take at most `PART` of the broker's time; one credential has at most
`WAITING_LIMIT` of them waiting, and in the process, who has used least comes first.
"""

import math
from collections import Counter
from collections.abc import Generator
from dataclasses import replace

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.forecasts.etas import NOTHING_KNOWN, PART, ROW_UNITS, Etas, answered, is_unknown, runs_for
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.forecaster import LATE, Json, Ticket
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.operations import LATER, PARKED, AskError, Slices, pending
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.scheduler.forecast.correction import Estimate, stage_of
from deskgrid.scheduler.forecast.look import Look, predicted
from deskgrid.scheduler.forecast.picture import Group, Picture, PictureBag
from deskgrid.scheduler.policies import check_policy, policy_options
from deskgrid.scheduler.policies.base import least_required

# Questions of one credential, and of all, that wait for their answers.
WAITING_LIMIT, WAITING_LIMIT_ALL = 4, 32
# An answer is made of fewer runs than an estimate, because a question has many answers.
RUNS = 60
# The number of a bag that is not there.
IMAGINED = -1
# All questions have the same chance, so that answers to two of them can be compared.
SEED = 1
# How far pictures may be ahead of that part of the time. Seconds.
AHEAD_S = 1.0
# What taking a picture costs the broker for each row. Seconds.
ROW_S = 4e-6


class WhatIf:
    """Answers "whatif", "whatif new" and "advise"."""

    def __init__(self, state: BrokerState, workers: WorkerSessions, etas: Etas) -> None:
        self._state, self._workers, self._etas = state, workers, etas
        # By credential: its questions that wait for a picture, and those that the process has.
        self._waiting = Counter[str]()
        self._tickets: dict[str, list[Ticket]] = {}
        # When the time of the broker for all pictures so far is over. The broker's clock.
        self._next_at = -math.inf

    def compare(self, who: Credential, bag: OpenBag, changes: list[Json]) -> Slices:
        """When a bag would end, as things are and with each change."""
        return self._ask(who, bag.row.number, "compare", changes)

    def compare_new(self, args: Json, who: Credential) -> Slices:
        """The same for a bag that ``who`` would submit now."""
        return self._ask(who, IMAGINED, "compare", args["changes"], (args["tasks"], args["runtime_s"]))

    def advise(self, who: Credential, bag: OpenBag) -> Slices:
        """What would help a bag."""
        return self._ask(who, bag.row.number, "advise", [])

    def _ask(
        self, who: Credential, bag: int, what: str, changes: list[Json], new: tuple[int, float] | None = None
    ) -> Slices:
        self._check(who.name, changes)
        self._waiting[who.name] += 1
        try:
            picture = yield from self._picture(bag)
        finally:
            self._waiting[who.name] -= 1
        if (foregone := self._foregone(bag, picture)) is not None:
            if what == "advise":
                return {"now": foregone, "longer": [], "misfits": None}
            return {"rows": [foregone] * (1 + len(changes))}
        if new is not None:
            picture = replace(picture, bags=(*picture.bags, self._imagined(who, *new)))
        ticket = self._submit(who.name, picture, what, {"bag": bag, "changes": changes})
        self._tickets.setdefault(who.name, []).append(ticket)
        while not ticket.done:
            yield PARKED
        if ticket.failure == LATE:
            raise AskError(f"the forecast could not be made: {LATE}")
        if ticket.answer is None:
            self._state.note("forecast-failed", by=who.name, why=ticket.failure)
            raise AskError("the forecast could not be made; the broker's log says why")
        answer: Json = ticket.answer
        rows = answer["rows"] if what == "compare" else [answer["now"], *(each["eta"] for each in answer["longer"])]
        for row in rows:
            self._correct(who.name, bag, row)
        return answer

    def _foregone(self, bag: int, picture: Picture) -> Json | None:
        """What is told of a bag whatever is imagined: it has ended, or nothing is known of it. None: a forecast."""
        if bag != IMAGINED and all(its.number != bag for its in picture.bags):
            return answered(0.0, 0.0, 0.0, "")
        known = self._state.book.by_number.get(bag)
        if known is not None and is_unknown(known) and any(pc.spans for pc in picture.pcs):
            return answered(None, None, None, NOTHING_KNOWN)
        return None

    def _correct(self, asker: str, number: int, row: Json) -> None:
        """Correct an answer in place, as estimates of bags at this stage are corrected. A new bag is of ``asker``."""
        bag = self._state.book.by_number.get(number)
        stage = stage_of(0.0 if bag is None else bag.settled / max(1, bag.total))
        if row["median_s"] is not None:
            raw = Estimate(row["median_s"], row["low_s"], math.inf if row["high_s"] is None else row["high_s"])
            owner = asker if bag is None else bag.row.owner
            told = self._state.learning.correction.corrected(owner, stage, raw)
            row |= {"low_s": told.low, "high_s": None if told.high == math.inf else told.high}

    def _check(self, owner: str, changes: list[Json]) -> None:
        """Raise `AskError` if too many such questions wait, or a window of a change has no start or no length.

        Raise `UnknownPolicy` if there is no policy of a name.
        """
        self._waiting += Counter()  # without those that are zero
        left = {name: [each for each in tickets if not each.done] for name, tickets in self._tickets.items()}
        self._tickets = {name: tickets for name, tickets in left.items() if tickets}
        mine = self._waiting[owner] + len(self._tickets.get(owner, ()))
        if mine >= WAITING_LIMIT:
            raise AskError(pending(f"{mine} such questions of {owner}"))
        if (together := self._waiting.total() + sum(map(len, self._tickets.values()))) >= WAITING_LIMIT_ALL:
            raise AskError(pending(f"{together} such questions", LATER))
        windows = [each for change in changes for each in change.get("windows") or ()]
        if any(len(each["starts_s"]) != len(each["lasts_s"]) for each in windows):
            raise AskError("windows have as many starts as lengths")
        for change in changes:
            if policy := change.get("policy"):
                check_policy(policy)

    def _picture(self, bag: int) -> Generator[int, None, Picture]:
        while self._state.now < self._next_at - AHEAD_S:
            yield PARKED
        now, by_name, rows = self._state.now, self._workers.by_name, 0
        look = Look(self._state.scheduler.grid, now, self._etas.learned, bag, self._etas.prepares)
        for some in look.pieces():
            rows += some
            yield ROW_UNITS * some
        self._next_at = max(self._next_at, now) + rows * ROW_S / PART
        # The scheduler does not know the sites of PCs that are away.
        pcs = [replace(pc, site=by_name[pc.name].join.site) if pc.name in by_name else pc for pc in look.picture.pcs]
        yield ROW_UNITS * len(pcs)
        return replace(look.picture, pcs=tuple(pcs))

    def _imagined(self, who: Credential, tasks: int, runtime: float) -> PictureBag:
        """A bag of ``who`` that is not there."""
        policy = self._state.scheduler.policy
        needs_s = least_required(policy).needs(runtime) if policy.timed else 0.0
        share = self._state.scheduler.grid.shares.share_of(who.name)
        return PictureBag(IMAGINED, (Group(tasks, predicted(runtime), runtime, needs_s),), tasks, share=share)

    def _submit(self, owner: str, picture: Picture, what: str, args: Json) -> Ticket:
        policy = self._state.scheduler.policy
        args |= {"seed": SEED, "runs": min(RUNS, runs_for(picture))}
        args |= {"policy": policy.name, "options": policy_options(policy)}
        return self._state.forecaster.ask(picture, what, args, owner)
