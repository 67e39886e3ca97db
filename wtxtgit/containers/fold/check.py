"""Checks of FOLD files, in the order of trust: limits, hashes, parity, content.

A payload is decoded only if its hashes hold, or parity made them hold. Hash,
CRC and decoder go through a payload together, block by block.
Spec: `docs/spec/fold.md`, "Checks".
"""

from __future__ import annotations

import json
import zlib

from wtxtgit.containers import json_text
from wtxtgit.containers.budget import most_decoded
from wtxtgit.containers.fold import index, payloads
from wtxtgit.containers.fold.index import TRUST_BLOCK
from wtxtgit.containers.fold.payloads import MAX_MENDED_BLOCKS, TAG_BYTES, Digests, Passes, Verdict
from wtxtgit.containers.fold.read import UNCOMPRESSED, ZSTD, Chunk, Fold
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

JSON_CTYPE = b"JSON"
MAX_JSON_CHUNK = 16 * 1024 * 1024
"""Longest JSON chunk that is parsed, in bytes once decoded."""
PARITY_BLOCKS = 16
"""Blocks of a chunk whose parity is checked although its hash holds."""
MAX_PARITY_BLOCKS = 4096
"""The same of all chunks together: making parity is far slower than hashing."""

_SHOWN_DIGITS = 16


def check(container: Fold, options: ReadOptions) -> Findings:
    """Check everything that the file says of itself; raises nothing."""
    findings = Findings()
    index.check_index(container, findings)
    index.check_layout(container, findings)
    _check_trust_block(container, findings)
    keyed = index.check_metadata(container, options.integrity_key, findings)
    chunks = _ChunkCheck(container, options, findings)
    for chunk in container.chunks:
        index.check_chunk(chunk, findings)
        chunks.check(chunk)
    keyed += chunks.keyed
    unchecked = keyed.count(None)
    if unchecked:
        findings.warn(
            "hmac",
            f"{_counted(unchecked, 'hash', 'es')} can't be checked: HMACs need their key",
            offset=container.index_start,
            field="sha256",
        )
    if chunks.locked:
        findings.warn(
            "structure",
            f"content of {_counted(chunks.locked, 'encrypted chunk', 's')} can't be checked: "
            "no key is given",
            offset=container.index_start,
            field="encrypted",
        )
    if options.integrity_key is not None and keyed:
        findings.authenticated = all(keyed) and len(keyed) > len(container.chunks)
    return findings


def _counted(count: int, noun: str, plural: str) -> str:
    return f"{count} {noun}{plural if count != 1 else ''}"


def _check_trust_block(fold: Fold, findings: Findings) -> None:
    """A trust block is a JSON object in a string; what it signs is not checked."""
    text = fold.index.get(TRUST_BLOCK)
    if text is None:
        return
    try:
        encoded = text.encode() if isinstance(text, str) else b""
        held = json_text.parse(memoryview(encoded), TRUST_BLOCK)
    except (FormatError, UnicodeEncodeError):
        held = None
    if not isinstance(held, dict):
        findings.warn(
            "structure",
            "trust_block is no JSON object in a string",
            offset=fold.index_start,
            field=TRUST_BLOCK,
        )


class _ChunkCheck:
    """Checks payloads one after another, and counts what they cost together.

    `keyed` is what became of the hashes that need a key, `locked` the number
    of encrypted chunks for which there is none.
    """

    def __init__(self, fold: Fold, options: ReadOptions, findings: Findings) -> None:
        self._data = fold.data
        self._options = options
        self._findings = findings
        self._passes = Passes(fold.data)
        self._decoding_left = most_decoded(len(fold.data), options)
        self._parity_left = MAX_PARITY_BLOCKS
        self._mending_left = MAX_MENDED_BLOCKS
        self.keyed: list[bool | None] = []
        self.locked = 0

    def check(self, chunk: Chunk) -> None:
        try:
            payloads.check_limits(chunk, self._options)
        except FormatError as error:
            self._report(chunk, error)
            return
        if not self._passes.take(chunk):
            self._findings.error(
                "limit",
                "chunks overlap too much for all of them to be checked",
                offset=chunk.offset,
                field="offset",
                chunk=chunk.name,
            )
            return
        if chunk.flags == ZSTD:
            self._decoding_left -= chunk.uncomp_len
        if self._decoding_left < 0:
            self._findings.error(
                "limit",
                "chunks decode to too much for a file of this size",
                offset=chunk.offset + 8,
                field="uncomp_len",
                chunk=chunk.name,
            )
            return
        self._check_payload(chunk)

    def _check_payload(self, chunk: Chunk) -> None:
        if chunk.encrypted and self._options.decryption_key is None:
            self.locked += 1
        held = self._data[chunk.payload_start : chunk.payload_end]
        digests = Digests(held)
        content, failure = self._decode(held, chunk, digests)
        digests.finish()
        wanted = payloads.parse_hash(chunk.entry.get("sha256"))
        verdict = payloads.judged(digests, chunk, self._options)
        if not verdict.intact and payloads.usable_parity(chunk):
            mending = payloads.mend(self._data, chunk, self._options, self._mending_left)
            self._mending_left = max(self._mending_left - mending.damaged, 0)
            if mending.verdict.intact:
                held, digests, verdict = mending.payload, mending.digests, mending.verdict
                content, failure = self._decode(held, chunk, None)
                self._warn_of_damage(chunk, mending.damaged)
            elif mending.damaged:
                self._tell_lost(chunk, mending.damaged, mending.given_up)
        elif verdict.intact:
            self._check_parity(held, chunk)
        if wanted is not None and wanted.needs_key:
            self.keyed.append(verdict.hash_holds)
        self._tell_hashes(held, chunk, digests, verdict)
        if not verdict.intact:
            return
        if failure is not None:
            self._report(chunk, failure)
        elif content is not None:
            self._check_json(chunk, content)

    def _decode(
        self, held: ByteView, chunk: Chunk, digests: Digests | None
    ) -> tuple[bytes | None, FormatError | None]:
        """Decode a payload: its content if it is JSON, and why it can't be decoded."""
        if chunk.flags not in (UNCOMPRESSED, ZSTD):
            return None, None  # told with the rest of the header
        if chunk.encrypted and self._options.decryption_key is None:
            return None, _wrong_locked_length(chunk)
        is_json = chunk.ctype == JSON_CTYPE and chunk.uncomp_len <= MAX_JSON_CHUNK
        content = bytearray()
        seen = None if digests is None else digests.update
        try:
            for block in payloads.content(held, chunk, self._options, seen):
                if is_json:
                    content += block
        except FormatError as error:
            return None, error
        return (bytes(content) if is_json else None), None

    def _tell_hashes(
        self, held: ByteView, chunk: Chunk, digests: Digests, verdict: Verdict
    ) -> None:
        if verdict.hash_holds is False:
            wanted = payloads.parse_hash(chunk.entry.get("sha256"))
            self._findings.error(
                "sha256" if wanted is None else wanted.kind,
                f"sha256 of the payload is {digests.sha256[:_SHOWN_DIGITS]}..., "
                f"index has {str(wanted)[: _SHOWN_DIGITS + len('hmac-sha256:')]}...",
                offset=chunk.payload_start,
                field="sha256",
                chunk=chunk.name,
            )
        if verdict.crc_holds:
            return
        if verdict.hash_holds and _zlib_crc32(held) == chunk.crc32c:
            self._findings.warn(
                "crc32c",
                "crc32c holds the CRC-32 of zlib, as an old writer put it there",
                offset=chunk.offset + 24,
                field="crc32c",
                chunk=chunk.name,
            )
            return
        self._findings.error(
            "crc32c",
            f"crc32c of the payload is {digests.crc32c:08x}, header has {chunk.crc32c:08x}",
            offset=chunk.payload_start,
            field="crc32c",
            chunk=chunk.name,
        )

    def _warn_of_damage(self, chunk: Chunk, damaged: int) -> None:
        self._findings.warn(
            "ecc",
            f"payload is damaged in {damaged} blocks, which its parity can mend",
            offset=chunk.payload_start,
            field="ecc_payload",
            chunk=chunk.name,
        )

    def _tell_lost(self, chunk: Chunk, damaged: int, given_up: int) -> None:
        lost = f"{given_up} of {damaged} damaged blocks" if given_up else "the payload"
        self._findings.error(
            "ecc",
            f"parity can't mend {lost}",
            offset=chunk.payload_end,
            field="ecc_payload",
            chunk=chunk.name,
        )

    def _check_parity(self, held: ByteView, chunk: Chunk) -> None:
        """Warn where parity would not help, as far as the first blocks tell."""
        n = payloads.usable_parity(chunk)
        blocks = min(PARITY_BLOCKS, self._parity_left)
        if not n or not blocks:
            return
        from wtxtgit.containers.fold import reed_solomon

        self._parity_left -= blocks
        if not reed_solomon.is_parity(held, self._data[chunk.payload_end : chunk.end], n, blocks):
            self._findings.warn(
                "ecc",
                "parity is not that of the payload, as an old writer made it: it can mend nothing",
                offset=chunk.payload_end,
                field="ecc_payload",
                chunk=chunk.name,
            )

    def _check_json(self, chunk: Chunk, content: bytes) -> None:
        try:
            json_text.parse(memoryview(content), "JSON chunk")
        except FormatError:
            reason = "content is not JSON that can be read" if content else "content is empty"
        else:
            if not _has_constants(content):
                return
            reason = "content has NaN or Infinity, which JSON has not"
        self._findings.warn(
            "structure",
            reason,
            offset=chunk.payload_start,
            field="comp_payload",
            chunk=chunk.name,
        )

    def _report(self, chunk: Chunk, error: FormatError) -> None:
        self._findings.refuse(error, chunk=chunk.name)


def _wrong_locked_length(chunk: Chunk) -> FormatError | None:
    """What the lengths of an encrypted chunk say without its key."""
    length = chunk.comp_len - TAG_BYTES
    if length < 0 or (chunk.flags == UNCOMPRESSED and length != chunk.uncomp_len):
        return FormatError(
            f"comp_len {chunk.comp_len} of an encrypted chunk is not uncomp_len "
            f"{chunk.uncomp_len} and {TAG_BYTES}",
            offset=chunk.offset + 16,
            field="comp_len",
        )
    return None


def _has_constants(content: bytes) -> bool:
    """Whether a JSON text that was parsed before has NaN or Infinity as values."""
    if b"NaN" not in content and b"Infinity" not in content:
        return False
    found: list[str] = []
    json.loads(content, parse_constant=found.append)
    return bool(found)


def _zlib_crc32(held: ByteView) -> int:
    found = 0
    for piece in pieces(held):
        found = zlib.crc32(piece, found)
    return found
