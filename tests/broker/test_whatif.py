"""Questions about a grid, or a bag, that is imagined otherwise."""

from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.forecasts.whatif import WAITING_LIMIT, WAITING_LIMIT_ALL
from deskgrid.broker.model.forecaster import Ticket
from deskgrid.scheduler.forecast.correction import Score
from deskgrid.scheduler.forecast.picture import Picture
from deskgrid.scheduler.policies import policy_names
from tests.broker.office import ADMIN, Office
from tests.peers import Client

HOUR = 3600.0
NIGHT = (6 * HOUR, 10 * HOUR)


@pytest.fixture
def client(office: Office) -> Client:
    """A client of a grid with two labs: ten PCs that are up for two hours, and five that come in the evening."""
    for number in range(10):
        office.worker(f"lab1-{number}").join(site="lab 1", uptime=2 * HOUR, windows=[(20 * HOUR, 10 * HOUR)])
    for number in range(5):
        office.worker(f"lab2-{number}").join(site="lab 2", uptime=0.0, windows=[NIGHT])
    return office.client()


FIVE_MORE = {"more": [{"like": "*", "many": 5}]}


def submitted(client: Client, tasks: int = 100, runtime: float = 300.0) -> str:
    return client.submit([b"x"] * tasks, runtime=runtime)


def medians(answer: dict[str, Any]) -> list[float | None]:
    return [row["median_s"] for row in answer["rows"]]


def test_each_change_has_a_row_after_that_of_the_grid_as_it_is(office: Office, client: Client) -> None:
    bag = submitted(client)
    changes = [
        {"more": [{"like": "lab 1", "many": 10}]},
        {"without": ["lab1-[0-4]"]},
        {"split": 2},
        {"begins_s": HOUR},
        {},
    ]
    as_it_is, more, fewer, split, later, same = medians(client.ask("whatif", bag=bag, changes=changes))
    assert as_it_is is not None
    assert as_it_is == same == pytest.approx(100 * 300.0 / 10 * 1.3, rel=0.3)
    assert more is not None
    assert fewer is not None
    assert later is not None
    assert more < 0.7 * as_it_is
    assert min(fewer, later) > 1.5 * as_it_is
    assert split is not None
    assert split < as_it_is


def test_a_row_has_an_interval(office: Office, client: Client) -> None:
    (row,) = client.ask("whatif", bag=submitted(client), changes=[])["rows"]
    assert row["low_s"] < row["median_s"] < row["high_s"]
    assert row["why"] == ""


def test_answers_are_corrected_as_estimates_are(office: Office, client: Client) -> None:
    bag = submitted(client)
    (raw,) = client.ask("whatif", bag=bag, changes=[])["rows"]
    for _ in range(30):
        office.sessions.state.learning.correction.learn("client", Score(0, 2.0, 2.0))
    (wider,) = client.ask("whatif", bag=bag, changes=[])["rows"]
    assert wider["median_s"] == raw["median_s"]
    assert wider["low_s"] < 0.9 * raw["low_s"]
    assert wider["high_s"] > 1.1 * raw["high_s"]
    assert client.ask("advise", bag=bag)["now"] == wider


def test_windows_and_another_policy_may_be_imagined(office: Office, client: Client) -> None:
    bag = submitted(client)
    windows = {"pcs": "lab 1", "starts_s": [HOUR], "lasts_s": [9 * HOUR]}
    as_it_is, later, other = medians(
        client.ask("whatif", bag=bag, changes=[{"windows": [windows]}, {"policy": "fcfs"}])
    )
    assert as_it_is is not None
    assert later == pytest.approx(as_it_is + HOUR, rel=0.25)
    assert other == pytest.approx(as_it_is, rel=0.3)


def test_the_site_of_a_pc_that_is_away_is_known(office: Office, client: Client) -> None:
    bag = submitted(client, tasks=1_000)
    before, after = medians(client.ask("whatif", bag=bag, changes=[{"without": ["lab 2"]}]))
    assert before is not None
    assert after is not None
    assert after > 1.1 * before


def test_a_bag_that_is_not_there_yet_comes_after_the_others(office: Office, client: Client) -> None:
    new = {"tasks": 100, "runtime_s": 300.0, "changes": []}
    (alone,) = medians(client.ask("whatif new", **new))
    submitted(client)
    (behind,) = medians(client.ask("whatif new", **new))
    assert alone is not None
    assert behind is not None
    assert behind > 1.5 * alone


def test_nothing_changes_by_asking(office: Office, client: Client) -> None:
    bag = submitted(client)
    office.settle()
    before, status = office.sessions.state.scheduler.counters, client.ask("status")
    client.ask("whatif", bag=bag, changes=[{"without": ["*"]}, {"policy": "fcfs"}])
    client.ask("whatif new", tasks=5, runtime_s=1.0, changes=[])
    client.ask("advise", bag=bag)
    assert office.sessions.state.scheduler.counters == before
    assert office.sessions.state.scheduler.policy.name == status["broker"]["policy"]
    assert len(client.ask("bags")["bags"]) == 1


def test_what_cannot_be_answered_is_told_in_its_row(office: Office, client: Client) -> None:
    changes = [{"without": ["lab 9"]}, {"without": ["*"]}]
    rows = client.ask("whatif", bag=submitted(client), changes=changes)["rows"]
    assert [row["why"] for row in rows] == ["", "no PC and no site is called lab 9", "no PC is up or announced"]
    assert medians({"rows": rows})[1:] == [None, None]


def test_of_a_bag_of_which_nothing_is_known_nothing_is_told(office: Office, client: Client) -> None:
    unknown = "nothing is known yet about how long its tasks take"
    bag = client.submit([b"x"] * 10, runtime=None)
    rows = client.ask("whatif", bag=bag, changes=[FIVE_MORE])["rows"]
    assert [(row["median_s"], row["why"]) for row in rows] == [(None, unknown)] * 2
    told = client.ask("advise", bag=bag)
    assert (told["now"]["why"], told["longer"], told["misfits"]) == (unknown, [], None)


def test_without_a_pc_that_is_the_reason(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"x"] * 10, runtime=None)
    reasons = [row["why"] for row in client.ask("whatif", bag=bag, changes=[FIVE_MORE])["rows"]]
    assert reasons == ["no PC is up or announced", "no PC is known"]
    assert client.ask("eta", bag=bag)["why"] == reasons[0]


# --- advice ----------------------------------------------------------------------------------------------------------


def test_advice_names_the_pcs_to_leave_on(office: Office, client: Client) -> None:
    told = client.ask("advise", bag=submitted(client, tasks=300))
    assert told["misfits"] is None
    best, *others = told["longer"]
    assert (best["group"], best["pcs"], best["hours"]) == ("lab 1", 10, 1)
    assert best["closes_s"] == pytest.approx(2 * HOUR)
    assert best["eta"]["median_s"] < told["now"]["median_s"]
    assert [(each["group"], each["hours"]) for each in others] == [("lab 2", 1), ("lab 1", 2), ("lab 1", 4)]


def test_advice_for_tasks_that_fit_no_window(office: Office, client: Client) -> None:
    told = client.ask("advise", bag=submitted(client, tasks=3, runtime=11 * HOUR))
    assert told["misfits"]["tasks"] == 3
    assert told["misfits"]["pieces"] == 2
    assert told["now"]["why"] == "3 tasks fit no window that is known"
    assert told["longer"] == []


# --- who may ask, and how much ---------------------------------------------------------------------------------------


def test_only_its_owner_and_admins_ask_about_a_bag(office: Office, client: Client) -> None:
    bag = submitted(client)
    other = office.client(Credential("bob", "submitter"))
    questions: dict[str, dict[str, Any]] = {"whatif": {"changes": []}, "advise": {}}
    for what, args in questions.items():
        assert other.failed(what, bag=bag, **args).startswith(f"bag {bag} belongs to client")
        assert office.client(ADMIN).ask(what, bag=bag, **args)
    assert other.ask("whatif new", tasks=1, runtime_s=1.0, changes=[])["rows"]


def test_a_bag_that_has_ended_has_no_other_end(office: Office, client: Client) -> None:
    bag = submitted(client)
    client.ask("cancel", bag=bag)
    office.settle()
    ended = client.ask("eta", bag=bag)
    assert ended["high_s"] == 0.0
    assert client.ask("whatif", bag=bag, changes=[FIVE_MORE])["rows"] == [ended, ended]
    assert client.ask("advise", bag=bag) == {"now": ended, "longer": [], "misfits": None}


WINDOWS = {"pcs": "a", "starts_s": [0.0], "lasts_s": [1.0]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (None, "changes: expected an array"),
        ({}, "changes: expected an array"),
        ([{}] * 17, "changes: 17 values where there are at most 16"),
        ([1], "changes: expected a map"),
        ([{"bag": 1}], "changes: 'bag' is not known here, or comes twice"),
        ([{"without": "a"}], "changes: without: expected an array"),
        ([{"without": [""]}], "changes: without: not a pattern of names"),
        ([{"more": [{"like": "*", "many": 1001}]}], "changes: more: many: not an integer from 0 to 1000: 1001"),
        ([{"more": [{"many": 1}]}], "changes: more: like is missing"),
        ([{"split": 0}], "changes: split: not an integer from 1 to 100: 0"),
        ([{"begins_s": -1.0}], "changes: begins_s: not a number from 0 to 1e+10: -1.0"),
        ([{"begins_s": True}], "changes: begins_s: expected float, got bool"),
        ([{"policy": ""}], "changes: policy: not a name"),
        (
            [{"windows": [{**WINDOWS, "starts_s": [0.0] * 65}]}],
            "changes: windows: starts_s: 65 values where there are at most 64",
        ),
        ([{"windows": [{**WINDOWS, "starts_s": [0.0, 2.0]}]}], "windows have as many starts as lengths"),
        ([{"policy": "pgs"}, {"policy": "nope"}], f"no policy 'nope'; there are: {', '.join(policy_names())}"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(client: Client, changes: object, said: str) -> None:
    assert client.failed("whatif new", tasks=1, runtime_s=1.0, changes=changes) == said


def test_deep_and_long_questions_are_refused(client: Client) -> None:
    for changes, said in (([[]] * 600, "600 values"), ([[[[]]]], "a map"), (["x" * 65 * 2**10], "a map")):
        assert said in client.failed("whatif new", tasks=1, runtime_s=1.0, changes=changes)


class Slow:
    """Makes no forecast before the test says so."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        return self.ask(picture, "", {}, "")

    def ask(self, picture: Picture, what: str, args: dict[str, Any], owner: str) -> Ticket:
        self.tickets.append(Ticket())
        return self.tickets[-1]


def asked(client: Client, many: int) -> list[int]:
    """Ask without waiting for the answers; returns the numbers of the questions."""
    numbers = []
    for _ in range(many):
        numbers.append(client.number())
        args = wire.pack_record({"tasks": 1, "runtime_s": 1.0, "changes": []})
        client.send(wire.Ask(numbers[-1], "whatif new", args))
    return numbers


@pytest.fixture
def slow(office: Office) -> Slow:
    """The forecaster of the office, which makes no forecast yet."""
    found = Slow()
    office.sessions.state.forecaster = found
    return found


def test_a_credential_has_a_few_such_questions_at_a_time(office: Office, client: Client, slow: Slow) -> None:
    asked(client, WAITING_LIMIT)
    office.settle()
    said = "4 such questions of client are pending already: retry when some have been answered"
    assert client.failed("whatif new", tasks=1, runtime_s=1.0, changes=[]) == said
    assert client.ask("status")  # other questions are answered meanwhile
    slow.tickets[0].done, slow.tickets[0].answer = True, {"rows": []}
    assert client.receive() == wire.Answer(client.number() - 6, '{"rows": []}')
    asked(client, 1)
    office.settle()
    assert len(slow.tickets) == WAITING_LIMIT + 1


def test_questions_of_somebody_who_hung_up_still_count(office: Office, client: Client, slow: Slow) -> None:
    asked(client, WAITING_LIMIT)
    office.settle()
    client.close()
    office.settle()
    again = office.client()
    assert again.failed("whatif new", tasks=1, runtime_s=1.0, changes=[]).startswith("4 such questions of client are")
    for ticket in slow.tickets:
        ticket.done = True
    asked(again, 1)
    office.settle()
    assert len(slow.tickets) == WAITING_LIMIT + 1


def test_all_credentials_together_have_a_limit(office: Office, client: Client, slow: Slow) -> None:
    for number in range(WAITING_LIMIT_ALL // WAITING_LIMIT):
        asked(office.client(Credential(f"user {number}", "submitter")), WAITING_LIMIT)
    office.settle()
    assert len(slow.tickets) == WAITING_LIMIT_ALL
    said = "32 such questions are pending already: retry later"
    assert client.failed("whatif new", tasks=1, runtime_s=1.0, changes=[]) == said


def test_a_forecast_that_fails_costs_only_itself(office: Office, client: Client, slow: Slow) -> None:
    (number,) = asked(client, 1)
    office.settle()
    slow.tickets[0].done, slow.tickets[0].failure = True, "it ended"
    said = "the forecast could not be made; the broker's log says why"
    assert client.receive() == wire.Failed(number, said)
    assert any("forecast-failed" in line and "it ended" in line for line in office.sessions.state.take_notices())


def test_pictures_take_a_small_part_of_the_brokers_time(
    office: Office, client: Client, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.broker.forecasts.whatif.ROW_S", 5.0e-3)
    asked(client, 2)
    for _ in range(5):
        office.settle()
    assert len(slow.tickets) == 1
    office.now = 1.0
    office.settle()
    assert len(slow.tickets) == 1
    office.now = 9.0
    office.settle()
    assert len(slow.tickets) == 2
