"""Very much of anything in what is no checkpoint by itself: packs, packets, keys, several files.

As in `test_limits.py` a reader takes at most 64 MiB and three times its input, of several inputs
for each of them, and its work grows with them alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from shutil import rmtree

import pytest
import zstandard

from tests.containers import distributed_pickles
from tests.data import cases, ledger_cases, signers_lines
from tests.fuzz.container_oracle import OPTIONS
from tests.fuzz.many import FILES, ledger, tiny_changes, whole_arrays
from tests.fuzz.test_limits import BASE, FACTOR, SLACK, hold, hold_work
from tests.kit import Repo, text_of
from tests.kit.changes import LIMITS
from tests.kit.resident import STATM, growth_of, made
from tests.review.repos import reviewed
from tests.scale.many import MANY, assert_linear, calls
from wtxtgit.chain.judge import untracked
from wtxtgit.checkpoint.contents import open_side
from wtxtgit.checkpoint.verify import demands, verify_data
from wtxtgit.comparison.compare import compare
from wtxtgit.containers import any_format
from wtxtgit.errors import InputError, WtxtgitError
from wtxtgit.git import attributes
from wtxtgit.git.filter_protocol import FilterProcess, PacketReader, PacketWriter, greeting
from wtxtgit.git.store.files import PackIndex
from wtxtgit.io.view import ByteView, Pages, pieces
from wtxtgit.merge.container import Merger
from wtxtgit.merge.policy import Policy
from wtxtgit.merge.texts import merge_texts
from wtxtgit.report.merge import Strategy
from wtxtgit.report.store import StoreVerdict
from wtxtgit.rewrite.lines import ImportLines, exported, imported
from wtxtgit.store.check import check_store
from wtxtgit.store.folder import format_table, parse_table, table_of
from wtxtgit.store.pack import HEAD as PACK_HEAD
from wtxtgit.store.pack import STORED, ZSTD, ChunkEntry, format_end, index_of, parse_index
from wtxtgit.store.store import Store
from wtxtgit.text.recovery import deltas as recovered_deltas
from wtxtgit.text.recovery import ledgers as recovered_ledgers
from wtxtgit.text.verify import verify
from wtxtgit.trust import openssh
from wtxtgit.trust.age import armor, header
from wtxtgit.trust.signing import Agent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sampled(LIMITS),
    pytest.mark.skipif(not STATM.exists(), reason="there is no /proc here: run it on Linux"),
]

Read = Callable[[ByteView], object]


def _pack(n: int) -> bytes:
    """A pack of chunks of a byte, of which none has the name that it is listed by."""
    entries = [
        ChunkEntry(k.to_bytes(32, "big"), len(PACK_HEAD) + k, 1, 1, (), STORED, 1, 0)
        for k in range(n)
    ]
    return PACK_HEAD + bytes(n) + format_end(index_of(entries), len(PACK_HEAD) + n)


def _bombs(n: int) -> bytes:
    """A pack of chunks that a few bytes decode to 16 MiB each."""
    packer = zstandard.ZstdCompressor()
    frame = packer.compress(bytes(16 * 2**20))
    at, size = len(PACK_HEAD), len(frame)
    entries = [
        ChunkEntry(k.to_bytes(32, "big"), at + k * size, size, 16 * 2**20, (), ZSTD, 1, 0)
        for k in range(n)
    ]
    return PACK_HEAD + frame * n + format_end(index_of(entries), at + n * size)


def _table(n: int) -> bytes:
    """The index of a store."""
    index = parse_index(memoryview(_pack(n)))
    table = table_of([("ab" * 32, 1000, index)], Path("/nowhere"))
    return b"".join(map(bytes, format_table(table)))


def _stored(folder: Path, data: bytes) -> Path:
    """A store that has these bytes as its pack."""
    folder /= sha256(data).hexdigest()
    path = folder / "packs" / f"{folder.name}.pack"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return folder


def _damage(folder: Path) -> StoreVerdict:
    return check_store(Store(folder), threads=1)


def _hold_store(folder: Path, make: Callable[[int], bytes], n: int) -> None:
    """As `hold`: the input is a file already, and no byte of this process."""
    sizes, growths = [], []
    for count in (n, 4 * n):
        data = make(count)
        sizes.append(len(data))
        store = _stored(folder, data)
        del data
        growths.append(growth_of(partial(_damage, store)))
        assert growths[-1] < BASE + FACTOR * sizes[-1]
        rmtree(store)
    assert growths[1] - growths[0] < SLACK + FACTOR * (sizes[1] - sizes[0])


def _conversation(view: ByteView) -> None:
    process = FilterProcess(PacketReader(BytesIO(view)), PacketWriter(BytesIO()))
    process.handshake()
    for request in process.requests():
        for _ in request.content:
            pass


def _lined(line: bytes) -> bytes:
    return b"%04x%b" % (len(line) + 4, line)


_REQUEST = _lined(b"command=clean\n") + _lined(b"pathname=a.fold\n")


def _signers(view: ByteView) -> None:
    openssh.parse(bytes(view), "signers")


def _signer_lines(n: int) -> bytes:
    keys = tuple(dict.fromkeys(key for case in ledger_cases() for key in case.public_keys))
    return signers_lines(keys[:1]) * n


def _age(view: ByteView) -> None:
    plain = armor.dearmored(view, "a")
    header.parse(plain, "a")
    armor.check_all(plain)


def _stanzas(n: int) -> bytes:
    return b"age-encryption.org/v1\n" + b"-> X25519 a\nAAAA\n" * n + b"--- AAAA\n"


def _armored(n: int) -> bytes:
    return b"".join(armor.armored([b"age-encryption.org/v1\n" + bytes(n)]))


def _agent(view: ByteView) -> None:
    Agent(BytesIO(view).read, BytesIO().write).list_keys()


def _identities(n: int) -> bytes:
    """An agent's answer with so many keys of a kind that nobody knows."""
    body = b"\x0c" + struct.pack(">I", n) + (openssh.string(b"x") + openssh.string(b"")) * n
    return struct.pack(">I", len(body)) + body


def _git_index(folder: Path, view: ByteView) -> None:
    path = folder / "pack-0.idx"
    path.write_bytes(view)
    for k in range(64):
        PackIndex(path, 20).offset(bytes([k]) * 20)


def _git_objects(n: int) -> bytes:
    fanout = struct.pack(">I", n) * 256
    names = b"".join(k.to_bytes(20, "big") for k in range(n))
    return b"\xfftOc\0\0\0\2" + fanout + names + bytes(8 * n + 40)


def _attributes(view: ByteView) -> None:
    """As a history is rewritten to have texts, and back."""
    how = ImportLines((b"*.fold",), detached=False, from_lfs=True)
    changed = imported(bytes(view), how, at_top=True)
    exported(changed, to_lfs=True)


def _wsum(view: ByteView) -> None:
    pending = next(case.text for case in cases() if case.wsum_file is not None and case.valid)
    verify(memoryview(pending), wsum=bytes(view), threads=1)


def _verdict(view: ByteView) -> None:
    verify_data("a", view, demands(), threads=1).as_dict()


def _keyed(view: ByteView) -> None:
    verify(view, hmac_key=bytes(32), threads=1)


_KEYED = whole_arrays


def _no_member(path: str) -> ByteView:
    raise InputError(f"{path!a} is not there")


def _distributed(view: ByteView) -> None:
    opener = _no_member
    with suppress(WtxtgitError):
        list(any_format.tensors(any_format.describe(view, open_member=opener)))
    any_format.check(view, OPTIONS, opener)


def _saved_tensors(n: int) -> bytes:
    """The `.metadata` of so many tensors of a value."""
    listed = {
        f"t{k:07d}": distributed_pickles.tensor([1], distributed_pickles.chunk([0], [1]))
        for k in range(n)
    }
    items = (
        (distributed_pickles.index(name, [0]), distributed_pickles.saved("a.distcp", 4 * k, 4))
        for k, name in enumerate(listed)
    )
    return distributed_pickles.metadata(listed, *items)


def _saved_chunks(n: int) -> bytes:
    """The `.metadata` of a tensor in so many chunks."""
    chunks = [distributed_pickles.chunk([k], [1]) for k in range(n)]
    items = (
        (distributed_pickles.index("t", [k]), distributed_pickles.saved(f"{k}.distcp", 0, 4))
        for k in range(n)
    )
    return distributed_pickles.metadata({"t": distributed_pickles.tensor([n], *chunks)}, *items)


def _mended_delta(view: ByteView) -> None:
    recovered_deltas.mended(bytes(view))


def _mended_ledger(view: ByteView) -> None:
    recovered_ledgers.mended(bytes(view))


def _torn(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda n: make(n)[:-3]


def _untracked(content: ByteView) -> None:
    """As an audit looks for what is not tracked, in a tree of as many files as there are lines."""
    lines = list(attributes.parse(bytes(content)))
    files = (b"model.b%d" % n for n in range(len(lines)))
    assert list(untracked(files, (), lines)) == []


ROWS: dict[str, tuple[Read, Callable[[int], bytes], int]] = {
    "chunks of a pack": (parse_index, _pack, 20_000),
    "chunks of a store's index": (lambda view: parse_table(memoryview(view)), _table, 20_000),
    "lines of a request": (
        _conversation,
        lambda n: greeting() + _REQUEST + _lined(b"a=b\n") * n + b"0000" + b"0000",
        400_000,
    ),
    "packets of a byte": (
        _conversation,
        lambda n: greeting() + _REQUEST + b"0000" + b"0005x" * n + b"0000",
        200_000,
    ),
    "requests": (
        _conversation,
        lambda n: greeting() + (_REQUEST + b"0000" + b"0000") * n,
        30_000,
    ),
    "signers": (_signers, _signer_lines, 6_000),
    "remarks of signers": (_signers, lambda n: b"#\n" * n, 400_000),
    "bytes of a signer": (_signers, lambda n: b"a" * min(n, openssh.MAX_SIGNERS_FILE), 1_000_000),
    "bytes of a WSUM": (_wsum, lambda n: b"WSUM 1 " + b"a" * n, 1_000_000),
    "arrays with a key": (_keyed, _KEYED, 1_500),
    "stanzas of an age file": (_age, _stanzas, 100_000),
    "lines of armor": (_age, _armored, 1_000_000),
    "keys of an agent": (_agent, _identities, 20_000),
    "lines of attributes": (_attributes, lambda n: b"a b c=d\n" * n, 30_000),
    "lines of attributes that are ours": (
        _attributes,
        lambda n: b"a filter=wtxt\n" * n,
        5_000,
    ),
    "files and patterns of a tree": (
        _untracked,
        lambda n: b"".join(b"*.a%d filter=wtxt\n" % k for k in range(n)),
        15_000,
    ),
    "words of a line of attributes": (_attributes, lambda n: b"a" + b" b" * n, 100_000),
    "tensors of a distributed checkpoint": (_distributed, _saved_tensors, 1_500),
    "chunks of a distributed tensor": (_distributed, _saved_chunks, 3_000),
    "records of a ledger": (_verdict, ledger, 2_000),
    "records of a torn ledger": (_mended_ledger, _torn(ledger), 300),
    "arrays of a torn delta": (_mended_delta, _torn(tiny_changes), 100),
}
STREAMED = frozenset({"packets of a byte"})
"""What is read in another way as long as it is little."""


@pytest.mark.parametrize("name", ROWS)
def test_a_reader_of_very_much(name: str) -> None:
    read, make, n = ROWS[name]
    hold(read, make, n * MANY)


@pytest.mark.parametrize("name", ROWS)
def test_work_grows_with_the_input_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    read, make, n = ROWS[name]
    if name in STREAMED:
        once, twice, fourfold = (
            calls(partial(read, memoryview(make(k)))) for k in (n // 10, n // 5, n * 2 // 5)
        )
        assert_linear((once, twice, fourfold))
    else:
        hold_work(read, make, n // 30)


def test_a_store_of_very_many_damaged_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hold_store(tmp_path, _pack, 5_000 * MANY)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    hold_work(lambda view: _damage(_stored(tmp_path, bytes(view))), _pack, 500)
    found = _damage(_stored(tmp_path / "told", _pack(1500)))
    assert (len(found.damaged[0].chunks), found.damaged[0].more) == (1000, 500)
    assert (len(found.lost), found.more_lost) == (1000, 500)
    assert found.as_dict()["damaged"][0]["more"] == 500


def test_chunks_of_a_store_that_decode_to_very_much(tmp_path: Path) -> None:
    _hold_store(tmp_path, _bombs, 3 * MANY)


def test_an_index_of_git_of_very_much(tmp_path: Path) -> None:
    hold(partial(_git_index, tmp_path), _git_objects, 40_000 * MANY)


def _three(make: Callable[[int], bytes], n: int) -> list[memoryview]:
    """A base and two sides that differ from it in a byte each, in the midst and at the end."""
    base = make(n)
    changed = [bytearray(base), bytearray(base)]
    changed[0][len(base) // 2] ^= 1
    changed[1][-1] ^= 1
    return [made(lambda one=one: bytes(one)) for one in (base, *changed)]


def _merged(*three: memoryview) -> None:
    with suppress(WtxtgitError):
        _, merged = merge_texts(*three, Merger(Policy(Strategy.OURS)), threads=1)
        for _ in pieces(merged):
            pass


def _compared(before: memoryview, after: memoryview) -> None:
    pages = Pages(None)
    with ExitStack() as until, suppress(WtxtgitError):
        a = open_side("a", before, _no_member, pages, 1, until)
        b = open_side("b", after, _no_member, pages, 1, until)
        compare(a, b, OPTIONS, pages, 1).report.as_dict()


# Of each kind of thing one row; every night it is all of them.
SEVERAL = list(FILES) if MANY > 1 else [
    "tensors of a safetensors header", "tags of a safetensors header", "tensors of a GGUF",
    "chunks of a FOLD", "tensors of a torch file",
]  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_three_files_that_are_merged(name: str) -> None:
    make, most = FILES[name]
    three = _three(make, most)
    assert growth_of(partial(_merged, *three)) < 3 * BASE + FACTOR * sum(map(len, three))


@pytest.mark.parametrize("name", SEVERAL)
def test_two_files_that_are_compared(name: str) -> None:
    make, most = FILES[name]
    two = _three(make, most)[:2]
    assert growth_of(partial(_compared, *two)) < 2 * BASE + FACTOR * sum(map(len, two))


@pytest.mark.parametrize("name", SEVERAL[: None if MANY > 1 else 2])
def test_a_review_of_very_much(name: str, repo: Repo) -> None:
    make, most = FILES[name]
    three = _three(make, most)
    repo.track("*.bin")
    size = 0
    for branch, file in zip(("before", "topic"), three, strict=False):
        repo.write("a.bin", text_of(bytes(file)))
        repo.git("add", "a.bin")
        repo.commit()
        repo.git("branch", branch)
        size += len(file)
    assert growth_of(partial(reviewed, repo, "before...topic")) < 2 * BASE + FACTOR * size


def test_a_ledger_to_be_mended_of_very_many_lines() -> None:
    view = made(lambda: ledger(10) + b"\n" * 20_000_000)
    assert growth_of(partial(_mended_ledger, view)) < BASE + FACTOR * len(view)
