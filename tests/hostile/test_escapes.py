"""No text of a peer reaches a terminal with control characters in it."""

import hashlib
import unicodedata

from deskgrid import wire
from tests.hostile.forging import account
from tests.hostile.lab import Lab
from tests.peers import COMMAND, Client

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x00\u202eevil"
# Kinds of characters that move the cursor, or turn what follows around.
CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def shown(place: Lab, *arguments: str) -> None:
    """Neither output has anything of that but line ends."""
    done = place.command(*arguments)
    text = (done.stdout + done.stderr).decode(errors="surrogateescape")
    found = {character for character in text if unicodedata.category(character) in CONTROL and character != "\n"}
    assert not found, f"{arguments} prints {found}"
    assert "Traceback" not in text, text


def submitted(client: Client, bag: str, name: str, count: int = 1) -> None:
    """A bag whose id is what the client says; perhaps refused for it."""
    template = hashlib.sha256(COMMAND).hexdigest()
    client.send(wire.Blob(template, COMMAND))
    batch = client.batch(bag, [b"1"] * count, name=name, runtime=0.01, template=template)
    client.send(batch)


def test_bag_ids_bag_names_worker_names_and_accounts_are_shown_without_control_characters(place: Lab) -> None:
    client = place.client()
    submitted(client, f"id{ESCAPES}", "sweep")
    submitted(client, "plain", f"name{ESCAPES}", 3)
    worker = place.bare_worker("pc0", f"pc{ESCAPES}")
    worker.send(worker.introduction(slots=1, host=ESCAPES, site=ESCAPES, plan=ESCAPES, kind=ESCAPES))
    if not isinstance(worker.receive(), wire.Welcome):
        worker = place.bare_worker("pc")
        worker.join(host=ESCAPES)
    (work,) = worker.work()
    worker.finish(work, outcome=wire.Outcome.ERROR, payload=account(ESCAPES, ESCAPES, ESCAPES, b""))
    for arguments in (("bags",), ("status", "--once"), ("keys", "list")):
        shown(place, *arguments)
    for row in place.client().ask("bags")["bags"]:
        for command in ("explain", "logs", "cancel", "results"):
            shown(place, command, row["bag"])


def test_a_user_who_calls_themselves_anything_is_logged_without_control_characters(place: Lab) -> None:
    raw = place.raw(place.key("submitter", "mallory"))
    raw.send(wire.Hello(wire.VERSION + ESCAPES, ESCAPES, ESCAPES))
    raw.answers(0.2)
    raw.say(wire.Goodbye, ESCAPES)
    raw.answers(0.2)
    assert not {character for character in place.said if unicodedata.category(character) == "Cc"} - {"\n"}
