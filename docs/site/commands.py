"""The commands as click knows them, for the site's page and the man pages."""

from __future__ import annotations

from collections.abc import Iterator

import click

from wtxtgit.cli.main import cli


def contexts(context: click.Context | None = None) -> Iterator[click.Context]:
    """Each command below one (default: wtxtgit itself), that one first."""
    if context is None:
        context = click.Context(cli, info_name="wtxtgit", terminal_width=80, **cli.context_settings)
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if command := context.command.get_command(context, name):
                yield from contexts(click.Context(command, parent=context, info_name=name))
