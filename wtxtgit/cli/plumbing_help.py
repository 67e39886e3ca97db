"""Help for the commands that git calls.

`wtxtgit.cli.plumbing`, `diff_driver` and `merge_driver` run them.
"""

from __future__ import annotations

import click

from wtxtgit.cli import diff_driver as driver
from wtxtgit.cli import merge_driver as merges
from wtxtgit.cli.plumbing import main

_PASS_ON = {"ignore_unknown_options": True}


_DETACHED = "As the driver wtxt-detached: the data of large arrays go into the store."


def _form(detached: bool) -> list[str]:
    return ["--detached"] if detached else []


@click.command("filter-process")
@click.option("--detached", is_flag=True, help=_DETACHED)
def filter_process(detached: bool) -> int:
    """Clean and smudge files for git, over its filter protocol.

    Git starts this once a command and asks for one file after another:
    gitattributes(5), "Long Running Filter Process". It reads standard input
    and answers on standard output. `wtxtgit install` sets it as
    filter.wtxt.process and filter.wtxt-detached.process.
    """
    return main(["filter-process", *_form(detached)])


@click.command(context_settings=_PASS_ON)
@click.option("--detached", is_flag=True, help=_DETACHED)
@click.argument("path", required=False)
def clean(path: str | None, detached: bool) -> int:
    """Read a file on standard input, write its text to standard output.

    PATH is what messages call it. The text depends on the file's bytes alone.
    """
    return main(["clean", *_form(detached), *([path] if path else [])])


@click.command(context_settings=_PASS_ON)
@click.argument("path", required=False)
def smudge(path: str | None) -> int:
    """Read a text on standard input, write the file to standard output.

    PATH is what messages call it. What is no text, or does not verify, is
    passed through as it is.
    """
    return main(["smudge", *([path] if path else [])])


@click.command("diff-driver", context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1)
def diff_driver(arguments: tuple[str, ...]) -> int:
    """Show git what changed in the weights of one file.

    Git gives the path, and for both sides a file, an object id and a mode:
    git(1), "GIT_EXTERNAL_DIFF". `wtxtgit install` sets it as
    diff.wtxt.command; --no-ext-diff has git show the text.
    """
    return driver.main(["diff-driver", *arguments])


@click.command("merge-driver")
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@click.argument("marker_size", default="7")
@click.argument("path", required=False)
@click.option("--ledger", is_flag=True, help="They are ledgers: the one that goes on is taken.")
def merge_driver(
    base: str, ours: str, theirs: str, marker_size: str, path: str | None, ledger: bool
) -> int:
    """Merge three texts for git, the result in OURS; exit code 1 on a conflict.

    Checkpoints are merged tensor by tensor, and row by row; where both sides
    changed the same rows the attribute wtxt-merge decides, or the config
    wtxtgit.mergeStrategy. On a conflict ours stays, whole and valid, and
    `wtxtgit resolve` settles it. Of ledgers the side is taken that has all
    records of the other. git starts this as merge.wtxt.driver, and as
    merge.wtxt-ledger.driver.
    """
    options = ["--ledger"] if ledger else []
    paths = [base, ours, theirs, marker_size, *([path] if path is not None else [])]
    return merges.main(["merge-driver", *options, "--", *paths])
