"""When the tasks of a bag may be placed: somebody pauses it, or it has to wait for other bags. Pure.

Rule 1: a pause is recorded, and a restart keeps it. What a bag waits for follows from its options and from the bags
that are there: a bag that was forgotten had ended, and decided about the bags after it.
Rule 2: a bag can only wait for bags that were there before it. So no bags wait for each other.
Rule 3: a bag that can no longer run is cancelled at once, with the reason.
Rule 4: thousands of bags may wait for one, so they are decided about in slices. A restart decides about all bags that
wait. So a bag cannot be forgotten while others wait for it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from deskgrid import wire
from deskgrid.broker.model.bags import OpenBag, category_of
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.store.rows import HOLD
from deskgrid.broker.work.operations import AskError, Slices
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.queues.categories import CategoryKey, Needs

# Tasks in one slice that leave their queues or come back, and the units of each.
SLICE_TASKS = 2_500
UNITS = 2
# Bags that one slice decides about, and the units of each.
SLICE_BAGS = 50
BAG_UNITS = 50
# Categories of one owner (`deskgrid.scheduler.queues.categories`) with bags that have not ended. A pass looks at each
# of them, and at some of them for each task that it places.
CATEGORIES_LIMIT = 64


class CarriesOut(Protocol):
    """Carries out orders, a slice at a time (`deskgrid.broker.work.orders.Orders`)."""

    def begin(self, owner: str, slices: Slices) -> None:
        """Carry out an order that nobody waits for."""

    def cancel(self, bag: OpenBag, items: Sequence[int] | None, spare: bool) -> Slices:
        """Cancel items of a bag, or all; ``spare``: except tasks that are at a worker."""


class Gates:
    """The pauses of bags, and which bags wait for which."""

    def __init__(self, state: BrokerState, orders: CarriesOut) -> None:
        self._state = state
        self._orders = orders
        # The bags that wait for a bag, both by number.
        self._followers: dict[int, set[int]] = {}
        # Called when a bag goes on that was held.
        self.resumed: Callable[[OpenBag], None] = lambda bag: None
        # By owner and category: the bags that are not in the owner's plain category, by number. Some of them may have
        # ended by now: they are dropped when the owner has too many categories, or when they are forgotten.
        self._categories: dict[str, dict[CategoryKey, dict[int, OpenBag]]] = {}
        # Of a bag that others wait for: whether it was complete, and had failed, when these were last decided about.
        self._decided: dict[int, tuple[bool, bool]] = {}

    # --- a new bag ---------------------------------------------------------------------------------------------------

    def refusal(self, bag_id: str, owner: str, options: wire.TaskOptions, environment: str = "") -> str:
        """Why a new bag with these options is refused; empty when it is not. ``environment``: its key."""
        category = category_of(owner, options, environment)
        return (
            self._refusal_by_licences(category.licences)
            or self._refusal_by_bags(bag_id, owner, options)
            or self._refusal_by_categories(category)
        )

    def _refusal_by_licences(self, needs: Needs) -> str:
        total = self._state.scheduler.grid.categories.licences.total
        if len({name for name, _ in needs}) < len(needs):
            return "a licence is named twice"
        for name, many in needs:
            if name not in total:
                known = f"it has {', '.join(sorted(total))}" if total else "its licences.toml names none"
                return f"this grid has no licence {name}: {known}"
            if many > total[name]:
                return f"each task needs {many} of licence {name}, and this grid has {total[name]}"
        return ""

    def _refusal_by_bags(self, bag_id: str, owner: str, options: wire.TaskOptions) -> str:
        for before in options.after:
            if before == bag_id:
                return f"bag {bag_id} cannot come after itself"
            bag = self._state.book.by_id.get(before)
            if bag is None or bag.row.owner != owner:
                return f"you have no bag {before}: a bag can only come after bags that you have submitted"
            if why := self._failure(bag, options.when):
                return f"the bag cannot run: {why}"
        return ""

    def _refusal_by_categories(self, category: CategoryKey) -> str:
        owner = category.owner
        categories = self._categories.get(owner, {})
        if len(categories) < CATEGORIES_LIMIT or category in categories or category == CategoryKey(owner):
            return ""
        for each in list(categories):
            self._drop_ended(owner, each)
        if len(categories) < CATEGORIES_LIMIT:
            return ""
        return (
            f"{owner} has bags with {len(categories)} different limits, priorities, licences, shortest pieces, "
            f"environments and needs here, of {CATEGORIES_LIMIT}: try again when some have ended"
        )

    def _drop_ended(self, owner: str, category: CategoryKey) -> None:
        """Do not count bags of a category that have ended, from the oldest to one that has not."""
        bags = self._categories[owner][category]
        while bags and (oldest := next(iter(bags.values()))).complete:
            del bags[oldest.row.number]
        if not bags:
            del self._categories[owner][category]

    def count(self, bag: OpenBag) -> None:
        """Count the category of a bag that has not ended."""
        if (category := bag.category) != CategoryKey(bag.row.owner):
            self._categories.setdefault(bag.row.owner, {}).setdefault(category, {})[bag.row.number] = bag

    def enter(self, bag: OpenBag, restored: bool = False) -> None:
        """A bag is new: it waits for those bags before it that have not ended.

        ``restored``: whether they have ended is not known yet; `decide_all` will decide.
        """
        self.count(bag)
        for before in bag.row.options.after:
            found = self._state.book.by_id.get(before)
            if found is not None and found.row.number < bag.row.number and (restored or not found.complete):
                bag.waits_for.add(found.row.number)
                self._followers.setdefault(found.row.number, set()).add(bag.row.number)

    # --- other bags end ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Begin to decide about the bags that wait for those with news, and hold those that cannot go on."""
        to_hold, self._state.to_hold = self._state.to_hold, []
        for bag, why in to_hold:
            self._orders.begin(bag.row.owner, self._hold(bag, why))
        for number in self._state.fresh & self._followers.keys():
            self._begin(number)

    def decide_all(self) -> None:
        """Begin to decide about all bags that wait."""
        for number in list(self._followers):
            self._begin(number)

    def _begin(self, number: int) -> None:
        before = self._state.book.by_number[number]
        news = before.complete, bool(self._failure(before, "ok"))
        if any(news) and self._decided.get(number) != news:
            self._decided[number] = news
            self._orders.begin(before.row.owner, self.deciding(before))

    def deciding(self, before: OpenBag) -> Slices:
        """Decide about the bags that wait for ``before``: they go on waiting, begin, or cannot run."""
        number = before.row.number
        followers = list(self._followers.get(number, ()))
        for start in range(0, len(followers), SLICE_BAGS):
            for follower in followers[start : start + SLICE_BAGS]:
                if follower in self._followers.get(number, ()):
                    self._decide(before, follower)
            yield SLICE_BAGS * BAG_UNITS
        return {}

    def _decide(self, before: OpenBag, follower: int) -> None:
        number, bag = before.row.number, self._state.book.by_number.get(follower)
        if bag is None or bag.complete or bag.cannot_run:
            if bag is not None:
                bag.cannot_run = bag.cannot_run or self._failure(before, bag.row.options.when)
            self._leave(follower, number)
        elif why := self._failure(before, bag.row.options.when):
            self._leave(follower, number)
            self._cannot_run(bag, why)
        elif before.complete:
            self._leave(follower, number)
            bag.waits_for.discard(number)
            if not bag.barred:
                self._orders.begin(bag.row.owner, self._route(bag))

    def has_followers(self, bag: OpenBag) -> bool:
        """Whether bags wait for this one, so that it cannot be forgotten yet: they have to be decided about first."""
        return bag.row.number in self._followers

    def forget(self, bag: OpenBag) -> None:
        """A complete bag, for which none waits, is about to be forgotten: it waits no more."""
        categories = self._categories.get(bag.row.owner, {})
        category = bag.category
        if categories.get(category, {}).pop(bag.row.number, None) is not None and not categories[category]:
            del categories[category]
        for before in bag.waits_for:
            if bag.row.number in self._followers.get(before, ()):
                self._leave(bag.row.number, before)

    def _leave(self, follower: int, number: int) -> None:
        self._followers[number].discard(follower)
        if not self._followers[number]:
            del self._followers[number]
            self._decided.pop(number, None)

    def _failure(self, before: OpenBag, when: str) -> str:
        """Why nothing can come after the bag ``before`` any more; empty when something can."""
        tasks = self._state.scheduler.grid.tasks.bags.get(before.row.number)
        if when == "ended" or tasks is None or not tasks.failed + tasks.cancelled:
            return ""
        counts = ((tasks.failed, "failed"), (tasks.cancelled, "cancelled"))
        parts = [f"{count:,} {what}" for count, what in counts if count]
        last = tasks.cancelled or tasks.failed
        return f"it comes after bag {before.row.id}, which has {' and '.join(parts)} task{'s' if last > 1 else ''}"

    def _cannot_run(self, bag: OpenBag, why: str) -> None:
        bag.cannot_run = why
        # Recorded at once: the bag that it comes after may be forgotten before the order has begun.
        self._state.journal.order(bag.row.number, "cancel")
        self._state.note("bag-cannot-run", **self.facts(bag), why=why)
        self._orders.begin(bag.row.owner, self._orders.cancel(bag, None, spare=False))

    def waits_for(self, bag: OpenBag) -> list[str]:
        """The ids of the bags that a bag waits for."""
        found = [self._state.book.by_number.get(number) for number in sorted(bag.waits_for)]
        return [before.row.id for before in found if before is not None]

    # --- pauses ------------------------------------------------------------------------------------------------------

    def pause(self, bag: OpenBag) -> Slices:
        """Place no more tasks of a bag until it is resumed. Raises `AskError`."""
        if bag.complete:
            raise AskError(f"bag {bag.row.id} has ended")
        self._state.journal.order(bag.row.number, "pause")
        bag.paused = True
        self._state.note("bag-paused", **self.facts(bag))
        return (yield from self._route(bag))

    def _hold(self, bag: OpenBag, why: str) -> Slices:
        """Place no more tasks of a bag, because they cannot run, until somebody resumes it."""
        if bag.complete or bag.held:
            return {}
        self._state.journal.order(bag.row.number, HOLD + why)
        bag.held, bag.paused = why, True
        self._state.note("bag-held", **self.facts(bag), why=why)
        return (yield from self._route(bag))

    def resume(self, bag: OpenBag) -> Slices:
        """Place tasks of a bag again, if it is paused. Raises `AskError`."""
        if bag.complete:
            raise AskError(f"bag {bag.row.id} has ended")
        if not bag.paused:
            return {}
        self._state.journal.carried_out(bag.row.number, "pause")
        if bag.held:
            self._state.journal.carried_out(bag.row.number, HOLD + bag.held)
            bag.held = ""
            self.resumed(bag)
        bag.paused = False
        self._state.note("bag-resumed", **self.facts(bag))
        return (yield from self._route(bag))

    @staticmethod
    def facts(bag: OpenBag) -> dict[str, str]:
        """Return what a note about a bag says of it."""
        return {"by": bag.row.owner, "bag": bag.row.id, "name": bag.row.name, "owner": bag.row.owner}

    def _route(self, bag: OpenBag) -> Slices:
        """Take the waiting tasks of a bag out of their queues, or put them back, as the bag is now."""
        state, book = self._state, self._state.book
        state.scheduler.handle(ev.BagGated(bag.row.number, bag.barred), state.now)
        for batch in list(bag.batches):
            for first in range(batch.first, batch.first + batch.count, SLICE_TASKS):
                if book.by_number.get(bag.row.number) is not bag:
                    return {}  # all its tasks ended, and somebody forgot it
                many = min(SLICE_TASKS, batch.first + batch.count - first)
                state.scheduler.handle(ev.TasksRouted([(first, many)]), state.now)
                yield UNITS * many
        return {}
