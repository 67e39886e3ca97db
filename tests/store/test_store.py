"""A store: what is added is read, by any number of processes at once, and damage is told."""

from __future__ import annotations

import errno
import os
import sys
import threading
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import Repo
from tests.store.chunks import (
    SIZE,
    added,
    bf16,
    damage,
    lie,
    named,
    nbytes,
    packs,
    trained,
    weights,
)
from wtxtgit.errors import EnvironmentFailure, PayloadDamaged, PayloadMissing
from wtxtgit.git.repository import Repository
from wtxtgit.store import encoding, writer
from wtxtgit.store import folder as store_folder
from wtxtgit.store.decoding import decode
from wtxtgit.store.encoding import encode, encode_based
from wtxtgit.store.folder import ChunkTable, PackFolder, together
from wtxtgit.store.pack import MAX_DEPTH, XOR, ChunkEntry
from wtxtgit.store.place import store_of
from wtxtgit.store.reading import MAX_HELD
from wtxtgit.store.store import Store

NOWHERE = Path("/nowhere")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def again(store: Store) -> Store:
    """The same store as another process sees it."""
    return Store(store.folder)


class TestAdding:
    def test_what_is_added_is_there_and_read(self, store: Store) -> None:
        chunks = [*weights(3), b"", b"x", bytes(100_000)]
        names = added(store, chunks)
        for seen in (store, again(store)):
            assert seen.has([*names, bytes(32)]) == set(names)
            assert [bytes(seen.read(name)) for name in names] == chunks
        assert len(packs(store)) == 1

    def test_what_is_there_is_not_added_again(self, store: Store) -> None:
        chunks = weights(2)
        added(store, [*chunks, *chunks])
        before = packs(store)
        added(again(store), chunks)
        added(again(store), [])
        assert packs(store) == before
        assert nbytes(store) < 2 * SIZE

    def test_an_empty_store_has_nothing(self, store: Store) -> None:
        assert store.has([bytes(32)]) == set() == store.has([])
        with pytest.raises(PayloadMissing, match="00000000: not in the store") as error:
            store.read(bytes(32))
        assert error.value.exit_code == 5
        assert not store.folder.exists()

    def test_a_chunk_of_another_size_is_none(self, store: Store) -> None:
        (name,) = added(store, weights(1))
        assert len(store.read(name, SIZE)) == SIZE
        with pytest.raises(PayloadMissing):
            store.read(name, SIZE + 1)

    def test_packs_are_no_larger_than_they_may(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        most = 4 * SIZE
        monkeypatch.setattr(writer, "MAX_PACK", most)
        large = np.random.default_rng(3).bytes(2 * most)
        chunks = [*weights(6), large, *weights(6, seed=4)]
        names = added(store, chunks)
        sizes = sorted(path.stat().st_size for path in packs(store))
        assert sizes[-1] > len(large)
        assert all(SIZE < size <= most for size in sizes[:-1])
        assert [bytes(again(store).read(name)) for name in names] == chunks
        for path in packs(store):
            assert path.name == f"{sha256(path.read_bytes()).hexdigest()}.pack"
            assert not path.stat().st_mode & 0o222

    def test_noise_in_one_chunk_says_little_of_the_next_ones(self, store: Store) -> None:
        """What was found of the first chunk of a run is taken to hold for the others."""
        noise = np.random.default_rng(5).bytes(SIZE)
        text = b"".join(b"token %d\n" % n for n in range(2000))[:SIZE]
        chunks = [noise, *weights(2), bytes(SIZE), text]
        names = [named(chunk) for chunk in chunks]
        with store.writing() as writing:
            writing.put_all(names, memoryview(b"".join(chunks)), SIZE, 4, [None] * len(chunks))
        assert [bytes(again(store).read(name)) for name in names] == chunks
        together = again(store).read_all(names, SIZE)
        assert together is not None
        assert bytes(together) == b"".join(chunks)
        assert nbytes(store) < 3.7 * SIZE

    def test_a_failure_leaves_whole_packs_only(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "MAX_PACK", 4 * SIZE)
        chunks = weights(6)

        def failing() -> None:
            with store.writing() as writing:
                for chunk in chunks:
                    writing.put(named(chunk), memoryview(chunk), 4, None)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        whole = packs(store)
        assert len(whole) == 1
        assert 0 < len(again(store).has(map(named, chunks))) < 6
        names = added(again(store), chunks)
        assert [bytes(store.read(name)) for name in names] == chunks

    def test_several_threads(self, store: Store) -> None:
        chunks = [*weights(8), *weights(8)]
        with store.writing() as writing:
            threads = [
                threading.Thread(
                    target=writing.put, args=(named(chunk), memoryview(chunk), 4, None)
                )
                for chunk in chunks
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [bytes(again(store).read(named(chunk))) for chunk in chunks] == chunks
        assert nbytes(store) < 8 * SIZE

    def test_four_processes_at_once(self, store: Store) -> None:
        chunks = weights(12)
        children = []
        for number in range(4):
            child = os.fork()
            if not child:
                try:
                    own = again(store)
                    for chunk in (*chunks[:6], *chunks[number * 3 :]):
                        added(own, [chunk])
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        assert [bytes(again(store).read(named(chunk))) for chunk in chunks] == chunks
        assert [bytes(store.read(named(chunk))) for chunk in chunks] == chunks


class TestEncodings:
    def ratio(self, chunks: list[bytes], item: int, before: list[bytes] | None = None) -> float:
        length = 0
        for number, chunk in enumerate(chunks):
            bases = [decode(*_entry(before[number], item), [])] if before else []
            length += encode_based(memoryview(chunk), item, bases)[0].length
        return length / sum(map(len, chunks))

    def test_weights_are_smaller_by_their_exponents(self) -> None:
        large = [b"".join(weights(4))]
        assert self.ratio(large, 4) < 0.86
        assert self.ratio([bf16(large[0])], 2) < 0.69

    def test_a_step_of_training_is_small(self) -> None:
        old = [b"".join(weights(4))]
        new = trained(old)
        assert self.ratio(new, 4, old) < 0.56
        assert self.ratio([bf16(new[0])], 2, [bf16(old[0])]) < 0.1

    def test_some_changed_values_are_nothing(self) -> None:
        old = b"".join(weights(4))
        new = bytearray(old)
        new[40_000:40_400] = bytes(400)
        assert self.ratio([bytes(new)], 4, [old]) < 0.01

    @pytest.mark.parametrize("parameter", [None, 10**6])
    def test_what_codes_single_bytes_saves_only_time(
        self, parameter: int | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is not installed, or its zstd has no such parameter."""
        if parameter is None:
            monkeypatch.setitem(sys.modules, "backports", None)
            monkeypatch.setitem(sys.modules, "compression", None)
        else:
            monkeypatch.setattr(encoding, "_LITERALS", parameter)
        monkeypatch.setattr(encoding, "_own", encoding._Encoders())
        old = b"".join(weights(4))
        known = decode(*_entry(old, 4), [])
        new = trained([old])[0]
        encoded, number = encode_based(memoryview(new), 4, [known])
        assert (number, encoded.encoding) == (0, XOR)
        entry = ChunkEntry(
            named(new), 0, encoded.length, len(new), (named(old),), XOR, encoded.item, 1
        )
        assert decode(entry, memoryview(b"".join(encoded.pieces)), [known]).plain() == new
        assert encoded.length < 0.58 * len(new)

    def test_noise_is_stored(self) -> None:
        noise = np.random.default_rng(5).bytes(SIZE)
        assert self.ratio([noise], 1) == self.ratio([noise], 8) == 1

    def test_text_is_smaller(self) -> None:
        text = b"".join(b"token %d\n" % n for n in range(2000))
        assert self.ratio([text], 1) < 0.35

    @given(st.binary(max_size=400), st.sampled_from([1, 2, 3, 4, 8, 16]), st.data())
    def test_all_are_undone(self, chunk: bytes, item: int, data: st.DataObject) -> None:
        chunk = chunk * data.draw(st.sampled_from([1, 40]))
        base = data.draw(st.sampled_from([chunk, bytes(len(chunk)), chunk[::-1]]))
        known = decode(*_entry(base, data.draw(st.sampled_from([1, 2, 4]))), [])
        for bases in ([], [known]):
            encoded, number = encode_based(memoryview(chunk), item, bases)
            content = b"".join(encoded.pieces)
            assert len(content) == encoded.length
            depth = int(number is not None)
            entry = ChunkEntry(
                named(chunk), 0, encoded.length, len(chunk), (), encoded.encoding, encoded.item,
                depth,
            )  # fmt: skip
            assert decode(entry, memoryview(content), bases).plain() == chunk


def _entry(chunk: bytes, item: int) -> tuple[ChunkEntry, memoryview]:
    encoded = encode(memoryview(chunk), item)
    entry = ChunkEntry(
        named(chunk), 0, encoded.length, len(chunk), (), encoded.encoding, encoded.item, 0
    )
    return entry, memoryview(b"".join(encoded.pieces))


class TestBases:
    def test_a_chain_is_at_most_eight_long(self, store: Store) -> None:
        """In each version another row is changed: the version before is the nearest."""
        chance = np.random.default_rng(6)
        versions = [weights(1)[0]]
        added(store, versions)
        first = nbytes(store)
        for number in range(MAX_DEPTH + 3):
            changed = bytearray(versions[-1])
            changed[number * 512 : number * 512 + 256] = chance.bytes(256)
            versions.append(bytes(changed))
            added(Store(store.folder), versions[-1:], before=versions[-2:-1])
        last = again(store)
        depths = [last.own.copies(named(chunk))[0][1].depth for chunk in versions]
        assert depths == [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
        assert nbytes(store) - first < (10 + 9) * 256 + 11 * 300
        assert [bytes(last.read(named(chunk))) for chunk in versions] == versions

    def test_training_keeps_chains_short(self, store: Store) -> None:
        versions = [weights(2)]
        added(store, versions[0])
        first = nbytes(store)
        for number in range(6):
            versions.append(trained(versions[-1], seed=number))
            added(again(store), versions[-1], before=versions[-2])
        last = again(store)
        assert nbytes(store) - first < 6 * 0.72 * first
        for version in versions:
            assert [bytes(last.read(named(chunk))) for chunk in version] == version
            assert max(last.own.copies(named(chunk))[0][1].depth for chunk in version) < 3

    @pytest.mark.parametrize("item", [2, 4])
    def test_rows_that_moved_are_found(self, store: Store, item: int) -> None:
        """Rows are put in, again and again, and at last taken out."""
        values = b"".join(weights(12))
        row = 256 * item
        versions = [values]
        for number, rows in enumerate((1, 5, 70)):
            new = np.random.default_rng(number).bytes(rows * row)
            values = values[: 7 * row] + new + values[7 * row :]
            versions.append(values)
        versions.append(values[: 9 * row] + values[100 * row :])
        cut = [[v[at : at + SIZE] for at in range(0, len(v), SIZE)] for v in versions]
        before: list[bytes] = []
        for version, (chunks, values) in enumerate(zip(cut, versions, strict=True)):
            size = nbytes(store)
            with again(store).writing() as writing:
                for number, chunk in enumerate(chunks):
                    base = named(before[number]) if number < len(before) else None
                    writing.put(named(chunk), memoryview(chunk), item, base)
            grown = nbytes(store) - size
            rows = max(0, len(values) - len(versions[max(0, version - 1)]))
            assert version == 0 or grown < rows + 2 * SIZE + 200 * len(chunks), version
            before = chunks
        last = again(store)
        for chunks in cut:
            assert [bytes(last.read(named(chunk))) for chunk in chunks] == chunks
            assert max(last.own.copies(named(chunk))[0][1].depth for chunk in chunks) < 4

    def test_a_base_that_is_not_there_is_done_without(self, store: Store) -> None:
        chunks = weights(2)
        names = added(store, trained(chunks), before=chunks)
        assert store.has(names) == set(names)

    def test_a_damaged_base_is_no_base(self, store: Store) -> None:
        old = weights(1)
        added(store, old)
        damage(packs(store)[0], at=100)
        new = trained(old)
        (name,) = added(again(store), new, before=old)
        assert bytes(again(store).read(name)) == new[0]

    def test_chunks_of_alternates_are_read_but_are_no_bases(
        self, store: Store, tmp_path: Path
    ) -> None:
        old, new = weights(2), trained(weights(2))
        added(store, old)
        other = Store(tmp_path / "other", alternates=[store.folder])
        assert other.has(map(named, old)) == set(map(named, old))
        added(other, [old[0], *new], before=[new[0], *old])
        (store.folder / "packs").rename(tmp_path / "gone")
        assert [bytes(Store(other.folder).read(named(chunk))) for chunk in new] == new
        assert not Store(other.folder).has([named(old[0])])


class TestDamage:
    def test_the_next_copy_is_taken(self, store: Store, tmp_path: Path) -> None:
        chunks = weights(2)
        names = added(store, chunks)
        other = Store(tmp_path / "other")
        added(other, chunks[:1])
        added(other, chunks[1:])
        damage(packs(store)[0], at=100)
        name = next(iter(store.has(names) & {names[0]}))
        with pytest.raises(PayloadDamaged, match=packs(store)[0].name) as error:
            again(store).read(name)
        assert error.value.exit_code == 3
        both = Store(store.folder, alternates=[other.folder])
        assert [bytes(both.read(name)) for name in names] == chunks
        for path in packs(other):
            path.rename(store.folder / "packs" / path.name)
        assert [bytes(again(store).read(name)) for name in names] == chunks

    def test_a_damaged_base_has_another_copy(self, store: Store, tmp_path: Path) -> None:
        old, new = weights(2), trained(weights(2))
        added(store, old)
        damage(packs(store)[0], at=100)
        damaged = packs(store)[0]
        whole = Store(tmp_path / "whole")
        added(whole, old)
        added(whole, new, before=old)
        for path in packs(whole):
            if path.name != damaged.name:
                path.rename(store.folder / "packs" / path.name)
        with pytest.raises(PayloadDamaged, match="can't be decoded without its base"):
            again(store).read(named(new[0]))
        third = Store(tmp_path / "third")
        added(third, [*old, b"that it has another name"])
        both = Store(store.folder, alternates=[third.folder])
        assert [bytes(both.read(named(chunk))) for chunk in new] == new

    @pytest.mark.parametrize("is_borrowed", [False, True])
    def test_a_chunk_that_is_not_what_a_pack_says_is_added(
        self, store: Store, tmp_path: Path, is_borrowed: bool
    ) -> None:
        chunks = weights(20)
        names = added(store, chunks)
        lie(store)
        here = Store(tmp_path / "here", alternates=[store.folder]) if is_borrowed else store
        # All at once, and one alone, beside what is whole.
        with here.writing() as writer:
            writer.put_all(names[:16], memoryview(b"".join(chunks[:16])), SIZE, 4, [None] * 16)
            writer.put(names[17], memoryview(chunks[17]), 4)
        for n in (*range(16), 17):
            assert Store(here.folder).read(names[n]) == chunks[n]
        for n in (16, 18, 19):
            with pytest.raises(PayloadDamaged if not is_borrowed else PayloadMissing):
                Store(here.folder).read(names[n])
        before = nbytes(here)
        added(here, chunks[:16])
        assert nbytes(here) == before

    def test_a_truncated_pack_is_told_and_added_anew(self, store: Store) -> None:
        chunks = weights(2)
        names = added(store, chunks)
        (path,) = packs(store)
        path.chmod(0o644)
        os.truncate(path, 1000)
        with pytest.raises(PayloadMissing, match=rf"{path.name} is cut short"):
            again(store).read(names[0])
        added(again(store), chunks)
        assert [bytes(again(store).read(name)) for name in names] == chunks

    def test_a_pack_that_went_is_looked_for_elsewhere(self, store: Store) -> None:
        chunks = weights(2)
        names = added(store, chunks)
        # Writes the index, so that the other one need not open the pack.
        assert again(store).has(names) == set(names)
        other = again(store)
        assert other.has(names) == set(names)
        (path,) = packs(store)
        path.rename(path.with_name("aside"))
        with pytest.raises(PayloadMissing):
            other.read(names[0])
        added(again(store), [*chunks, b"more"])
        assert [bytes(other.read(name)) for name in names] == chunks

    @pytest.mark.parametrize("content", [b"", b"WTXTSIDX", bytes(10_000), None])
    def test_the_index_is_made_again(self, store: Store, content: bytes | None) -> None:
        names = added(store, weights(2))
        assert again(store).has(names) == set(names)
        index = store.folder / "index"
        whole = index.read_bytes()
        index.unlink()
        if content is None:
            index.mkdir()
        else:
            index.write_bytes(content)
        assert again(store).has(names) == set(names)
        assert content is None or index.read_bytes() == whole

    def test_what_can_not_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        store = Store(tmp_path / "file" / "store")
        with pytest.raises(EnvironmentFailure, match="file/store/packs: not a directory"):
            added(store, weights(1))


def new_repo(folder: Path) -> Repo:
    folder.mkdir()
    repo = Repo(folder)
    repo.git("init", "-q")
    return repo


class TestTables:
    """What says where chunks are: of any number of them, and whatever their names are."""

    @given(
        st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), unique=True)),
        st.integers(1, 20),
    )
    def test_of_several_one_is_made(self, packs_of: list[list[tuple[int, int]]], some: int) -> None:
        parts = []
        wanted = []
        for number, pairs in enumerate(packs_of):
            # Names may have any bytes in common.
            names = sorted(bytes([head] * 8 + [0] * 16 + [tail] * 8) for head, tail in pairs)
            pack = f"{number:064x}"
            wanted += [(name, pack, row) for row, name in enumerate(names)]
            packs, rows = np.zeros(len(names), "<u4"), np.arange(len(names), dtype="<u4")
            parts.append(ChunkTable([(pack, 1000)], b"".join(names), packs.data, rows.data))
        with pytest.MonkeyPatch.context() as patch:
            # A part of the rows at a time, and more of them than stay in memory.
            patch.setattr(store_folder, "_MERGED", some)
            table = together(parts, NOWHERE)
        names = [name for name, _, _ in sorted(wanted)]
        assert bytes(table.names) == b"".join(names)
        for name in set(names):
            assert table.find(name) == [(p, row) for n, p, row in sorted(wanted) if n == name]
        assert table.find(bytes([9] * 32)) == []
        # One of which another has the head, and two that are before and behind all of them.
        asked = [*names, bytes([1] * 31 + [9]), bytes(32), bytes([255] * 32)]
        assert table.find_all(asked) == [table.find(name) for name in asked]
        # What was asked for before is known, and few are looked for one by one.
        again = together(parts, NOWHERE)
        for few in (asked[-1:], asked[:1], [*asked[1:], asked[-1]], asked):
            assert again.find_all(few) == [table.find(name) for name in few]
            assert again.among(few) == {name for name in few if table.find(name)}
            assert again.holding(few) == {pack for name in few for pack, _ in table.find(name)}

    def test_a_large_one_is_in_a_file(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        names = added(store, weights(4))
        monkeypatch.setattr(store_folder, "_MERGED", 2)
        own = PackFolder(store.folder)
        own.prove()
        table = own._all_tables()[0]
        assert [len(table.find(name)) for name in names] == [1] * 4
        # It has no name there.
        assert {path.name for path in store.folder.iterdir()} <= {"packs", "index"}
        assert [again(store).read(name) for name in names] == weights(4)


class TestPlace:
    def test_work_trees_share_it_and_alternates_are_read(self, tmp_path: Path) -> None:
        first = new_repo(tmp_path / "first")
        first.commit()
        store = store_of(first.repository)
        names = added(store, weights(1))
        assert store.folder == first.path / ".git/wtxt/store"
        first.git("worktree", "add", "-q", str(tmp_path / "tree"))
        assert store_of(Repository.discover(tmp_path / "tree")).folder == store.folder
        first.git("clone", "-q", "--shared", str(first.path), str(tmp_path / "clone"))
        borrowing = store_of(Repository.discover(tmp_path / "clone"))
        assert borrowing.has(names) == set(names)
        assert borrowing.folder != store.folder

    def test_it_is_shared_as_the_repository_is(self, tmp_path: Path) -> None:
        repo = new_repo(tmp_path / "repo")
        before = os.umask(0o077)
        try:
            added(store_of(repo.repository), weights(1))
            private = packs(store_of(repo.repository))[0].stat().st_mode & 0o777
            repo.git("config", "core.sharedRepository", "group")
            repo.git("config", "wtxtgit.storePath", str(tmp_path / "team" / "store"))
            added(store_of(repo.repository), weights(1))
        finally:
            os.umask(before)
        assert private == 0o400
        (path,) = packs(store_of(repo.repository))
        assert path.stat().st_mode & 0o777 == 0o440
        for folder in path.parents[:3]:
            assert folder.stat().st_mode & 0o7777 == 0o2770

    def test_it_may_be_elsewhere(self, tmp_path: Path) -> None:
        repo = new_repo(tmp_path / "repo")
        for value, folder in (
            (str(tmp_path / "big"), tmp_path / "big"),
            ("near", repo.path / ".git/near"),
        ):
            repo.git("config", "wtxtgit.storePath", value)
            assert store_of(repo.repository).folder == folder


def test_a_full_disk_is_told_and_leaves_whole_packs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_PACK", 4 * SIZE)
    chunks = weights(12)
    added(store, chunks[:1])
    true = os.pwrite
    room = 6 * SIZE

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal room
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= len(data)
        return true(descriptor, data, offset)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", pwrite)
        with pytest.raises(EnvironmentFailure, match="store/packs: no space left on device"):
            added(store, chunks[1:])
    there = again(store).has(map(named, chunks))
    assert named(chunks[0]) in there
    assert len(there) < 12
    for name in there:
        assert again(store).read(name)
    added(again(store), chunks)
    assert [bytes(again(store).read(named(chunk))) for chunk in chunks] == chunks


class TestTogether:
    """`Store.read_all`: chunks that follow one another, in one piece."""

    @pytest.mark.parametrize("item", [1, 2, 4, 8])
    def test_the_same_as_one_by_one(self, store: Store, item: int) -> None:
        first = weights(3)
        noise = np.random.default_rng(5).bytes(SIZE)
        chunks = [*first, noise, bytes(SIZE), *trained(first)]
        names = added(store, chunks[:5], item) + added(store, chunks[5:], item, before=first)
        for some in (slice(0, 3), slice(0, 5), slice(5, 8), slice(0, 8), slice(0, 1)):
            data = again(store).read_all(names[some], SIZE)
            assert data is not None
            assert bytes(data) == b"".join(chunks[some])

    def test_copies_in_several_places(self, store: Store, tmp_path: Path) -> None:
        """Rows that moved, what alternates have, and what is in two packs."""
        first, rows = weights(6), weights(1, seed=9)[0][:1024]
        values = rows + b"".join(first)
        moved = [values[at : at + SIZE] for at in range(0, 6 * SIZE, SIZE)]
        other = Store(tmp_path / "other")
        added(other, [*first[:2], *moved[2:4]])
        added(store, first)
        names = added(again(store), moved, before=first)
        for path in packs(other):
            os.link(path, store.folder / "packs" / path.name)
        lent = Store(tmp_path / "lent")
        names += added(lent, trained(weights(2)))
        chunks = [*moved, *trained(weights(2))]
        both = Store(store.folder, alternates=[lent.folder])
        for some in (slice(0, 6), slice(4, 8), slice(7, 8)):
            data = both.read_all(names[some], SIZE)
            assert data is not None
            assert bytes(data) == b"".join(chunks[some])

    def test_what_is_not_so_simple_is_left(self, store: Store, tmp_path: Path) -> None:
        chunks = weights(3)
        names = added(store, chunks)
        assert store.read_all(names, SIZE) is not None
        assert store.read_all([*names, bytes(32)], SIZE) is None
        assert store.read_all(names, SIZE - 4) is None
        assert store.read_all(names, 0) is None
        large = bytes(MAX_HELD + 1)
        (name,) = added(store, [large])
        assert store.read_all([name], len(large)) is None
        assert len(store.read(name)) == len(large)

    def test_a_damaged_chunk_is_not_given(self, store: Store) -> None:
        names = added(store, weights(3))
        (pack,) = packs(store)
        damage(pack, 100)
        assert again(store).read_all(names, SIZE) is None
