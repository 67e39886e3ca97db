"""Packs: the page's example, and that lies in an index are refused."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.containers.zip_files import example
from tests.docs.pages import prose
from tests.store.chunks import added, named, trained, weights
from wtxtgit.errors import FormatError, PayloadDamaged, PayloadMissing, WtxtgitError
from wtxtgit.store.pack import (
    HEAD,
    PREFIX,
    STORED,
    XOR,
    ZSTD,
    ChunkEntry,
    format_end,
    index_of,
    parse_index,
)
from wtxtgit.store.store import Store

PAGE, EXAMPLE = "docs/spec/store.md", "A worked example in bytes"


def placed(folder: Path, content: bytes) -> Store:
    """A store of one pack."""
    path = folder / "packs" / f"{sha256(content).hexdigest()}.pack"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Store(folder)


def pack_of(*entries: tuple[ChunkEntry, bytes]) -> bytes:
    """A pack of these entries, with whatever they say."""
    body = b"".join(encoded for _, encoded in entries)
    return HEAD + body + format_end(index_of([e for e, _ in entries]), len(HEAD) + len(body))


def entry(data: bytes, **other: object) -> ChunkEntry:
    made = ChunkEntry(named(data), len(HEAD), len(data), len(data), (), STORED, 1, 0)
    return made._replace(**other)  # type: ignore[arg-type]


class TestExample:
    def test_its_chunks_are_read(self, tmp_path: Path) -> None:
        first = struct.pack("<32H", *range(0x3F80, 0x3FA0))
        second = first[:18] + b"\x8a\x3f" + first[20:]
        store = placed(tmp_path, example("store.md"))
        for chunk in (b"tiny", first, second):
            assert store.read(named(chunk)) == chunk

    def test_the_places_that_it_tells(self) -> None:
        data, said = example("store.md"), prose(PAGE, EXAMPLE)
        assert f"{sha256(data).hexdigest()}.pack" in said
        assert "The trailer, at 352, says that the index begins at 116, and has 3 chunks" in said
        assert struct.unpack_from("<3Q", data, 352) == (116, 3, 1)
        rows = [parse_index(memoryview(data)).entry(row) for row in range(3)]
        assert [(row.place, row.length, row.encoding) for row in rows] == [
            (78, 38, XOR), (20, 58, 2), (16, 4, STORED),
        ]  # fmt: skip
        assert rows[0].bases == (rows[1].name,) == (data[320:352],)
        told = {at: data[at] for at in (212, 236, 260, 284, 308, 311, 314)}
        assert list(told.values()) == [78, 38, 64, 1, 3, 2, 1]
        assert all(str(at) in said for at in told)


class TestRefused:
    """A pack that breaks a rule is damaged as a whole."""

    DATA = b"some bytes"

    @pytest.mark.parametrize(
        ("field", "other"),
        [
            ("place", {"place": 0}),
            ("place", {"place": 17}),
            ("place", {"place": 2**64 - 1}),
            ("length", {"length": 2**64 - 1}),
            ("place", {"length": 9}),
            ("size", {"size": 9}),
            ("size", {"size": 2**63, "encoding": ZSTD}),
            ("size", {"size": 10, "encoding": ZSTD}),
            ("encoding", {"encoding": 5}),
            ("item", {"item": 0}),
            ("item", {"item": 2}),
            ("item", {"item": 3, "encoding": XOR, "size": 30}),
            ("item", {"item": 4, "encoding": 2, "size": 30}),
            ("base", {"bases": (bytes(32),)}),
            ("base", {"encoding": XOR, "size": 30, "depth": 1}),
            ("base", {"encoding": XOR, "size": 30, "bases": (bytes(32), b"\1" * 32), "depth": 2}),
            ("depth", {"encoding": XOR, "size": 30, "bases": (bytes(32),)}),
            ("depth", {"encoding": XOR, "size": 30, "bases": (bytes(32),), "depth": 9}),
            ("depth", {"depth": 1}),
            ("size", {"encoding": PREFIX, "size": 2**17 + 1, "bases": (bytes(32),), "depth": 1}),
        ],
    )
    def test_a_lie_in_the_index(self, tmp_path: Path, field: str, other: dict[str, object]) -> None:
        content = pack_of((entry(self.DATA, **other), self.DATA))
        with pytest.raises(FormatError) as error:
            parse_index(memoryview(content))
        assert error.value.field == field
        store = placed(tmp_path, content)
        assert not store.has([named(self.DATA)])
        with pytest.raises(PayloadMissing, match=rf"packs/{sha256(content).hexdigest()}\.pack has"):
            store.read(named(self.DATA))

    @pytest.mark.parametrize(
        "change",
        [
            lambda content: content[:-1],
            lambda content: content[:100],
            lambda content: content[:7],
            lambda content: content[:0],
            lambda content: content + b"\0",
            lambda content: b"X" + content[1:],
            lambda content: content[:8] + b"\2" + content[9:],
            lambda content: content[:-64] + struct.pack("<3Q", 16, 2**60, 0) + content[-40:],
            lambda content: content[:-64] + struct.pack("<3Q", 2**63, 1, 0) + content[-40:],
            lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:],
        ],
    )
    def test_other_bytes(self, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
        content = change(pack_of((entry(self.DATA), self.DATA)))
        with pytest.raises(FormatError):
            parse_index(memoryview(content))
        assert not placed(tmp_path, content).has([named(self.DATA)])

    def test_a_name_that_is_there_twice(self) -> None:
        twice = (entry(self.DATA), self.DATA), (entry(self.DATA, place=26), self.DATA)
        with pytest.raises(FormatError, match="not in ascending order"):
            parse_index(memoryview(pack_of(*twice)))


class TestLies:
    """What an index can say without breaking a rule only makes errors."""

    def read(self, folder: Path, content: bytes, name: bytes) -> None:
        store = placed(folder, content)
        with pytest.raises(PayloadDamaged) as error:
            store.read(name)
        assert sha256(content).hexdigest() in error.value.message
        assert name.hex() in error.value.message
        for _, entry in store.own.copies(name):
            assert store.read_all([name, name], entry.size) is None

    def test_another_name(self, tmp_path: Path) -> None:
        content = pack_of((entry(b"other", name=named(b"wanted")), b"other"))
        self.read(tmp_path, content, named(b"wanted"))

    def test_no_zstd(self, tmp_path: Path) -> None:
        content = pack_of((entry(b"noise", encoding=ZSTD, size=100), b"noise"))
        self.read(tmp_path, content, named(b"noise"))

    def test_a_bomb_is_decoded_no_farther_than_the_size(self, tmp_path: Path) -> None:
        import tracemalloc

        import zstandard

        bomb = zstandard.ZstdCompressor(level=1).compress(bytes(512 * 1024 * 1024))
        for size in (1024 * 1024, 2**24):
            content = pack_of((entry(bomb, encoding=ZSTD, size=size), bomb))
            tracemalloc.start()
            self.read(tmp_path / str(size), content, named(bomb))
            assert tracemalloc.get_traced_memory()[1] < 24 * 1024 * 1024
            tracemalloc.stop()

    def test_bases_that_lead_in_a_circle(self, tmp_path: Path) -> None:
        import zstandard

        zeros = zstandard.ZstdCompressor().compress(bytes(100))
        one, two = b"\1" * 32, b"\2" * 32
        made = [
            entry(zeros, name=name, place=16 + n * len(zeros), encoding=XOR, size=100,
                  bases=(base,), depth=8)
            for n, (name, base) in enumerate(((one, two), (two, one)))
        ]  # fmt: skip
        content = pack_of(*((row, zeros) for row in made))
        self.read(tmp_path, content, one)

    def test_bases_that_double_at_each_step(self, tmp_path: Path) -> None:
        """Of hostile packs no more is decoded than of honest ones."""
        import zstandard

        data = b"\1" * 2**17
        frames = zstandard.ZstdCompressor(write_content_size=True)
        names = [bytes([n]) * 32 for n in range(10)]
        first = frames.compress(data)
        made = [(entry(first, name=names[0], encoding=ZSTD, size=len(data)), first)]
        for depth in range(1, 9):
            bases = (names[depth - 1],) * 2
            place = 16 + depth * len(first)
            made.append((
                entry(first, name=names[depth], place=place, encoding=PREFIX, size=len(data),
                      bases=bases, depth=depth),
                first,
            ))  # fmt: skip
        self.read(tmp_path, pack_of(*made), names[8])

    def test_a_base_that_is_too_large(self, tmp_path: Path) -> None:
        large = bytes(2**17 + 1)
        moved = entry(
            b"x", place=16 + len(large), encoding=PREFIX, size=100, bases=(named(large),), depth=1
        )
        self.read(tmp_path, pack_of((entry(large), large), (moved, b"x")), named(b"x"))

    def test_a_base_of_another_size(self, tmp_path: Path) -> None:
        import zstandard

        zeros = zstandard.ZstdCompressor().compress(bytes(100))
        base = entry(b"base")
        xor = entry(zeros, place=20, encoding=XOR, size=100, bases=(named(b"base"),), depth=1)
        self.read(tmp_path, pack_of((base, b"base"), (xor, zeros)), named(zeros))

    def test_no_changed_byte_changes_a_chunk(self, tmp_path: Path) -> None:
        """A changed byte makes an error or nothing, never another chunk."""
        old = [chunk[:256] for chunk in weights(2)]
        chunks = [*old, *(chunk[:256] for chunk in trained(old))]
        store = Store(tmp_path / "store")
        added(store, chunks, before=[*old, *old])
        (path,) = (tmp_path / "store" / "packs").iterdir()
        content = path.read_bytes()
        for at in range(0, len(content), 11):
            other = placed(
                tmp_path / str(at), content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]
            )
            with contextlib.suppress(WtxtgitError):
                together = other.read_all([named(chunk) for chunk in chunks], 256)
                assert together in (None, b"".join(chunks))
                for chunk in chunks:
                    assert other.read(named(chunk)) == chunk
