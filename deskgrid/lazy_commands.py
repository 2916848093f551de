"""Commands that are imported when they are called: the command line starts sooner."""

from importlib import import_module
from typing import Any

import click


class LazyCommand(click.Command):
    """A placeholder for a command, which is imported when it is called. ``place`` is MODULE:NAME."""

    def __init__(self, name: str, place: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self.place = place

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


class LazyGroup(click.Group):
    """A group of such commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that is called."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that is called; a usage error names this command, also where click's parser does not."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = error.ctx or click.Context(self, parent=ctx, info_name=ctx.invoked_subcommand)
            raise
