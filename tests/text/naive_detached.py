"""A second reader of detached texts, from the words of `docs/spec/detached.md` alone.

It is slow, holds everything, and shares nothing with the package. It takes lines one by
one and knows each line by one expression; what data lines hold is compared with what the
spec would write for those bytes.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from math import prod

from tests.text.edge_texts import ITEMS, armored, cached_crc32c

HASH, TOKEN, NUMBER = r"[0-9a-f]{64}", r"[A-Za-z0-9._/+:@-]+", r"(?:0|[1-9][0-9]{0,19})"
LINES = {
    "first": "WTXT-DETACHED 1",
    "meta": rf"meta schema={TOKEN} gen=(\d{{6}}) ts=(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ) "
    rf"build=({TOKEN}) endian=LE host={TOKEN} cuda={TOKEN}",
    "cap": rf"cap ext={TOKEN}(?:,{TOKEN})*",
    "root": rf"root sha256_all=({HASH}) merkle_prev=({HASH}) merkle_this=({HASH}) "
    r"fastxor=([0-9a-f]{16})",
    "sign": r"sign ed25519=[A-Za-z0-9+/]{86}== keyid=[0-9a-f]{16}",
    "arr": rf"arr name=([A-Za-z0-9_]+) dtype=({'|'.join(ITEMS)}) shape=({NUMBER}(?:,{NUMBER})*) "
    rf"order=C bytes=({NUMBER}) sha256=({HASH}) hmac={HASH} salt=[0-9a-f]{{16}}",
    "idx": rf"idx rows_per_chunk=({NUMBER}) row_size=({NUMBER}) row_blocking=(on|off)",
    "ch": rf"ch ix=(\d{{6}}) off=(\d{{12}}) len=({NUMBER}) sha256=({HASH}) crc32c=([0-9a-f]{{8}}) "
    rf"b64=on width=76 lines=({NUMBER})",
    "pending": r"root_pending sha256_all=0{64} note=\"finalize with WSUM\"",
    "data": r"(?=.{78}\Z)([A-Za-z0-9+/]*)(=*) [0-9a-f]",
    "audit": rf'audit {TOKEN}=(?:"[ !#-~]*"|[!#-~]+)(?: {TOKEN}=(?:"[ !#-~]*"|[!#-~]+))*',
}


class Stop(Exception):
    """Where the reading stops, by its kind."""


class _Reader:
    def __init__(self, text: bytes) -> None:
        if not text.endswith(b"\n"):
            # The last line has no LF: it is none that may stand there.
            text += b"\0\n"
        self.lines = text.decode("latin-1").split("\n")[:-1]

    def next(self) -> str:
        return self.lines[0] if self.lines else ""

    def at(self, kind: str) -> bool:
        return re.fullmatch(LINES.get(kind, kind), self.next()) is not None

    def take(self, kind: str) -> tuple[str, ...]:
        found = re.fullmatch(LINES.get(kind, kind), self.next())
        if found is None or not self.lines:
            raise Stop("syntax")
        self.lines.pop(0)
        return found.groups()


def judge(text: bytes, payload: Mapping[str, bytes]) -> tuple[set[str], str | None]:
    """The kinds of all that is wrong, `payload-missing` included, and the payload's state.

    `payload` has chunks by their SHA-256 in hex; one that is not of its name is damaged.
    """
    kinds: set[str] = set()
    try:
        return kinds, _judge(_Reader(text), payload, kinds)
    except Stop as stop:
        kinds.add(str(stop))
        return kinds, None


def _judge(reader: _Reader, payload: Mapping[str, bytes], kinds: set[str]) -> str:
    reader.take("first")
    gen, ts, build = reader.take("meta")
    try:
        datetime.fromisoformat(ts.removesuffix("Z"))
    except ValueError:
        raise Stop("syntax") from None
    reader.take("cap")
    if reader.at("pending"):
        raise Stop("structure")
    sha256_all, prev, this, fastxor = reader.take("root")
    if reader.next().startswith("sign "):
        reader.take("sign")
    hash_all, words = sha256(), 0
    large = lacking = missing = 0
    before = ""
    while reader.next().startswith("arr "):
        line = reader.next()
        name, dtype, shape, nbytes, claimed = reader.take("arr")
        size, count = int(nbytes), ITEMS[dtype] * prod(map(int, shape.split(",")))
        if name <= before or size != count:
            raise Stop("structure")
        before = name
        step = 32_768
        if reader.next().startswith("idx "):
            rows, row, blocking = reader.take("idx")
            if not int(rows) or not int(row) or int(row) % ITEMS[dtype]:
                raise Stop("structure")
            step = int(rows) * int(row) if blocking == "on" else step
        chunks: list[bytes | None] = []
        names = []
        for ix, off in enumerate(range(0, max(size, 1), step)):
            if ix and size > 4096 and (reader.at("data") or reader.at("endch")):
                raise Stop("structure")
            if reader.at("endarr"):
                raise Stop("structure")
            *place, length, digest, crc, lines = reader.take("ch")
            want = max(0, min(step, size - off))
            wanted = [f"{ix:06d}", f"{off:012d}", str(want), str(max(1, -(-want // 57)))]
            if [*place, length, lines] != wanted:
                raise Stop("structure")
            names.append(digest)
            if size > 4096:
                large += 1
                raw = payload.get(digest)
                missing += raw is None
                if raw is not None and sha256(raw).hexdigest() != digest:
                    kinds.add("payload")
                    raw = None
                if raw is not None and len(raw) != want:
                    kinds.add("chunk_sha256")
                    raw = None
                lacking += raw is None
            else:
                raw = _inline(reader, want)
                if sha256(raw).hexdigest() != digest:
                    kinds.add("chunk_sha256")
            if raw is not None and f"{cached_crc32c(raw):08x}" != crc:
                kinds.add("crc32c")
            chunks.append(raw)
        if size > 4096 and (reader.at("data") or reader.at("endch")):
            raise Stop("structure")
        if reader.next().startswith("ch "):
            raise Stop("structure")
        reader.take("endarr")
        whole = [chunk for chunk in chunks if chunk is not None]
        if len(whole) == len(chunks):
            array = b"".join(whole)
            if sha256(array).hexdigest() != claimed:
                kinds.add("array_sha256")
            hash_all.update(line.encode() + array)
            array += bytes(-len(array) % 8)
            for at in range(0, len(array), 8):
                words ^= int.from_bytes(array[at : at + 8], "little")
        elif len(chunks) == 1 and names[0] != claimed:
            kinds.add("array_sha256")
    if reader.next().startswith("audit "):
        reader.take("audit")
    reader.take("endwtxt")
    if reader.lines:
        raise Stop("syntax")
    if not lacking and hash_all.hexdigest() != sha256_all:
        kinds.add("root")
    if not lacking and f"{words:016x}" != fastxor:
        kinds.add("fastxor")
    link = bytes.fromhex(prev) + bytes.fromhex(sha256_all) + f"{ts}{gen}{build}".encode()
    if sha256(link).hexdigest() != this:
        kinds.add("merkle")
    if missing:
        kinds.add("payload-missing")
    return "complete" if not lacking else "partly" if lacking < large else "absent"


def _inline(reader: _Reader, size: int) -> bytes:
    raw = b""
    for at in range(0, max(size, 1), 57):
        if reader.next().startswith(("ch ", "endch", "endarr")) and at == 0:
            raise Stop("structure")
        line = reader.next()
        characters, _ = reader.take("data")
        if len(characters) % 4 == 1:
            raise Stop("syntax")
        raw += b64decode(characters + "=" * (-len(characters) % 4))
        if line.encode() + b"\n" != armored(raw[at:]) or len(raw) != min(size, at + 57):
            # Faults of armor are those of attached texts, which others hold fixed.
            raise Stop("syntax")
    reader.take("endch")
    return raw


def detached(text: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The detached text of a valid text, and its payload by names in hex."""
    out, payload, raw = ["WTXT-DETACHED 1\n"], {}, b""
    is_large = False
    for line in text.decode().splitlines(keepends=True)[1:]:
        if line.startswith("arr "):
            is_large = int(line.split(" bytes=")[1].split(" ")[0]) > 4096
        data = re.fullmatch(LINES["data"], line.rstrip("\n"))
        if is_large and line == "endch\n":
            payload[sha256(raw).hexdigest()] = raw
            raw = b""
        elif is_large and data is not None:
            raw += b64decode(data[1] + "=" * (-len(data[1]) % 4))
        else:
            out.append(line)
    return "".join(out).encode(), payload
