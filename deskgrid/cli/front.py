"""``deskgrid``: the table of its commands, and rules for all of them.

Rules:

1. Exit codes: 0: success; 1: a task failed, or waiting took too long; 2: the command line is wrong, or the request was
   refused, and one line on stderr says why; 130: somebody pressed Ctrl-C; but 0 in commands that run until then.
2. A command is imported when it is called, so that ``deskgrid --help`` is fast.
"""

import errno
import signal
import sys
from contextlib import suppress
from typing import Any

import click

from deskgrid.lazy_commands import LazyCommand, LazyGroup

# What a write to stdout fails with when there is no room for the file that it is, or it is damaged.
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# What Ctrl-C ends with, unless the command knows more.
STOPPED = "you stopped it"
# The commands that --help lists under these headings: name, MODULE:NAME, short help.
COMMANDS = {
    "Run a grid": (
        ("broker", "deskgrid.cli.broker:broker", "Start the broker, on a machine that is always on."),
        ("worker", "deskgrid.cli.working:worker", "Let this PC run tasks."),
        ("service", "deskgrid.cli.service:service", "Start the worker or the broker at boot."),
        ("kit", "deskgrid.cli.kit:kit", "Write a file with which PCs without internet install deskgrid."),
        ("doctor", "deskgrid.cli.doctor:doctor", "Say what is wrong with this PC, and what to do."),
        ("drain", "deskgrid.cli.draining:drain", "Give PCs no more work, before you repair or switch them off."),
        ("presence", "deskgrid.cli.presence:presence", "Tell this PC's workers when you use it."),
        ("windows", "deskgrid.cli.windows:windows", "Check a file of windows, or show the coming weeks."),
        ("keys", "deskgrid.cli.keys:keys", "Manage the keys of people and PCs."),
    ),
    "Submit work": (
        ("submit", "deskgrid.cli.submit:submit", "Submit a bag of commands, and print its id."),
        ("wait", "deskgrid.cli.bags:wait", "Wait until bags have ended."),
        ("eta", "deskgrid.cli.eta:eta", "Estimate when a bag will be done."),
        ("results", "deskgrid.cli.bags:results", "Print the results of a bag, in order."),
        ("fetch", "deskgrid.cli.bags:fetch", "Fetch the output files of a bag."),
        ("logs", "deskgrid.cli.bags:logs", "Print what tasks wrote to stdout and stderr."),
        ("explain", "deskgrid.cli.bags:explain", "Explain why a task waits."),
        ("cancel", "deskgrid.cli.bags:cancel", "Cancel the tasks of a bag that have not ended."),
        ("pause", "deskgrid.cli.bags:pause", "Pause a bag: start none of its tasks for now."),
        ("resume", "deskgrid.cli.bags:resume", "Resume a paused bag."),
        ("forget", "deskgrid.cli.bags:forget", "Delete a bag that has ended, with its results."),
        ("env", "deskgrid.cli.environments:env", "List and delete the libraries that bags bring."),
    ),
    "Watch": (
        ("status", "deskgrid.cli.grid:status", "Watch the grid live, or print its state."),
        ("web", "deskgrid.cli.web:web", "Show the grid in a browser."),
        ("workers", "deskgrid.cli.grid:workers", "List the workers."),
        ("bags", "deskgrid.cli.grid:bags", "List the bags."),
        ("whatif", "deskgrid.cli.whatif:whatif", "Ask when a bag would end if something were different."),
        ("advise", "deskgrid.cli.whatif:advise", "Suggest how a bag could end sooner."),
        ("shares", "deskgrid.cli.grid:shares", "Show who has used how much of the grid."),
        ("policy", "deskgrid.cli.grid:policy", "Change the scheduling policy of the running broker."),
    ),
    "Try it": (
        (
            "demo",
            "deskgrid.sleepbench.demo:demo_command",
            "Run a whole grid on this machine for a minute or two.",
        ),
        ("sleepbench", "deskgrid.sleepbench.cli:sleepbench_group", "Run the paper's sleep benchmark."),
    ),
}


class Front(LazyGroup):
    """The group of all commands, which also reports errors."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings."""
        for heading, entries in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, short_help) for name, _, short_help in entries], col_max=20)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, and exit with its exit code (rule 1)."""
        # Otherwise click on Windows expands * and %NAME% in arguments, even in those of a command to be submitted.
        extra |= {"standalone_mode": False, "windows_expand_args": False, "prog_name": "deskgrid"}
        try:
            code = super().main(*args, **extra)
        except click.Abort as error:
            if isinstance(stopped := error.__cause__, KeyboardInterrupt):
                click.echo(f"deskgrid: {stopped.args[0] if stopped.args else STOPPED}", err=True)
            code = 128 + signal.SIGINT
        except click.ClickException as error:
            click.echo(_told(error), err=True)
            code = error.exit_code
        except OSError as error:
            if error.errno not in UNWRITTEN or error.filename is not None:
                raise
            click.echo(f"deskgrid: the output cannot be written: {error.strerror}", err=True)
            with suppress(OSError):
                sys.stdout.close()  # else Python complains again when it ends
            code = 2
        sys.exit(code if isinstance(code, int) else 0)


def _told(error: click.ClickException) -> str:
    message = error.format_message().strip()
    if isinstance(error, click.UsageError):
        if "\n" in message and not isinstance(error, click.MissingParameter):  # a group without a command: its help
            return message
        where = error.ctx.command_path if error.ctx else "deskgrid"
        return f"deskgrid: {' '.join(message.split()).rstrip('.')} (see {where} --help)"
    from deskgrid.wire import clean

    return clean(f"deskgrid: {' '.join(message.split())}")


def _version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from deskgrid.wire import VERSION

        click.echo(f"deskgrid {VERSION}")
        ctx.exit()


@click.group(cls=Front, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run many independent tasks on PCs that are on, and idle, at planned hours.

    In all commands, BAG is the id of a bag, the name of your newest bag of that name, or "last".
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _entries in COMMANDS.values():
    for _entry in _entries:
        main.add_command(LazyCommand(*_entry))

if __name__ == "__main__":
    main()
