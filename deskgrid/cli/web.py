"""``deskgrid web``: the grid in a browser; and what ``deskgrid broker --web`` starts beside the broker."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from deskgrid.cli.base import default_home, expanded, join_option, open_link
from deskgrid.cli.lifetime import Stopping, level_option, log_to_stderr, stdin_option
from deskgrid.option_types import Folder, Refusal
from deskgrid.wire.joinline import LOCAL, JoinLineError, parse_address

log = logging.getLogger("deskgrid.web")

PORT = 7078
LISTEN = f"127.0.0.1:{PORT}"
# How long an answer of the broker may take: somebody looks at an empty page meanwhile. Seconds.
ANSWER_S = 10.0
# A web server beside a broker that ends is started again after so long, at first and at most. Seconds.
AGAIN_S, AGAIN_MOST_S = 5.0, 600.0


def checked_listen(text: str, option: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises `Refusal`."""
    try:
        host, port = parse_address(text)
    except JoinLineError as error:
        raise Refusal(f"{option}: {error}") from error
    if host.startswith(LOCAL):
        raise Refusal(f"{option}: a browser needs HOST:PORT")
    return host, port


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=LISTEN,
    show_default=True,
    help="The address for browsers. With another host than 127.0.0.1, others can reach it, unencrypted.",
)
@click.option(
    "--home",
    type=Folder(),
    default=default_home,
    help="The folder that has its token, in web.token [default: $DESKGRID_HOME, else ~/.deskgrid].",
)
@click.option(
    "--known-as",
    metavar="HOST",
    multiple=True,
    help="Another name by which browsers reach it. You can repeat this.",
)
@join_option
@level_option
@stdin_option
def web(
    *,
    listen: str,
    home: Path,
    known_as: tuple[str, ...],
    join: str | None,
    log_level: str,
    until_stdin_closes: bool,
) -> None:
    """Show the grid in a browser: PCs on a time line, bags, people, events, and why tasks wait. It changes nothing.

    It prints a link. Whoever opens it sees what your key may see: the output of your own tasks, or, with the key of an
    admin, of everybody's. Prometheus can read /metrics.
    """
    from deskgrid.client.replies import ask
    from deskgrid.web.access import Access, TokenError, read_token
    from deskgrid.web.server import WebServer
    from deskgrid.web.watch import GridWatch

    host, port = checked_listen(listen, "--listen")
    log_to_stderr(log_level)
    try:
        token = read_token(expanded(home) / "web.token")
    except TokenError as error:
        raise Refusal(str(error)) from error
    names = frozenset([host.lower(), *map(str.lower, known_as)])
    with Stopping(until_stdin_closes) as stopping, open_link(join) as link:
        watch = GridWatch(lambda what, args: ask(link, what, args, ANSWER_S))
        try:
            server = WebServer(host, port, watch, lambda got: Access(token, f"deskgrid-{got}", names))
        except OSError as error:
            said = f"cannot listen on {listen}: {error.strerror or error}; choose another HOST:PORT"
            raise Refusal(said) from error
        with server, watch:
            shown = "127.0.0.1" if host in ("0.0.0.0", "[::]") else host
            click.echo(f"# The grid in a browser:\nhttp://{shown}:{server.server_address[1]}/?token={token}\n")
            sys.stdout.flush()
            server.serve(lambda: stopping() or watch.error is not None)
        if watch.error is not None:
            raise Refusal(str(watch.error))


@contextmanager
def beside(broker_home: Path, listen: str, names: Sequence[str], level: str) -> Iterator[Callable[[], None]]:
    """Within this context, the function that is yielded starts a web server in a process of its own.

    It is started again if it ends, and it ends with this process, however this process ends: its stdin closes.
    """
    ends = threading.Event()
    more = [part for name in names for part in ("--known-as", name)]
    arguments = ["--listen", listen, "--home", str(broker_home), "--join", f"@{broker_home / 'admin.join'}", *more]
    command = [sys.executable, "-P", "-m", "deskgrid.cli", "web", *arguments, "--log-level", level]
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    running: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        again_s = AGAIN_S
        while not ends.is_set():
            began = time.monotonic()
            process = subprocess.Popen([*command, "--until-stdin-closes"], stdin=subprocess.PIPE, env=environment)
            running[:] = [process]
            code, lasted = process.wait(), time.monotonic() - began
            if not ends.wait(again_s):
                log.warning("web-ended code=%s", code)
            # Another program may have its port for long: nobody wants to read that all day.
            again_s = AGAIN_S if lasted > AGAIN_MOST_S else min(2.0 * again_s, AGAIN_MOST_S)

    thread = threading.Thread(target=keep, name="web", daemon=True)
    try:
        yield thread.start
    finally:
        ends.set()
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
        if thread.is_alive():
            thread.join(AGAIN_S)
