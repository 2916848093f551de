"""Gangs, from the command to start one to the result, with bare workers that say what they like."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.gangs import gangs as gangs_module
from deskgrid.broker.gangs.pmi import LINE_BYTES
from deskgrid.broker.gangs.starts import LEASE_FACTOR, PREPARE_S, SLOW_TRANSFER
from deskgrid.broker.model.quotas import BYTES_LIMIT
from deskgrid.broker.model.state import TRANSFER_BYTES_PER_S
from deskgrid.scheduler.state.rests import FIRST_REST_S, SILENT_REST_S
from deskgrid.wire import LARGE_BYTES, Outcome
from tests.broker.gang_peers import RankWorker, asked_to_prepare, begun, gang_bag, rank_worker, settled_in
from tests.broker.office import LEASE_S, Office, OpenOffice


def only_result(office: Office, bag: str) -> wire.BagResult:
    """The result of the only task of a bag."""
    (result,) = office.client().results(bag)
    return result


def state_of(office: Office, bag: str) -> str:
    """Where the only task of a bag is."""
    return str(office.sessions.state.scheduler.state(office.bag(bag).batches[0].first).name)


# --- it begins -------------------------------------------------------------------------------------------------------


def test_all_prepare_and_when_all_are_ready_all_start(office: Office) -> None:
    workers = [rank_worker(office, f"pc{number}") for number in range(3)]
    settled_in(office)
    bag = gang_bag(office, 3)
    for worker in workers:
        prepared = worker.prepare()
        assert (prepared.size, prepared.lease) == (3, LEASE_FACTOR * PREPARE_S)
        assert [row.slot for row in prepared.ranks] == [0]
        assert bytes(prepared.work[0].payload) == b"0"
    workers.sort(key=lambda worker: worker.ranks)
    workers[0].ready(4711)
    workers[1].ready()
    assert workers[0].line.receive(0.0) is None
    workers[2].ready()
    for worker in workers:
        assert worker.expect(wire.StartRanks) == wire.StartRanks(
            *worker.ref, tuple(f"{w.name}.lab" for w in workers), 4711
        )
    for worker in workers:
        office.now += 1.0
        worker.end(worker.ranks[0], b"result %d" % worker.ranks[0])
    result = only_result(office, bag)
    assert wire.split_ranks(result.payload) == [b"result 0", b"result 1", b"result 2"]
    assert (result.outcome, result.worker) == (Outcome.DONE, workers[0].name)


def test_ranks_that_share_a_pc_are_prepared_together_and_each_has_its_slots(office: Office) -> None:
    worker = rank_worker(office, slots=6)
    settled_in(office)
    gang_bag(office, 3, slots=2)
    prepared = worker.prepare()
    assert worker.ranks == [0, 1, 2]
    assert sorted(row.slot for row in prepared.ranks) == [*range(6)]
    worker.ready(1)
    assert worker.next(wire.StartRanks).hosts == ("pc1.lab",) * 3


def test_a_task_of_several_slots_that_is_no_gang_has_a_plain_result(office: Office) -> None:
    worker = rank_worker(office, slots=2)
    settled_in(office)
    bag = office.client().submit([b"0"], runtime=10.0, options=wire.TaskOptions(slots=2))
    worker.prepare()
    worker.ready()
    office.now += 1.0
    worker.end(0, b"plain")
    assert only_result(office, bag).payload == b"plain"


def test_the_longest_gang_can_be_sent_to_a_slow_pc(office: Office) -> None:
    worker = rank_worker(office, slots=2, speed=0.5)
    settled_in(office)
    office.client().submit([b"0"], runtime=wire.SECONDS_LIMIT, options=wire.TaskOptions(slots=2))
    (work,) = worker.prepare().work
    assert work.runtime == wire.SECONDS_LIMIT


def test_whatever_a_client_says_of_its_files_nobody_waits_for_them_longer_than_they_could_take(office: Office) -> None:
    worker = rank_worker(office, slots=2)
    settled_in(office)
    client, said = office.client(), 2**63 - 1
    before = client.submit([b"0"], runtime=1.0)
    worker.finish(*worker.work())
    client.send(wire.Offer(client.number(), "huge", bytes(32), 1, said, said))
    client.expect(wire.Lacks)
    changes: dict[str, Any] = {"template": office.bag(before).row.template, "options": wire.TaskOptions(slots=2)}
    assert isinstance(client.answer_to(client.batch("huge", [b"0"], **changes)), wire.Accepted)
    most_s = BYTES_LIMIT / TRANSFER_BYTES_PER_S
    assert worker.prepare().lease == LEASE_FACTOR * (PREPARE_S + SLOW_TRANSFER * most_s)


def test_a_gang_of_one_rank_has_a_list_of_one(office: Office) -> None:
    bag, (worker,) = begun(office, 1)
    worker.end(0, b"one")
    assert wire.split_ranks(only_result(office, bag).payload) == [b"one"]


def test_a_worker_that_is_not_ready_ends_the_start_everywhere_and_it_is_tried_again_later(office: Office) -> None:
    workers = [rank_worker(office, f"pc{number}") for number in range(2)]
    settled_in(office)
    bag = gang_bag(office, 2)
    for pause, rest in ((1.0, FIRST_REST_S), (2.0, 2 * FIRST_REST_S)):
        for worker in workers:
            worker.prepare()
        workers[0].ready()
        workers[1].send(wire.RanksUnready(*workers[1].ref, "its disk is full"))
        for worker in workers:
            worker.stopped()
        assert state_of(office, bag) == "PAUSED"
        office.now += pause - 0.1
        office.settle()
        assert state_of(office, bag) == "PAUSED"
        office.now += 0.2
        office.settle()
        assert state_of(office, bag) == "WAITING"
        told = office.client().ask("explain", bag=bag, item=0)["text"]
        assert any(line.endswith(f"get none for a while: {workers[1].name}") for line in told)
        status = office.client().ask("status")
        notes = {row["name"]: row["note"] for row in status["workers"]}
        assert notes[workers[1].name].startswith("gets no gangs for ")
        office.wait(rest - pause - 0.1, *workers)
    assert any(
        "its disk is full" in row["facts"].get("reason", "") for row in office.client().ask("events", after=0)["events"]
    )


def test_who_takes_too_long_to_be_ready_ends_the_start(office: Office) -> None:
    bag, workers = asked_to_prepare(office, 2)
    workers[0].ready()
    for _ in range(7):
        office.wait(PREPARE_S / 7 + 0.1, *workers)
    for worker in workers:
        worker.stopped()
    assert state_of(office, bag) == "PAUSED"


def not_trusted(office: Office) -> list[tuple[str, float]]:
    """Workers that got no gangs from some moment on, and for how long, as events tell."""
    events = office.client().ask("events", after=0)["events"]
    found = [row["facts"] for row in events if row["event"] == "worker-gets-no-gangs"]
    return [(facts["name"], float(facts["for_s"])) for facts in found]


def test_who_hands_back_ranks_that_it_prepares_gets_none_for_a_while(office: Office) -> None:
    bad, *others = [rank_worker(office, f"pc{number}", speed=1.0 - number / 4) for number in range(3)]
    settled_in(office)
    bag = gang_bag(office, 2)
    bad.prepare()
    bad.send(wire.Returned((bad.ref,)))
    office.settle()
    assert state_of(office, bag) == "PAUSED"
    office.now += 2.0
    office.settle()
    others[1].prepare()
    assert not_trusted(office) == [(bad.name, FIRST_REST_S)]


def test_who_gives_up_ranks_that_have_begun_gets_none_for_a_while(office: Office) -> None:
    _, workers = begun(office, 2)
    workers[1].send(wire.Returned((workers[1].ref,)))
    office.settle()
    assert not_trusted(office) == [(workers[1].name, FIRST_REST_S)]
    rank_worker(office, "another").prepare()


def test_single_tasks_that_it_ends_do_not_help_a_worker_that_never_gets_ready(office: Office) -> None:
    hole, *others = [rank_worker(office, f"pc{number}", speed=1.0 - number / 4) for number in range(3)]
    settled_in(office)
    gang_bag(office, 2)
    hole.prepare()
    others[0].prepare()
    others[0].ready()
    for _ in range(7):
        office.wait(PREPARE_S / 7 + 0.1, hole, *others)
    assert not_trusted(office) == [(hole.name, SILENT_REST_S)]
    hole.stopped()
    office.client().submit([b"single"], runtime=1.0)
    office.now += 1.5
    office.settle()
    for worker in others:  # the gang is elsewhere now
        worker.prepare()
    (work,) = hole.next(wire.Assign).work
    office.now += 1.0
    hole.send(wire.Finished((wire.Result(work.task, work.number, 0, 0.5, b"", b"", b""),)))
    office.settle()
    assert office.sessions.state.scheduler.rests_until(hole.name) is not None


# --- it fails --------------------------------------------------------------------------------------------------------


def test_the_first_failure_ends_all_and_is_told_with_its_rank(office: Office) -> None:
    bag, workers = begun(office, 3)
    workers[2].fail(2, "ValueError")
    for worker in workers:
        assert state_of(office, bag) == "SENT"
        worker.stopped()
    result = only_result(office, bag)
    failure = wire.read_failure(result.payload)
    assert (result.outcome, result.worker, failure.rank) == (Outcome.ERROR, workers[2].name, 2)
    assert (failure.kind, failure.message) == ("ValueError", f"rank 2 of 3 on {workers[2].name}: because of 2")
    assert failure.trace == f"rank 2 of 3 on {workers[2].name}:\ntrace of 2"


def test_a_failure_that_came_first_and_arrives_later_is_the_cause(office: Office) -> None:
    bag, workers = begun(office, 3)
    workers[0].fail(0, "ConnectionError", elapsed=3.02)
    workers[2].fail(2, "MemoryError", elapsed=3.0)
    workers[1].fail(1, "ConnectionError", elapsed=3.01)
    workers[1].fail(1, "Twice", elapsed=0.1)
    for worker in workers:
        worker.stopped()
    assert wire.read_failure(only_result(office, bag).payload).message.startswith("rank 2 of 3 on")


def test_what_follows_from_a_lost_pc_is_no_failure_of_the_task(office: Office) -> None:
    bag, workers = begun(office, 2)
    workers[1].close()
    workers[0].fail(0, "ConnectionError")
    workers[0].stopped()
    for _ in range(12):
        office.wait(LEASE_S / 10, workers[0])
    assert state_of(office, bag) == "WAITING"
    assert office.client().ask("progress", bag=bag)["failed"] == 0


def test_a_worker_that_never_stops_its_ranks_does_not_hold_up_the_end(office: Office) -> None:
    bag, workers = begun(office, 2)
    workers[0].fail(0, "ValueError")
    workers[0].stopped()
    for _ in range(25):
        office.wait(LEASE_S / 10, *workers)
    assert wire.read_failure(only_result(office, bag).payload).kind == "ValueError"


def test_a_gang_that_failed_is_tried_again_as_a_whole_and_what_it_printed_is_known(office: Office) -> None:
    bag, workers = begun(office, 2, retries=1)
    workers[0].end(0, b"in vain")
    workers[1].fail(1, "ValueError")
    workers[1].stopped()  # the other has ended its rank
    log = office.client().ask("logs", bag=bag, item=0)
    assert "out of 1" in log["stdout"]
    office.wait(20.0, *workers)
    for worker in workers:
        worker.prepare()
        worker.ready()
    office.now += 1.0
    for worker in workers:
        worker.end(worker.ranks[0], b"%d" % worker.ranks[0])
    assert wire.split_ranks(only_result(office, bag).payload) == [b"0", b"1"]


def test_a_crash_says_where_it_crashed(office: Office) -> None:
    bag, workers = begun(office, 3)
    for rank in range(3):
        workers[rank].fail(rank, "Crash", outcome=Outcome.CRASH)
        for worker in workers:
            worker.stopped()
        office.wait(5.0, *workers)
        if rank < 2:
            for worker in workers:
                worker.prepare()
            workers.sort(key=lambda worker: worker.ranks)
            for worker in workers:
                worker.ready()
            office.now += 1.0
    failure = wire.read_failure(only_result(office, bag).payload)
    assert failure.message.startswith(f"rank 2 of 3 on {workers[2].name}: because of 2 (crashed 3 times, on ")


def test_a_rank_that_was_only_stopped_is_no_failure(office: Office) -> None:
    bag, workers = begun(office, 2)
    workers[0].end(0, outcome=Outcome.CANCELLED)
    workers[1].end(1, outcome=Outcome.DEPARTED)
    assert state_of(office, bag) == "SENT"


def test_ranks_that_a_worker_gives_back_are_lost_and_the_others_are_stopped(office: Office) -> None:
    bag, workers = begun(office, 2)
    workers[1].send(wire.Returned((workers[1].ref,)))
    office.settle()
    assert workers[0].next(wire.Stop).attempts == (workers[0].ref,)
    assert office.client().ask("progress", bag=bag)["failed"] == 0


def test_a_departure_does_not_count(office: Office) -> None:
    bag, workers = begun(office, 2)
    workers[1].send(wire.Leave("its window closed", True, False, (), workers[1].running()))
    office.settle()
    assert state_of(office, bag) == "WAITING"
    workers[0].stopped()
    assert office.journal.db.execute("SELECT count(*) FROM gangs").fetchone() == (0,)


def test_a_pc_whose_ranks_have_ended_may_leave_and_they_count(office: Office) -> None:
    bag, workers = begun(office, 3)
    workers[0].end(0, b"first")
    workers[0].send(wire.Leave("its window closed", True, True, (), ()))
    office.settle()
    workers[1].end(1, b"second")
    workers[1].close()
    for _ in range(25):  # its lease ends
        office.wait(LEASE_S / 10, workers[2])
    assert state_of(office, bag) == "SENT"
    workers[2].end(2, b"third")
    result = only_result(office, bag)
    assert wire.split_ranks(result.payload) == [b"first", b"second", b"third"]
    assert (result.outcome, result.worker) == (Outcome.DONE, workers[0].name)


def test_a_pc_whose_ranks_have_ended_is_awaited_neither_after_a_failure_nor_when_it_is_back(office: Office) -> None:
    bag, workers = begun(office, 3)
    workers[0].end(0)
    rank_worker(office, workers[0].name, session="anew")  # its agent was started again
    assert state_of(office, bag) == "SENT"
    workers[2].fail(2, "ValueError")
    for worker in workers[1:]:
        worker.stopped()
    assert wire.read_failure(only_result(office, bag).payload).kind == "ValueError"


def test_after_a_restart_nobody_waits_for_pcs_whose_ranks_had_ended(open_office: OpenOffice) -> None:
    office = open_office()
    bag, workers = begun(office, 3)
    workers[1].end(1, b"one")
    workers[1].send(wire.Leave("its window closed", True, True, (), ()))
    office.settle()
    running = {worker.name: worker.running() for worker in workers}
    again = open_office()
    back = [rank_worker(again, w.name, session=w.session, running=running[w.name]) for w in (workers[0], workers[2])]
    for worker, before in zip(back, (workers[0], workers[2]), strict=True):
        worker.prepared = before.prepared
        hosts = worker.next(wire.StartRanks).hosts
        assert hosts[1] == "localhost"  # nobody needs it any more
        worker.end(worker.ranks[0], b"%d" % worker.ranks[0])
    assert wire.split_ranks(only_result(again, bag).payload) == [b"0", b"one", b"2"]


def test_cancelling_stops_all_ranks(office: Office) -> None:
    bag, workers = begun(office, 2)
    office.client().ask("cancel", bag=bag)
    for worker in workers:
        worker.stopped()
    assert state_of(office, bag) == "CANCELLED"
    assert office.journal.db.execute("SELECT count(*) FROM gangs").fetchone() == (0,)


# --- results ---------------------------------------------------------------------------------------------------------


def test_large_results_of_ranks_are_not_copied_and_stay_until_the_bag_is_forgotten(open_office: OpenOffice) -> None:
    office = open_office()
    bag, workers = begun(office, 2)
    large = bytes(range(256)) * (LARGE_BYTES // 256)
    workers[0].end(0, b"small")
    chunks = wire.Chunks([memoryview(large)])
    office.journal.values.keep(chunks)
    office.journal.values.sum_up(chunks)
    result = wire.RankResult(*workers[1].ref, 0, 1.0, chunks, b"", b"", 1)
    office.sessions.receive(workers[1].line.peer, workers[1].line.who, wire.RanksEnded((result,)), office.now)  # type: ignore[attr-defined]
    workers[1].next(wire.RanksTaken)
    for _ in range(2):
        parts = wire.split_ranks(only_result(office, bag).payload)
        assert parts is not None
        assert [bytes(part) for part in parts] == [b"small", large]
        office = open_office()
    office.client().ask("forget", bag=bag)
    office.settle()
    assert office.journal.db.execute("SELECT count(*) FROM files").fetchone() == (0,)
    assert office.journal.db.execute("SELECT count(*) FROM ranks").fetchone() == (0,)


def test_what_each_rank_printed_is_in_the_log(office: Office) -> None:
    bag, workers = begun(office, 2)
    for worker in workers:
        worker.end(worker.ranks[0])
    log = office.client().ask("logs", bag=bag, item=0)
    assert [(row["rank"], row["worker"], row["state"], row["stdout"]) for row in log["ranks"]] == [
        (0, workers[0].name, "done", "out of 0"),
        (1, workers[1].name, "done", "out of 1"),
    ]
    assert log["rank"] == 0


def prints(worker: RankWorker, said: bytes, ref: wire.Ref | None = None) -> None:
    """A worker says what its rank has printed that was stopped."""
    (rank,) = worker.ranks
    row = wire.RankResult(*(ref or worker.ref), int(Outcome.DEPARTED), 1.5, b"", said, b"", rank)
    worker.send(wire.RanksEnded((row,)))


def logged(office: Office, bag: str) -> list[tuple[str, float, str]]:
    """What the log has of each rank of the only task of a bag."""
    ranks = office.client().ask("logs", bag=bag, item=0)["ranks"]
    return [(row["state"], row["elapsed_s"], row["stdout"]) for row in ranks]


def test_what_ranks_had_printed_that_were_stopped_with_another_is_in_the_log(office: Office) -> None:
    bag, workers = begun(office, 3)
    assert logged(office, bag) == [("running", 0.0, "")] * 3
    workers[0].fail(0, "ValueError")
    for _ in range(2):
        prints(workers[1], b"so far")
    workers[0].stopped()
    workers[1].stopped()
    workers[2].stopped()
    only_result(office, bag)
    prints(workers[2], b"late")
    prints(workers[2], b"twice")
    assert logged(office, bag) == [("error", 0.5, "out of 0"), ("stopped", 1.5, "so far"), ("stopped", 1.5, "late")]
    prints(workers[0], b"it has ended")
    assert logged(office, bag)[0][2] == "out of 0"


def test_what_ranks_had_printed_is_in_the_log_when_a_gang_is_cancelled(office: Office) -> None:
    bag, workers = begun(office, 2)
    office.client().ask("cancel", bag=bag)
    workers[0].stopped()
    prints(workers[0], b"so far")
    rank_worker(office, workers[1].name, session="anew", running=workers[1].running())
    assert logged(office, bag) == [("stopped", 1.5, "so far"), ("stopped", 0.0, "")]
    before = office.bag(bag).size
    other = rank_worker(office, "other")
    other.prepared = workers[1].prepared
    prints(other, b"I have never had it")
    assert (logged(office, bag)[1][2], office.bag(bag).size) == ("", before)


def test_what_an_earlier_attempt_had_printed_is_not_that_of_a_new_one(office: Office) -> None:
    bag, workers = begun(office, 2)
    before = office.bag(bag).size
    workers[0].send(wire.Returned((workers[0].ref,)))
    office.settle()
    prints(workers[1], b"first attempt")
    assert logged(office, bag) == [("stopped", 0.0, ""), ("stopped", 1.5, "first attempt")]
    assert office.bag(bag).size == before + len(b"first attempt")
    first = workers[1].ref
    workers[1].stopped()
    office.wait(FIRST_REST_S, *workers)
    for worker in workers:
        worker.prepare()
        worker.ready()
    office.settle()
    prints(workers[1], b"late", first)
    assert logged(office, bag) == [("running", 0.0, "")] * 2
    assert office.bag(bag).size == before


# --- connections, and restarts ---------------------------------------------------------------------------------------


def test_a_broken_connection_does_not_end_a_gang_and_a_start_that_was_lost_is_told_again(office: Office) -> None:
    bag, workers = begun(office, 2)
    back = rank_worker(office, workers[1].name, workers[1].session, running=workers[1].running(None))
    back.prepared = workers[1].prepared
    assert back.next(wire.StartRanks).task == back.ref.task
    workers[0].end(0)
    back.end(1)
    assert only_result(office, bag).outcome == Outcome.DONE


def test_a_worker_that_has_lost_its_ranks_with_the_connection_loses_the_gang(office: Office) -> None:
    bag, workers = begun(office, 2)
    rank_worker(office, workers[1].name, workers[1].session)
    assert workers[0].next(wire.Stop).attempts == (workers[0].ref,)
    assert office.client().ask("progress", bag=bag)["failed"] == 0


def back_again(
    office: Office, worker: RankWorker, running: tuple[wire.Running, ...] | None = None, **changes: Any
) -> RankWorker:
    """A worker after the broker was started again, with the ranks that it has."""
    running = worker.running() if running is None else running
    back = rank_worker(office, worker.name, worker.session, running=running, **changes)
    back.prepared = worker.prepared
    return back


def test_a_gang_goes_on_after_a_restart_and_what_had_ended_is_known(open_office: OpenOffice) -> None:
    office = open_office()
    bag, workers = begun(office, 3)
    workers[0].end(0, b"before")
    office = open_office()
    back = [back_again(office, workers[0], ())]
    office.settle()
    back += [back_again(office, worker) for worker in workers[1:]]
    office.settle()
    assert state_of(office, bag) == "SENT"
    for worker in back[1:]:
        worker.end(worker.ranks[0], b"after %d" % worker.ranks[0])
    assert wire.split_ranks(only_result(office, bag).payload) == [b"before", b"after 1", b"after 2"]


def test_a_gang_whose_ranks_do_not_all_come_back_is_lost(open_office: OpenOffice) -> None:
    office = open_office()
    bag, workers = begun(office, 2)
    office = open_office()
    back = back_again(office, workers[0])
    office.settle()
    assert state_of(office, bag) == "HELD"
    for _ in range(21):
        office.wait(LEASE_S / 10, back)
    back.stopped()
    assert state_of(office, bag) == "WAITING"


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("changes", [{"site": "elsewhere"}, {"slots": 1}])
def test_a_worker_that_is_not_what_it_was_when_it_comes_back_loses_the_gang(
    open_office: OpenOffice, changes: dict[str, Any], restarts: bool
) -> None:
    office = open_office()
    workers = [rank_worker(office, f"pc{number}", slots=4) for number in range(2)]
    settled_in(office)
    bag = gang_bag(office, 4, slots=2)
    for worker in workers:
        worker.prepare()
        worker.ready()
    for worker in workers:
        worker.next(wire.StartRanks)
    if restarts:
        office = open_office()
    for worker, facts in zip(workers, ({}, changes), strict=True):
        running = tuple({row.rank: row for row in worker.running()}.values())
        more: dict[str, Any] = {"slots": 4, "running": running} | facts
        rank_worker(office, worker.name, worker.session, **more)
    office.settle()
    assert state_of(office, bag) == "WAITING"
    office.sessions.state.scheduler.check(office.now)


def test_a_failure_before_a_restart_is_the_failure_after_it(open_office: OpenOffice) -> None:
    office = open_office()
    bag, workers = begun(office, 2)
    workers[1].fail(1, "ValueError")
    office = open_office()
    for worker in workers:
        back_again(office, worker).stopped()
    assert wire.read_failure(only_result(office, bag).payload).message.startswith("rank 1 of 2")


def test_an_attempt_that_had_not_begun_before_a_restart_is_not_waited_for(open_office: OpenOffice) -> None:
    office = open_office()
    worker = rank_worker(office)
    settled_in(office)
    bag = gang_bag(office, 1)
    worker.prepare()
    office = open_office()
    assert state_of(office, bag) == "WAITING"
    back = back_again(office, worker, worker.running(None))
    back.stopped()


# --- strangers -------------------------------------------------------------------------------------------------------


def test_nobody_speaks_for_ranks_of_others(office: Office) -> None:
    bag, workers = begun(office, 2)
    thief = rank_worker(office, "thief", uptime=1.0)
    thief.prepared = workers[1].prepared
    thief.end(1, b"forged")
    thief.send(wire.RanksUnready(*thief.ref, "no"), wire.Returned((thief.ref,)), wire.RanksReady(*thief.ref, 1))
    thief.send(wire.Meet(*thief.ref, 1, 1, False, False, b""), wire.PmiBytes(*thief.ref, 1, 0, b"cmd=abort\n"))
    thief.send(wire.Finished((wire.Result(*thief.ref, 0, 0.5, b"forged", b"", b""),)))
    assert thief.next(wire.Stop).attempts == (thief.ref,)
    workers[0].send(wire.Finished((wire.Result(*thief.ref, 0, 0.5, b"forged", b"", b""),)))
    workers[0].end(0, b"mine")
    workers[0].send(wire.RanksReady(*thief.ref, 1))
    assert state_of(office, bag) == "SENT"
    workers[1].end(1, b"mine")
    assert wire.split_ranks(only_result(office, bag).payload) == [b"mine", b"mine"]


def test_what_is_said_of_ranks_that_do_not_run_changes_nothing(office: Office) -> None:
    bag, workers = asked_to_prepare(office, 2)
    for worker in workers:
        worker.end(worker.ranks[0])
        worker.send(wire.Meet(*worker.ref, worker.ranks[0], 1, False, False, b""))
    worker.end(1000)
    assert state_of(office, bag) == "SENT"
    for worker in workers:
        worker.ready()
        worker.ready()
    office.settle()
    assert office.journal.db.execute("SELECT count(*) FROM ranks").fetchone() == (2,)


# --- what ranks say --------------------------------------------------------------------------------------------------


def test_ranks_meet_and_each_worker_is_told_once(office: Office) -> None:
    _, workers = begun(office, 2)
    for worker in workers:
        worker.send(wire.Meet(*worker.ref, worker.ranks[0], 1, True, False, b"%d" % worker.ranks[0]))
    for worker in workers:
        met = worker.next(wire.Met)
        assert (met.serial, met.reason, bytes(met.values)) == (1, "", b"\x92\xc4\x010\xc4\x011")


def test_who_does_not_come_is_named(office: Office) -> None:
    _, workers = begun(office, 2)
    workers[0].send(wire.Meet(*workers[0].ref, 0, 1, False, False, b""))
    workers[0].send(wire.Meet(*workers[0].ref, 0, 1, False, True, b""))
    assert workers[0].next(wire.Met).reason == f"rank 1 on {workers[1].name} did not come"


def test_who_waits_for_a_rank_that_ends_is_told_so_also_after_a_restart(open_office: OpenOffice) -> None:
    office = open_office()
    _, workers = begun(office, 3)
    reason = f"rank 2 on {workers[2].name} ended without coming"
    workers[0].send(wire.Meet(*workers[0].ref, 0, 1, False, False, b""))
    workers[2].end(2)
    assert workers[0].next(wire.Met).reason == reason
    office = open_office()
    back = [back_again(office, worker) for worker in workers[:2]]
    back[1].send(wire.Meet(*back[1].ref, 1, 1, False, False, b""))
    assert back[1].next(wire.Met).reason == reason


def test_a_barrier_that_was_held_before_a_restart_is_known_after_it(open_office: OpenOffice) -> None:
    office = open_office()
    _, workers = begun(office, 2)
    for worker in workers:
        worker.send(wire.Meet(*worker.ref, worker.ranks[0], 1, False, False, b""))
    workers[0].next(wire.Met)
    office = open_office()
    back = [back_again(office, worker) for worker in workers]
    back[1].send(wire.Meet(*back[1].ref, 1, 1, False, False, b""))
    assert back[1].next(wire.Met).reason == ""


def test_mpi_ranks_speak_to_their_process_manager_also_after_a_restart(open_office: OpenOffice) -> None:
    office = open_office()
    workers = [rank_worker(office, f"pc{number}", mpi=True) for number in range(2)]
    rank_worker(office, "without")
    settled_in(office)
    bag = gang_bag(office, 2, mpi=True)
    for worker in workers:
        worker.prepare()
        worker.ready()
    workers.sort(key=lambda worker: worker.ranks)
    for worker in workers:
        worker.next(wire.StartRanks)
    line = b"cmd=barrier_in\n"
    workers[0].send(wire.PmiBytes(*workers[0].ref, 0, 0, line))
    office.settle()
    office = open_office()
    back = [back_again(office, worker, mpi=True) for worker in workers]
    back[1].send(wire.PmiBytes(*back[1].ref, 1, 0, line))
    for worker in back:
        heard = worker.next(wire.PmiBytes)
        assert (heard.start, heard.data) == (len(line), b"cmd=barrier_out\n")
    office.now += 1.0
    back[1].send(wire.PmiBytes(*back[1].ref, 1, len(line), b"cmd=abort exitcode=7\n"))
    for worker in back:
        worker.stopped()
    failure = wire.read_failure(only_result(office, bag).payload)
    assert failure.message == f"rank 1 of 2 on {back[1].name}: MPI_Abort with exit code 7"


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.DEPARTED])  # its process has ended, or was stopped
def test_what_a_rank_had_printed_that_called_mpi_abort_is_in_the_log(office: Office, outcome: Outcome) -> None:
    bag, workers = begun(office, 2, mpi=True)
    workers[1].send(wire.PmiBytes(*workers[1].ref, 1, 0, b"cmd=abort exitcode=7\n"))
    row = wire.RankResult(*workers[1].ref, int(outcome), 1.5, b"", b"why it aborts", b"", 1)
    for _ in range(2):
        workers[1].send(wire.RanksEnded((row,)))
    office.settle()
    damaged = "checksum IS NOT NULL AND checksum IS NOT checksum(payload, stdout, stderr)"
    assert office.journal.db.execute(f"SELECT count(*) FROM ranks WHERE {damaged}").fetchone() == (0,)
    for worker in workers:
        worker.stopped()
    failure = wire.read_failure(only_result(office, bag).payload)
    assert failure.message == f"rank 1 of 2 on {workers[1].name}: MPI_Abort with exit code 7"
    assert logged(office, bag) == [("stopped", 0.0, ""), ("error", 1.5, "why it aborts")]
    assert office.client().ask("logs", bag=bag, item=0)["stdout"] == "why it aborts"


def test_what_all_gangs_of_a_submitter_say_to_process_managers_is_bounded(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b"cmd=barrier_in\n"
    monkeypatch.setattr(gangs_module, "KEPT_BYTES_OF_OWNER", len(line) - 1 + LINE_BYTES)
    office = open_office()
    bag, workers = asked_to_prepare(office, 2, mpi=True)
    for worker in workers:
        worker.ready()
    workers.sort(key=lambda worker: worker.ranks)
    workers[0].send(wire.PmiBytes(*workers[0].ref, 0, 0, line))
    office.settle()
    office = open_office()
    workers = [back_again(office, worker, mpi=True) for worker in workers]
    office.settle()
    (said,) = office.sessions.workers.attempts.gangs.table.pmi_bytes.values()
    assert said == len(line) - 1 + LINE_BYTES
    workers[1].send(wire.PmiBytes(*workers[1].ref, 1, 0, line))
    for worker in workers:
        worker.stopped()
    assert "all gangs of its submitter said more than" in wire.read_failure(only_result(office, bag).payload).message
    assert not office.sessions.workers.attempts.gangs.table.pmi_bytes


def test_gangs_of_different_brokers_have_different_names_for_mpi(tmp_path: Path) -> None:
    def name(home: str) -> bytes:
        with closing(Office(tmp_path / home)) as office:
            _, workers = begun(office, 1, mpi=True)
            workers[0].send(wire.PmiBytes(*workers[0].ref, 0, 0, b"cmd=get_my_kvsname\n"))
            return bytes(workers[0].next(wire.PmiBytes).data)

    first, second = name("one"), name("two")
    assert first.startswith(b"cmd=my_kvsname kvsname=deskgrid_")
    assert first != second


def test_ranks_of_a_gang_without_mpi_have_no_process_manager(office: Office) -> None:
    bag, workers = begun(office, 2)
    workers[0].send(wire.PmiBytes(*workers[0].ref, 0, 0, b"cmd=abort\n"))
    office.settle()
    assert state_of(office, bag) == "SENT"


# --- who is there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"address": None}, {"labels": ("cpu",)}, {"memory": 100}, {"slots": 1}])
def test_a_gang_waits_for_pcs_that_have_what_it_needs(office: Office, changes: dict[str, Any]) -> None:
    for number in range(2):
        usual: dict[str, Any] = {"slots": 2, "labels": ("gpu",), "memory": 1000}
        rank_worker(office, f"pc{number}", **usual | changes)
    settled_in(office)
    bag = gang_bag(office, 2, slots=2, labels=("gpu",), memory=500)
    office.settle()
    assert state_of(office, bag) == "WAITING"
    for number in range(2, 4):
        rank_worker(office, f"pc{number}", slots=2, labels=("gpu",), memory=1000)
    settled_in(office)
    assert state_of(office, bag) == "SENT"


def test_what_a_worker_measures_is_known(office: Office) -> None:
    worker = rank_worker(office, speed=0.5, processors=4, memory=2**30, labels=("gpu",))
    worker.send(wire.Heartbeat(None, None, 0.8, (0.5, 0.4, 0.3)))
    office.settle()
    (row,) = office.client().ask("status")["workers"]
    found = {name: row[name] for name in ("speed", "load", "processors", "memory", "labels", "reachable")}
    expected = {"speed": 0.8, "load": 0.3, "processors": 4, "memory": 2**30, "labels": ["gpu"], "reachable": True}
    assert found == expected
    worker.send(wire.Heartbeat(None, None))
    office.settle()
    assert office.client().ask("status")["workers"][0]["speed"] == 0.8
