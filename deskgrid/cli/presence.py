"""``deskgrid presence``: tells the workers of this PC whether the user of this session is there."""

import os
import sys

import click

from deskgrid.cli.lifetime import Stopping
from deskgrid.option_types import Refusal

# How often the session is asked. Seconds.
LOOK_S = 0.2


@click.command()
@click.option("--check", is_flag=True, help="Only say what tells, on this PC and in this session, whether it is used.")
def presence(*, check: bool) -> None:
    """Tell the workers of this PC when you use it. Start this with your desktop session, where workers cannot look.

    It tells how long there was no input, and nothing else: no keys, no windows. It works in X11 sessions and on GNOME.
    """
    from deskgrid.worker.owner.desktop import ways
    from deskgrid.worker.owner.watch import what_probes_say

    if check:
        here = next((seconds for way in ways(os.environ) if (seconds := way()) is not None), None)
        for name, said in what_probes_say().items():
            click.echo(f"{name}: {said}")
        click.echo(f"this session: {'nothing tells' if here is None else f'no input for {here:.1f} s'}")
        return
    if sys.platform == "linux":
        from deskgrid.worker.owner.helper import Speaker, speak

        with Stopping(False) as stopping:
            if not speak(ways(os.environ), stopping, LOOK_S, Speaker()):
                raise Refusal("nothing in this session tells how long there was no input")
    else:
        raise Refusal("this works on Linux only: elsewhere, start the worker itself in the session of the user")
