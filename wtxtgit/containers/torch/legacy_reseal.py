"""Rewriting a legacy file with other bytes of its tensors.

As for a zip, its pickles are only added to. Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat

from wtxtgit.containers import replacing
from wtxtgit.containers.replacing import Edit
from wtxtgit.containers.torch import PICKLE, overlay
from wtxtgit.containers.torch.contents import digest, span_of
from wtxtgit.containers.torch.items import FRAME
from wtxtgit.containers.torch.legacy import COUNT_SIZE, Legacy
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.read import STORAGE
from wtxtgit.containers.torch.reseal import DEVICES, devices
from wtxtgit.containers.torch.sources import FileContents, FittingFile, TensorFiles
from wtxtgit.containers.torch.write import PickleWriter
from wtxtgit.io.view import Buffer, mapped, pieces
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions

FACTS = "system info"


class LegacyContents(FileContents):
    """The tensors of a legacy file, and the bytes of them in each storage, with their numbers."""

    container: Legacy

    def __init__(self, container: Legacy, options: ReadOptions) -> None:
        super().__init__(container, options)
        self.spans: dict[str, list[tuple[int, TensorSpan]]] = {}
        for number, (_, view) in enumerate(container.listing.tensors):
            if view.storage is not None and self.tensors[number].nbytes:
                self.spans.setdefault(view.storage.key, []).append((number, span_of(view)))

    def is_framed(self) -> bool:
        *_, keys = self.container.others
        return any(FRAME in pickle.opcodes for pickle in (self.container.pickle, keys))

    def refuse_damaged(self, number: int) -> None:
        """Do nothing: a legacy file has no hashes."""

    def values(self) -> dict[str, object]:
        """Return hashes of what the file holds besides its tensors.

        The saved value is `data.pkl`, as in a zip; `system info` what the file says of the writing
        machine; `data/<n>` the bytes of a storage that are in no tensor, where n counts the
        storages that the pickle names.
        """
        container, items = self.container, self.items
        *_, facts, _ = container.others
        value = container.data[container.start : container.pickle.end]
        by_name: dict[str, object] = {
            PICKLE: digest(container.pickle, lambda: mapped(value), items.left_out),
            FACTS: digest(facts, lambda: mapped(container.data[: container.start])),
            **items.versions,
        }
        keys = dict.fromkeys(s.key for s in container.named if s.key not in items.storages)
        for n, key in enumerate(keys):
            if key not in container.storages:
                continue
            start, end = container.storages[key]
            mine = [span for _, span in self.spans.get(key, ())]
            overlay.refuse_bomb(mine, end - start)
            rest = overlay.uncovered(partial(pieces, container.data[start:end]), end - start, mine)
            if rest is not None:
                by_name[f"{STORAGE}{n}"] = rest
        return by_name


def entries(container: Legacy, options: ReadOptions) -> list[Entry]:
    """Return the tensors of a file, in the order of its description."""
    return LegacyContents(container, options).entries


def values(container: Legacy, options: ReadOptions) -> dict[str, object]:
    """Return what a file holds besides its tensors; raises FormatError."""
    return LegacyContents(container, options).values()


def rest(container: Legacy, options: ReadOptions) -> dict[str, object]:
    """Return the devices of storages, as for a zip."""
    device_runs = devices(container.named, LegacyContents(container, options).items.storages)
    return {DEVICES: device_runs} if device_runs else {}


def reseal(
    container: Legacy,
    placed: Sequence[PlacedEntry],
    values: Mapping[str, object] | None,
    options: ReadOptions,
) -> Iterator[Buffer]:
    """Yield the bytes of a file that has exactly these tensors.

    If `container` can't have them, or these `values`, one of the other source files is used instead
    that can. Raises FormatError before yielding anything.
    """
    written = TensorFiles(LegacyContents, options).fit(container, placed, values)
    edits = (*_added(written), *_changed(written.file, written.contents))
    in_order = sorted(edits, key=lambda edit: edit[:2])
    return replacing.spliced(written.file.container.data, in_order)


def _added(written: FittingFile[LegacyContents]) -> Iterator[Edit]:
    """Yield the pickles with what is added, and new storages behind all others."""
    file = written.file.container
    if written.is_larger:
        raw = bytes(mapped(file.data[file.start : file.pickle.end]))
        pickle = written.larger_pickle(raw, file.start)
        yield file.start, file.pickle.end, partial(iter, (pickle,))
    if written.gained:
        keys = PickleWriter(remembers=False)
        keys.put(b"(")
        for _, key, _ in written.gained:
            keys.put_text(key)
        keys.put(b"e")
        # At the STOP, the list is on top of the stack.
        stop = file.others[-1].end - 1
        yield stop, stop, partial(iter, keys.parts)
    for item, _, content in written.gained:
        count = item.storage.numel.to_bytes(COUNT_SIZE, "little")
        yield file.end, file.end, partial(iter, (count,))
        span = TensorSpan(0, content.nbytes, blocks=content.blocks)
        zeros = partial(repeat, bytes(overlay.STEP))
        yield file.end, file.end, _combined(zeros, content.nbytes, [span])


def _changed(file: LegacyContents, contents: Mapping[int, NewContent]) -> Iterator[Edit]:
    """Yield the storages that new contents change."""
    for key, spans in file.spans.items():
        if not any(number in contents for number, _ in spans):
            continue
        start, end = file.container.storages[key]
        written = [
            replace(span, blocks=contents[number].blocks) if number in contents else span
            for number, span in spans
        ]
        old = partial(pieces, file.container.data[start:end])
        yield start, end, _combined(old, end - start, written)


def _combined(
    old: Callable[[], Iterable[Buffer]], size: int, spans: Sequence[TensorSpan]
) -> Callable[[], Iterator[Buffer]]:
    """Return what yields a storage's bytes; they are produced once, to see that they can be."""
    overlay.refuse_bomb(spans, size)
    blocks = partial(overlay.overlaid, old, size, spans)
    for _ in blocks():
        pass
    return blocks
