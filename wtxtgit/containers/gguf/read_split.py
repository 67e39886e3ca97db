"""Models in several GGUF files, as llama.cpp splits them: `model-00001-of-00003.gguf` and so on.

The first file has the metadata of the model. Each says in `split.no`, `split.count` and
`split.tensors.count` its own number, the number of files, and the total number of tensors. No file
lists them. Spec: `docs/spec/gguf.md`, "Split models"; https://github.com/ggml-org/llama.cpp,
tools/gguf-split/gguf-split.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from wtxtgit.containers import set_files
from wtxtgit.containers.cursor import fail, quoted
from wtxtgit.containers.format import ListedFiles, OpenMember, is_in_folder, opened_member
from wtxtgit.containers.gguf import MAGIC, check
from wtxtgit.containers.gguf import read as file_read
from wtxtgit.containers.gguf.read import (
    MAX_SPLITS,
    NUMBERS,
    SPLIT_COUNT,
    SPLIT_KEYS,
    SPLIT_NUMBER,
    SPLIT_TENSORS,
    Gguf,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings, MemberFindings
from wtxtgit.model.tensor import Description, ReadOptions, Tensor

FORMAT = "gguf-split"
_FILES_KEY = "split_gguf"
is_index = partial(set_files.is_index, _FILES_KEY)
_NAME = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


def make_index(names: Sequence[str]) -> ByteView | None:
    """Make an index of the model that file names show, including missing files."""
    models = {
        (match["stem"], int(match["count"])) for name in names if (match := _NAME.fullmatch(name))
    }
    if not models:
        return None
    if len(models) > 1:
        raise InputError(f"the folder holds {len(models)} split models", hint="name a file")
    ((stem, count),) = models
    files = [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    return set_files.index_of(_FILES_KEY, files)


def read(data: ByteView, open_member: OpenMember) -> SplitModel:
    """Read such an index; raises FormatError. `open_member` opens its files when needed."""
    files = set_files.listed(_FILES_KEY, data, MAX_SPLITS)
    if not files:
        fail("index lists 0 files", offset=0, field=_FILES_KEY, kind="limit")
    for file in files:
        if not is_in_folder(file):
            fail(f"{quoted(file)} is not a path in the folder", offset=0, field=_FILES_KEY)
    return SplitModel(files, open_member)


class SplitModel(ListedFiles):
    """A model in numbered files."""

    __slots__ = ()

    def describe(self, options: ReadOptions) -> Description:
        """Return all tensors of all files, in the files' order, and the first one's metadata.

        Raises FormatError.
        """
        tensors: list[Tensor] = []
        first: Description | None = None
        size = 0
        for file in self.files:
            opened = self._open(file)
            size += len(opened.data)
            inner = file_read.describe(opened, options)
            first = inner if first is None else first
            tensors += (replace(tensor, offset=None) for tensor in inner.tensors)
            if len(tensors) > MAX_TENSORS:
                fail(
                    "files list too many tensors in total", offset=0, field="tensors", kind="limit"
                )
        if first is None:
            fail("index lists no files", offset=0, field=_FILES_KEY)
        metadata = dict(first.metadata)
        metadata["metadata_kv"] = _apart(_values(first))
        own = first.own
        return replace(
            first,
            format=FORMAT,
            tensors=tuple(tensors),
            metadata={**metadata, "files": list(self.files)},
            untold=tuple(key for key in first.untold if key not in SPLIT_KEYS),
            size=size,
            own=None if own is None else lambda: _apart(own()),
        )

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files, each by itself and against its place; raises nothing."""
        for file in paths:
            findings = Findings()
            count = 0
            try:
                opened = self._open(file)
                findings.add_of_file(file, check.check(opened, options))
                count = len(opened.infos)
                self._check_place(file, opened, findings)
            except FormatError as error:
                findings.refuse(error, chunk=file)
            # `nbytes` is the file's number of tensors here: all files state the total.
            yield findings.of_member(count)

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Join the findings of all files, and compare their tensors' number with the first file's.

        The first file states how many tensors all files have.
        """
        findings, count = Findings.of_members(members)
        if findings.errors:
            return findings
        try:
            stated = _split_values(self._open(self.files[0])).get(SPLIT_TENSORS)
        except FormatError as error:
            findings.refuse(error, chunk=self.files[0])
            return findings
        if stated != count:
            message = f"{SPLIT_TENSORS} is {stated}, but the files have {count} tensors in total"
            findings.error(message, SPLIT_TENSORS, chunk=self.files[0])
        return findings

    def _check_place(self, file: str, opened: Gguf, findings: Findings) -> None:
        stated = _split_values(opened)
        for key, expected in (
            (SPLIT_NUMBER, self.files.index(file)),
            (SPLIT_COUNT, len(self.files)),
        ):
            if stated.get(key) != expected:
                findings.error(f"{key} is {stated.get(key)}, not {expected}", key, chunk=file)

    def _open(self, file: str) -> Gguf:
        data = opened_member(self.open_member, file, _FILES_KEY)
        if data[: len(MAGIC)] != MAGIC:
            fail(f"{quoted(file)} is not a GGUF file", offset=0, field="magic")
        return file_read.read(data)


def _split_values(container: Gguf) -> dict[str, object]:
    """Return what a file says of its place in the split, so far as these are numbers."""
    return {
        entry.key: file_read.decode(container.cursor(entry.start), entry.value_type)
        for entry in container.entries
        if entry.key in SPLIT_KEYS and entry.value_type in NUMBERS
    }


def _values(description: Description) -> Mapping[str, object]:
    values = description.metadata.get("metadata_kv")
    return values if isinstance(values, dict) else {}


def _apart(values: Mapping[str, object]) -> dict[str, object]:
    """Return a file's metadata without what says its place in the split."""
    return {key: value for key, value in values.items() if key not in SPLIT_KEYS}
