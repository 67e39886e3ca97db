"""Rendering by spans: they cover the text, each comes once, errors come out."""

from __future__ import annotations

import tempfile
from math import prod
from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from wtxtgit.io import workers
from wtxtgit.model.array import ITEM_SIZE, Array, Meta, Rows, Snapshot, default_rows
from wtxtgit.text import write
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import RUN_TEXT, TextWriter, dumps


def snapshot(*shapes: tuple[str, tuple[int, ...], Rows | None], seed: int = 0) -> Snapshot:
    made = []
    for number, (dtype, shape, rows) in enumerate(shapes):
        raw = memoryview(seeded(f"{seed} {number}").randbytes(ITEM_SIZE[dtype] * prod(shape)))
        made.append(Array(f"a{number:06d}", dtype, shape, raw, rows))
    return Snapshot(Meta(), tuple(made), CAP)


def blocked(dtype: str, *shape: int) -> tuple[str, tuple[int, ...], Rows | None]:
    return dtype, shape, default_rows(dtype, shape)


MIXED = snapshot(
    *[blocked("f32", 3)] * 200,
    blocked("f32", 600, 1000),
    *[blocked("u8", 40_000)] * 30,
    blocked("u8", 2_000_001),
    blocked("u8", 900_000),
    ("u8", (4_000_000,), Rows(1, 1_300_000)),
    ("u8", (21_000,), Rows(1, 3)),
    blocked("f64", 0),
)


class Pieces:
    """Takes pieces by number, from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.order: list[int] = []
        self.by_number: dict[int, bytes] = {}

    def place(self, number: int, piece: memoryview) -> None:
        with self._lock:
            assert number not in self.by_number
            self.order.append(number)
            self.by_number[number] = bytes(piece)

    def text(self) -> bytes:
        return b"".join(self.by_number[number] for number in sorted(self.by_number))


def rendered(writer: TextWriter) -> bytes:
    pieces = Pieces()
    writer.render(pieces.place)
    assert set(pieces.by_number) == set(range(len(writer.spans)))
    for number, span in enumerate(writer.spans):
        assert len(pieces.by_number[number]) == span.size
    assert pieces.order[-2:] == [0, len(writer.spans) - 1], "the header wants all hashes"
    return pieces.text()


def assert_covered(writer: TextWriter) -> None:
    position = 0
    for span in writer.spans:
        assert span.start == position
        assert span.size > 0
        position += span.size
    assert position == writer.size


@pytest.mark.parametrize("threads", [1, 2, 3, 5, None])
def test_rendering_gives_the_text_that_streaming_gives(threads: int | None) -> None:
    wanted = dumps(MIXED, threads=1)
    writer = TextWriter(MIXED, threads=threads)
    assert_covered(writer)
    assert rendered(writer) == wanted
    # All is hashed now: what is left is armoring.
    assert rendered(writer) == wanted
    assert b"".join(writer.stream()) == wanted
    with tempfile.TemporaryFile() as file:
        TextWriter(MIXED, threads=threads).write_file(file.fileno())
        file.seek(0)
        assert file.read() == wanted


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(ITEM_SIZE)),
            st.lists(st.integers(0, 30), max_size=2).map(tuple),
            st.integers(1, 50),
            st.integers(1, 20),
            st.sampled_from(["on", "off", "none", "default"]),
        ),
        max_size=6,
    ),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 3),
)
def test_any_snapshot_is_rendered_as_it_is_streamed(
    shapes: list[tuple[str, tuple[int, ...], int, int, str]], threads: int, seed: int
) -> None:
    source = snapshot(
        *(
            (dtype, shape, rows_of(dtype, shape, per_chunk, row, state))
            for dtype, shape, per_chunk, row, state in shapes
        ),
        seed=seed,
    )
    with pytest.MonkeyPatch.context() as patch:
        # As with more bytes: several runs, several threads.
        patch.setattr(workers, "SMALL", 0)
        patch.setattr(workers, "SMALL_TASK", 0)
        patch.setattr(write, "RUN_TEXT", 3_000)
        writer = TextWriter(source, threads=threads)
        assert_covered(writer)
        assert rendered(writer) == dumps(source, threads=1)


def rows_of(
    dtype: str, shape: tuple[int, ...], per_chunk: int, row: int, state: str
) -> Rows | None:
    if state == "none":
        return None
    if state == "default":
        return default_rows(dtype, shape)
    return Rows(per_chunk, row * ITEM_SIZE[dtype], state == "on")


def test_the_lines_of_long_arrays_are_spans_of_their_own() -> None:
    text = dumps(MIXED)
    spans = [text[s.start : s.start + s.size] for s in TextWriter(MIXED).spans]
    assert spans[0].startswith(b"WTXT 1\nmeta ")
    assert spans[-1] == b"endwtxt\n"
    alone = [piece for piece in spans if piece.startswith(b"arr ") and piece.endswith(b"=on\n")]
    names = [piece.split(b" ")[1] for piece in alone]
    assert names == [b"name=a000200", b"name=a000231", b"name=a000233", b"name=a000234"]


def test_spans_are_few_and_of_bounded_size() -> None:
    writer = TextWriter(snapshot(*[("u8", (1,), Rows(1, 1))] * 9_000))
    runs = writer.spans[1:-1]
    assert max(span.size for span in runs) <= RUN_TEXT
    assert all(span.size > RUN_TEXT * 0.9 for span in runs[:-1])
    tiny = TextWriter(snapshot(("u8", (40_000,), Rows(1, 2))))
    assert max(span.size for span in tiny.spans) <= RUN_TEXT


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("failing", [1, 4, -1])
def test_an_error_of_whoever_takes_the_pieces_comes_out(threads: int, failing: int) -> None:
    writer = TextWriter(MIXED, threads=threads)
    number_of_it = failing % len(writer.spans)

    def place(number: int, _piece: memoryview) -> None:
        if number == number_of_it:
            raise OSError(28, "no room")

    with pytest.raises(OSError, match="no room"):
        writer.render(place)
    # What was hashed on the way does no harm.
    assert rendered(writer) == dumps(MIXED)


def test_a_piece_is_only_good_during_the_call() -> None:
    """The buffers are few, however many the pieces."""
    writer = TextWriter(MIXED, threads=1)
    places: set[int] = set()

    def place(_number: int, piece: memoryview) -> None:
        # Small ones hold digests, and are made when all is hashed.
        if 1000 < piece.nbytes <= RUN_TEXT:
            address = memoryview(piece).obj
            places.add(id(address))

    writer.render(place)
    assert len(places) == 1


def test_the_root_and_the_digests_come_with_the_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TextWriter(MIXED)
    writer.render(lambda _number, _piece: None)
    with monkeypatch.context() as patch:
        patch.setattr(TextWriter, "_digest", None)
        root, hashed = writer.root, writer.hashed()
        b"".join(writer.stream())
    other = TextWriter(MIXED)
    assert root == other.root
    assert [(a.line, a.sha256, a.crc32c) for a in hashed] == [
        (a.line, a.sha256, a.crc32c) for a in other.hashed()
    ]


def test_progress_counts_every_byte_once_with_the_armor_made() -> None:
    counts: list[int] = []
    writer = TextWriter(MIXED, progress=counts.append)
    writer.render(lambda _number, _piece: None)
    assert sum(counts) == writer.raw_size
