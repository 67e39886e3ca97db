"""The texts of `tests/data/texts`, made from the words of the spec alone.

They are places at which two readers could differ. Nothing but `hashlib`, `hmac`,
PyNaCl and `docs/spec/wtxt.md`: a fault of the package is not in them.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from hashlib import sha256
from math import prod
from operator import xor
from typing import Any

import xxhash
from nacl.signing import SigningKey

from tests.text import edwards

ALICE = SigningKey(sha256(b"alice").digest())
KEY = b"a key for hmacs"
CAP = "crc32c,line_parity,arr_hmac,delta_v2,row_blocking"
ITEMS = {"f64": 8, "f32": 4, "i32": 4, "i16": 2, "u16": 2, "i8": 1, "u8": 1}
ROW = CHUNK = 65_536
TS = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Arr:
    """An array; `rows` are the default ones unless given, without `idx` there is no such line.

    `mac` makes the hmac of the key and the salt.
    """

    name: str
    raw: bytes
    dtype: str = "u8"
    shape: tuple[int, ...] | None = None
    rows: tuple[int, int, str] | None = None
    idx: bool = True
    mac: bool = False
    salt: bytes = bytes(8)

    @property
    def dims(self) -> tuple[int, ...]:
        return (len(self.raw) // ITEMS[self.dtype],) if self.shape is None else self.shape

    @property
    def line(self) -> bytes:
        code = hmac.digest(KEY, self.salt + self.raw, "sha256") if self.mac else bytes(32)
        dims = ",".join(map(str, self.dims)) or "scalar"
        return (
            f"arr name={self.name} dtype={self.dtype} shape={dims} order=C bytes={len(self.raw)} "
            f"sha256={sha256(self.raw).hexdigest()} hmac={code.hex()} salt={self.salt.hex()}"
        ).encode()

    @property
    def cut(self) -> tuple[int, int, str]:
        return self.rows or default_rows(self.dtype, self.dims)

    @property
    def block(self) -> bytes:
        per_chunk, size, blocking = self.cut
        idx = f"idx rows_per_chunk={per_chunk} row_size={size} row_blocking={blocking}\n"
        step = per_chunk * size if self.idx and blocking == "on" else 32_768
        step = max(step, 1)
        pieces = [self.raw[at : at + step] for at in range(0, len(self.raw), step)] or [b""]
        chunks = [chunk(ix, ix * step, piece) for ix, piece in enumerate(pieces)]
        start = self.line + b"\n" + (idx.encode() if self.idx else b"")
        return start + b"".join(chunks) + b"endarr\n"


@dataclass(frozen=True)
class Text:
    """A text with a root; `sign` is a whole line, or a key that signs."""

    arrays: tuple[Arr, ...] = ()
    schema: str = "weights/v1"
    cap: str = CAP
    gen: str = "000000"
    build: str = "none"
    sign: bytes | SigningKey = b""
    prev: bytes = bytes(32)
    ts: str = TS

    @property
    def this(self) -> bytes:
        """merkle_this."""
        return sha256(
            self.prev + self.hash_all + f"{self.ts}{self.gen}{self.build}".encode()
        ).digest()

    @property
    def hash_all(self) -> bytes:
        return sha256(b"".join(arr.line + arr.raw for arr in self.arrays)).digest()

    @property
    def covered(self) -> bytes:
        """What a signature covers: the lines from the first one to the root."""
        fastxor = 0
        for arr in self.arrays:
            padded = arr.raw + bytes(-len(arr.raw) % 8)
            for at in range(0, len(padded), 8):
                fastxor ^= int.from_bytes(padded[at : at + 8], "little")
        return (
            f"WTXT 1\nmeta schema={self.schema} gen={self.gen} ts={self.ts} build={self.build} "
            f"endian=LE host=any cuda=off\ncap ext={self.cap}\n"
            f"root sha256_all={self.hash_all.hex()} merkle_prev={self.prev.hex()} "
            f"merkle_this={self.this.hex()} fastxor={fastxor:016x}\n"
        ).encode()

    @property
    def bytes(self) -> bytes:
        signed = self.sign
        if isinstance(signed, SigningKey):
            signed = sign_line(bytes(signed.verify_key), signed.sign(self.covered).signature)
        return self.covered + signed + b"".join(arr.block for arr in self.arrays) + b"endwtxt\n"


@dataclass(frozen=True)
class Made:
    """A text and what a verifier must say; `kinds` are none where it is valid."""

    text: bytes
    note: str
    kinds: tuple[str, ...] = ()
    expected: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    wsum: bytes | None = None
    """The WSUM beside the text."""


def default_rows(dtype: str, shape: tuple[int, ...]) -> tuple[int, int, str]:
    size = ITEMS[dtype]
    dims = [max(dim, 1) for dim in shape]
    for k in range(1, len(dims) + 1):
        row = size * prod(dims[k:])
        if row <= ROW:
            break
    else:
        row = size
    per_chunk = 1
    while per_chunk * 2 * row <= CHUNK:
        per_chunk *= 2
    return per_chunk, row, "on"


def chunk(ix: int, off: int, piece: bytes) -> bytes:
    lines = [piece[at : at + 57] for at in range(0, len(piece), 57)] or [b""]
    start = (
        f"ch ix={ix:06d} off={off:012d} len={len(piece)} sha256={sha256(piece).hexdigest()} "
        f"crc32c={cached_crc32c(piece):08x} b64=on width=76 lines={len(lines)}\n"
    )
    return start.encode() + b"".join(armored(line) for line in lines) + b"endch\n"


def armored(piece: bytes) -> bytes:
    return with_parity(b64encode(piece).rstrip(b"=").ljust(76, b"="))


def with_parity(body: bytes) -> bytes:
    return body + b" %x\n" % (reduce(xor, body) & 15)


@cache
def cached_crc32c(data: bytes) -> int:
    """The same, for contents that come again and again."""
    return crc32c(data)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sign_line(public_key: bytes, signature: bytes) -> bytes:
    keyid = f"{xxhash.xxh64_intdigest(public_key, 0):016x}"
    return f"sign ed25519={b64encode(signature).decode()} keyid={keyid}\n".encode()


def file_text(layout: str, *arrays: Arr, schema: str = "opaque/v1") -> Text:
    """A text with a `_layout`, spelled as it is given."""
    every = (*arrays, Arr("_layout", layout.encode("latin-1")))
    return Text(tuple(sorted(every, key=lambda arr: arr.name)), schema, CAP + ",layout")


def one_tensor(extent: str, size: str = "1", end: str = ',"v":1}') -> Text:
    layout = '{"extents":[' + extent + '],"format":"aero","size":' + size + end
    return file_text(layout, Arr("W", b"\x07"), schema="aero/v1")


def record(name: str, made: Made) -> dict[str, Any]:
    """What the manifest says of a case."""
    valid = not made.kinds
    kinds = sorted(made.kinds)
    head = {"file": f"texts/{name}.wtxt", "valid": valid, "kinds": kinds, "note": made.note}
    beside = {} if made.wsum is None else {"wsum": f"texts/{name}.wsum"}
    return {**head, **beside, **made.given, **made.expected}


@cache
def made() -> dict[str, Made]:
    """All cases, by the name of their file without its ending."""
    return {**_arrays(), **_wsums(), **_signatures(), **_layouts()}


def _arrays() -> dict[str, Made]:
    five = Arr("a", bytes([1, 2, 3, 4, 5]))
    salted = replace(five, salt=bytes(range(1, 9)))
    off = Arr("a", bytes(range(8)), "f32", rows=(1, 4, "off"))
    long = Text((Arr("a", bytes(100)),)).bytes
    full = b"A" * 76
    many = Text((Arr("a", bytes(range(8)), rows=(4, 1, "on")),)).bytes
    second = many[many.index(b"ch ix=000001") : many.index(b"endarr\n")]
    spare = chunk(2, 8, b"")
    return {
        "salt_without_hmac": _good(Text((salted,)), "an hmac of zeros is none, whatever the salt"),
        "salt_without_hmac_key_given": _bad(
            Text((salted,)).bytes,
            "hmac",
            note="an hmac of zeros is none, and a key is given",
            hmac_key=KEY.hex(),
        ),
        "hmac_of_zero_salt": _good(
            Text((replace(five, mac=True),)),
            "a salt of zeros is one like any other",
            authenticated=True,
            hmac_key=KEY.hex(),
        ),
        "hmac_beside_none": _bad(
            Text((replace(salted, mac=True), replace(five, name="b"))).bytes,
            "hmac",
            note="a key is given, and one of two arrays has no hmac",
            hmac_key=KEY.hex(),
        ),
        "year_0000": _bad(
            Text((five,), ts="0000-12-31T23:59:59Z").bytes, "syntax", note="times begin with year 1"
        ),
        "year_0001": _good(Text((five,), ts="0001-01-01T00:00:00Z"), "the first time there is"),
        "year_9999": _good(Text((five,), ts="9999-12-31T23:59:59Z"), "the last time there is"),
        "schema_of_nobody": _good(
            Text((five,), "foo"), "without a _layout a text is native, whatever its schema"
        ),
        "schema_without_layout": _good(
            Text((five,), "safetensors/v1"), "without a _layout a text is native"
        ),
        "cap_twice": _good(Text((five,), cap="crc32c,x,crc32c,x"), "an item may be there again"),
        "idx_off": _good(Text((off,)), "chunks of 32,768 bytes, whatever the numbers"),
        "idx_off_zero": _bad(
            Text((replace(off, rows=(0, 4, "off")),)).bytes,
            "structure",
            note="the numbers of an idx line must be right with row_blocking=off, too",
        ),
        "idx_off_odd": _bad(
            Text((replace(off, rows=(1, 6, "off")),)).bytes,
            "structure",
            note="row_size is no multiple of the item size",
        ),
        "fill_in_a_full_line": _bad(
            long.replace(with_parity(full), with_parity(full[:-1] + b"=")),
            "base64",
            note="a line that is not the last one has 75 characters and a fill",
        ),
        "fill_missing": _bad(
            long.replace(armored(bytes(43)), with_parity(full)),
            "base64",
            note="the last line is full, and its 43 bytes take 58 characters",
        ),
        "chunk_too_many": _bad(
            many.replace(b"endarr\n", spare + b"endarr\n"),
            "structure",
            note="a ch line after the last chunk",
        ),
        "chunk_twice": _bad(
            many.replace(b"endarr\n", second + b"endarr\n"),
            "structure",
            note="the last chunk once more",
        ),
        "chunk_wanted": _bad(
            many.replace(second, b"audit a=1\n"), "syntax", note="an audit line for a ch line"
        ),
        "chunk_wanted_array_ends": _bad(
            many.replace(second, b""), "structure", note="endarr for a ch line"
        ),
    }


def _wsums() -> dict[str, Made]:
    """Texts that have a root, and a WSUM beside them."""
    text = Text((Arr("a", bytes([1, 2, 3, 4, 5])),))
    # The same content, after another generation.
    later = replace(text, prev=sha256(b"another generation").digest())
    other = replace(text, arrays=(Arr("a", bytes([5, 4, 3, 2, 1])),))
    return {
        "wsum_other_prev": replace(
            _good(text, "its merkle_this follows from its own merkle_prev, not from the root's"),
            wsum=wsum_line(later),
        ),
        "wsum_beside_a_root_of_other_content": replace(
            _bad(text.bytes, "root", note="the WSUM holds, but is of another root"),
            wsum=wsum_line(other),
        ),
        "wsum_of_two_lines": replace(
            _bad(text.bytes, "syntax", note="a WSUM is one line"), wsum=wsum_line(text) * 2
        ),
    }


def wsum_line(text: Text) -> bytes:
    """The WSUM of a text with this content and this generation before it."""
    return (
        f"WSUM 1 sha256_all={text.hash_all.hex()} merkle_prev={text.prev.hex()} "
        f"merkle_this={text.this.hex()}\n"
    ).encode()


def _signatures() -> dict[str, Made]:
    five = Arr("a", bytes([1, 2, 3, 4, 5]))
    signed = Text((five,), sign=ALICE).bytes
    end = signed.index(b"== keyid=")
    last = signed[end - 1 : end]
    # Of the last character's six bits four are data.
    digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = digits[digits.index(last) | 1 : (digits.index(last) | 1) + 1]
    keys = [bytes(ALICE.verify_key).hex()]
    return {
        "signed_known_key": _good(
            Text((five,), sign=ALICE), "", signature="valid", public_keys=keys
        ),
        "signature_not_canonical": _bad(
            signed[: end - 1] + other + signed[end:],
            "syntax",
            note="unused bits of the signature's last character are set: same bytes, another text",
            public_keys=keys,
        ),
        "signature_by_small_key": _small_key(five),
    }


def _small_key(five: Arr) -> Made:
    """A key of order 8, by which anybody signs one in eight texts; OpenSSL takes it."""
    key = edwards.encode(edwards.torsion()[1])
    committed = edwards.encode(edwards.COMMITTED)
    for number in range(1000):
        text = Text((five,), build=f"b{number}")
        if edwards.challenge(committed, key, text.covered) % 8 == 0:
            s = edwards.NONCE % edwards.L
            line = sign_line(key, committed + s.to_bytes(32, "little"))
            return _bad(
                replace(text, sign=line).bytes,
                "signature",
                note="by a key of small order, with which anybody can sign",
                public_keys=[key.hex()],
            )
    raise AssertionError


def _layouts() -> dict[str, Made]:
    tensor = '{"array":"W","dtype":"u8","name":"%s","shape":[1]}'
    named = {
        "del": ("\\u007f", "DEL is escaped"),
        "slash": ("a/b", "a slash is not escaped"),
        "short_escapes": (r"\b\t\n\f\r\"\\", "the short escapes"),
        "long_escapes": (r"\u0000\u0001\u000b\u001f", "all other characters below a space"),
        "beyond_ascii": (r"gr\u00f6\u00dfe\u2028", "all beyond ASCII, in lower-case hex"),
        "pair": (r"\ud83d\ude00", "beyond U+FFFF: a pair of surrogates"),
    }
    wrong = {
        "del_bare": ("\x7f", "DEL as it is"),
        "slash_escaped": (r"a\/b", "a slash that is escaped"),
        "upper_hex": (r"gr\u00F6", "upper-case hex"),
        "needless_escape": (r"\u0061", "a letter that is escaped"),
        "long_for_short": (r"\u000a", "an LF that has a short escape"),
        "latin_1": ("gr\xf6", "a byte beyond ASCII"),
        "utf_8": ("gr\xc3\xb6", "UTF-8"),
        "lone_surrogate": (r"\ud83d", "a lone surrogate"),
        "pair_turned": (r"\ude00\ud83d", "two lone surrogates"),
        "control": ("a\tb", "a TAB as it is"),
    }
    shapes = {
        "minus_zero": "-0",
        "float": "1.0",
        "exponent": "1e0",
        "true": "true",
        "nan": "NaN",
        "plus": "+1",
        "leading_zero": "01",
        "digits_21": "1" + "0" * 20,
        "digits_21_negative": "-1" + "0" * 20,
    }
    shaped = '{"array":"W","dtype":"u8","name":"w","shape":[%s]}'
    good, plain = one_tensor(tensor % "w"), shaped % "1"
    native = '{"extents":[{"array":"%s","dtype":"%s","name":"w","shape":[%d]}]'
    native += ',"format":"arrays","v":1}'
    odd = Arr("odd", bytes(8), "f64", ())
    two = '{"extents":[%s],"format":"arrays","v":1}'
    named_two = [
        f'{{"array":"{array}","dtype":"|u1","name":"{name}","shape":[1]}}'
        for array, name in (("a", r"\uff5e"), ("b", r"\ud83d\ude00"))
    ]
    byte_arrays = Arr("a", b"\1"), Arr("b", b"\2")
    pair = Arr("w", bytes(8), "f32")
    broken = one_tensor(tensor % "w", "2").bytes.replace(b"fastxor=", b"fastxor=f", 1)
    at = broken.index(b"fastxor=") + len("fastxor=") + 16
    return {
        **{
            f"layout_{name}": _good(one_tensor(tensor % text), note)
            for name, (text, note) in named.items()
        },
        **{
            f"layout_{name}": _bad(one_tensor(tensor % text).bytes, "layout", note=note)
            for name, (text, note) in wrong.items()
        },
        **{
            f"layout_{name}": _bad(
                one_tensor(shaped % text).bytes, "layout", note=f"the number {text}"
            )
            for name, text in shapes.items()
        },
        "layout_negative_shape": _good(
            one_tensor(shaped % "-1,1,99999999999999999999,-99999999999999999999"),
            "sizes of a container's tensor are any integers of up to 20 digits",
        ),
        "layout_other_array_name": _good(
            one_tensor(tensor % "v"),
            "which array a tensor is in is not looked at: valid, not canonical",
        ),
        "layout_not_by_key": _bad(
            one_tensor('{"dtype":"u8","array":"W","name":"w","shape":[1]}').bytes,
            "layout",
            note="keys that are not sorted",
        ),
        "layout_key_twice": _bad(
            one_tensor(plain.replace('"name":"w"', '"name":"v","name":"w"')).bytes,
            "layout",
            note="a key twice",
        ),
        "layout_lf": _bad(
            one_tensor(plain, end=',"v":1}\n').bytes, "layout", note="an LF after it"
        ),
        "layout_bom": _bad(
            file_text('\xef\xbb\xbf{"extents":[],"format":"opaque","size":0,"v":1}').bytes,
            "layout",
            note="a byte order mark before it",
        ),
        "layout_size_true": _bad(
            one_tensor(plain, "true").bytes, "layout", note="true is no number"
        ),
        "layout_size_float": _bad(one_tensor(plain, "1.0").bytes, "layout", note="no floats"),
        "layout_without_cap": _bad(
            replace(good, cap=CAP).bytes, "layout", note="the cap line does not list layout"
        ),
        "layout_native_not_needed": _good(
            file_text(native % ("w", "<f4", 2), pair, schema="weights/v1"),
            "an array of the ten dtypes that could do without",
        ),
        "layout_native_other_name": _good(
            file_text(native % ("odd", "<f2", 4), odd, schema="weights/v1"),
            "name, dtype and shape of the array that carries a tensor are not looked at",
        ),
        **_native_dtypes(native),
        "layout_native_order": _good(
            file_text(two % ",".join(named_two), *byte_arrays, schema="weights/v1"),
            "by code points, of which the pair of surrogates is the larger one",
        ),
        "layout_native_order_other": _bad(
            file_text(two % ",".join(named_two[::-1]), *byte_arrays, schema="weights/v1").bytes,
            "layout",
            note="names that do not ascend",
        ),
        "layout_judged_last": _bad(
            broken[:at] + broken[at + 1 :],
            "fastxor",
            "layout",
            note="a wrong layout hides no other error",
        ),
    }


def _native_dtypes(native: str) -> dict[str, Made]:
    """Dtypes of native layouts: with the bytes of an item, or with None where that is not said."""
    sizes = {
        "bool": ("|b1", 1),
        "i1": ("|i1", 1),
        "f2": ("<f2", 2),
        "c16": ("<c16", 16),
        "s": ("|S3", 3),
        "v": ("|V5", 5),
        "u": ("<U2", 8),
        "times": ("<M8[25us]", 8),
        "times_plain": ("<m8", 8),
        "bfloat16": ("bfloat16", 2),
        "e4m3": ("float8_e4m3fn", 1),
        "e5m2": ("float8_e5m2", 1),
        "int4": ("int4", 1),
        "uint4": ("uint4", 1),
        "long_double": ("<f16", None),
        "big_endian": (">f4", None),
        "other_prefix": ("|f4", None),
        "empty_string": ("|S0", None),
        "padded_size": ("|S03", None),
        "no_unit": ("<M8[xs]", None),
        "other_name": ("float8_e4m3b11_fnuz", None),
    }
    found = {}
    for name, (dtype, size) in sizes.items():
        text = native % ("w", dtype, 3)
        held = Arr("w", bytes(3 * size if size else 7))
        note = "items of no size that is said" if size is None else f"items of {size} bytes"
        good = file_text(text, held, schema="weights/v1")
        found[f"native_{name}"] = _good(good, f"{dtype}: {note}")
        if size is not None:
            more = file_text(text, Arr("w", bytes(3 * size + 1)), schema="weights/v1")
            found[f"native_{name}_more"] = _bad(
                more.bytes, "layout", note=f"{dtype}: {note}, and a byte more"
            )
    return found


def _good(text: Text, note: str, **also: Any) -> Made:
    given = {key: also.pop(key) for key in ("hmac_key", "public_keys") if key in also}
    arrays = [
        {
            "name": arr.name,
            "dtype": arr.dtype,
            "shape": list(arr.dims),
            "sha256": sha256(arr.raw).hexdigest(),
        }
        for arr in text.arrays
    ]
    expected = {
        "arrays": arrays,
        "sha256_all": text.hash_all.hex(),
        "signature": "absent",
        "authenticated": False,
        **also,
    }
    return Made(text.bytes, note, expected=expected, given=given)


def _bad(text: bytes, *kinds: str, note: str, **given: Any) -> Made:
    return Made(text, note, kinds, given=given)
