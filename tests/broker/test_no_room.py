"""A PC that has no room for what a task needs, as people see it."""

from deskgrid import wire
from deskgrid.scheduler.state.avoided import FIRST_REST_S
from deskgrid.scheduler.state.progress import IDLE_LIMIT
from tests.broker.office import Office
from tests.peers import BareWorker

WHY = wire.Failure("NoRoom", "the disk is full").packed()


def lacks(worker: BareWorker) -> wire.Work:
    """There is no room for the next attempt there."""
    (work,) = worker.work()
    worker.finish(work, outcome=wire.Outcome.NO_ROOM, payload=WHY)
    return work


def test_everybody_sees_which_pc_has_no_room_and_why(office: Office) -> None:
    full, client = office.worker("full"), office.client()
    full.join()
    bag = client.submit([b"0"])
    lacks(full)
    notice = f"worker-has-no-room name='full' bag='{bag}' item=0 for_s={FIRST_REST_S} reason='the disk is full'"
    assert notice in office.sessions.state.take_notices()
    (event,) = [row for row in client.ask("events")["events"] if row["event"] == "worker-has-no-room"]
    assert event["facts"]["reason"] == "the disk is full"
    office.now += 4.0
    answer = client.ask("explain", bag=bag)
    assert "full slot 0: its disk is too full for such tasks; it is tried again in 6 s" in answer["text"]
    assert "full had no room for it: the disk is full" in answer["text"]
    assert [slot["reason"] for slot in answer["slots"]] == ["no room"]
    status = client.ask("status")
    (row,) = status["workers"]
    note = "had no room for a task, and gets none like it for 6 s: the disk is full"
    assert (row["note"], row["quarantine_s"]) == (note, None)
    assert (status["counters"]["no_room"], status["counters"]["crashes"]) == (1, 0)


def test_a_pc_that_says_very_much_fills_neither_the_status_nor_the_log(office: Office) -> None:
    full, client = office.worker("full"), office.client()
    full.join()
    client.submit([b"0"])
    (work,) = full.work()
    why = wire.Failure("NoRoom", f"two\nlines {'x' * 60_000}").packed()
    full.finish(work, outcome=wire.Outcome.NO_ROOM, payload=why)
    (notice,) = [line for line in office.sessions.state.take_notices() if line.startswith("worker-has-no-room")]
    (row,) = client.ask("status")["workers"]
    assert "two lines xxx" in notice
    assert "two lines xxx" in row["note"]
    assert max(len(notice), len(row["note"])) < 500


def test_another_pc_gets_the_task_and_nothing_is_said_of_it_when_it_is_done(office: Office) -> None:
    full, client = office.worker("full"), office.client()
    full.join()
    bag = client.submit([b"0"])
    lacks(full)
    roomy = office.worker("roomy")
    roomy.join()
    roomy.finish(*roomy.work())
    assert client.ask("progress", bag=bag)["done"] == 1
    assert "no room" not in client.ask("explain", bag=bag, item=0)["text"]


def test_a_task_with_errors_keeps_their_number(office: Office) -> None:
    full, client = office.worker("full"), office.client()
    full.join()
    bag = client.submit([b"0"], options=wire.TaskOptions(retries=1))
    full.finish(*full.work(), outcome=wire.Outcome.ERROR, payload=wire.Failure("ValueError", "no").packed())
    office.now += 60.0
    lacks(full)
    text = client.ask("explain", bag=bag)["text"]
    assert "it has failed once" in text
    assert "full had no room for it: the disk is full" in text


def test_the_newest_checkpoint_is_kept(office: Office) -> None:
    full, client = office.worker("full"), office.client()
    full.join()
    bag = client.submit([b"0"], options=wire.TaskOptions(checkpoint=True))
    (work,) = full.work()
    full.send(wire.Saved(work.task, work.number, 1, 0.5, 1.0, 0.1, 0, 5, b"state"))
    assert full.expect(wire.CheckpointKept).checkpoint
    for _ in range(IDLE_LIMIT + 1):
        full.finish(work, outcome=wire.Outcome.NO_ROOM, payload=WHY)
        resting = office.sessions.state.scheduler.resting("full")
        assert resting is not None
        office.now = resting[1].until
        full.send(wire.Heartbeat(None, ()))
        (work,) = full.work()
        assert work.checkpoint
    assert client.ask("progress", bag=bag)["failed"] == 0
