"""The command line: commands by name, loaded when they are called."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

import click

from wtxtgit import __version__
from wtxtgit.cli import boundary
from wtxtgit.errors import UsageError

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Set up": {
        "install": ("install:install", "Set git up: filter, diff and merge drivers."),
        "uninstall": ("install:uninstall", "Take back what install did."),
        "track": ("track:track", "Keep files that match a pattern as text in git."),
        "untrack": ("track:untrack", "Stop tracking a pattern."),
        "doctor": ("doctor:doctor", "Find what is set up wrong, and mend it."),
    },
    "Look": {
        "status": ("status:status", "Show the state of every tracked file."),
        "ls-files": ("status:ls_files", "List tracked files."),
        "inspect": ("inspect:inspect", "Show what a checkpoint holds."),
        "verify": ("verify:verify", "Check everything that can be checked."),
        "diff": ("diff:diff", "Show what changed in the weights."),
        "review": ("review:review", "Show what a branch changes of checkpoints."),
    },
    "Merge": {
        "merge-file": ("merge:merge_file", "Merge three checkpoints, tensor by tensor."),
        "resolve": ("merge:resolve", "Settle what a merge of a checkpoint left open."),
    },
    "Convert": {
        "emit": ("emit:emit", "Make the text of a checkpoint."),
        "restore": ("restore:restore", "Make the checkpoint of a text."),
        "convert": ("convert:convert", "Write a checkpoint in another format."),
        "repack": ("repack:repack", "Change a checkpoint's compression."),
        "recover": ("recover:recover", "Mend a damaged checkpoint from its parity."),
        "delta": ("delta:delta", "Send what changed of a checkpoint as text."),
    },
    "Containers": {
        "taridx": ("taridx:taridx", "Build, list and check indexes of tar shards."),
    },
    "Trust": {
        "seal": ("seal:seal", "Sign what checkpoints hold, generation by generation."),
        "check": ("check:check", "Check what is about to be committed."),
        "key": ("key:key", "Make, import and list keys that sign."),
        "signers": ("signers:signers", "Say who may sign in a repository."),
        "log": ("log:log", "List the sealed generations of a checkpoint."),
        "audit": ("audit:audit", "Prove the chain of all checkpoints across commits."),
    },
    "Called by git": {
        "filter-process": ("plumbing_help:filter_process", "Clean and smudge many files."),
        "clean": ("plumbing_help:clean", "One file to text."),
        "smudge": ("plumbing_help:smudge", "One text to file."),
        "diff-driver": ("plumbing_help:diff_driver", "What a diff shows of one file."),
        "merge-driver": ("merge:merge_driver", "Merge a file that both sides changed."),
        "hook": ("hook:hook", "What git's hooks run."),
    },
}
"""Sections of the help, with commands: where each is, and a line about it."""

_COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class _Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command: click.Command = getattr(import_module(f"wtxtgit.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], _COMMANDS, n=1)
            meant = f", did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"no such command '{args[0]}'{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, about) for name, (_, about) in commands.items()])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    __version__, "-V", "--version", prog_name="wtxtgit", message="%(prog)s %(version)s"
)
def cli() -> None:
    """Keep model checkpoints in ordinary git, as text that checks itself.

    \b
    wtxtgit install                    once a machine
    wtxtgit track '*.safetensors'      once a repository
    git add, commit, push, clone       as ever

    Exit codes: 0 all holds, 1 a check found something, 2 usage, 3 input is not
    what it claims to be, 4 untrusted, 5 environment, 70 a bug in wtxtgit.
    """


def main(arguments: list[str]) -> int:
    """Run a command line; gives the exit code."""
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
        raise UsageError(_lower(error.format_message()), hint=_help_hint(error)) from error
    except click.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0


def _lower(message: str) -> str:
    """A message of click's in our words' form: one line, lower case, no full stop."""
    line = " ".join(message.split())
    return (line[:1].lower() + line[1:]).rstrip(".")


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "wtxtgit"
    return f"{command} --help"
