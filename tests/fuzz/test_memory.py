"""Hostile claims: no reader allocates more than a constant times what it was given."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from tests.data import case_named, fixture
from tests.fuzz.container_oracle import peak_of
from wtxtgit.containers.any_format import describe, split
from wtxtgit.errors import WtxtgitError
from wtxtgit.filter.clean import clean
from wtxtgit.filter.smudge import smudge
from wtxtgit.model.array import Array, Extent, Layout, Meta, Snapshot
from wtxtgit.text.arrays import LazySnapshot, read
from wtxtgit.text.grammar import CAP
from wtxtgit.text.layout import format_layout
from wtxtgit.text.verify import verify
from wtxtgit.text.write import dumps

BASE = 6 * 1024 * 1024
"""For the modules that are loaded on the way, and blocks of a fixed size."""
FACTOR = 40

HEAD = (
    b"WTXT 1\n"
    b"meta schema=weights/v1 gen=000000 ts=1970-01-01T00:00:00Z build=none endian=LE host=any "
    b"cuda=off\ncap ext=crc32c\n"
    b"root sha256_all=%b merkle_prev=%b merkle_this=%b fastxor=%b\n"
) % (b"0" * 64, b"0" * 64, b"0" * 64, b"0" * 16)
LINE = b"A" * 76 + b" 0\n"
END = b"endch\nendarr\nendwtxt\n"


def arr(shape: bytes, nbytes: bytes, dtype: bytes = b"u8") -> bytes:
    zeros = b"0" * 64
    return b"arr name=W dtype=%b shape=%b order=C bytes=%b sha256=%b hmac=%b salt=%b\n" % (
        dtype, shape, nbytes, zeros, zeros, b"0" * 16,
    )  # fmt: skip


def idx(rows: bytes, row: bytes) -> bytes:
    return b"idx rows_per_chunk=%b row_size=%b row_blocking=on\n" % (rows, row)


def ch(size: bytes, lines: bytes) -> bytes:
    return (
        b"ch ix=000000 off=000000000000 len=%b sha256=%b crc32c=00000000 b64=on width=76 "
        b"lines=%b\n" % (size, b"0" * 64, lines)
    )


TB = b"1000000000000"
TB_LINES = str(-(-(10**12) // 57)).encode()
HUGE = b"9" * 20
HUGE_LINES = str(-(-(10**20 - 1) // 57)).encode()

TEXTS = {
    "an array of 1 TB in one chunk": HEAD + arr(TB, TB) + idx(TB, b"1") + ch(TB, TB_LINES) + END,
    "an array of 1 TB and some lines": HEAD
    + arr(TB, TB)
    + idx(TB, b"1")
    + ch(TB, TB_LINES)
    + LINE * 500
    + END,
    "an array of 10**20 bytes": HEAD
    + arr(HUGE, HUGE)
    + idx(HUGE, b"1")
    + ch(HUGE, HUGE_LINES)
    + LINE * 3
    + END,
    "a million chunks": HEAD + arr(b"1000000", b"1000000") + idx(b"1", b"1") + ch(b"1", b"1") + END,
    "more chunks than have numbers": HEAD + arr(HUGE, HUGE) + idx(b"1", b"1") + END,
    "chunks without idx": HEAD + arr(TB, TB) + ch(b"32768", b"575") + LINE * 100,
    "a shape of many dimensions": HEAD + arr(b",".join([b"1"] * 50_000) + b",8", b"8"),
    "a shape of many large dimensions": HEAD + arr(b",".join([HUGE] * 20_000), b"8"),
    "a shape with a zero among large dimensions": HEAD
    + arr(b",".join([HUGE] * 20_000) + b",0", b"0"),
    "a line without an end": HEAD + b"arr name=" + b"W" * 500_000,
    "a cap without an end": HEAD.split(b"cap")[0] + b"cap ext=" + b"a," * 200_000,
    "many empty lines": HEAD + b"\n" * 300_000,
    "many spaces": b"WTXT 1\nmeta " + b" " * 300_000,
    "a number of many digits": HEAD + arr(b"1" * 300_000, b"8"),
    "an audit line of many quotes": HEAD + b"audit " + b'a="" ' * 60_000 + b"\n",
    "a chunk that goes on": case_named("valid/one_byte.wtxt").text.split(b"endch")[0] * 300,
    "huge_claim of the vectors": case_named("invalid/huge_claim.wtxt").text,
    "layout_zero_bomb of the vectors": case_named("invalid/layout_zero_bomb.wtxt").text,
}


def with_raw_layout(raw: bytes, schema: str = "opaque/v1", *arrays: Array) -> bytes:
    layout = Array("_layout", "u8", (len(raw),), memoryview(raw))
    said = Layout("opaque", 0, ())
    return dumps(Snapshot(Meta(schema=schema), (layout, *arrays), (*CAP, "layout"), layout=said))


def spelled(extents: bytes, size: int) -> bytes:
    return b'{"extents":[%b],"format":"opaque","size":%d,"v":1}' % (extents, size)


LAYOUTS = {
    "deep lists": b"[" * 200_000,
    "deep extents": spelled(b"[" * 100_000 + b"]" * 100_000, 0),
    "a number of many digits": spelled(b"", 0).replace(b"0", b"9" * 200_000),
    "an exponent": spelled(b"", 0).replace(b"0", b"1e999999999"),
    "zeros over the limit": spelled(b",".join([b'{"zeros":65536}'] * 3000), 65_536 * 3000),
    "a run of 10**19 zeros": spelled(b'{"zeros":10000000000000000000}', 10**19),
    "a size of 10**19": spelled(b"", 10**19),
    "many keys": b"{" + b",".join(b'"%d":1' % k for k in range(20_000)) + b"}",
    "a string without an end": b'{"a":"' + b"x" * 200_000,
    "many escapes": spelled(b'{"array":"' + b"\\ud800" * 30_000 + b'"}', 0),
}


def refused(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            call()
        except WtxtgitError:
            return

    return run


def check_text_memory(text: bytes) -> None:
    view = memoryview(text)
    bound = BASE + FACTOR * len(text)
    assert peak_of(lambda: verify(view)) < bound
    assert peak_of(lambda: verify(view, wsum=text[:1000])) < bound
    assert peak_of(lambda: smudge(view)) < bound
    assert peak_of(lambda: clean(view)) < bound
    assert peak_of(refused(lambda: LazySnapshot(view))) < bound
    assert peak_of(refused(lambda: read(view))) < bound


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_with_hostile_claims_is_refused_within_its_own_size(name: str) -> None:
    text = TEXTS[name]
    assert not verify(memoryview(text)).ok
    check_text_memory(text)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_hostile_layout_is_refused_within_its_own_size(name: str) -> None:
    text = with_raw_layout(LAYOUTS[name])
    assert [problem.kind for problem in verify(memoryview(text)).problems] == ["layout"]
    check_text_memory(text)


def test_the_most_zeros_that_are_allowed_are_given_run_by_run() -> None:
    runs = tuple(Extent(zeros=65_536) for _ in range(256))
    raw = format_layout(Layout("opaque", 256 * 65_536, runs))
    text = with_raw_layout(raw)
    view = memoryview(text)
    assert verify(view).ok
    smudged = smudge(view)
    assert sum(len(piece) for piece in smudged.pieces()) == 16 * 1024 * 1024


def numbers_changed(path: str, width: str, value: int) -> list[bytes]:
    """The file with each aligned field of its first 200 bytes set to `value`."""
    data = fixture(path)
    size = struct.calcsize(width)
    field = struct.pack(width, value)
    return [data[:at] + field + data[at + size :] for at in range(0, min(200, len(data)), 4)]


FILES: dict[str, list[bytes]] = {
    "safetensors with a header of 2**40 bytes": [struct.pack("<Q", 2**40) + b'{"a":1}'],
    "safetensors with a header of 2**63 bytes": [struct.pack("<Q", 2**63) + b'{"a":1}'],
    "safetensors with deep JSON": [
        struct.pack("<Q", 100_000) + b"{" + b'"a":{' * 19_000 + b" " * 99_999
    ],
    "safetensors with large shapes": [
        struct.pack("<Q", len(header)) + header
        for header in [
            json.dumps(
                {"a": {"dtype": "F32", "shape": [2**62] * 999, "data_offsets": [0, 0]}}
            ).encode()
        ]
    ],
    "fold with every field huge": numbers_changed("fold/none_sten_alldtypes_a.fold", "<Q", 2**62),
    "fold with every count huge": numbers_changed("fold/none_json_a.fold", "<I", 2**31 - 1),
    "fold with big-endian fields huge": numbers_changed("fold/none_json_a.fold", ">Q", 2**40),
    "aero with every field huge": numbers_changed("aero/all_dtypes_a.aero", "<Q", 2**62),
    "aero with every count huge": numbers_changed("aero/all_dtypes_a.aero", "<I", 2**32 - 1),
    "mlcp with every count huge": numbers_changed("mlcp/all_dtypes_a.checkpoint", "<i", 2**31 - 1),
    "mlcp with every size huge": numbers_changed("mlcp/one_shard_a.checkpoint", "<q", 2**62),
    "taridx with every count huge": numbers_changed(
        "taridx/collisions_a/train.taridx", "<Q", 2**62
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_hostile_counts_is_read_within_its_own_size(name: str) -> None:
    for data in FILES[name]:
        view = memoryview(data)
        bound = BASE + FACTOR * len(data)
        assert peak_of(lambda view=view: split(view)) < bound
        assert peak_of(refused(lambda view=view: describe(view))) < bound


@pytest.mark.parametrize(
    "payload",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        msgpack.packb({"tensors": [{"name": "a", "shape": [2**63] * 500}]}),
    ],
    ids=["array32", "map32", "str32", "bin32", "deep", "shape"],
)
def test_an_aero_index_with_hostile_msgpack_is_read_within_its_own_size(payload: bytes) -> None:
    data = fixture("aero/low_minimal_a.aero")
    for at in range(96, len(data), 16):
        changed = memoryview(data[:at] + payload + data[at + len(payload) :])
        bound = BASE + FACTOR * len(changed)
        assert peak_of(lambda view=changed: split(view)) < bound
        assert peak_of(refused(lambda view=changed: describe(view))) < bound


CHILD = """
import resource, sys
from wtxtgit.checkpoint.verify import demands, verify_files
from pathlib import Path
limit = int(sys.argv[1])
for name in sys.argv[2:]:
    verify_files([Path(name)], demands())
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used() + limit, resource.RLIM_INFINITY))
for name in sys.argv[2:]:
    verdict = verify_files([Path(name)], demands(), threads=1)
    assert not verdict.ok, name
print("done")
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="there is no /proc here: run it on Linux"
)
def test_hostile_texts_are_refused_under_a_limit_of_address_space(tmp_path: Path) -> None:
    names = []
    for number, text in enumerate(TEXTS.values()):
        path = tmp_path / f"{number}.wtxt"
        path.write_bytes(text)
        names.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(96 * 1024 * 1024), *names],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")
