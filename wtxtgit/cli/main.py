"""The command line: commands by name, loaded when they are called."""

from __future__ import annotations

from importlib import import_module
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import boundary, front_page
from wtxtgit.cli.front_page import COMMANDS, MAX_COLUMNS
from wtxtgit.errors import UsageError, phrase
from wtxtgit.version import __version__

if TYPE_CHECKING:  # a shell asks for it
    from click.shell_completion import CompletionItem


class _Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command: click.Command = getattr(import_module(f"wtxtgit.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            # Needed for a mistyped name alone, and not small.
            from difflib import get_close_matches

            # One guess: a list would be longer than the help.
            near = get_close_matches(args[0], COMMANDS, n=1)
            meant = f", did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"no such command '{args[0]}'{meant}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands, without loading any."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        names = (name for name in COMMANDS if name.startswith(incomplete))
        return [CompletionItem(name, help=COMMANDS[name][1]) for name in names]

    def get_help(self, ctx: click.Context) -> str:
        return front_page.page(get_terminal_size().columns)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": list(front_page.HELP), "max_content_width": MAX_COLUMNS},
)
@click.version_option(
    __version__, *front_page.VERSION, prog_name="wtxtgit", message="%(prog)s %(version)s"
)
def cli() -> None:
    """Run the command line; its help is `front_page`."""


def main(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    return boundary.run(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    # Not cli.main: it has ideas of its own about closed pipes and Ctrl-C.
    try:
        with cli.make_context("wtxtgit", list(arguments)) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return UsageError.exit_code
    except click.ClickException as error:
        # The name of click's type for a number with bounds.
        words = phrase(error.format_message()).replace("integer range", "integer")
        raise UsageError(words, hint=_help_hint(error)) from error
    except click.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "wtxtgit"
    return f"{command} --help"
