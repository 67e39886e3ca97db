"""Checks of FOLD files, in the order of trust: limits, hashes, parity, content.

First what the index says is compared with chunk headers and with itself, without reading payloads.
A payload is decoded only if its hashes hold, or if parity mended it so that they hold. Hash, CRC
and decoder process a payload together, block by block. Spec: `docs/spec/fold.md`, "Checks".
"""

from __future__ import annotations

import json
import re
from operator import attrgetter

from wtxtgit.containers import json_text
from wtxtgit.containers.budget import DecodingBudget
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.fold import payloads
from wtxtgit.containers.fold.payloads import (
    CHUNK_HASHES,
    MANIFEST_HASH,
    TAG_BYTES,
    Digests,
    HashVerdict,
    Payloads,
)
from wtxtgit.containers.fold.read import (
    CHUNK_HEADER,
    HEADER,
    JSON_CTYPE,
    MERKLE_ROOT,
    UNCOMPRESSED,
    ZSTD,
    Fold,
    FoldChunk,
    parity_bytes,
    parity_len,
)
from wtxtgit.containers.fold.signatures import check_signatures
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError, counted
from wtxtgit.io.view import ByteView, is_zeros, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

FORMAT = "fold"
CREATED = "created_at_unix"
VERSIONS = frozenset({"1.0.0", "1.1.0", "1.2.0"})
HEADER_FIELDS = (
    ("flags", 4),
    ("uncomp_len", 8),
    ("comp_len", 16),
    ("crc32c", 24),
    ("ecc_len", 28),
)
"""Integers that both a chunk header and the index have, with their offsets in the header."""
# Longest JSON chunk that is parsed, in decoded bytes: the other checks process it block by block.
MAX_JSON_CHUNK = 16 * 1024 * 1024
# How many blocks of an intact chunk have their parity checked: computing parity is far slower than
# hashing, and a writer that computes it wrongly does so from the first block on.
PARITY_BLOCKS = 16
# The same for all chunks together: a file may have a million of them.
MAX_PARITY_BLOCKS = 4096

_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){2}")
_SHOWN_DIGITS = 16


def check(container: Fold, options: ReadOptions) -> Findings:
    """Check everything that the file says of itself; raises nothing."""
    findings = Findings(label=attrgetter("name"))
    _check_index(container, findings)
    _check_layout(container, findings)
    check_signatures(container, options, findings)
    keyed = check_metadata(container, options.integrity_key, findings)
    chunks = _ChunkCheck(container, options, findings)
    for chunk in container.chunks:
        check_chunk(chunk, findings)
        chunks.check(chunk)
    keyed += chunks.keyed
    unchecked = keyed.count(None)
    if unchecked:
        hashes = "1 hash" if unchecked == 1 else f"{unchecked} hashes"
        findings.warn(
            f"{hashes} can't be checked: an HMAC needs its key",
            "sha256",
            container.index_start,
            kind="hmac",
        )
    if chunks.locked:
        locked = counted(chunks.locked, "encrypted chunk")
        findings.warn(
            f"content of {locked} can't be checked without a key",
            "encrypted",
            container.index_start,
        )
    if options.integrity_key is not None and keyed:
        # A keyed hash for each chunk, and one over the metadata: anything less proves only a part.
        findings.authenticated = all(keyed) and len(keyed) > len(container.chunks)
    return findings


def _check_index(fold: Fold, findings: Findings) -> None:
    """Check what readers require of the index as a whole."""
    index, offset = fold.index, fold.index_start
    version = index.get("version")
    if fold.has_repeated_keys:
        # Readers see only one value of a repeated key: the other is out of reach.
        findings.error(f"index repeats a key at byte {offset}", "index", offset)
    if index.get("format") != FORMAT:
        findings.error('format of the index is not "fold"', "format", offset)
    if not isinstance(version, str) or _VERSION.fullmatch(version) is None:
        findings.error(
            f"version of the index is {shown(version)}, which is not a version", "version", offset
        )
    elif version not in VERSIONS:
        findings.warn(f"version {shown(version)} of the index is unknown", "version", offset)
    if type(index.get(CREATED)) not in (int, float):
        findings.error(f"{CREATED} of the index is not a number", CREATED, offset)
    if not isinstance(index.get("metadata"), dict):
        findings.error("metadata is not an object", "metadata", offset)


def _check_layout(fold: Fold, findings: Findings) -> None:
    """Check for bytes that belong to no part, and warn of bytes that belong to two."""
    # The index (None) comes before the chunks that start where it does.
    parts: list[tuple[int, int, int, FoldChunk | None]] = [
        (fold.index_start, 0, fold.index_end, None)
    ]
    parts += [(chunk.offset, 1, chunk.end, chunk) for chunk in fold.chunks]
    reached = HEADER.size
    places: set[int] = set()
    for start, _, end, chunk in sorted(parts, key=lambda part: part[:3]):
        what = "index" if chunk is None else f"chunk {quoted(chunk.name)}"
        if chunk is not None and start in places:
            # For equal names it would decide which one readers find.
            findings.error(f"{what} is listed more than once", "offset", start, chunk)
        elif start < reached:
            findings.warn(f"{what} overlaps what is before it", "offset", start, chunk)
        elif start > reached:
            say = findings.warn if is_zeros(fold.data[reached:start]) else findings.error
            say(f"{start - reached} bytes before {what} are in no chunk", "offset", reached, chunk)
        places.add(start)
        reached = max(reached, end)
    if reached < len(fold.data):
        say = findings.warn if is_zeros(fold.data[reached:]) else findings.error
        say(
            f"{len(fold.data) - reached} bytes follow the end of the file's contents",
            "index_len",
            reached,
        )


def check_chunk(chunk: FoldChunk, findings: Findings) -> None:
    """Compare a chunk's header with the index."""
    entry, at = chunk.entry, chunk.offset
    if entry.get("ctype") != chunk.ctype_text:
        findings.error(
            f"ctype is {quoted(chunk.ctype_text)}, index has {shown(entry.get('ctype'))}",
            "ctype",
            at,
            chunk,
        )
    for field, place in HEADER_FIELDS:
        stated, own = entry.get(field), getattr(chunk, field)
        if type(stated) is not int or stated != own:
            findings.error(f"{field} is {own}, index has {shown(stated)}", field, at + place, chunk)
    header_len = entry.get("header_len")
    if type(header_len) is not int or header_len != CHUNK_HEADER.size:
        findings.error(
            f"header_len in the index is {shown(header_len)}, not {CHUNK_HEADER.size}",
            "header_len",
            at,
            chunk,
        )
    if chunk.flags not in (UNCOMPRESSED, ZSTD):
        findings.error(f"flags {chunk.flags:#x} are unknown", "flags", at + 4, chunk)
    if payloads.parse_hash(entry.get("sha256")) is None:
        findings.error(
            f"sha256 in the index is {shown(entry.get('sha256'))}, which is not a hash",
            "sha256",
            at,
            chunk,
        )
    # The original writer binds the encryption of a chunk to its name.
    if chunk.encrypted and entry.get("aad", chunk.name) != chunk.name:
        findings.error("aad in the index is not the chunk's name", "aad", at, chunk)
    n, algorithm = parity_bytes(chunk.ecc_algo), shown(chunk.ecc_algo)
    if n is None:
        findings.error(
            f"ecc_algo in the index is {algorithm}, not none or rs(n)", "ecc_algo", at + 28, chunk
        )
    elif parity_len(chunk.comp_len, n) != chunk.ecc_len:
        findings.error(
            f"ecc_len is {chunk.ecc_len}, {algorithm} of {chunk.comp_len} bytes has "
            f"{parity_len(chunk.comp_len, n)}",
            "ecc_len",
            at + 28,
            chunk,
        )


def check_metadata(fold: Fold, key: bytes | None, findings: Findings) -> list[bool | None]:
    """Check the hashes over hashes; returns the results of those that need a key."""
    metadata, offset = fold.index.get("metadata"), fold.index_start
    keyed: list[bool | None] = []
    if isinstance(metadata, dict):
        if CHUNK_HASHES in metadata:
            _check_chunk_hashes(fold, metadata[CHUNK_HASHES], findings)
            if MANIFEST_HASH not in metadata:
                findings.error(
                    "metadata has chunk_hashes but no manifest_hash, which every writer adds",
                    MANIFEST_HASH,
                    offset,
                    kind="manifest",
                )
        if MANIFEST_HASH in metadata:
            stated = payloads.parse_hash(metadata[MANIFEST_HASH])
            holds = stated is not None and stated.holds(payloads.manifest_sha256(metadata), key)
            if stated is not None and stated.needs_key:
                keyed.append(holds)
            if holds is False:
                findings.error(
                    "manifest_hash does not match the metadata",
                    MANIFEST_HASH,
                    offset,
                    kind="manifest",
                )
    _check_merkle_root(fold, findings)
    return keyed


def shown(value: object) -> str:
    """Format a value of the index for a message; it may be anything."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "none"
    return str(value) if isinstance(value, int | float) else "something else"


def _check_chunk_hashes(fold: Fold, hashes: object, findings: Findings) -> None:
    offset = fold.index_start
    if not isinstance(hashes, dict):
        findings.error("chunk_hashes is not an object", CHUNK_HASHES, offset, kind="manifest")
        return
    last = {chunk.name: chunk for chunk in fold.chunks}
    for chunk in fold.chunks:
        if chunk.name in hashes and hashes[chunk.name] == chunk.entry.get("sha256"):
            continue
        if last[chunk.name] is not chunk:
            # The original writer keeps one hash for each name.
            findings.warn(
                "chunk_hashes has the hash of a later chunk with the same name",
                CHUNK_HASHES,
                offset,
                chunk,
                kind="manifest",
            )
        else:
            differs = chunk.name in hashes
            findings.error(
                f"chunk_hashes {'and sha256 differ' if differs else 'lacks the chunk'}",
                CHUNK_HASHES,
                offset,
                chunk,
                kind="manifest",
            )
    for name in hashes:
        if name not in last:
            findings.error(
                "chunk_hashes has a chunk that the index lacks",
                CHUNK_HASHES,
                offset,
                name,
                kind="manifest",
            )


def _check_merkle_root(fold: Fold, findings: Findings) -> None:
    stated, metadata = fold.index.get(MERKLE_ROOT), fold.index.get("metadata")
    features = metadata.get("security_features") if isinstance(metadata, dict) else None
    # Without chunks there is no root.
    if not fold.chunks:
        return
    if stated is None:
        if isinstance(features, dict) and features.get("merkle") is True:
            findings.error(
                "security_features claim a merkle_root, but there is none",
                MERKLE_ROOT,
                fold.index_start,
                kind="merkle",
            )
        return
    root = payloads.merkle_root(
        (chunk.name, chunk.offset, chunk.entry.get("sha256")) for chunk in fold.chunks
    )
    if stated != root:
        findings.error(
            "merkle_root does not match the chunks", MERKLE_ROOT, fold.index_start, kind="merkle"
        )


class _ChunkCheck:
    """Checks payloads one after another, and counts their total cost.

    `keyed` has the results of the hashes that need a key, `locked` is the number of encrypted
    chunks for which there is no key.
    """

    def __init__(self, fold: Fold, options: ReadOptions, findings: Findings) -> None:
        self._data = fold.data
        self._listing = fold.listing
        self._options = options
        self._findings = findings
        self._payloads = Payloads(fold.data, options)
        self._decoding = DecodingBudget(len(fold.data), options, "uncomp_len")
        self._parity_left = MAX_PARITY_BLOCKS
        self.keyed: list[bool | None] = []
        self.locked = 0

    def check(self, chunk: FoldChunk) -> None:
        try:
            payloads.check_limits(chunk, self._options)
            self._payloads.passes.take(chunk.comp_len, chunk.offset)
            if chunk.flags == ZSTD:
                self._decoding.take(chunk.uncomp_len, chunk.offset + 8)
        except FormatError as error:
            self._findings.refuse(error, chunk)
            return
        self._check_payload(chunk)

    def _check_payload(self, chunk: FoldChunk) -> None:
        if chunk.encrypted and self._options.decryption_key is None:
            self.locked += 1
        stored = chunk.payload(self._data)
        # Hash what the decoder has just read, while it is in the processor's cache.
        digests = Digests(stored, self._options.progress)
        content, failure = self._decode(stored, chunk, digests)
        verdict = payloads.judged(digests.finish(), chunk, self._options)
        if not verdict.intact and payloads.usable_parity(chunk):
            mended, new_digests, new_verdict = self._payloads.mend(chunk)
            if new_verdict.intact:
                stored, digests, verdict = mended.payload, new_digests, new_verdict
                content, failure = self._decode(stored, chunk, None)
                blocks = counted(mended.damaged, "block")
                self._findings.warn(
                    f"payload is damaged in {blocks}, which parity can mend",
                    "ecc_payload",
                    chunk.payload_start,
                    chunk,
                    kind="ecc",
                )
            elif mended.damaged:
                blocks = f"{mended.given_up} of {mended.damaged} damaged blocks"
                self._findings.error(
                    f"parity can't mend {blocks if mended.given_up else 'the payload'}",
                    "ecc_payload",
                    chunk.payload_end,
                    chunk,
                    kind="ecc",
                )
        # Parity of intact payloads is checked too, while it could still be recomputed.
        elif verdict.intact:
            self._check_parity(stored, chunk)
        self._tell_hashes(stored, chunk, digests, verdict)
        # Content is judged only if hashes hold: otherwise damage would be reported twice.
        if verdict.intact and failure is not None:
            self._findings.refuse(failure, chunk)
        elif verdict.intact and content is not None:
            self._check_json(chunk, content)

    def _decode(
        self, stored: ByteView, chunk: FoldChunk, digests: Digests | None
    ) -> tuple[bytes | None, FormatError | None]:
        """Decode a payload; returns its content if it is JSON, and why it can't be decoded."""
        if chunk.flags not in (UNCOMPRESSED, ZSTD):
            return None, None  # reported with the rest of the header
        if chunk.encrypted and self._options.decryption_key is None:
            return None, _wrong_locked_length(chunk)
        is_json = chunk.ctype == JSON_CTYPE and chunk.uncomp_len <= MAX_JSON_CHUNK
        content = bytearray()
        update = None if digests is None else digests.update
        try:
            for block in payloads.content(stored, chunk, self._options, update):
                if is_json:
                    content += block
        except FormatError as error:
            return None, error
        return (bytes(content) if is_json else None), None

    def _tell_hashes(
        self, stored: ByteView, chunk: FoldChunk, digests: Digests, verdict: HashVerdict
    ) -> None:
        stated = payloads.parse_hash(chunk.entry.get("sha256"))
        if stated is not None and stated.needs_key:
            self.keyed.append(verdict.hash_holds)
        if stated is not None and verdict.hash_holds is False:
            self._findings.error(
                f"sha256 of the payload is {digests.sha256[:_SHOWN_DIGITS]}..., "
                f"index has {str(stated)[: _SHOWN_DIGITS + len('hmac-sha256:')]}...",
                "sha256",
                chunk.payload_start,
                chunk,
                kind=stated.kind,
            )
        if verdict.crc_holds:
            return
        if verdict.hash_holds and crc32_of(pieces(stored)) == chunk.crc32c:
            self._findings.warn(
                "crc32c holds zlib's CRC-32, as an old writer stored it",
                "crc32c",
                chunk.offset + 24,
                chunk,
                kind="crc32c",
            )
            return
        self._findings.error(
            f"crc32c of the payload is {digests.crc32c:08x}, header has {chunk.crc32c:08x}",
            "crc32c",
            chunk.payload_start,
            chunk,
            kind="crc32c",
        )

    def _check_parity(self, stored: ByteView, chunk: FoldChunk) -> None:
        """Warn if parity would not help, judged by the first blocks."""
        n = payloads.usable_parity(chunk)
        if not n or self._parity_left < PARITY_BLOCKS:
            return
        self._parity_left -= PARITY_BLOCKS
        from wtxtgit.containers.fold import reed_solomon  # it needs numpy

        parity = self._data[chunk.payload_end : chunk.end]
        if not reed_solomon.is_parity(stored, parity, n, PARITY_BLOCKS):
            self._findings.warn(
                "parity does not match the payload: an old writer made it, and it can't repair "
                "anything",
                "ecc_payload",
                chunk.payload_end,
                chunk,
                kind="ecc",
            )

    def _check_json(self, chunk: FoldChunk, content: bytes) -> None:
        reason = None
        try:
            listing = self._listing.apart()
            repeated: list[str] = []
            raw = memoryview(content)
            json_text.parse(raw, "JSON chunk", listing=listing, repeated=repeated)
            if repeated:
                reason = "content has an object with a key twice; readers may use either"
            elif _has_constants(content):
                reason = "content has NaN or Infinity, which are not valid JSON"
        except FormatError as error:
            reason = "content can't be read as JSON" if content else "content is empty"
            if error.kind == "limit":
                reason = f"content can't be read: {error.message}"
        if reason is not None:
            self._findings.warn(reason, "comp_payload", chunk.payload_start, chunk)


def _wrong_locked_length(chunk: FoldChunk) -> FormatError | None:
    """Return what is wrong with an encrypted chunk's lengths, so far as is known without a key."""
    # comp_len includes the tag; that much is known without the key.
    length = chunk.comp_len - TAG_BYTES
    if length < 0 or (chunk.flags == UNCOMPRESSED and length != chunk.uncomp_len):
        return FormatError(
            f"comp_len {chunk.comp_len} of an encrypted chunk is not uncomp_len "
            f"{chunk.uncomp_len} plus {TAG_BYTES}",
            offset=chunk.offset + 16,
            field="comp_len",
        )
    return None


def _has_constants(content: bytes) -> bool:
    """Whether a JSON text that was already parsed has NaN or Infinity as values."""
    if b"NaN" not in content and b"Infinity" not in content:
        return False
    constants: list[str] = []
    json.loads(content, parse_constant=constants.append)
    return bool(constants)
