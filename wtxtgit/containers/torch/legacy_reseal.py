"""Rewriting a legacy file with other bytes of its tensors.

All its pickles stay: nothing is added to them. Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from wtxtgit.containers import replacing
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.replacing import Edit
from wtxtgit.containers.torch import PICKLE, overlay
from wtxtgit.containers.torch.contents import PICKLED, digest, entry_of, first_fitting, span_of
from wtxtgit.containers.torch.legacy import Legacy
from wtxtgit.containers.torch.overlay import TensorSpan
from wtxtgit.containers.torch.read import STORAGE, tensor
from wtxtgit.containers.torch.reseal import DEVICES, devices
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, mapped, pieces
from wtxtgit.model.tensor import Entry, NewContent, PlacedEntry, ReadOptions, keys_of

FACTS = "system info"


def entries(container: Legacy, options: ReadOptions) -> list[Entry]:
    """Return the tensors of a file, in the order of its description."""
    return [
        entry_of(tensor(name, view, container.find, options.max_chunk), PICKLED)
        for name, view in container.listing.tensors
    ]


def values(container: Legacy, options: ReadOptions) -> dict[str, object]:
    """Return hashes of what a file holds besides its tensors.

    The saved value is `data.pkl`, as in a zip; `system info` what the file says of the writing
    machine; `data/<n>` the bytes of a storage that are in no tensor, where n counts the storages
    that the pickle names.
    """
    _, _, facts, _ = container.others
    by_name: dict[str, object] = {
        PICKLE: digest(
            container.pickle, lambda: mapped(container.data[container.start : container.pickle.end])
        ),
        FACTS: digest(facts, lambda: mapped(container.data[: facts.end])),
    }
    spans = _spans(container, entries(container, options))
    for n, key in enumerate(dict.fromkeys(storage.key for storage in container.named)):
        if key not in container.storages:
            continue
        start, end = container.storages[key]
        mine = [span for _, span in spans.get(key, ())]
        overlay.refuse_bomb(mine, end - start)
        rest = overlay.uncovered(partial(pieces, container.data[start:end]), end - start, mine)
        if rest is not None:
            by_name[f"{STORAGE}{n}"] = rest
    return by_name


def rest(container: Legacy, options: ReadOptions) -> dict[str, object]:
    """Return the devices of storages, as for a zip."""
    told = devices(container.named)
    return {DEVICES: told} if told else {}


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
    files = _LegacySources(options)
    wanted = files.values(container) if values is None else values
    sources = (container, *(cast(Legacy, one.source) for one in placed))
    file, contents = first_fitting(
        sources, lambda file: (file, files.contents(file, placed, wanted))
    )
    return replacing.spliced(file.data, _edits(file, files.entries(file), contents))


class _LegacySources:
    """The files from which tensors are taken, each listed once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._entries: dict[int, list[Entry]] = {}

    def entries(self, file: Legacy) -> list[Entry]:
        if id(file) not in self._entries:
            self._entries[id(file)] = entries(file, self._options)
        return self._entries[id(file)]

    def values(self, file: Legacy) -> dict[str, object]:
        return values(file, self._options)

    def contents(
        self, file: Legacy, placed: Sequence[PlacedEntry], wanted: Mapping[str, object]
    ) -> dict[int, NewContent]:
        """Return, by number, the bytes of tensors that are not the file's own.

        Raises FormatError if the file can't have exactly these tensors and values.
        """
        own = dict(zip(_keys(self.entries(file)), enumerate(self.entries(file)), strict=True))
        listed = [self.entries(cast(Legacy, one.source))[one.number] for one in placed]
        given = dict(zip(_keys(listed), zip(placed, listed, strict=True), strict=True))
        for key in {**own, **given}:
            if key not in given or key not in own:
                raise _refused(f"{'gain' if key in given else 'lose'} tensor {quoted(key[0])}")
        there = self.values(file)
        for name in {**there, **wanted}:
            if name not in there or name not in wanted or there[name] != wanted[name]:
                raise _refused(f"change {quoted(name)}")
        contents: dict[int, NewContent] = {}
        for key, (number, entry) in own.items():
            one, source = given[key]
            if source.form != entry.form:
                raise _refused(f"change the dtype, shape or strides of tensor {quoted(key[0])}")
            if one.content is None and one.source is file and one.number == number:
                continue
            contents[number] = one.content or _content(source)
        return contents


def _edits(file: Legacy, listed: Sequence[Entry], contents: Mapping[int, NewContent]) -> list[Edit]:
    """Return the storages that new contents change; their bytes are produced once, to see that
    they can be.
    """
    edits: list[Edit] = []
    for key, spans in _spans(file, listed).items():
        if not any(number in contents for number, _ in spans):
            continue
        start, end = file.storages[key]
        written = [
            replace(span, blocks=contents[number].blocks) if number in contents else span
            for number, span in spans
        ]
        overlay.refuse_bomb(written, end - start)
        old = partial(pieces, file.data[start:end])
        blocks = partial(overlay.overlaid, old, end - start, written)
        for _ in blocks():
            pass
        edits.append((start, end, blocks))
    return sorted(edits, key=lambda edit: edit[:2])


def _spans(file: Legacy, listed: Sequence[Entry]) -> dict[str, list[tuple[int, TensorSpan]]]:
    """Return the bytes of tensors in each storage, with their numbers."""
    spans: dict[str, list[tuple[int, TensorSpan]]] = {}
    for number, (entry, (_, view)) in enumerate(zip(listed, file.listing.tensors, strict=True)):
        if view.storage is not None and entry.tensor is not None and entry.tensor.nbytes:
            spans.setdefault(view.storage.key, []).append((number, span_of(view)))
    return spans


def _content(entry: Entry) -> NewContent:
    if entry.tensor is None:
        raise _refused(f"take {quoted(entry.name)}")
    held = entry.tensor.view
    return NewContent(len(held), partial(pieces, held))


def _keys(listed: Sequence[Entry]) -> Iterator[tuple[str, int]]:
    return keys_of(entry.name for entry in listed)


def _refused(what: str) -> FormatError:
    return FormatError(f"torch files older than its zips can't {what}", field="entries")
