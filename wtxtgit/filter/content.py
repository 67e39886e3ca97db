"""Facts about contents, cached: whether it is a text, its hash in a seal, and its file.

`examine` finds the facts of a blob. They follow from its bytes alone, so they hold in every commit.
Clean knows some of them about a text that it writes, which need not be read again: `written_facts`.
Spec: `docs/spec/ledger.md`, "Records".

`ContentCache` stores in the common folder of the repository's worktrees, so that no byte is read
twice:

- by a blob's id, its facts;
- by a file's size and BLAKE3, the id of the blob that clean makes of it, and
  the reverse;
- by a detached text's SHA-256, that it was proved with all its payload;
- by the state of what holds payload, that it was as it was written.

All of that follows from content and the program's version alone, so it holds in every commit,
worktree and branch. Trust and verdicts are never cached. `io.cache_file` explains which rows are
trusted, and what happens to damaged files. `git fsck` checks that an object still has the content
of its id. Without a secret nothing is cached, and everything is computed anew.

No list of a text's arrays is cached: comparing two texts reads their lines, which git has to
inflate to return any of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from wtxtgit.errors import MAX_MESSAGE, clipped
from wtxtgit.git.repository import Repository
from wtxtgit.io.cache_file import CacheFile
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, hashed, mapped, pieces, read_at
from wtxtgit.io.workers import blake3_hasher
from wtxtgit.model.array import CONTAINER_FORMATS, FindPayload, Meta, Signature
from wtxtgit.text.grammar import DETACHED_MAGIC, LFS_MAGIC, MAGIC, MOST_ATTACHED, is_detached
from wtxtgit.trust.local_secret import local_secret

if TYPE_CHECKING:
    from wtxtgit.text.verify import TextReport
    from wtxtgit.text.write import TextWriter

_OPAQUE = "opaque/v1"
_PAIR = b"WTXT and WSUM\0"
"""The prefix of the hash of a text and its WSUM; no hash_all covers bytes with this start."""


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """The facts about a content; none of them depends on trust.

    `sha256_all` (32 bytes) is that of the text which clean makes of it, None for a text that does
    not verify; `fault` then says why. `schema` is that text's. `is_text` distinguishes a text from
    a binary, `is_canonical` a text that is what clean gives. `meta` is that of a native text.
    `signed` is what a native text's own signature covers, and that signature. `opaque` (32 bytes)
    is sha256_all of the opaque text of the content, whatever it begins with; None if it was not
    asked for, unless the content is a text that stands for itself.

    `pending_root` is hash_all of a text that lacks nothing but its root, and `text_meta` the `meta`
    line of one that lacks no more. With its WSUM (`has_wsum`, see `with_wsum`) `opaque` covers
    both, and `wsum_signed` is what the WSUM's signature covers, and the signature. `detached` (32
    bytes) is the SHA-256 of a detached text, or of the one that clean makes of a file. If it
    `lacks_payload` its facts may change once the payload is there: nothing else is wrong.
    `attached_opaque` is `opaque` of the attached form of a native text. `is_pointer` marks a
    git-lfs pointer, of which clean makes no text. `identity` has the fields of `FileIdentity` if
    the content is more than a file of the format that the schema names.
    """

    size: int
    is_text: bool
    sha256_all: bytes | None
    schema: str
    is_canonical: bool = True
    fault: str | None = None
    meta: Meta | None = None
    signed: tuple[bytes, Signature] | None = None
    opaque: bytes | None = None
    pending_root: bytes | None = None
    text_meta: Meta | None = None
    wsum_signed: tuple[bytes, bytes] | None = None
    has_wsum: bool = False
    detached: bytes | None = None
    attached_opaque: bytes | None = None
    lacks_payload: bool = False
    is_pointer: bool = False
    identity: tuple[str, str | None, bool] | None = None

    @property
    def is_raw(self) -> bool:
        """Whether it is neither a text nor empty, as git has it if no filter ran."""
        return not self.is_text and self.size > 0

    @property
    def is_native(self) -> bool:
        """Whether it is a text that stands for itself, so that smudge does not change it."""
        return self.meta is not None

    @property
    def stands_for_itself(self) -> bool:
        """Whether it is a text that smudge does not change although nothing is wrong with it."""
        return self.is_native or self.pending_root is not None


def written_facts(writer: TextWriter, data: ByteView) -> ArtifactFacts:
    """Return the facts of a text that clean makes of a file, without reading it again.

    They are what `examine` finds about that text. `writer` is the one of a clean, which hashes the
    file `data`, no text, unless it has done so.
    """
    meta = writer.meta
    return ArtifactFacts(
        writer.size,
        True,
        writer.root.sha256_all,
        meta.schema,
        text_meta=meta,
        identity=_identity(data, meta.schema),
    )


def _identity(data: ByteView, schema: str) -> tuple[str, str | None, bool] | None:
    """Return the identity of a file of which clean makes a text with this schema."""
    from wtxtgit.containers.identity import identity

    found = identity(data, is_read=schema != _OPAQUE)
    is_plain = found.what is None and found.kind == _format(schema)
    return None if is_plain else (*found,)


def _format(schema: str) -> str:
    return schema.partition("/")[0]


def wrong_content(path: bytes, facts: ArtifactFacts) -> str | None:
    """Return in words what is wrong with a content under this name; None if nothing is known."""
    from wtxtgit.containers.identity import FileIdentity, wrong_under

    # These have findings of their own.
    if facts.fault is not None or facts.is_pointer or facts.stands_for_itself:
        return None
    if facts.identity is not None:
        return wrong_under(os.fsdecode(path), FileIdentity(*facts.identity))
    kind = _format(facts.schema)
    return wrong_under(os.fsdecode(path), FileIdentity(kind)) if kind in CONTAINER_FORMATS else None


def examine(
    data: ByteView,
    *,
    threads: int | None = None,
    opaque: bool = False,
    payload: FindPayload = lambda: None,
) -> ArtifactFacts:
    """Find the facts about a content; nothing in it raises an error.

    A detached text has the facts of its attached form, if all of its payload is found in `payload`.
    With `opaque` the hash of its opaque text is included, by which a content is sealed that a
    checkout writes unchanged; for texts that stand for themselves it always is.
    """
    if is_detached(data):
        facts = _examine_detached(data, threads, payload)
        if not (opaque or facts.stands_for_itself):
            return facts
        return replace(facts, opaque=opaque_hash(data, threads=threads))
    facts = _examine(data, threads)
    if not (opaque or facts.stands_for_itself):
        return facts
    if facts.schema == _OPAQUE and not facts.is_text:
        return replace(facts, opaque=facts.sha256_all)
    return replace(facts, opaque=opaque_hash(data, threads=threads))


def _examine_detached(data: ByteView, threads: int | None, payload: FindPayload) -> ArtifactFacts:
    from wtxtgit.model.array import NO_PAYLOAD, PAYLOAD_DAMAGED, PAYLOAD_MISSING
    from wtxtgit.text.detached import attached
    from wtxtgit.text.verify import verify

    report = verify(data, threads=threads, payload=payload() or NO_PAYLOAD)
    schema, own = report.index.meta.schema, hashed(sha256(), pieces(data)).digest()
    if not report.ok:
        fault = clipped(str(report.problems[0]), MAX_MESSAGE)
        # Chunks that are damaged in the store are no fault of the text either.
        lacks = all(
            problem.kind in (PAYLOAD_MISSING, PAYLOAD_DAMAGED) for problem in report.problems
        )
        return ArtifactFacts(
            len(data), True, None, schema, fault=fault, detached=own, lacks_payload=lacks
        )
    # What is proved about it is proved about its attached form.
    if report.is_container:
        facts = _of_container(data, report, threads)
        return replace(facts, detached=own)
    text = spooled(attached(data, report.index, report.layout, threads=threads))
    facts = replace(_examine(text, threads), size=len(data), detached=own)
    return replace(facts, attached_opaque=opaque_hash(text, threads=threads))


def detached_hash(data: ByteView, *, threads: int | None = None) -> bytes | None:
    """Return the SHA-256 of the detached text that the driver `wtxt-detached` makes of a content.

    Returns None if it makes none.
    """
    from wtxtgit.filter.clean import clean_detached

    cleaned = clean_detached(data, None, threads=threads)
    writer = cleaned.writer
    if not (is_detached(cleaned.source) if writer is None else writer.is_detached):
        return None
    return hashed(sha256(), cleaned.pieces()).digest()


def opaque_hash(data: ByteView, *, threads: int | None = None) -> bytes:
    """Return the sha256_all of a content's opaque text: 32 bytes that cover each of its bytes."""
    from wtxtgit.containers.ranges import whole
    from wtxtgit.text.layout import snapshot_of
    from wtxtgit.text.write import TextWriter

    cut = whole(data, "sealed unchanged")
    # Nothing is written: only the root is needed.
    return TextWriter(snapshot_of(cut), threads=threads).root.sha256_all


def sealed_together(opaque: bytes, wsum: bytes) -> bytes:
    """Return the hash of a text, given by its opaque hash, and the WSUM beside it: 32 bytes."""
    return sha256(_PAIR + opaque + sha256(wsum).digest()).digest()


def _is_pointer(data: ByteView) -> bool:
    if data[: len(LFS_MAGIC)] != LFS_MAGIC:
        return False
    from wtxtgit.remotes.lfs_pointer import read_pointer

    return read_pointer(data) is not None


def _examine(data: ByteView, threads: int | None) -> ArtifactFacts:
    # Imported here: formats and numpy are not needed for cached facts.
    from wtxtgit.containers import any_format
    from wtxtgit.text.layout import snapshot_of
    from wtxtgit.text.verify import verify
    from wtxtgit.text.write import TextWriter

    if data[: len(MAGIC)] != MAGIC:
        snapshot = snapshot_of(any_format.split(data))
        root = TextWriter(snapshot, threads=threads).root
        schema = snapshot.meta.schema
        return ArtifactFacts(
            len(data),
            False,
            root.sha256_all,
            schema,
            is_pointer=_is_pointer(data),
            identity=_identity(data, schema),
        )
    report = verify(data, threads=threads)
    schema = report.index.meta.schema
    if not report.ok:
        fault = clipped(str(report.problems[0]), MAX_MESSAGE)
        facts = ArtifactFacts(len(data), True, None, schema, fault=fault)
        if not report.is_pending:
            return facts
        return replace(facts, pending_root=report.sha256_all, text_meta=report.index.meta)
    sha256_all, meta = report.sha256_all, report.index.meta
    if not report.is_container:
        index = report.index
        signed = None
        if index.signature is not None:
            signed = bytes(data[: index.covered]), index.signature
        return ArtifactFacts(
            len(data), True, sha256_all, schema, meta=meta, signed=signed, text_meta=meta
        )
    return _of_container(data, report, threads)


def with_wsum(facts: ArtifactFacts, wsum: bytes, *, is_filtered: bool) -> ArtifactFacts:
    """Combine the facts of a content with the WSUM that stands beside it.

    Only a text that a checkout writes unchanged has one: `docs/spec/trust.md`, section "Texts with
    a WSUM".
    """
    is_written_so = facts.stands_for_itself or not is_filtered
    if not (facts.is_text and is_written_so) or facts.detached is not None:
        return facts
    from wtxtgit.text.grammar import wsum_covered
    from wtxtgit.text.verify import read_wsum, wsum_problems

    if facts.opaque is not None:
        facts = replace(facts, opaque=sealed_together(facts.opaque, wsum))
    facts = replace(facts, has_wsum=True)
    sha256_all = facts.pending_root or facts.sha256_all
    if sha256_all is None or facts.text_meta is None:
        return facts
    problem = next(wsum_problems(wsum, sha256_all, facts.text_meta), None)
    if problem is not None:
        return replace(facts, sha256_all=None, fault=clipped(str(problem), MAX_MESSAGE))
    line, signed = read_wsum(wsum), None
    if line is not None and line.signature is not None:
        signed = wsum_covered(line), line.signature
    meta = facts.meta if facts.pending_root is None else facts.text_meta
    return replace(facts, sha256_all=sha256_all, fault=None, meta=meta, wsum_signed=signed)


def _of_container(text: ByteView, report: TextReport, threads: int | None) -> ArtifactFacts:
    """Return the facts of a text that verified, and stands for a file."""
    from wtxtgit.text.file import file_pieces, first_bytes

    index, layout, schema = report.index, report.layout, report.index.meta.schema
    facts = ArtifactFacts(
        len(text), True, report.sha256_all, schema, is_canonical=False, text_meta=index.meta
    )
    if layout is None or index.root is None:
        return facts
    head = first_bytes(text, index, layout, len(DETACHED_MAGIC))
    if not head or head.startswith(MAGIC) or (index.is_detached and is_detached(head)):
        return facts
    restored = spooled(file_pieces(text, index, layout, threads=threads))
    if _is_pointer(restored):
        return facts
    is_canonical = _is_canonical(restored, report, threads)
    return replace(facts, is_canonical=is_canonical, identity=_identity(restored, schema))


def _is_canonical(restored: ByteView, report: TextReport, threads: int | None) -> bool:
    """Tell whether clean gives this very text for the file that it stands for.

    The text verified, and its arrays make up the file: if the file is cut into the same arrays in
    the same order their bytes are the same.
    """
    from wtxtgit.containers import any_format
    from wtxtgit.text.layout import snapshot_of
    from wtxtgit.text.write import TextWriter

    index, layout = report.index, report.layout
    if layout is None or index.root is None:
        return False
    snapshot = snapshot_of(any_format.split(restored))
    if index.is_detached and TextWriter(snapshot, threads=threads).size <= MOST_ATTACHED:
        return False
    arrays = [(a.name, a.claim.dtype, a.claim.shape, a.rows) for a in index.arrays]
    return (
        # The bytes of all arrays are then equal, because the text verified and the file was made of
        # them.
        snapshot.layout == layout
        and (snapshot.meta, snapshot.cap, snapshot.prev)
        == (index.meta, index.cap, index.root.merkle_prev)
        and [(a.name, a.dtype, a.shape, a.rows) for a in snapshot.arrays] == arrays
        and not any(array.has_hmac for array in index.arrays)
        and index.signature is None
        and index.audit is None
    )


_HASHES = ("sha256_all", "opaque", "pending_root", "detached", "attached_opaque")
FILE_NAME = "facts.sqlite"
DIGEST_SIZE = 32

_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PENDING = 512
"""Rows that are written together."""
_STEP = 16 * 1024 * 1024
"""Bytes that are hashed at a time: enough for all threads to share."""
_LEAST_STEP = 64 * 1024


def content_digest(data: ByteView, *, threads: int | None = None) -> bytes:
    """Return the BLAKE3 of a file's bytes, 32 bytes; `threads` defaults to all cores."""
    hasher = blake3_hasher(len(data), threads)
    for start in range(0, len(data), _STEP):
        hasher.update(mapped(data[start : start + _STEP]))
    return bytes(hasher.digest())


def file_digest(descriptor: int, *, threads: int | None = None) -> tuple[bytes, int]:
    """Return the BLAKE3 of an open file, and its size in bytes; raises OSError.

    The file may be larger than memory, and change while it is read.
    """
    expected, size = os.fstat(descriptor).st_size, 0
    hasher = blake3_hasher(expected, threads)
    # No larger than the file: for small files clearing the buffer would take longer than hashing.
    buffer = memoryview(bytearray(min(_STEP, max(expected, _LEAST_STEP))))
    while count := read_at(descriptor, buffer, size):
        hasher.update(buffer[:count])
        size += count
    return bytes(hasher.digest()), size


class ContentCache:
    """What a repository caches under the secret in `key_file`; nothing without one.

    A context manager that threads may share. Other processes see what was put when it ends, at the
    latest. No method raises: a cache that can't be read or written is an empty one. No file is
    opened or created before it is needed.
    """

    def __init__(self, repo: Repository, key_file: Path | None) -> None:
        self._file = repo.state_path / FILE_NAME
        self._key_file = key_file
        self._rows: CacheFile | None = None
        self._pending: dict[bytes, bytes] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what was put."""
        with self._lock:
            self._flush()
            if self._rows is not None:
                self._rows.close()
                self._rows = None

    def facts(self, oids: Iterable[str]) -> dict[str, ArtifactFacts]:
        """Return the cached facts of these blobs."""
        names = {_of_blob(oid): oid for oid in oids}
        parsed = {names[name]: _facts_of(value) for name, value in self._get(names).items()}
        return {oid: facts for oid, facts in parsed.items() if facts is not None}

    def put_facts(self, facts: Mapping[str, ArtifactFacts]) -> None:
        """Cache facts of blobs, by their ids."""
        lasting = {oid: item for oid, item in facts.items() if not item.lacks_payload}
        self._put({_of_blob(oid): _row_of(item) for oid, item in lasting.items()})

    def blob_of(self, digest: bytes, size: int, *, detached: bool = False) -> str | None:
        """Return the cached id of the blob that clean makes of a file; the blob need not exist.

        With `detached` the blob that the driver `wtxt-detached` makes.
        """
        name = _of_file(digest, size, detached=detached)
        oid = self._get([name]).get(name, b"")
        return oid.decode("ascii") if _OID.fullmatch(oid) else None

    def put_blob(
        self,
        digest: bytes,
        size: int,
        oid: str,
        *,
        is_binary: bool = False,
        detached: bool = False,
    ) -> None:
        """Cache which blob clean makes of a file with this content.

        `is_binary` says that the content is no text: then no other binary has that blob, and
        `file_of` will return this one.
        """
        rows = {_of_file(digest, size, detached=detached): oid.encode("ascii")}
        if is_binary:
            rows[_file_of(oid)] = digest + b"%d" % size
        self._put(rows)

    def is_proved(self, digest: bytes) -> bool:
        """Tell whether the detached text with this SHA-256 was proved before."""
        return bool(self._get([_of_proof(digest)]))

    def put_proof(self, digest: bytes) -> None:
        """Record that a detached text was proved with all its payload."""
        self._put({_of_proof(digest): b""})

    def sound(self, states: Collection[bytes]) -> set[bytes]:
        """Return those of the states that were recorded as sound."""
        recorded = self._get(map(_of_sound, states))
        return {state for state in states if _of_sound(state) in recorded}

    def put_sound(self, states: Iterable[bytes]) -> None:
        """Record that what has these states is sound."""
        self._put({_of_sound(state): b"" for state in states})

    def file_of(self, oid: str) -> tuple[bytes, int] | None:
        """Return the digest and size of the only file, other than texts, of which clean makes a
        blob.
        """
        name = _file_of(oid)
        row = self._get([name]).get(name)
        return None if row is None else (row[:DIGEST_SIZE], int(row[DIGEST_SIZE:]))

    def _get(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        keys = list(names)
        with self._lock:
            fresh = {name: self._pending[name] for name in keys if name in self._pending}
            rows = self._opened(make=False)
        if rows is None:
            return fresh
        return rows.get(name for name in keys if name not in fresh) | fresh

    def _put(self, rows: Mapping[bytes, bytes]) -> None:
        if self._key_file is None:
            return
        with self._lock:
            self._pending |= rows
            # Each write is a transaction, so rows are collected.
            if len(self._pending) >= _PENDING:
                self._flush()

    def _flush(self) -> None:
        rows = self._opened(make=True) if self._pending else None
        if rows is not None:
            rows.put(self._pending)
        self._pending = {}

    def _opened(self, *, make: bool) -> CacheFile | None:
        if self._rows is None and self._key_file is not None:
            secret = local_secret(self._key_file, make=make)
            if secret is not None:
                self._rows = CacheFile(self._file, secret)
        return self._rows


def _of_blob(oid: str) -> bytes:
    return b"facts of blob " + oid.encode("ascii")


def _of_file(digest: bytes, size: int, *, detached: bool = False) -> bytes:
    return (b"detached" if detached else b"") + b"blob of %d " % size + digest


def _file_of(oid: str) -> bytes:
    return b"file of " + oid.encode("ascii")


def _of_proof(digest: bytes) -> bytes:
    return b"proved with payload: " + digest


def _of_sound(state: bytes) -> bytes:
    return b"sound: " + state


def _row_of(facts: ArtifactFacts) -> bytes:
    import json

    record = asdict(facts)
    for name in _HASHES:
        if record[name] is not None:
            record[name] = record[name].hex()
    if facts.signed is not None:
        message, signature = facts.signed
        record["signed"] = [message.hex(), signature.signature.hex(), signature.keyid]
    return json.dumps(record).encode()


def _facts_of(value: bytes) -> ArtifactFacts | None:
    """Parse the facts in a row; None if another version of the program wrote it."""
    import json

    try:
        record: dict[str, Any] = json.loads(value)
        for name in _HASHES:
            if record[name] is not None:
                record[name] = bytes.fromhex(record[name])
        if record["signed"] is not None:
            message, signature, keyid = record["signed"]
            signed = Signature(bytes.fromhex(signature), keyid)
            record["signed"] = bytes.fromhex(message), signed
        for name in ("meta", "text_meta"):
            if record[name] is not None:
                record[name] = Meta(**record[name])
        if record["identity"] is not None:
            kind, what, is_fault = record["identity"]
            record["identity"] = kind, what, is_fault
        return ArtifactFacts(**record)
    except (ValueError, TypeError, KeyError):
        return None
