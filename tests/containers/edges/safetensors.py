"""safetensors files at the edges of the spec."""

from __future__ import annotations

from tests.containers.edges.pieces import (
    DEEPEST,
    FOUR,
    Case,
    Made,
    Piece,
    W,
    nested,
    opaque,
    part,
    sized,
    tensor,
)


def made() -> Made:
    w = tensor("w", FOUR, "F32", [1], "f32", held=[1])

    def good(header: str | bytes, note: str, *pieces: Piece) -> Case:
        raw = header if isinstance(header, bytes) else header.encode()
        return Case(note, "safetensors", (part("_header", sized(raw)), *(pieces or (w,))))

    def bad(header: str | bytes, note: str) -> Case:
        raw = header if isinstance(header, bytes) else header.encode()
        return opaque(sized(raw) + FOUR, note)

    def one(*, dtype: str = '"F32"', shape: str = "[1]", offsets: str = "[0,4]") -> str:
        return f'{{"w":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}'

    plain = f"{{{W}}}"
    yield "st_blanks_after", good(plain + " \t\r\n", "all of JSON's whitespace may follow")
    yield "st_blanks_inside", good(plain.replace(":", " :\n\t"), "and stand inside")
    yield "st_nul_after", bad(plain + "\0", "a NUL is no whitespace")
    yield "st_no_break_space_after", bad(plain + "\xa0", "nor is U+00A0")
    yield "st_byte_order_mark", bad(b"\xef\xbb\xbf" + plain.encode(), "byte 8 is no brace")
    yield "st_blank_before", bad(" " + plain, "byte 8 is no brace")
    yield "st_utf_16", bad(plain.encode("utf-16-le"), "UTF-8 alone is read")
    yield "st_not_utf_8", bad(plain.encode().replace(b'"w"', b'"\xff"'), "no UTF-8")
    yield (
        "st_surrogate_in_utf_8",
        bad(plain.encode().replace(b'"w"', b'"\xed\xa0\x80"'), "UTF-8 has no surrogates"),
    )
    yield "st_overlong_utf_8", bad(plain.encode().replace(b'"w"', b'"\xc1\xb7"'), "no UTF-8")
    yield "st_control_in_string", bad(plain.replace('"w"', '"\t"'), "a TAB in a string is escaped")
    yield "st_comma_at_the_end", bad(plain.replace("}}", "},}"), "no JSON")
    yield "st_integer_is_true", bad(one(shape="[true]"), "true is no integer")
    yield "st_integer_is_float", bad(one(offsets="[0.0,4]"), "0.0 is no integer")
    yield "st_integer_is_exponent", bad(one(shape="[1e0]"), "1e0 is no integer")
    yield "st_integer_is_text", bad(one(shape='["1"]'), "a string is no integer")
    yield "st_integer_minus_zero", good(one(offsets="[-0,4]"), "-0 is the integer 0")
    yield "st_integer_negative", bad(one(shape="[-1]"), "sizes are not negative")
    yield "st_shape_is_null", bad(one(shape="null"), "no list")
    yield (
        "st_dtype_unknown",
        good(one(dtype='"F9"'), "any word is a dtype", tensor("w", FOUR, "F9", [1])),
    )
    yield (
        "st_dtype_not_filled",
        good(one(shape="[3]"), "the shape takes other bytes", tensor("w", FOUR, "F32", [3])),
    )
    yield "st_dtype_surrogate", bad(one(dtype=r'"\ud800"'), "a lone surrogate in a dtype")
    yield "st_name_surrogate", bad(plain.replace('"w"', r'"\ud800"'), "a lone surrogate in a name")
    yield (
        "st_empty_tensor_outside",
        good(
            f'{{{W},"v":{{"dtype":"F32","shape":[0],"data_offsets":[99,99]}}}}',
            "a range of length 0 points nowhere",
        ),
    )
    meta = '{"__metadata__":%s,' + W + "}"
    yield "st_largest_integer", good(meta % "18446744073709551615", "2^64 - 1")
    yield "st_too_large_integer", bad(meta % "18446744073709551616", "2^64, and nobody reads it")
    yield "st_smallest_integer", good(meta % "-9223372036854775808", "-2^63")
    yield "st_too_small_integer", bad(meta % "-9223372036854775809", "-2^63 - 1")
    yield "st_large_float", good(meta % "1e999", "a float is no integer")
    yield "st_nan", good(meta % "[NaN,Infinity,-Infinity]", "as Python writes them")
    yield "st_surrogate_in_metadata", good(meta % r'"\ud800"', "a lone surrogate that is no name")
    yield "st_deepest", good(meta % nested(DEEPEST - 1), "64 levels, the object is the first")
    yield "st_too_deep", bad(meta % nested(DEEPEST), "65 levels")
    yield (
        "st_brackets_in_text",
        good(meta % ('"' + "[" * 99 + r"\"" + "{" * 99 + '"'), "brackets in strings are no levels"),
    )
    yield "st_key_twice", bad(f"{{{W},{W}}}", "a name twice")
    yield "st_key_twice_inside", bad(meta % '{"a":"1","a":"2"}', "a key twice in __metadata__")
    escaped = W.replace('"w"', r'"\u0077"')
    yield "st_key_twice_spelled", bad(f"{{{W},{escaped}}}", "a name twice, once escaped")
    two = '"%s":{"dtype":"U8","shape":[3],"data_offsets":[%d,%d]}'
    two = f"{{{two},{two}}}"
    raw = bytes(range(1, 6))
    yield (
        "st_overlap",
        good(
            two % ("v", 2, 5, "u", 0, 3),
            "v loses a byte to u and gives no extent; what u has not is a gap",
            tensor("u", raw[:3], "U8", [3], held=[3]),
            Piece(raw[3:]),
        ),
    )
    yield (
        "st_longer_first",
        good(
            two.replace("[3]", "[5]", 1) % ("v", 0, 5, "u", 0, 3),
            "of ranges with one start the longer one counts",
            tensor("v", raw, "U8", [5], held=[5]),
        ),
    )
    yield (
        "st_same_range",
        good(
            two % ("v", 0, 3, "u", 0, 3),
            "of equal ranges the smaller name counts",
            tensor("u", raw[:3], "U8", [3], held=[3]),
        ),
    )
    wide = two % ("\U0001f600", 0, 3, "\uffee", 0, 3)
    yield (
        "st_same_range_utf_8",
        good(
            wide,
            "names are compared as UTF-8, in which U+FFEE is before U+1F600",
            tensor("t_", raw[:3], "U8", [3], name="\uffee", held=[3]),
        ),
    )
