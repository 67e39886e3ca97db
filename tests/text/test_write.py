"""The writer: file, stream and threads give one text, against a slow reference."""

from __future__ import annotations

import base64
import os
from hashlib import sha256
from math import prod
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.data import seeded
from wtxtgit.errors import TextError
from wtxtgit.model.array import ITEM_SIZE, Array, Meta, Rows, Signature, Snapshot, default_rows
from wtxtgit.text import digest, grammar
from wtxtgit.text.arrays import read
from wtxtgit.text.grammar import CAP
from wtxtgit.text.write import TextWriter, dumps

Shape = tuple[str, tuple[int, ...], Rows | None]


def snapshot(*arrays: Shape, seed: int = 0, **more: object) -> Snapshot:
    made = []
    for number, (dtype, shape, rows) in enumerate(arrays):
        raw = seeded(f"{seed} {number}").randbytes(ITEM_SIZE[dtype] * prod(shape))
        made.append(Array(f"a{number:03d}", dtype, shape, memoryview(raw), rows))
    return Snapshot(Meta(gen=7, ts="2025-10-09T03:12:45Z", build="b"), tuple(made), CAP, **more)  # type: ignore[arg-type]


def blocked(dtype: str, *shape: int) -> Shape:
    return dtype, shape, default_rows(dtype, shape)


def slow_chunk(ix: int, off: int, raw: bytes) -> bytes:
    pieces = [raw[i : i + 57] for i in range(0, len(raw), 57)] or [b""]
    text = (
        f"ch ix={ix:06d} off={off:012d} len={len(raw)} sha256={sha256(raw).hexdigest()} "
        f"crc32c={crc32c(raw):08x} b64=on width=76 lines={len(pieces)}\n"
    ).encode()
    for piece in pieces:
        body = base64.b64encode(piece).rstrip(b"=").ljust(76, b"=")
        parity = 0
        for byte in body:
            parity ^= byte
        text += body + b" %x\n" % (parity & 0xF)
    return text + b"endch\n"


def slow_dumps(source: Snapshot) -> bytes:
    """The text as the spec words it, line by line."""
    body = b""
    hash_all = sha256()
    fastxor = 0
    for array in source.arrays:
        raw = bytes(array.data)
        line = (
            f"arr name={array.name} dtype={array.dtype} "
            f"shape={','.join(map(str, array.shape)) or 'scalar'} order=C bytes={len(raw)} "
            f"sha256={sha256(raw).hexdigest()} hmac={(array.hmac or bytes(32)).hex()} "
            f"salt={(array.salt or bytes(8)).hex()}"
        ).encode()
        hash_all.update(line + raw)
        for start in range(0, len(raw), 8):
            fastxor ^= int.from_bytes(raw[start : start + 8], "little")
        body += line + b"\n"
        size = 32_768
        if array.rows is not None:
            rows = array.rows
            state = b"on" if rows.blocking else b"off"
            body += b"idx rows_per_chunk=%d row_size=%d row_blocking=%b\n" % (
                rows.rows_per_chunk,
                rows.row_size,
                state,
            )
            if rows.blocking:
                size = rows.rows_per_chunk * rows.row_size
        for ix, start in enumerate(range(0, max(len(raw), 1), size)):
            body += slow_chunk(ix, start, raw[start : start + size])
        body += b"endarr\n"
    meta = source.meta
    this = sha256(
        source.prev + hash_all.digest() + f"{meta.ts}{meta.gen:06d}{meta.build}".encode()
    ).hexdigest()
    head = (
        f"WTXT 1\nmeta schema={meta.schema} gen={meta.gen:06d} ts={meta.ts} build={meta.build} "
        f"endian=LE host={meta.host} cuda={meta.cuda}\ncap ext={','.join(source.cap)}\n"
    )
    if source.pending:
        head += f'root_pending sha256_all={"0" * 64} note="finalize with WSUM"\n'
    else:
        head += (
            f"root sha256_all={hash_all.hexdigest()} merkle_prev={source.prev.hex()} "
            f"merkle_this={this} fastxor={fastxor:016x}\n"
        )
    audit = "" if source.audit is None else f"audit {source.audit}\n"
    return head.encode() + body + audit.encode() + b"endwtxt\n"


SNAPSHOTS = {
    "nothing": snapshot(),
    "one empty": snapshot(blocked("u8", 0)),
    "several empty": snapshot(*[blocked("f64", 3, 0, 2)] * 5),
    "one scalar": snapshot(blocked("f64")),
    "every dtype": snapshot(*[blocked(dtype, 5, 3) for dtype in sorted(ITEM_SIZE)]),
    "many scalars": snapshot(*[blocked("i32")] * 150),
    "around a line": snapshot(*[blocked("u8", n) for n in (56, 57, 58, 113, 114, 115)]),
    "exactly one chunk": snapshot(blocked("u8", 65_536)),
    "one byte over a chunk": snapshot(blocked("u8", 65_537)),
    "several chunks": snapshot(blocked("f32", 300, 64), blocked("u8", 200_000)),
    "a wide row": snapshot(blocked("f32", 3, 20_000)),
    "without idx": snapshot(("u8", (70_000,), None), ("f32", (2, 2), None)),
    "blocking off": snapshot(("u8", (70_000,), Rows(4, 4, blocking=False))),
    "tiny chunks": snapshot(("u8", (200,), Rows(1, 3))),
    "chunks of odd size": snapshot(("i16", (50, 7), Rows(3, 14))),
    "a block of chunks and a tail": snapshot(("u8", (17 * 100 + 1,), Rows(1, 100))),
    "blocks of chunks without a tail": snapshot(("u8", (32 * 57,), Rows(1, 57))),
    "short, long, short": snapshot(
        blocked("u8", 10), blocked("u8", 150_000), blocked("u8", 9), ("u8", (9,), Rows(1, 4))
    ),
    "work for several threads": snapshot(
        blocked("f32", 1200, 300), blocked("u8", 3), blocked("f64", 100_001), blocked("i8", 0)
    ),
    "short ones among others": snapshot(
        *[blocked("u8", 65_535 + n) for n in range(3)],
        *[blocked("f32", n) for n in range(4)],
        ("u8", (9,), Rows(1, 4)),
        blocked("u8", 57),
    ),
    "more in a run than is armored at a time": snapshot(*[blocked("u8", 57_000)] * 19),
    "an audit line": snapshot(blocked("u8", 3), audit='a=1 b="x y"'),
    "a chain": snapshot(blocked("u8", 3), prev=bytes(range(32))),
    "pending": snapshot(blocked("u8", 3), pending=True),
}


def test_a_run_has_more_lines_than_are_armored_at_a_time() -> None:
    plan = TextWriter(SNAPSHOTS["more in a run than is armored at a time"])
    lines = plan.spans[1].size // grammar.LINE_TEXT
    assert len(plan.spans) == 3
    assert lines > grammar.PASS_LINES


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_file_stream_and_dumps_give_the_slow_references_text(name: str, tmp_path: Path) -> None:
    source = SNAPSHOTS[name]
    wanted = slow_dumps(source)
    for threads in (1, 2, 3, 5, None):
        assert dumps(source, threads=threads) == wanted, threads
        path = tmp_path / f"text-{threads}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            writer = TextWriter(source, threads=threads)
            writer.write_file(descriptor)
        finally:
            os.close(descriptor)
        assert path.read_bytes() == wanted, threads
        assert writer.size == len(wanted), threads
        assert b"".join(writer.stream()) == wanted, threads


@pytest.mark.parametrize("name", [name for name in SNAPSHOTS if name != "pending"])
def test_what_was_written_is_read_with_all_that_it_says(name: str) -> None:
    source = SNAPSHOTS[name]
    found = read(memoryview(dumps(source))).snapshot
    assert (found.meta, found.cap, found.prev) == (source.meta, source.cap, source.prev)
    assert (found.audit, found.pending, found.signature) == (source.audit, False, None)
    for ours, theirs in zip(source.arrays, found.arrays, strict=True):
        assert (ours.name, ours.dtype, ours.shape) == (theirs.name, theirs.dtype, theirs.shape)
        assert ours.rows == theirs.rows
        assert ours.data == theirs.data


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(ITEM_SIZE)),
            st.lists(st.integers(0, 12), max_size=3).map(tuple),
            st.integers(1, 40),
            st.integers(1, 5),
            st.sampled_from(["on", "off", "none"]),
        ),
        max_size=5,
    ),
    st.integers(0, 3),
)
def test_any_small_snapshot_is_written_as_the_slow_reference_does(
    shapes: list[tuple[str, tuple[int, ...], int, int, str]], seed: int
) -> None:
    source = snapshot(
        *(
            (
                dtype,
                shape,
                None if state == "none" else Rows(per_chunk, row * ITEM_SIZE[dtype], state == "on"),
            )
            for dtype, shape, per_chunk, row, state in shapes
        ),
        seed=seed,
    )
    assert dumps(source) == slow_dumps(source)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_array_is_authenticated_with_the_key(threads: int) -> None:
    source = SNAPSHOTS["short, long, short"]
    text = dumps(source, threads=threads, hmac_key=b"key")
    weights = read(memoryview(text), hmac_key=b"key", threads=threads)
    assert weights.report.authenticated
    for array in weights.snapshot.arrays:
        assert array.salt == digest.salt_for(b"key", 7, array.name)
        mac = digest.array_hmac(b"key", array.salt)
        mac.update(array.data)
        assert array.hmac == mac.digest()


def test_the_header_is_signed_up_to_the_sign_line() -> None:
    seen: list[bytes] = []

    def sign(message: bytes) -> Signature:
        seen.append(message)
        return digest.sign(bytes(32), message)

    text = dumps(SNAPSHOTS["several chunks"], sign=sign)
    head, _, _ = text.partition(b"sign ed25519=")
    assert set(seen) == {head}
    assert text.replace(text[len(head) : text.index(b"arr ")], b"") == dumps(
        SNAPSHOTS["several chunks"]
    )


def test_progress_counts_every_byte_once() -> None:
    counts: list[int] = []
    source = SNAPSHOTS["work for several threads"]
    writer = TextWriter(source, threads=2, progress=counts.append)
    b"".join(writer.stream())
    assert sum(counts) == writer.raw_size == sum(a.data.nbytes for a in source.arrays)


def one(name: str = "W", dtype: str = "u8", shape: tuple[int, ...] = (3,), **more: object) -> Array:
    return Array(name, dtype, shape, memoryview(b"abc"), **more)  # type: ignore[arg-type]


def holding(*arrays: Array, **more: object) -> Snapshot:
    return Snapshot(Meta(), arrays, CAP, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source",
    [
        holding(one("")),
        holding(one("a-b")),
        holding(one("é")),
        holding(one("b"), one("a")),
        holding(one("a"), one("a")),
        holding(one(dtype="f16")),
        holding(one(shape=(2,))),
        holding(one(shape=(4,))),
        holding(one(dtype="u16")),
        holding(one(rows=Rows(0, 1))),
        holding(one(rows=Rows(1, 0))),
        holding(one(rows=Rows(-1, -1))),
        holding(one(dtype="u16", shape=(1,), rows=Rows(1, 3))),
        holding(one(), pending=True, signature=Signature(bytes(64), "0" * 16)),
        Snapshot(Meta(), (), ()),
        Snapshot(Meta(ts="x"), (), CAP),
    ],
)
def test_a_snapshot_that_no_text_can_hold_is_refused(source: Snapshot) -> None:
    with pytest.raises(TextError):
        dumps(source)


@pytest.mark.parametrize(
    "source",
    [
        holding(one(), prev=b"short"),
        holding(one(), prev=bytes(33)),
        holding(one(rows=Rows(10**20, 1))),
        holding(one("_layout")),
        holding(one(shape=(-1, -3))),
        holding(signature=Signature(b"short", "0" * 16)),
        holding(signature=Signature(bytes(64), "short")),
    ],
    ids=[
        "prev too short",
        "prev too long",
        "rows_per_chunk of 21 digits",
        "_layout that is none",
        "two negative dimensions",
        "signature too short",
        "keyid too short",
    ],
)
def test_the_writer_gives_no_text_that_the_reader_refuses(source: Snapshot) -> None:
    try:
        text = dumps(source)
    except TextError:
        return
    read(memoryview(text))
