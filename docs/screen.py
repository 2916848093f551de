"""``make pictures``: the status screen in docs/pictures/status.svg, drawn by the program from a real run.

A broker and eight workers run on this machine for half a minute. Their windows are seconds instead of hours, and their
tasks sleep; the rest is what `deskgrid status` shows of any grid.
"""

import io
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from deskgrid import Grid
from deskgrid.screen.frame import draw, listing
from deskgrid.screen.view import ScreenData, ScreenView
from deskgrid.sleepbench.processes import Processes, snapshot_of, write_cycle
from deskgrid.wire.status import StatusDocument

PICTURE = Path(__file__).parent / "pictures" / "status.svg"
WIDTH, HEIGHT = 100, 42
# Seconds up and down of each PC. Some have left when the picture is taken, and some of these are back.
CYCLES = [(70, 30), (85, 40), (15, 60), (100, 20), (12, 8), (110, 30), (95, 25), (24, 50)]
TAKEN_AFTER_S = 28.0


def main() -> None:
    PICTURE.write_text(drawn(run()), encoding="utf-8")
    print(f"wrote {PICTURE}")


def run() -> StatusDocument:
    """The snapshot of a grid at work."""
    with Processes() as processes, Grid(processes.client_line) as grid:
        for number, pair in enumerate(CYCLES, start=1):
            name = f"lab3-{number:02}"
            processes.start_worker(name, write_cycle(processes.folder / f"{name}.cycle", [pair]))
        processes.wait_for(lambda: len(grid.status()["workers"]) == len(CYCLES), "the workers to join")
        began = time.monotonic()
        sleep = ["sleep", "{}"]
        grid.command(sleep, ["0.3"] * 150, runtime=0.4, name="thumbnails")
        for name, naps in (("render", [2, 5, 9, 13] * 6), ("sweep", [1, 3, 6] * 20)):
            grid.command(sleep, list(map(str, naps)), runtime=[nap * 1.2 for nap in naps], name=name)
        grid.command(sleep, ["200"], runtime=240, name="long one")
        processes.wait_for(lambda: time.monotonic() - began > TAKEN_AFTER_S, "the picture")
        return snapshot_of(grid)


def drawn(snapshot: StatusDocument) -> str:
    """The screen as SVG."""
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    view, seen = ScreenView(), ScreenData(snapshot, snapshot["bags"], datetime.now(UTC))
    console.print(draw(view, seen, listing(view, seen, WIDTH), WIDTH, HEIGHT))
    svg = console.export_svg(title="deskgrid status", unique_id="status")
    # A browser would load rich's font from the network.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
