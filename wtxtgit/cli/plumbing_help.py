"""Help for the commands that git calls.

`wtxtgit.cli.plumbing`, `diff_driver` and `merge_driver` run them.
"""

from __future__ import annotations

import click

from wtxtgit.cli import diff_driver as driver
from wtxtgit.cli import merge_driver as merges
from wtxtgit.cli.plumbing import main

_PASS_ON = {"ignore_unknown_options": True}


_DETACHED = "Put the data of large arrays into the store, as the driver wtxt-detached does."


def _form(detached: bool) -> list[str]:
    return ["--detached"] if detached else []


@click.command("filter-process")
@click.option("--detached", is_flag=True, help=_DETACHED)
def filter_process(detached: bool) -> int:
    """Clean and smudge files for git, over its filter protocol.

    Git starts this once per command and sends it one file after another: see
    gitattributes(5), "Long Running Filter Process". It reads standard input and answers
    on standard output. `wtxtgit install` sets it as filter.wtxt.process and
    filter.wtxt-detached.process.
    """
    return main(["filter-process", *_form(detached)])


@click.command(context_settings=_PASS_ON)
@click.option("--detached", is_flag=True, help=_DETACHED)
@click.argument("path", required=False)
def clean(path: str | None, detached: bool) -> int:
    """Read a file on standard input, write its text to standard output.

    PATH is only used in messages. The text depends only on the file's bytes.
    """
    return main(["clean", *_form(detached), *([path] if path else [])])


@click.command(context_settings=_PASS_ON)
@click.argument("path", required=False)
def smudge(path: str | None) -> int:
    """Read a text on standard input, write the file to standard output.

    PATH is only used in messages. Input that is not a text, or does not verify, is
    passed through unchanged.
    """
    return main(["smudge", *([path] if path else [])])


@click.command("diff-driver", context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1)
def diff_driver(arguments: tuple[str, ...]) -> int:
    """Show git what changed in the weights of one file.

    Git passes the path and, for both sides, a file, an object id and a mode: see
    git(1), "GIT_EXTERNAL_DIFF". `wtxtgit install` sets it as diff.wtxt.command; with
    --no-ext-diff git shows the text instead.
    """
    return driver.main(["diff-driver", *arguments])


@click.command("merge-driver")
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@click.argument("marker_size", default="7")
@click.argument("path", required=False)
@click.option(
    "--ledger", is_flag=True, help="Merge ledgers: take the one that has all records of the other."
)
def merge_driver(
    base: str, ours: str, theirs: str, marker_size: str, path: str | None, ledger: bool
) -> int:
    """Merge three texts for git, and write the result to OURS.

    Checkpoints are merged tensor by tensor, and row by row. If both sides changed the
    same rows, the attribute wtxt-merge decides, or the config wtxtgit.mergeStrategy. On
    a conflict the exit code is 1, OURS stays unchanged, and `wtxtgit resolve` settles
    it. Of two ledgers, the one that has all records of the other is taken. Git starts
    this as merge.wtxt.driver and merge.wtxt-ledger.driver.
    """
    options = ["--ledger"] if ledger else []
    paths = [base, ours, theirs, marker_size, *([path] if path is not None else [])]
    return merges.main(["merge-driver", *options, "--", *paths])
