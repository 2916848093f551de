"""What predictions were worth in earlier bags of a function or a program."""

from math import inf, nan

import pytest

from deskgrid.scheduler.prediction.earlier import BAGS, FARTHEST, NO_PAST, EarlierBags, Past, Vote
from deskgrid.scheduler.prediction.kept import KEPT
from deskgrid.scheduler.prediction.spread import ENOUGH, POINTS

NAME = "ann\nrender"
# Ratios that are far apart, and ratios that are alike.
WIDE = tuple(0.5 + place / 10 for place in range(POINTS))
ALIKE = (1.0,) * 8 + (1.1,) * 8


def taught(*bags: tuple[float, ...], done: int = ENOUGH) -> EarlierBags:
    earlier = EarlierBags()
    for number, ratios in enumerate(bags):
        earlier.teach([NAME], Vote(number, done, ratios))
    return earlier


def past(earlier: EarlierBags, *names: str) -> Past:
    return Past(earlier, names or (NAME,), 99)


def test_of_a_name_that_nobody_has_used_nothing_is_known() -> None:
    assert past(EarlierBags()).known == past(EarlierBags()).wide == ()
    assert NO_PAST.known == NO_PAST.wide == ()
    assert EarlierBags().kept(NAME) == []


def test_ratios_that_are_far_apart_matter() -> None:
    assert past(taught(WIDE)).wide == past(taught(WIDE)).known == WIDE


def test_ratios_that_are_alike_are_known_and_do_not_matter() -> None:
    assert past(taught(ALIKE)).known == ALIKE
    assert past(taught(ALIKE)).wide == ()


def test_a_few_tasks_do_not_matter() -> None:
    assert past(taught(WIDE, done=ENOUGH - 1)).wide == ()
    assert past(taught(WIDE, WIDE, done=ENOUGH // 2)).wide == WIDE


def test_each_bag_has_one_vote() -> None:
    earlier = taught((1.0,) * POINTS, (3.0,) * POINTS, done=10_000)
    assert past(earlier).wide == (1.0,) * 8 + (3.0,) * 8
    earlier.teach([NAME], Vote(1, 20_000, (2.0,) * POINTS))
    assert past(earlier).wide == (1.0,) * 8 + (2.0,) * 8


@pytest.mark.parametrize("absurd", [1e-3, 1e3, inf, 0.0])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_absurd_bag_of_three_changes_nothing(absurd: float, place: int) -> None:
    bags: list[tuple[float, ...]] = [ALIKE, ALIKE]
    bags.insert(place, (absurd,) * POINTS)
    earlier = taught(*bags)
    assert past(earlier).known == tuple(sorted(ALIKE * 2))
    assert past(earlier).wide == ()


def test_no_ratio_is_beyond_all_bounds() -> None:
    assert past(taught((0.0,) * 8 + (inf,) * 8)).known == (1.0 / FARTHEST,) * 8 + (FARTHEST,) * 8


def test_the_bags_that_ended_last_are_remembered() -> None:
    earlier = taught(WIDE, *[ALIKE] * (BAGS - 1))
    earlier.teach([NAME], Vote(0, ENOUGH, WIDE))
    earlier.teach([NAME], Vote(BAGS, ENOUGH, ALIKE))
    record = earlier.find([NAME])
    assert record is not None
    assert list(record.votes) == [*range(2, BAGS), 0, BAGS]


def test_the_function_counts_before_the_program() -> None:
    earlier = EarlierBags()
    earlier.teach(["ann\nprogram"], Vote(1, ENOUGH, WIDE))
    assert past(earlier, "ann\nfunction", "ann\nprogram").wide == WIDE
    earlier.teach(["ann\nfunction", "ann\nprogram"], Vote(2, ENOUGH, ALIKE))
    assert past(earlier, "ann\nfunction", "ann\nprogram").known == ALIKE


def test_the_names_of_one_owner_do_not_push_out_those_of_another() -> None:
    earlier = taught(WIDE)
    for number in range(KEPT):
        earlier.teach([f"many\n{number}"], Vote(number, ENOUGH, ALIKE))
    assert len(earlier.names) == KEPT
    assert past(earlier).wide == WIDE


def test_records_go_on_after_a_restart_and_are_forgotten() -> None:
    before, after = taught(WIDE, ALIKE), EarlierBags()
    assert list(before.fresh) == [NAME]
    after.restore(NAME, before.kept(NAME))
    assert after.kept(NAME) == before.kept(NAME)
    assert past(after).known == past(before).known
    after.forget()
    assert (list(after.names), list(after.fresh), past(after).known) == ([], [], ())
    after.teach([NAME], Vote(1, ENOUGH, WIDE))
    assert past(after).wide == WIDE


@pytest.mark.parametrize("broken", [nan, inf, 0.0, -1.0])
def test_what_cannot_be_read_is_left_out(broken: float) -> None:
    earlier = EarlierBags()
    earlier.restore(NAME, [1.0, 9.0, broken, *WIDE[1:], 2.0, 9.0, *WIDE, 3.0])
    assert earlier.kept(NAME) == [2.0, 9.0, *WIDE]
    earlier.restore(NAME, [nan, 9.0, *WIDE, 3.0, inf, *WIDE])
    assert earlier.kept(NAME) == [2.0, 9.0, *WIDE]
