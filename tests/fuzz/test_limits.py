"""Very much of anything: memory is bounded by the input's size, and the work grows with it alone.

A reader takes at most 64 MiB and three times its input. What becomes an object of Python's for
each few bytes is bounded (`docs/spec/containers.md`, "What a file lists"): measured are files that
list as much as they may, and twice as much.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import zstandard

from tests.containers import aero_files
from tests.containers.aero_files import Chunk
from tests.fuzz.many import (
    DAMAGED,
    DELTAS,
    FILES,
    MOST_IN_DELTAS,
    MOST_IN_TEXTS,
    SETS,
    TEXTS,
    UNBOUNDED,
    WHOLE,
    ledger,
)
from tests.fuzz.test_memory import HEAD, arr
from tests.kit.changes import LIMITS
from tests.kit.resident import STATM, growth_of, made
from tests.scale.many import MANY, calls
from wtxtgit.checkpoint.recover import recover_text, write_whole
from wtxtgit.checkpoint.salvage import salvage
from wtxtgit.containers import any_format, registry
from wtxtgit.errors import FormatError, TextError, WtxtgitError
from wtxtgit.filter.clean import clean
from wtxtgit.filter.smudge import smudge
from wtxtgit.io.view import ByteView, Windowed
from wtxtgit.model.array import LEAST_EXTENTS
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.text import ledger as ledgers
from wtxtgit.text.arrays import LazySnapshot
from wtxtgit.text.delta.index import check as check_delta
from wtxtgit.text.index import index
from wtxtgit.text.layout import parse_layout
from wtxtgit.text.recovery import rebuilding
from wtxtgit.text.recovery.rebuilding import recover
from wtxtgit.text.verify import verify

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sampled(LIMITS),
    pytest.mark.skipif(not STATM.exists(), reason="there is no /proc here: run it on Linux"),
]

BASE = 64 * 2**20
FACTOR = 3
SLACK = 24 * 2**20
"""What of four times as much may be blocks of a fixed size: those of a second window or thread."""

Read = Callable[[ByteView], object]


def _all(pieces: Iterable[object]) -> None:
    for _ in pieces:
        pass


def _cleaned(view: memoryview) -> None:
    _all(clean(view, threads=1).pieces())


def _cut(view: memoryview) -> None:
    """The same, of a file that is not stored whole for all that it lists."""
    cleaned = clean(view, threads=1)
    assert "lists more than" not in (cleaned.reason or ""), cleaned.reason
    _all(cleaned.pieces())


def _salvaged(view: memoryview) -> None:
    salvage("damaged", view, ReadOptions())


def _whole(data: bytes) -> bytes:
    return data


def _torn(data: bytes) -> bytes:
    return data[:-1]


# Each does what the others of its kind do as well; every night it is all of them.
READS: dict[str, Read] = {"verify": partial(verify, threads=1), "open": LazySnapshot}
_open_damaged = partial(LazySnapshot, damaged=True)
FILE_READS: dict[str, Read] = {"clean": _cut}
DAMAGES: list[Callable[[bytes], bytes]] = [_torn]
if MANY > 1:
    READS |= {
        "index": index,
        "smudge": lambda view: _all(smudge(view, threads=1).pieces()),
        "clean": _cleaned,
    }
    FILE_READS |= {
        "check": any_format.check,
        "describe": lambda view: _all(any_format.tensors(any_format.describe(view))),
    }
    DAMAGES += [_whole]


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    """What is imported on the way is no reader's."""
    for known in registry.FORMATS:
        for part in (known.read, known.describe, known.check):
            part()


def hold(read: Read, make: Callable[[int], bytes], n: int) -> None:
    """Both bounds: of the whole, and of what three times as many more add."""
    view = made(partial(make, 4 * n))
    growth = _hold_most(read, view)
    # What is little as a whole is little for what is more. The lesser input is at most the half.
    if growth >= SLACK + FACTOR * len(view) // 2:
        less = made(partial(make, n))
        assert growth - _hold_most(read, less) < SLACK + FACTOR * (len(view) - len(less))


def _hold_most(read: Read, view: memoryview) -> int:
    growth = growth_of(partial(_refused, read, view))
    assert growth < BASE + FACTOR * len(view)
    return growth


def _refused(read: Read, view: ByteView) -> None:
    try:
        read(memoryview(view))
    except WtxtgitError:
        return


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_of_very_much(name: str, read: str) -> None:
    make, n = TEXTS[name]
    hold(READS[read], make, n * MANY)


@pytest.fixture
def _little_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no hash settles is looked for so long, however little is to be found."""
    monkeypatch.setattr(rebuilding, "_MOST_HASHED", 2**20)


@pytest.mark.usefixtures("_little_is_tried")
@pytest.mark.parametrize("name", TEXTS | DAMAGED)
def test_a_text_of_very_much_is_recovered(name: str) -> None:
    make, n = (TEXTS | DAMAGED)[name]
    hold(recover, make, n // 60)


@pytest.mark.parametrize("name", TEXTS | DAMAGED)
def test_what_is_intact_of_a_text_of_very_much(name: str) -> None:
    make, n = (TEXTS | DAMAGED)[name]
    hold(_open_damaged, make, n // 40 * MANY)


@pytest.mark.parametrize("name", list(WHOLE)[: None if MANY > 1 else 1])
def test_a_whole_text_is_recovered_and_written(name: str, tmp_path: Path) -> None:
    def written(view: memoryview) -> None:
        done = recover_text("damaged", view, threads=1)
        out = tmp_path / "whole.wtxt"
        write_whole(done, out, "damaged")
        assert out.stat().st_size == len(view)
        out.unlink()

    make, n = WHOLE[name]
    written(memoryview(make(1)))
    views = [made(partial(make, count)) for count in (n, 4 * n)]
    growths = [_hold_most(written, view) for view in views]
    if name == "chunks":
        # No block of a fixed size grows here. Of arrays there may not be any number.
        assert growths[1] - growths[0] < 8 * 2**20 + FACTOR * (len(views[1]) - len(views[0]))


def test_a_damaged_text_of_more_arrays_than_can_be_recovered() -> None:
    view = made(lambda: HEAD + arr(b"1", b"1") * 60_000)
    with pytest.raises(TextError, match="more arrays and chunks than"):
        recover(view)
    _hold_most(recover, view)


@pytest.mark.parametrize("name", DELTAS)
def test_a_delta_of_very_much(name: str) -> None:
    make, n = DELTAS[name]
    hold(check_delta, make, n * MANY)


@pytest.mark.parametrize("name", [name for name in MOST_IN_TEXTS if MANY > 1 or "dim" in name])
def test_a_text_of_as_much_as_it_may_have(name: str) -> None:
    make, most = MOST_IN_TEXTS[name]
    for read in READS.values() if MANY > 1 else [READS["verify"]]:
        _hold_most(read, made(partial(make, most)))

    def refused(view: ByteView) -> None:
        assert "limit" in {problem.kind for problem in verify(view, threads=1).problems}

    _hold_most(refused, made(partial(make, most * 5 // 4)))


def test_a_layout_of_as_many_extents_as_a_text_may_have() -> None:
    def spelled(count: int) -> bytes:
        listed = b",".join([b'{"zeros":1}'] * count)
        return b'{"extents":[%b],"format":"opaque","size":%d,"v":1}' % (listed, count)

    raw = spelled(LEAST_EXTENTS)
    assert growth_of(lambda: parse_layout(raw, 0)) < BASE + FACTOR * len(raw)
    with pytest.raises(TextError, match="too many extents"):
        parse_layout(spelled(LEAST_EXTENTS + 1), 0)


@pytest.mark.parametrize("name", MOST_IN_DELTAS)
def test_a_delta_of_as_much_as_it_may_have(name: str) -> None:
    make, most = MOST_IN_DELTAS[name]
    _hold_most(check_delta, made(partial(make, most)))

    def refused(view: ByteView) -> None:
        assert "limit" in {problem.kind for problem in check_delta(view).problems}

    _hold_most(refused, made(partial(make, most * 5 // 4)))


def test_a_ledger_of_very_much() -> None:
    hold(ledgers.read, ledger, 2_000)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_as_much_as_it_may_list(name: str) -> None:
    make, most = FILES[name]
    taken, refused = (made(partial(make, count)) for count in (most, most * 5 // 4))

    def limited() -> None:
        reason = any_format.split(refused).reason or ""
        assert "lists more items than" in reason, reason

    if name not in UNBOUNDED:
        assert growth_of(limited) < BASE + FACTOR * len(refused)
    for read in FILE_READS.values():
        _hold_most(read, taken)
    if MANY > 1:
        _hold_most(any_format.check, refused)


@pytest.mark.parametrize("name", SETS)
def test_a_set_of_files_of_as_much_as_one_may_list(name: str) -> None:
    row = SETS[name]
    paths = [row.path.format(k, k + 1, row.files) for k in range(row.files)]
    files = {path: made(partial(row.file, k, row.tensors)) for k, path in enumerate(paths)}
    index = made(partial(row.index, paths, row.files, row.tensors))
    size = len(index) + sum(map(len, files.values()))

    def described() -> None:
        try:
            listed = any_format.describe(index, open_member=files.__getitem__)
        except FormatError as error:
            reasons = {error.message}
        else:
            # A part of an AEROSET that can't be read leaves its tensors out.
            reasons = {tensor.absent or "" for tensor in listed.tensors}
        assert any("lists more items than are allowed in a set" in reason for reason in reasons), (
            reasons
        )

    def checked() -> None:
        found = any_format.check(index, open_member=files.__getitem__)
        # Parts of an AEROSET are looked at one by one, and none is kept.
        is_kept = name != "parts of an AEROSET"
        messages = [problem.message for problem in found.errors]
        assert is_kept == any("lists more items than" in message for message in messages), messages

    for read in (described, checked):
        assert growth_of(read) < BASE + FACTOR * size


def test_a_compressed_index_is_decoded_no_further_than_the_file_allows() -> None:
    values = 90 * 2**20
    content = b"\x81\xa7tensors\xdd" + struct.pack(">I", values) + b"\x80" * values
    packed = zstandard.ZstdCompressor().compress(content)
    chunk = Chunk(b"TIDX", b"t", b"", flags=1, stored=packed, ulen=len(content))
    view = made(lambda: aero_files.file([chunk]))
    del content
    assert "over" in (any_format.split(view).reason or "")
    for read in FILE_READS.values():
        _hold_most(read, view)


def test_a_frame_fills_no_larger_window_than_it_has_bytes() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters)
    content = bytes(2**28)
    chunk = Chunk(b"ABCD", b"a", b"", flags=1, stored=packer.compress(content), ulen=len(content))
    del content
    view = made(lambda: aero_files.file([chunk]))

    def checked() -> None:
        assert any("window" in problem.message for problem in any_format.check(view).errors)

    # BLAKE3 has threads, which a fork would not take along: nothing is checked in this process.
    assert growth_of(checked) < BASE + FACTOR * len(view)


@pytest.fixture
def _in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are counted in one thread."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


class LookedAt:
    """`Windows` of bytes that counts how many were looked at."""

    def __init__(self, data: bytes) -> None:
        self._data, self.nbytes = memoryview(data), len(data)
        self.count = 0

    def window(self, start: int, end: int) -> memoryview:
        self.count += end - start
        return self._data[start:end]


def hold_work(read: Read, make: Callable[[int], bytes], n: int) -> None:
    _refused(read, memoryview(make(n)))
    counts = [calls(partial(_refused, read, memoryview(make(count)))) for count in (n, 4 * n)]
    # Of work that grows with the square it is sixteen times.
    assert counts[1] <= 5 * counts[0], counts


def hold_work_and_reading(read: Read, make: Callable[[int], bytes], n: int) -> None:
    """The same; what is read again and again shows in the bytes, not in calls."""

    def tried(looked: LookedAt) -> None:
        with suppress(WtxtgitError):
            read(Windowed(looked))

    tried(LookedAt(make(n)))
    looked = [LookedAt(make(count)) for count in (n, 4 * n)]
    counts = [calls(partial(tried, one)) for one in looked]
    assert counts[1] <= 5 * counts[0], counts
    assert looked[1].count <= 5 * looked[0].count, [one.count for one in looked]


@pytest.mark.usefixtures("_in_this_thread")
@pytest.mark.parametrize("name", TEXTS)
def test_work_on_a_text_grows_with_it_alone(name: str) -> None:
    make, n = TEXTS[name]
    hold_work(READS["verify"], make, n // 10)


@pytest.mark.usefixtures("_in_this_thread")
@pytest.mark.parametrize("name", DAMAGED)
def test_work_on_what_is_intact_grows_with_the_text_alone(name: str) -> None:
    make, n = DAMAGED[name]
    hold_work_and_reading(_open_damaged, make, n // 20)


@pytest.mark.usefixtures("_in_this_thread", "_little_is_tried")
@pytest.mark.parametrize("name", TEXTS | DAMAGED)
def test_work_on_recovery_grows_with_the_text_alone(name: str) -> None:
    make, n = (TEXTS | DAMAGED)[name]
    hold_work_and_reading(recover, make, n // 80)


@pytest.mark.usefixtures("_in_this_thread")
@pytest.mark.parametrize("name", FILES)
def test_work_on_a_file_grows_with_it_alone(name: str) -> None:
    make, most = FILES[name]
    hold_work(any_format.check, make, most // 100)


@pytest.mark.usefixtures("_in_this_thread")
@pytest.mark.parametrize("name", FILES)
def test_work_on_what_is_left_of_a_file_grows_with_it_alone(name: str) -> None:
    make, most = FILES[name]
    for damage in DAMAGES:
        hold_work(_salvaged, lambda n, damage=damage: damage(make(n)), most // 200)


def test_a_line_that_goes_on() -> None:
    make, _ = TEXTS["bytes of one line"]
    # Every night it is a GiB.
    view = made(lambda: make(2**30 if MANY > 1 else 2**26))
    for name, read in READS.items():
        assert growth_of(partial(_refused, read, view)) < BASE + FACTOR * len(view), name
