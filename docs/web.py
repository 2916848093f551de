"""``make pictures``: the page of `deskgrid broker --web`, in docs/pictures/, as a browser shows it of a real run.

A broker and eight workers run on this machine for a minute. Their windows are seconds instead of hours, as those of
`docs/screen.py`, so the page is told to show two minutes instead of six hours. It needs a Chromium.
"""

import secrets
import threading
import time
from pathlib import Path

from deskgrid import Grid
from deskgrid.client.replies import ask
from deskgrid.sleepbench.processes import Processes, write_cycle
from deskgrid.web.access import Access
from deskgrid.web.server import WebServer
from deskgrid.web.watch import GridWatch
from tests.web.browser import Browser, chromium

PICTURES = Path(__file__).parent / "pictures"
# Seconds up and down of each PC.
CYCLES = [(70, 30), (85, 40), (15, 60), (150, 20), (12, 8), (170, 30), (95, 25), (24, 50)]
TAKEN_AFTER_S = 60.0
LISTED_S = 120


def main() -> None:
    path = chromium()
    if path is None:
        raise SystemExit("the pictures of the page need a Chromium: apt install chromium")
    token = secrets.token_urlsafe()
    with Processes() as processes, Grid((processes.home / "admin.join").read_text().strip()) as grid:
        watch = GridWatch(lambda what, args: ask(grid._link, what, args), bin_s=1.0)
        stop = threading.Event()
        with WebServer("127.0.0.1", 0, watch, lambda port: Access(token, "deskgrid")) as server, watch:
            thread = threading.Thread(target=server.serve, args=(stop.is_set,), daemon=True)
            thread.start()
            with Browser(path, 1_600, 900) as browser:
                browser.go(f"http://127.0.0.1:{server.server_address[1]}/?token={token}")
                work(processes, grid)
                take(browser)
            stop.set()
            thread.join()


def work(processes: Processes, grid: Grid) -> None:
    """Have a grid at work for a minute."""
    for number, pair in enumerate(CYCLES, start=1):
        name = f"lab3-{number:02}"
        processes.start_worker(name, write_cycle(processes.folder / f"{name}.cycle", [pair] * 10))
    processes.wait_for(lambda: len(grid.status()["workers"]) == len(CYCLES), "the workers to join")
    began = time.monotonic()
    sleep = ["sleep", "{}"]
    grid.command(sleep, ["0.3"] * 150, runtime=0.4, name="thumbnails")
    for name, naps in (("render", [2, 5, 9, 13] * 6), ("sweep", [1, 3, 6] * 20)):
        grid.command(sleep, list(map(str, naps)), runtime=[nap * 1.2 for nap in naps], name=name)
    grid.command(["sh", "-c", "echo 'no such file: {}' >&2; exit 1"], ["data.csv"], runtime=1, name="import")
    grid.command(sleep, ["200"], runtime=240, name="long one")
    processes.wait_for(lambda: time.monotonic() - began > TAKEN_AFTER_S, "the picture")


def take(browser: Browser) -> None:
    """Take the pictures: wide and light, and narrow and dark."""
    browser.run(
        "(() => { const range = document.getElementById('range');"
        f"range.options[0].value = {LISTED_S}; range.options[0].text = '{LISTED_S // 60} min'; range.selectedIndex = 0;"
        "range.dispatchEvent(new Event('change')); return lookAtTheRest(); })()"
    )
    browser.until("document.querySelectorAll('.pc .task').length > 2")
    (PICTURES / "web.png").write_bytes(browser.picture())
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.size(390, 844)
    browser.until("document.querySelectorAll('.pc .task').length > 2")
    (PICTURES / "web-phone.png").write_bytes(browser.picture())
    for name in ("web.png", "web-phone.png"):
        print(f"wrote {PICTURES / name}")


if __name__ == "__main__":
    main()
