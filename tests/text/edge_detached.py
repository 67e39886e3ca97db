"""The detached texts of `tests/data/detached`, made from the words of the spec alone.

Nothing but `docs/spec/detached.md` and the texts of `edge_texts`: a fault of the package
is not in them. `payload` of a case says which chunks are at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any

from tests.text.edge_texts import ALICE, KEY, Arr, Text, armored, chunk, file_text
from tests.text.naive_detached import detached

PENDING = b"root_pending sha256_all=" + b"0" * 64 + b' note="finalize with WSUM"\n'


@dataclass(frozen=True)
class Made:
    """A detached text, the chunks at hand by their names, and what a verifier must say."""

    text: bytes
    note: str
    state: str | None
    kinds: tuple[str, ...] = ()
    payload: tuple[bytes, ...] = ()
    attached: bytes | None = None
    given: tuple[tuple[str, Any], ...] = ()

    def record(self, name: str) -> dict[str, Any]:
        """What the manifest says of the case."""
        return {
            "file": f"detached/{name}.wtxt",
            "kinds": sorted(self.kinds),
            "payload": self.state,
            "at_hand": sorted(sha256(one).hexdigest() for one in self.payload),
            "attached_sha256": None if self.attached is None else sha256(self.attached).hexdigest(),
            "note": self.note,
            **dict(self.given),
        }


def pattern(count: int, start: int = 0) -> bytes:
    return bytes((start + i) % 251 for i in range(count))


SMALL = Arr("a", bytes([1, 2, 3, 4, 5]))
EDGE = Arr("b", pattern(4096))
OVER = Arr("c", pattern(4097))
TWO = Arr("d", pattern(6000), rows=(1000, 4, "on"))
FLOATS = Arr("e", pattern(8000, 7), "f32", (40, 50))
TEXT = Text((SMALL, EDGE, OVER, TWO))


@cache
def made() -> dict[str, Made]:
    """All cases, by the name of their file without its ending."""
    return {**_valid(), **_partly(), **_refused(), **_lies()}


def _good(text: Text, note: str, **given: Any) -> Made:
    detached_text, payload = detached(text.bytes)
    return Made(
        detached_text,
        note,
        "complete",
        payload=tuple(payload.values()),
        attached=text.bytes,
        given=tuple(given.items()),
    )


def _valid() -> dict[str, Made]:
    layout = (
        '{"extents":[{"hex":"77"},{"array":"W","dtype":"u8","name":"w","shape":[5000]}],'
        '"format":"aero","size":5001,"v":1}'
    )
    keys = [bytes(ALICE.verify_key).hex()]
    names = [
        f'{{"array":"w{i:03d}","dtype":"u8","name":"w{i:03d}","shape":[1]}}' for i in range(99)
    ]
    large = '{"extents":[' + ",".join(names) + '],"format":"aero","size":99,"v":1}'
    return {
        "small_only": _good(Text((SMALL, EDGE)), "arrays of at most 4,096 bytes stand as in T"),
        "no_arrays": _good(Text(()), "a snapshot of nothing is complete by itself"),
        "over_by_one": _good(Text((OVER,)), "4,097 bytes are payload"),
        "mixed": _good(TEXT, "small and large arrays; two chunks of an array"),
        "floats": _good(Text((FLOATS,)), "two dimensions"),
        "plain_chunks": _good(
            Text((Arr("a", pattern(40_000), idx=False),)), "chunks of 32,768 bytes without idx"
        ),
        "inline_of_two_chunks": _good(
            Text((Arr("a", pattern(4000), rows=(2000, 1, "on")),)), "two chunks that stand as in T"
        ),
        "signed": _good(
            Text((OVER,), sign=ALICE), "a signature covers the lines of T", public_keys=keys
        ),
        "hmac": _good(
            Text((replace(OVER, mac=True),)), "an hmac of the payload", hmac_key=KEY.hex()
        ),
        "container": _good(
            file_text(layout, Arr("W", pattern(5000)), schema="aero/v1"), "a file of 5,001 bytes"
        ),
        "large_layout": _good(
            file_text(large, *(Arr(f"w{i:03d}", b"\7") for i in range(99)), schema="aero/v1"),
            "a layout over 4,096 bytes is payload",
        ),
    }


def _partly() -> dict[str, Made]:
    text, payload = detached(TEXT.bytes)
    chunks = tuple(payload.values())
    missing = ("payload-missing",)
    return {
        "absent": Made(text, "no chunk is at hand", "absent", missing),
        "partly": Made(text, "one of three chunks is at hand", "partly", missing, chunks[1:2]),
    }


def _refused() -> dict[str, Made]:
    text, payload = detached(TEXT.bytes)
    chunks = tuple(payload.values())
    lines = text.splitlines(keepends=True)
    at_b = next(i for i, line in enumerate(lines) if line.startswith(b"arr name=b"))
    at_c = next(i for i, line in enumerate(lines) if line.startswith(b"arr name=c"))
    over = chunk(0, 0, OVER.raw)
    body = over[over.index(b"\n") + 1 :]
    behind = sum(map(len, lines[: at_c + 3]))
    data = sum(map(len, lines[: at_b + 3])), sum(map(len, lines[: at_c - 2]))

    def bad(changed: bytes, kind: str, note: str) -> Made:
        return Made(changed, note, None, (kind,), chunks)

    root = text[text.index(b"root ") : text.index(b"arr name=a")]
    return {
        "version_2": bad(text.replace(b"ED 1\n", b"ED 2\n"), "syntax", "another version"),
        "no_version": bad(text.replace(b"ED 1\n", b"ED \n"), "syntax", "no version"),
        "pending": bad(text.replace(root, PENDING), "structure", "a pending text has none"),
        "data_of_large": bad(
            text[:behind] + body + text[behind:], "structure", "data of an array over 4,096 bytes"
        ),
        "line_of_large": bad(
            text[:behind] + armored(b"x") + text[behind:], "structure", "one line of data"
        ),
        "endch_of_large": bad(
            text[:behind] + b"endch\n" + text[behind:], "structure", "endch of a larger array"
        ),
        "data_missing": bad(
            text[: data[0]] + text[data[1] + len(b"endch\n") :],
            "structure",
            "an array of 4,096 bytes without its data",
        ),
        "data_missing_endch": bad(
            text[: data[0]] + text[data[1] :], "structure", "endch where data lines are wanted"
        ),
        "other_line": bad(
            text[:behind] + b"audit a=1\n" + text[behind:], "syntax", "neither ch nor endarr"
        ),
        "chunk_missing": bad(
            text.replace(lines[-3], b""), "structure", "endarr before the last chunk"
        ),
        "chunk_twice": bad(
            text[:behind] + lines[at_c + 2] + text[behind:], "structure", "a chunk too many"
        ),
        "cut": bad(text[:behind], "syntax", "the text ends behind a ch line"),
        "first_line_attached": bad(
            text.replace(b"WTXT-DETACHED 1\n", b"WTXT 1\n"), "syntax", "the first line of T"
        ),
    }


def _lies() -> dict[str, Made]:
    text, payload = detached(Text((OVER, TWO)).bytes)
    chunks = tuple(payload.values())
    own = sha256(OVER.raw).hexdigest().encode()
    other = sha256(b"x" * 4097).hexdigest().encode()
    at = text.index(b"ch ix=")
    chunk_lies = text[:at] + text[at:].replace(own, other, 1)
    arr_lies = text.replace(own, other, 1)
    crc = text[text.index(b"crc32c=") :][:15]
    return {
        "other_chunk": Made(
            chunk_lies,
            "another chunk of the same size: root and array don't hold",
            "complete",
            ("array_sha256", "crc32c", "fastxor", "root"),
            (*chunks, b"x" * 4097),
        ),
        "other_chunk_absent": Made(
            chunk_lies,
            "the only chunk of an array has another hash than the array",
            "absent",
            ("array_sha256", "payload-missing"),
        ),
        "other_array_hash": Made(
            arr_lies,
            "the array has another hash than its only chunk",
            "absent",
            ("array_sha256", "payload-missing"),
        ),
        "other_size": Made(
            chunk_lies.replace(other, sha256(b"y").hexdigest().encode()),
            "a chunk of another size by that name",
            "partly",
            ("array_sha256", "chunk_sha256"),
            (*chunks, b"y"),
        ),
        "wrong_crc": Made(
            text.replace(crc, b"crc32c=00000000"),
            "the CRC-32C of a ch line",
            "complete",
            ("crc32c",),
            chunks,
        ),
        "merkle": Made(
            text.replace(b"build=none", b"build=some"),
            "merkle_this is proved without payload",
            "absent",
            ("merkle", "payload-missing"),
        ),
        "sealed_root_other_chunks": Made(
            detached(Text((replace(OVER, raw=pattern(4097, 9)), TWO)).bytes)[0].replace(
                Text((replace(OVER, raw=pattern(4097, 9)), TWO)).covered[7:],
                Text((OVER, TWO)).covered[7:],
            ),
            "other chunks under a root that somebody signed",
            "complete",
            ("fastxor", "root"),
            (pattern(4097, 9), *chunks),
        ),
    }
