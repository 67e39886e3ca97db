"""What holds for every container file, however it was made: only our errors, within bounds."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from time import process_time
from types import SimpleNamespace

from wtxtgit.containers import any_format, registry
from wtxtgit.containers.format import Container, OpenMember
from wtxtgit.errors import PICKLE, FormatError, InputError
from wtxtgit.io.view import ByteView
from wtxtgit.model.array import Cut
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ITEM_BYTES, ReadOptions, Tensor
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.statistics import statistics

MIB = 2**20
OPTIONS = ReadOptions(max_chunk=MIB)
KEY = bytes(range(32))
KEYED = ReadOptions(max_chunk=MIB, decryption_key=KEY, integrity_key=b"s3cret-a")
"""With the keys of the FOLD fixtures that have some."""
MOST_OF_A_TENSOR = MIB
MOST_OF_A_FILE = 8 * MIB
KINDS = frozenset(
    {
        *("structure", "limit", PICKLE, "crc32", "crc32c", "sha256", "hmac", "blake3"),
        *("manifest", "merkle", "ecc", "signature"),
    }
)
"""The kinds that `Findings` names."""
HANGS = 5.0
"""Seconds of CPU after which a file of some kilobytes counts as one that never ends."""
BASE = 16 * MIB
FACTOR = 20
"""Memory is bounded by BASE, and FACTOR times the file's size."""

Members = dict[str, bytes]
"""Files of a set, by path."""


def peak_of(call: Callable[[], object]) -> int:
    """The most bytes that were allocated at once while this ran."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def read_once(view: memoryview) -> Iterator[memoryview]:
    """Have a file's format detected once, and its reader read it once, whoever asks."""
    known = registry.detected(view)
    made: Container | FormatError | None = None

    def read(data: ByteView, *_: object) -> Container:
        nonlocal made
        assert data is view
        assert known is not None
        if made is None:
            try:
                made = known.read().read(data)
            except FormatError as refusal:
                made = refusal
        if isinstance(made, FormatError):
            raise made.with_traceback(None)
        return made

    reader = SimpleNamespace(read=read)
    again = known and known._replace(read=lambda: reader)  # type: ignore[arg-type]
    names = vars(any_format)
    names["detected"] = lambda data: again if data is view else registry.detected(data)
    try:
        yield view
    finally:
        names["detected"] = registry.detected


@dataclass
class Oracle:
    """Reads files in every way. What was found right of a tensor is not looked at again."""

    options: ReadOptions = OPTIONS
    seen: set[object] = field(default_factory=set)

    def hold(self, data: bytes, members: Members | None = None, *, once: bool = False) -> None:
        """What holds for any bytes, and for a set whose files are `members`.

        `once` is a file detected and read, what it is cut by, checked and described: from the
        same bytes comes the same, and half of the time is taken by that.
        """
        with read_once(memoryview(data)) if once else nullcontext(memoryview(data)) as view:
            self._hold(view, data, members)

    def _hold(self, view: memoryview, data: bytes, members: Members | None) -> None:
        started = process_time()
        cut = any_format.split(view)
        assert joined(cut) == data
        findings = any_format.check(view, self.options, _opener(members))
        check_findings(findings, is_set=members is not None)
        self._read_all(view, data, members, findings, cut)
        assert process_time() - started < HANGS

    def hold_in_memory(self, data: bytes, members: Members | None = None) -> None:
        """The same, in memory that the file's size bounds."""
        size = len(data) + sum(map(len, (members or {}).values()))
        assert peak_of(lambda: self.hold(data, members)) < BASE + FACTOR * size

    def _read_all(
        self,
        view: memoryview,
        data: bytes,
        members: Members | None,
        findings: Findings,
        cut: Cut,
    ) -> None:
        try:
            described = any_format.describe(view, self.options, _opener(members))
            listed = list(any_format.tensors(described, self.options))
        except FormatError as refusal:
            check_refusal(refusal)
            assert findings.errors
            return
        # A file that is cut was read; one that is refused is stored whole.
        assert cut.layout.format in (described.format, "opaque")
        json.dumps(described.metadata)
        assert all(isinstance(text, str) for pair in described.tags.items() for text in pair)
        "".join((*described.tags, *described.tags.values())).encode()
        assert all(isinstance(word, str) for word in described.untold)
        left = MOST_OF_A_FILE
        for tensor in listed:
            left -= self._read(tensor, data, left)

    def _read(self, tensor: Tensor, data: bytes, left: int) -> int:
        """Read a tensor as far as `left` bytes; how many were."""
        tensor.name.encode()
        if tensor.absent is not None:
            return 0
        try:
            held = bytes(tensor.data)
        except FormatError as refusal:
            check_refusal(refusal, ("structure", "limit", "crc32"))
            return 0
        assert len(held) == tensor.nbytes
        if tensor.offset is not None and held:
            assert data[tensor.offset : tensor.offset + len(held)] == held
        facts = (tensor.dtype, tensor.element, tensor.shape, tensor.order, tensor.byteorder)
        key = (*facts, tensor.strides, tensor.absent, hash(held))
        if key in self.seen:
            return 0
        self.seen.add(key)
        given = bytearray()
        most = min(left, MOST_OF_A_TENSOR)
        try:
            for block in tensor_bytes.blocks(tensor, 64 * 1024):
                given += block
                if len(given) > most:
                    break
        except FormatError as refusal:
            check_refusal(refusal)
        if _size(tensor) > MOST_OF_A_TENSOR:
            return len(given)
        try:
            statistics(tensor)
        except FormatError as refusal:
            check_refusal(refusal)
        try:
            values = tensor_bytes.array(tensor)
        except FormatError as refusal:
            check_refusal(refusal)
            return len(given)
        if values.nbytes <= most:
            little = values.astype(values.dtype.newbyteorder("<"), order="C")
            assert given.startswith(little.tobytes())
        return len(given)


def joined(cut: Cut) -> bytes:
    """The file that a cut's extents give."""
    held = {array.name: array.data for array in cut.arrays}
    assert len(held) == len(cut.arrays)
    for array in cut.arrays:
        assert len(array.data) == array.nbytes
    parts: list[bytes] = []
    for extent in cut.layout.extents:
        if extent.array is not None:
            parts.append(bytes(held.pop(extent.array)))
        elif extent.hex is not None:
            parts.append(extent.hex)
        else:
            parts.append(bytes(extent.zeros or 0))
    assert not held
    return b"".join(parts)


def check_findings(findings: Findings, *, is_set: bool) -> None:
    """What holds for what a check tells of a file, or of a set of files."""
    for problem in (*findings.errors, *findings.warnings):
        assert problem.kind in KINDS
        assert problem.message
        assert problem.message.isprintable()
        assert problem.offset is None or problem.offset >= 0
    for problem in findings.errors:
        # What only counts others has no place.
        if problem.kind == "structure" and problem.more is None:
            assert problem.field
            # In a set only the file's name may tell where.
            assert problem.offset is not None or is_set


_REFUSALS = ("structure", "limit", PICKLE)


def check_refusal(refusal: FormatError, kinds: Iterable[str] = _REFUSALS) -> None:
    assert refusal.kind in kinds
    assert refusal.message
    assert refusal.message.isprintable()
    assert refusal.offset is None or refusal.offset >= 0


def _size(tensor: Tensor) -> int:
    return prod(tensor.shape) * (ITEM_BYTES[tensor.element] if tensor.element else 1)


def _opener(members: Members | None) -> OpenMember | None:
    if members is None:
        return None

    def open_member(path: str) -> memoryview:
        if path not in members:
            raise InputError(f"{path!a} is not there")
        return memoryview(members[path])

    return open_member
