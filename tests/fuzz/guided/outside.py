"""Targets: what git, other programs and people give: packets, arguments, keys, patterns, blobs."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.data import cases, ledger_cases, signers_lines
from tests.fuzz.container_oracle import OPTIONS
from tests.fuzz.guided.target import Target, refused
from tests.fuzz.mutations import text_mutant
from tests.fuzz.seeds import seeds
from tests.git.test_attributes import SAMPLE
from tests.trust.test_agent import PUBLIC, RSA, SECRET, SIGNATURE, answer, listed
from wtxtgit.checkpoint.contents import open_side
from wtxtgit.comparison.compare import compare
from wtxtgit.errors import CheckError, InputError, UsageError
from wtxtgit.git import attributes, external_diff
from wtxtgit.git.filter_protocol import (
    MAX_PACKET,
    FilterProcess,
    PacketReader,
    PacketWriter,
    ProtocolError,
    check_greeting,
    greeting,
)
from wtxtgit.git.store.files import PackIndex
from wtxtgit.git.store.streams import Damaged, inflated
from wtxtgit.io.view import ByteView, Pages
from wtxtgit.merge.driver import merge, merge_ledgers
from wtxtgit.report.merge import MergeReport
from wtxtgit.trust import openssh
from wtxtgit.trust.signing import Agent, AgentError


def packets(data: bytes) -> bool:
    """Packets one by one, and as a content, are those of a reader of a few lines."""
    wanted, ends = _naive_packets(data)
    reader = PacketReader(BytesIO(data))
    found: list[bytes | None] = []
    try:
        while True:
            found.append(reader.packet())
    except ProtocolError:
        assert (found, False) == (wanted, ends) or found == wanted
    if None in wanted:
        until = b"".join(one for one in wanted[: wanted.index(None)] if one is not None)
        assert b"".join(bytes(part) for part in PacketReader(BytesIO(data)).content()) == until
        with _as_file(data) as descriptor, os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
            assert b"".join(bytes(part) for part in PacketReader(file).content()) == until
    return ends


def _naive_packets(data: bytes) -> tuple[list[bytes | None], bool]:
    """Payloads, None for a flush, and whether nothing is behind them."""
    found: list[bytes | None] = []
    at = 0
    while at < len(data):
        digits = data[at : at + 4]
        if len(digits) < 4 or any(digit not in b"0123456789abcdefABCDEF" for digit in digits):
            return found, False
        size = int(digits, 16)
        if size and not (4 <= size <= MAX_PACKET and at + size <= len(data)):
            return found, False
        found.append(data[at + 4 : at + size] if size else None)
        at += size or 4
    return found, True


def conversation(data: bytes) -> bool:
    """A whole conversation of a filter, each request answered with its own bytes."""
    answers = BytesIO()
    process = FilterProcess(PacketReader(BytesIO(data)), PacketWriter(answers))
    answered = 0
    try:
        process.handshake()
        for request in process.requests():
            assert request.command in ("clean", "smudge")
            content = [bytes(part) for part in request.content] if answered % 2 else []
            process.success(content)
            answered += 1
        # It offers what it was offered, which may be less than git needs.
        check_greeting(PacketReader(BytesIO(answers.getvalue())))
    except ProtocolError as refusal:
        return refused(refusal)
    return True


def conversations() -> Iterator[bytes]:
    yield greeting()
    request = _packed(b"command=clean", b"pathname=a.fold", None)
    content = b"%04x" % MAX_PACKET + bytes(MAX_PACKET - 4)
    yield greeting() + request + b"0005x" + b"0000" + request + b"0000"
    smudge = _packed(b"command=smudge", b"pathname=\xff/\n", b"ref=refs/heads/main", None)
    yield greeting() + smudge + content + b"0008abcd" + b"0000"


def _packed(*lines: bytes | None) -> bytes:
    return b"".join(b"0000" if one is None else b"%04x%b\n" % (len(one) + 5, one) for one in lines)


def arguments(data: bytes) -> bool:
    """The arguments of an external diff, with NUL between them."""
    try:
        pair = external_diff.parse(data.split(b"\0"))
    except UsageError:
        return False
    if isinstance(pair, external_diff.Pair):
        for side in (pair.old, pair.new):
            assert side is None or side.kind
        assert pair.is_same in (True, False)
    return True


def arguments_of_diffs() -> Iterator[bytes]:
    oid = b"0123456789abcdef0123456789abcdef01234567"
    sides = (b"/tmp/a", oid, b"100644", b"b", b"0" * 40, b"120000")
    yield from (b"a.fold", b"\0".join((b"a.fold", *sides)))
    header = b"similarity index 97%\nrename from a.fold\nrename to b.fold\nindex 1..2\n"
    yield b"\0".join((b"a.fold", *sides, b"b.fold", header))
    yield b"\0".join((b"a.fold", b"/dev/null", b".", b".", *sides[3:]))


def signers(data: bytes) -> bool:
    """Signers, public and secret keys, and the blobs of SSH, whatever is in them."""
    taken = False
    for read in (openssh.parse, openssh.parse_signers, openssh.parse_public_file):
        try:
            parsed = read(data, "signers")
        except openssh.KeyFileError as refusal:
            refused(refusal)
        else:
            taken = True
            if isinstance(parsed, openssh.SignersFile):
                assert openssh.parse(parsed.content(), "signers") == parsed
    try:
        key = openssh.parse_secret_key(data, "key")
    except openssh.KeyFileError as refusal:
        refused(refusal)
    else:
        assert openssh.parse_secret_key(openssh.format_secret_key(key), "key") == key
        taken = True
    for blob in (openssh.parse_public_blob, openssh.parse_signature_blob):
        taken |= blob(data) is not None
    return taken


def signers_and_keys() -> Iterator[bytes]:
    keys = tuple(dict.fromkeys(key for case in ledger_cases() for key in case.public_keys))
    lines = signers_lines(keys[:3])
    yield from (
        lines,
        b"# threshold: 2\n" + lines,
        b"# who\n\n" + lines.replace(b" a", b"\t\xc3\xa9"),
    )
    secret = openssh.SecretKey(bytes(SECRET), PUBLIC, "a comment")
    yield openssh.format_secret_key(secret)
    yield openssh.format_public(openssh.PublicKey(PUBLIC, "a comment")).encode() + b"\n"
    yield from (openssh.public_blob(PUBLIC), SIGNATURE, RSA)


def agent(data: bytes) -> bool:
    """Answers of an ssh-agent: to what it holds, then to what it is to sign."""
    answers = BytesIO(data)
    agent = Agent(answers.read, BytesIO().write)
    try:
        held = agent.list_keys()
        assert all(len(one.public_key) == 32 for one in held.keys)
        agent.sign(PUBLIC, b"message")
    except AgentError as refusal:
        return refused(refusal)
    return True


def answers_of_agents() -> Iterator[bytes]:
    blob = openssh.public_blob(PUBLIC)
    signed = openssh.string(b"ssh-ed25519") + openssh.string(SECRET.sign(b"message").signature)
    yield listed((blob, b"a@b"), (RSA, b"\x1b[31m")) + answer(14, openssh.string(signed))
    yield from (answer(5, b""), listed(count=2**32 - 1), listed((blob, b""), more=b"x"))


def attributes_file(data: bytes) -> bool:
    """No byte is lost; what is a pattern can be written, and is read again."""
    lines = list(attributes.parse(data))
    assert attributes.content(lines) == data
    taken = False
    for line in lines:
        if line.pattern is None:
            continue
        try:
            written = attributes.format_line(line.pattern, (b"-text",))
        except UsageError as refusal:
            refused(refusal)
            continue
        (again,) = attributes.parse(written.raw)
        assert (again.pattern, again.attributes) == (line.pattern, (b"-text",))
        taken = True
    return taken


def attributes_files() -> Iterator[bytes]:
    yield from (SAMPLE, b'"\\303\\251\\t" a\n\\!x b\n*.fold filter=wtxt -text !eol\r\n')
    yield (Path(__file__).parents[3] / "gitattributes.template").read_bytes()


def pack_index(data: bytes) -> bool:
    """Any file as the index of a pack: an object is found at a number, or not."""
    path = _scratch() / "pack-0.idx"
    path.write_bytes(data)
    found = False
    for size in (20, 32):
        index = PackIndex(path, size)
        for oid in (bytes(size), b"\xff" * size, data[1032 : 1032 + size].ljust(size, b"\0")):
            place = index.offset(oid)
            assert place is None or 0 <= place < 2**64
            found |= place is not None
    return found


def pack_indexes() -> Iterator[bytes]:
    for size in (20, 32):
        fanout = b"".join(struct.pack(">I", 2 if n else 1) for n in range(256))
        oids = b"\0" * (size - 1) + b"\1" + b"\1" * size
        offsets = struct.pack(">II", 12, 2**31)
        tail = bytes(8) + offsets + struct.pack(">Q", 2**32 + 1) + bytes(2 * size)
        yield b"\xfftOc\0\0\0\2" + fanout + oids + tail


def stream(data: bytes) -> bool:
    """What is inflated from git's objects is what zlib inflates, if it is taken at all."""
    inflater = zlib.decompressobj()
    try:
        wanted = inflater.decompress(data, 2**20)
    except zlib.error:
        wanted = b""
    taken = False
    with _as_file(data) as descriptor:
        for threads in (1, 2):
            try:
                got = b"".join(inflated(descriptor, 0, len(wanted), threads, is_last=True))
            except Damaged:
                assert not taken
                continue
            assert inflater.eof
            assert got == wanted
            assert not inflater.unused_data
            taken = True
    return taken


def streams() -> Iterator[bytes]:
    content = bytes(range(256)) * 9
    for level in (0, 1, 9):
        packer = zlib.compressobj(level)
        yield packer.compress(content) + packer.flush(zlib.Z_SYNC_FLUSH) + packer.flush()
    yield zlib.compress(b"") + b"more"


def merging(data: bytes) -> bool:
    """Three contents, as git gives them to the merge driver: a valid file is left."""
    base, ours, theirs = _three(data)
    report = _merged(merge, base, ours, theirs)
    return isinstance(report, MergeReport) and report.ok


def merging_ledgers(data: bytes) -> bool:
    base, ours, theirs = _three(data)
    return _merged(merge_ledgers, base, ours, theirs) is not None


def _merged(run: Callable[..., object], *contents: bytes) -> object:
    files = [_scratch() / name for name in ("base", "ours", "theirs")]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    arguments = (None, *files) if run is merge else files
    found = run(*arguments)
    left = files[1].read_bytes()
    if isinstance(found, MergeReport) and not found.ok:
        assert left == contents[1]
    return found


def _three(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The lengths of the first two before all three."""
    first = int.from_bytes(data[:3], "big")
    second = first + int.from_bytes(data[3:6], "big")
    held = data[6:]
    return held[:first], held[first:second], held[second:]


def _joined(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    return len(base).to_bytes(3, "big") + len(ours).to_bytes(3, "big") + base + ours + theirs


def threes() -> Iterator[bytes]:
    for name in ("safetensors", "npy", "npz", "fold", "aero", "mlcp", "gguf", "torch"):
        small = sorted(seeds(name), key=len)[:4]
        base = small[-1]
        changed = [_touched(base, at) for at in (len(base) - 1, len(base) // 2)]
        yield _joined(base, *changed)
        yield _joined(b"", small[0], small[1])
    texts = [case.text for case in cases() if case.valid and len(case.text) < 2000]
    yield _joined(texts[0], texts[1], texts[2])


def _touched(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def ledger_threes() -> Iterator[bytes]:
    held = sorted({case.text for case in ledger_cases() if case.valid}, key=len)[:4]
    yield _joined(held[0], held[1], held[2])
    longer = max((case.text for case in ledger_cases() if case.valid), key=len)
    yield _joined(b"", longer, longer[: longer.rindex(b"meta ")])


def comparing(data: bytes) -> bool:
    """Two contents, compared as `git diff` does."""
    _, before, after = _three(data)
    pages = Pages(None)
    with ExitStack() as until:
        try:
            a = open_side("a", memoryview(before), _no_member, pages, 1, until)
            b = open_side("b", memoryview(after), _no_member, pages, 1, until)
            report = compare(a, b, OPTIONS, pages, 1).report
        except (InputError, CheckError) as refusal:
            return refused(refusal)
    report.as_dict()
    return True


def _no_member(path: str) -> ByteView:
    raise InputError(f"{path!a} is not there")


@contextmanager
def _as_file(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("input")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="wtxtgit-fuzz-")


def _scratch() -> Path:
    return Path(_folder().name)


TARGETS = {
    "packets": Target(conversations, packets, text_mutant, longest=2 * MAX_PACKET),
    "filter": Target(conversations, conversation, text_mutant, longest=2 * MAX_PACKET),
    "external-diff": Target(arguments_of_diffs, arguments, text_mutant),
    "signers": Target(signers_and_keys, signers, text_mutant),
    "agent": Target(answers_of_agents, agent),
    "attributes": Target(attributes_files, attributes_file, text_mutant),
    "pack-index": Target(pack_indexes, pack_index),
    "stream": Target(streams, stream),
    "merge": Target(threes, merging, longest=12_000),
    "merge-ledgers": Target(ledger_threes, merging_ledgers, text_mutant),
    "diff": Target(threes, comparing, longest=12_000),
}
