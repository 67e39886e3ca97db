"""Rebuilding a damaged ledger: its chain proves what its lines said.

The merkle_prev of a record is known from the record before, and merkle_this covers content, time,
generation and build (`docs/spec/ledger.md`, section "Records"). What only signatures cover (paths,
schema, form, the signatures themselves) is taken as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO

from wtxtgit.model.array import Meta
from wtxtgit.text import digest, grammar, ledger
from wtxtgit.text.recovery import lines
from wtxtgit.text.recovery.chunk import NEAR
from wtxtgit.text.recovery.reading import distance

_WSUM_KEYS = (b"WSUM 1 sha256_all=", b" merkle_prev=", b" merkle_this=")
_STARTS = {
    "at": b"at path=",
    "meta": b"meta schema=",
    "wsum": b"WSUM 1 sha256_all=",
    "detached": b"detached sha256=",
    "sign": b"sign ed25519=",
}


def mended(text: bytes) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the original of a damaged ledger, None if it can't be proved; and what isn't kept."""
    # One by one: a list of very many would take more memory than the text.
    rest = (line.removesuffix(b"\n") for line in BytesIO(text))
    first = next(rest, b"")
    if ledger.parse_head(first + b"\n", 0) is None:
        return None, ("the first line can't be read, and nothing else says what it was",)
    done = [first + b"\n"]
    notes: list[str] = []
    before = ledger.FIRST_PREV
    for number, record in enumerate(_records(rest)):
        meta, wsum = record.get("meta", [b""])[0], record.get("wsum", [b""])[0]
        header = next(_headers(meta, wsum, before), None)
        if header is None:
            return None, (*notes, f"record {number + 1}: nothing proves what its lines were")
        parsed, sha256_all = header
        this = digest.merkle(before, sha256_all, parsed)
        for line in record.get("at", []):
            if ledger.parse_at(line + b"\n", 0) is None:
                return None, (*notes, f"record {number + 1}: its place can't be read")
            done.append(line + b"\n")
        done += [
            grammar.format_meta(parsed),
            grammar.format_wsum(grammar.Wsum(sha256_all, before, this, None)),
        ]
        for line in record.get("detached", []):
            if ledger.parse_detached(line + b"\n", 0) is None:
                return None, (*notes, f"record {number + 1}: its detached line can't be read")
            done.append(line + b"\n")
        for line in record.get("sign", []):
            if grammar.parse_sign(line + b"\n", 0) is None:
                notes.append(f"record {number + 1}: a signature can't be read")
            else:
                done.append(line + b"\n")
        before = this
    whole = b"".join(done)
    return (whole if ledger.read(whole).ok else None), tuple(notes)


def _records(rest: Iterable[bytes]) -> Iterator[dict[str, list[bytes]]]:
    """Yield the lines of each record, by their kinds."""
    record: dict[str, list[bytes]] = {}
    for line in rest:
        kind = _kind_of(line)
        if kind is None:
            continue
        # A record has one WSUM line, and only its form and its signatures follow it.
        ends = kind not in ("sign", "detached") and "wsum" in record
        if ends or (kind != "sign" and kind in record):
            yield record
            record = {}
        record.setdefault(kind, []).append(line)
    if record:
        yield record


def _kind_of(line: bytes) -> str | None:
    off, kind = min((distance(line[: len(start)], start), kind) for kind, start in _STARTS.items())
    return kind if off <= NEAR else None


def _headers(meta: bytes, wsum: bytes, before: bytes) -> Iterator[tuple[Meta, bytes]]:
    """Yield what a record's lines may have said, if merkle_this proves it."""
    values = lines.fields(wsum, _WSUM_KEYS)
    if values is None:
        return
    claimed, _, this = values
    parsed = grammar.parse_meta(meta + b"\n", 0)
    schema = None if parsed is None else parsed[0].schema
    for sha256_all in lines.hashes(claimed, 64):
        headers = lines.headers(meta, before.hex(), this.decode("latin-1"), sha256_all, schema)
        for one, _ in headers:
            yield one, sha256_all
