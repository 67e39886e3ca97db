"""`wtxtgit finalize`: a pending text gets its root."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.options import FILE, passphrase_option, sign_option
from wtxtgit.cli.output import is_printed, print_line, progress
from wtxtgit.cli.passphrase import asker


@click.command()
@click.argument("text", type=FILE)
@sign_option
@passphrase_option
@click.option(
    "--prev",
    metavar="BEFORE",
    help="The previous generation: a text, its WSUM, a revision that has TEXT, or merkle_this.",
)
@click.option("--inline", is_flag=True, help="Write the root into TEXT instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the root as JSON.")
def finalize(
    text: Path,
    sign: Path | None,
    passphrase_fd: int | None,
    prev: str | None,
    inline: bool,
    as_json: bool,
) -> int:
    """Check a pending TEXT, and write its root to TEXT.root.wsum.

    A text from emit --pending or dump(pending=True) does not contain its root. The root
    goes into the WSUM beside it, which commands read with the text. An existing WSUM
    keeps its place in the chain unless --prev names another. With --inline the root is
    written into the text, which then needs no WSUM.

    \b
    wtxtgit finalize step-200.wtxt --sign ~/.ssh/id_ed25519 --prev step-100.wtxt
    wtxtgit finalize step-200.wtxt --inline
    """
    from wtxtgit.checkpoint import finalize as checkpoint_finalize
    from wtxtgit.checkpoint.emit import signer

    threads = environment.threads()
    before = None if prev is None else checkpoint_finalize.prev_of(prev, text, threads=threads)
    key = None if sign is None else signer(sign, asker(passphrase_fd))
    with progress(text.name, None) as advance:
        done = checkpoint_finalize.finalize(
            text, sign=key, prev=before, inline=inline, threads=threads, progress=advance
        )
    if not is_printed(done, as_json):
        print_line(f"{done.output}: generation {done.gen}, merkle_this {done.merkle_this.hex()}")
    return 0
