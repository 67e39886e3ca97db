"""`wtxtgit diff`."""

from __future__ import annotations

from pathlib import Path

import click

from wtxtgit.cli import environment
from wtxtgit.cli.check import no_cache_option
from wtxtgit.cli.diff_table import print_changes
from wtxtgit.cli.output import print_json, print_line
from wtxtgit.cli.progress import file_size, progress
from wtxtgit.cli.reading import read_options, reading_options


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@reading_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="What is printed: text (the default) or json.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@no_cache_option
def diff(
    a: str,
    b: str,
    key: Path | None,
    max_chunk: int,
    form: str,
    as_json: bool,
    no_cache: bool,
) -> int:
    """Show what changed in the weights from checkpoint A to checkpoint B.

    Either is a file of any format, or REV:PATH for a file as it was in a
    commit. Tensors are matched by name. The exit code is 0 whether they differ
    or not.

    \b
    wtxtgit diff old.safetensors new.safetensors
    wtxtgit diff HEAD~1:model.fold model.fold --json
    """
    from wtxtgit.diff.diff import diff as op

    with progress("comparing", sum(file_size(Path(side)) for side in (a, b))) as advance:
        found = op(
            a,
            b,
            read_options(key, max_chunk),
            key_file=environment.facts_key(no_cache),
            threads=environment.threads(),
            progress=advance,
        )
    if as_json or form == "json":
        print_json(found.as_dict())
    else:
        print_line(f"{found.a} -> {found.b}")
        print_changes(found)
    return 0
