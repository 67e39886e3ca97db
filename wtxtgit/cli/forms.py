"""`wtxtgit attach` and `detach`: a text in its other form."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.options import FILE
from wtxtgit.cli.output import progress
from wtxtgit.io.view import write_all

if TYPE_CHECKING:
    from typing import Any


def _convert(convert: Callable[..., None], text: Path, output: Path | None) -> int:
    to_pipe = output is not None and str(output) == "-"
    more: dict[str, Any] = {}
    if to_pipe:
        more["write"] = partial(write_all, sys.stdout.fileno())
    with progress(text.name, None) as advance:
        convert(
            text,
            None if to_pipe else output or text,
            threads=environment.threads(),
            progress=advance,
            **more,
        )
    return 0


_output = click.option(
    "-o",
    "--output",
    type=FILE,
    help="Write to this file, and leave TEXT as it is; - is standard output.",
)


@click.command()
@click.argument("text", type=FILE)
@_output
def attach(text: Path, output: Path | None) -> int:
    """Put the data back into the detached text TEXT, so that it needs no store.

    The data comes from the store of the repository that TEXT is in. TEXT is replaced
    only if the new text verifies to its last hash. A text that has its data is left
    alone.

    \b
    wtxtgit attach model.safetensors.wtxt
    wtxtgit attach model.safetensors.wtxt -o - | xz > mailed.wtxt.xz
    """
    from wtxtgit.checkpoint import forms

    return _convert(forms.attach, text, output)


@click.command()
@click.argument("text", type=FILE)
@_output
def detach(text: Path, output: Path | None) -> int:
    """Move the data of large arrays from TEXT into the repository's store.

    The detached text keeps only their hashes, about 0.25% of the checkpoint's size;
    `wtxtgit attach` puts the data back. TEXT is replaced once its data is in the store
    of the repository that TEXT is in.

    \b
    wtxtgit detach model.safetensors.wtxt
    """
    from wtxtgit.checkpoint import forms

    return _convert(forms.detach, text, output)
