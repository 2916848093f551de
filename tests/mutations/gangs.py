"""A script that has to notice faults in what is decided about gangs, labels, memory and speeds."""

from pathlib import Path

import pytest

from tests.scheduler import test_chances as chances
from tests.scheduler import test_gangs as gangs
from tests.scheduler import test_left_out as left_out
from tests.scheduler import test_many_gangs as many_gangs
from tests.scheduler.builders import pgs
from tests.scheduler.parallel import test_rounding as rounding
from tests.scheduler.simulation import test_instants as instants
from tests.scheduler.simulation import test_starvation as starvation


def in_the_scheduler(seed: int, home: Path) -> None:
    """Gangs start and end as a whole; PCs have what tasks need; slots are kept."""
    gangs.test_single_tasks_go_only_where_their_labels_are(pgs())
    gangs.test_never_more_of_a_workers_memory_is_promised_than_it_has(pgs())
    gangs.test_a_start_that_cannot_be_is_not_carried_out()
    gangs.test_slots_kept_for_a_gang_take_single_tasks_that_end_before()
    gangs.test_when_one_pc_is_gone_the_others_stop_and_the_task_waits_in_its_place()
    gangs.test_a_gang_survives_a_new_connection_of_a_worker_that_still_has_all_its_ranks()
    gangs.test_ranks_that_never_come_back_end_the_others()
    gangs.test_slots_of_all_speeds_are_found_by_what_is_left_of_them()
    gangs.test_as_many_slots_are_kept_as_the_ranks_need()
    gangs.test_a_policy_that_knows_no_runtimes_gets_no_slot_that_is_kept()
    gangs.test_what_is_short_overtakes_only_what_has_the_same_turn()
    gangs.test_while_its_bag_is_paused_a_gang_does_not_lose_patience()
    chances.test_a_slot_that_is_kept_for_a_gang_takes_no_chances()
    starvation.test_nor_do_single_tasks_of_which_predictions_say_little("packing")
    starvation.test_beside_small_gangs_it_starts_when_it_has_waited_five_times_its_runtime("packing", 0.95)
    starvation.test_a_gang_that_fits_nowhere_keeps_no_other_waiting("packing")
    rounding.test_of_sites_that_are_free_at_one_instant_the_faster_one_is_reserved()
    instants.test_a_gang_that_ends_when_another_one_arrives_makes_room_for_it("ff")
    with pytest.MonkeyPatch.context() as patch:
        many_gangs.few(patch)
        many_gangs.test_a_policy_sees_some_jobs_of_each_category_and_as_many_of_each_share()
        many_gangs.test_a_pass_costs_no_more_if_more_gangs_can_start_at_no_known_time(gangs.PAIR)
        many_gangs.test_after_a_change_each_is_asked_about_once_in_turn_even_if_nothing_more_changes()
        many_gangs.test_when_one_of_them_can_start_all_that_need_the_same_can()
        left_out.few(patch)
        left_out.test_a_gang_behind_many_of_which_only_a_policy_finds_that_they_cannot_start_starts_in_the_same_pass()
        left_out.test_one_starts_as_soon_as_a_window_is_longer(left_out.two_pcs())
        left_out.test_windows_that_have_become_too_short_are_noticed_when_a_policy_finds_no_time(left_out.two_pcs())
        many_gangs.test_to_ask_again_counts_in_a_bounded_pass_and_the_next_pass_goes_on()
