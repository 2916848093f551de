"""The page in a real browser, where there is one: what it shows, at all sizes, and that no HTML of others gets in."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from deskgrid.wire.status import StatusDocument
from tests.screen.builders import BAG, asked, bag, lab, slot, snapshot, worker
from tests.web.browser import Browser, chromium
from tests.web.rig import TOKEN, Site, site

CHROMIUM = chromium() or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine"),
]

EVIL = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
FACTS = {"name": "lab5-5", "silent_s": "90.0", "reason": EVIL}
EVENT = {"number": 1, "age_s": 3.0, "event": "worker-lost", "facts": FACTS}
TASK = {"item": 3, "state": "running", "worker": EVIL, "workers": [], "runtime_s": 1.0, "elapsed_s": 1.0}
SHARES = {
    "shares": [
        {"share": EVIL, "weight": 1.0, "keys": [EVIL], "used_s": 50.0, "promised_s": 0.0, "running": 2, "waits": True}
    ]
}


def answers(document: StatusDocument, **more: Any) -> Any:
    """A broker with this status that answers all that the page asks at first."""
    asks = asked(document, plan={"planned": []}, shares=SHARES, **more)
    told = iter([{"events": [EVENT], "after": 1}])
    return lambda what, args: (
        next(told, {"events": [], "after": 1}) if what == "events all" else asks(what.replace(" ", "_"), args)
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(CHROMIUM) as found:
        yield found


def opened(browser: Browser, shown: Site, hash: str = "") -> None:
    browser.complaints.clear()
    browser.go(f"{shown.url}?token={TOKEN}")
    browser.until("!!document.querySelector('.pc, #facts li') && location.search === ''")
    if hash:
        browser.run(f"location.hash = {json.dumps(hash)}")
        browser.until("!document.getElementById('detail').hidden")


def typed(browser: Browser, id: str, value: str, event: str = "input") -> None:
    browser.run(
        f"(() => {{ const at = document.getElementById({id!r}); at.value = {json.dumps(value)}; "
        f"at.dispatchEvent(new Event({event!r})); }})()"
    )


def rows(browser: Browser, section: str = "pc-rows") -> int:
    return int(browser.run(f"document.getElementById({section!r}).children.length"))


def test_without_the_link_the_page_asks_for_the_token(browser: Browser) -> None:
    with site(answers(lab(7))) as shown:
        browser.command("Network.clearBrowserCookies")
        browser.go(shown.url)
        browser.until("!!document.querySelector('form')")
        assert "lab3" not in browser.text()
        browser.run(f"document.querySelector('input').value = {TOKEN!r}")
        browser.run("document.querySelector('form button').click()")
        browser.until("document.querySelectorAll('.pc').length", lambda many: many == 7)
        assert TOKEN not in browser.run("location.href")


def test_a_thousand_pcs_are_listed_searched_and_filtered(browser: Browser) -> None:
    with site(answers(lab(1_000))) as shown:
        opened(browser, shown)
        assert rows(browser) == 1_000
        # Only those that can be seen are drawn.
        assert 5 < browser.until("[...document.querySelectorAll('.pc .seg')].length") < 2_000
        typed(browser, "search", "big-13")
        assert 0 < rows(browser) < 20
        typed(browser, "search", "")
        typed(browser, "show", "lost", "change")
        assert rows(browser) == 143
        assert browser.run("document.querySelector('.pc span').textContent") == "× lost"
        typed(browser, "show", "all", "change")
        # Those with a problem are first.
        assert "lost" in browser.run("document.querySelector('.pc').textContent")
        assert browser.complaints == []


def test_what_people_wrote_is_text(browser: Browser) -> None:
    document = snapshot(
        [worker("pc1", slot(3.0), plan=EVIL, note=EVIL, site=EVIL, labels=[EVIL])],
        [bag(EVIL, owner=EVIL, note=EVIL)],
        problems=[EVIL],
        address=EVIL,
        absent=[{"pc": EVIL, "plan": EVIL, "since_s": 5.0, "seen_s": None}],
    )
    log = {"state": "error", "worker": EVIL, "elapsed_s": 3.0, "stdout": EVIL, "stderr": EVIL, "error": EVIL}
    more = {
        "worker": dict(document["workers"][0]),
        "progress": dict(document["bags"][0]),
        "explain": {"text": [EVIL], "waiting": 1},
        "logs": {**log, "rank": None, "ranks": []},
        "output": {"output": [{**log, "item": 3, "rank": None}], "after": 1},
        "tasks": {"tasks": [TASK]},
    }
    with site(answers(document, **more)) as shown:
        for hash in ("", "pc/pc1", f"bag/{BAG}", f"task/{BAG}/3", f"bag/{EVIL}", EVIL, "task", "pc/%ff"):
            opened(browser, shown, hash if hash.startswith(("pc/pc1", "bag", "task/")) else "")
            if hash:
                browser.run(f"location.hash = {json.dumps(hash)}")
            browser.until("document.body.innerText", lambda text: "<img src=x onerror" in text)
            assert browser.run("document.querySelectorAll('img, body script').length") == 0
            assert "taken" not in browser.run("document.title")
            events = "document.getElementById('event-rows').textContent"
            browser.until(events, lambda text: "silent 1 min 30 s, " in text)


def test_a_pc_may_have_a_name_that_every_object_of_the_page_has(browser: Browser) -> None:
    document = snapshot([worker(name, slot(3.0)) for name in ("constructor", "__proto__", "valueOf")], [bag()])
    planned = [{"worker": each["name"], "starts_in": 5.0, "lasts": 60.0} for each in document["workers"]]
    asks = answers(document)
    with site(lambda what, args: {"planned": planned} if what == "plan" else asks(what, args)) as shown:
        opened(browser, shown)
        browser.until("document.querySelectorAll('.pc .planned').length", lambda many: many == len(planned))
        assert browser.complaints == []


def test_a_task_shows_its_output_as_it_comes(browser: Browser) -> None:
    document = snapshot([worker("pc1", slot(3.0))], [bag()])
    log: dict[str, Any] = {
        "state": "running",
        "worker": "pc1",
        "elapsed_s": 1.0,
        "stdout": "step 1\n",
        "stderr": "",
        "error": None,
    }
    log |= {"rank": None, "ranks": []}
    with site(answers(document, explain={"text": ["task 3 runs on pc1"]}, logs=log)) as shown:
        opened(browser, shown, f"task/{BAG}/3")
        browser.until("document.querySelector('pre').textContent", lambda text: text == "step 1\n")
        log["stdout"] = "step 1\nstep 2\n"
        browser.until("document.querySelector('pre').textContent", lambda text: text == "step 1\nstep 2\n")


@pytest.mark.parametrize(("wide", "high"), [(390, 844), (1_600, 1_000)])
def test_nothing_is_wider_than_the_window(browser: Browser, wide: int, high: int) -> None:
    document = lab(40)
    document["bags"].append(bag("w" * 200, id="c" * 64, note="n" * 300, owner="o" * 60))
    browser.size(wide, high)
    try:
        with site(answers(document)) as shown:
            opened(browser, shown)
            for tab in ("pcs", "bags", "people", "events"):
                browser.run(f"document.querySelector('nav [data-tab={tab}]').click()")
                assert browser.run("document.documentElement.scrollWidth") <= wide
                hidden = browser.run(f"getComputedStyle(document.getElementById({tab!r})).display") == "none"
                assert not hidden
    finally:
        browser.size(1_600, 1_000)


def test_a_broker_that_is_away_is_said_on_the_page(browser: Browser) -> None:
    with site(answers(lab(7))) as shown:
        opened(browser, shown)
        assert browser.run("document.getElementById('away').hidden")
    browser.until("document.getElementById('away').textContent", lambda text: "No connection" in text)
    assert not browser.run("document.getElementById('away').hidden")
