"""Converting a text between its attached and detached forms.

`docs/spec/detached.md`, section "Form". Both forms are written by the same writer of texts, from
the contents of the other form: they differ only in which lines are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, Pages
from wtxtgit.model.array import LAYOUT_ARRAY, Keep, Layout
from wtxtgit.text.arrays import snapshot_of
from wtxtgit.text.file import TextFile, layout_bytes
from wtxtgit.text.index import TextIndex
from wtxtgit.text.write import TextWriter


@contextmanager
def rewritten(
    text: ByteView,
    index: TextIndex,
    layout: Layout | None,
    *,
    detached: bool,
    name: str | None = None,
    keep: Keep | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Iterator[TextWriter]:
    """Yield the writer of a verified text in one of its forms; it is valid inside the block only.

    `index` and `layout` are those of the text. `name` is what messages call it; None if the caller
    adds that. `keep` receives the payload when the result is detached. Raises TextError
    "structure" for a pending text, which has no other form.
    """
    with ExitStack() as until:
        # Spooled, to a file if large: the writer reads every byte three times.
        spool = TextFile(name, text, Pages(), threads, until, index.payload)
        spool.fill_all()
        data: dict[str, ByteView] = {
            name: spool.view[place : place + spool.by_name[name].nbytes]
            for name, place in spool.places.items()
        }
        own = index.array(LAYOUT_ARRAY)
        if own is not None:
            data[LAYOUT_ARRAY] = memoryview(layout_bytes(text, own))
        yield TextWriter(
            snapshot_of(index, layout, data),
            threads=threads,
            progress=progress,
            detached=detached,
            keep=keep,
        )


def attached(
    text: ByteView,
    index: TextIndex,
    layout: Layout | None,
    *,
    name: str | None = None,
    threads: int | None = None,
) -> Iterator[Buffer]:
    """Yield the attached form of a verified detached text, in pieces; `name` as in `rewritten`."""
    with rewritten(text, index, layout, detached=False, name=name, threads=threads) as writer:
        yield from writer.stream()
