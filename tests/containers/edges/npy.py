"""npy files at the edges of the spec."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tests.containers.edges.pieces import (
    Case,
    Made,
    Piece,
    opaque,
    part,
    tensor,
)


def npy_head(text: str, version: int = 1) -> bytes:
    raw = text.encode("latin-1" if version < 3 else "utf-8")
    length = struct.pack("<H" if version == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes([version, 0]) + length + raw


def npy_text(descr: str, shape: str = "(2, 2)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def made() -> Made:
    def good(text: str, note: str, *held: Piece, version: int = 1) -> Case:
        return Case(note, "npy", (part("_header", npy_head(text, version)), *held))

    def bad(text: str, note: str, data: bytes = bytes(16), version: int = 1) -> Case:
        return opaque(npy_head(text, version) + data, note)

    def array(word: str, raw: bytes, shape: Sequence[int], *kept: Any) -> Piece:
        """An array; `kept` are a dtype and a shape of its own."""
        dtype, held = kept or ("u8", None)
        return tensor("data", raw, word, shape, dtype, held=held)

    four = bytes(range(1, 5))
    for name, word in (("less", "<i1"), ("greater", ">i1"), ("equal", "=i1"), ("bar", "|i1")):
        yield (
            f"npy_i1_{name}",
            good(
                npy_text(repr(word)),
                "of items of one byte any order is none",
                array(word, four, [2, 2], "i8", (2, 2)),
            ),
        )
    yield (
        "npy_i1_no_order",
        good(npy_text("'i1'"), "without an order it is no number", array("i1", four, [2, 2])),
    )
    yield (
        "npy_b1_less",
        good(npy_text("'<b1'"), "a bool is one byte", array("<b1", four, [2, 2], "u8", (2, 2))),
    )
    sixteen = bytes(range(1, 17))
    yield "npy_f4_less", good(npy_text("'<f4'"), "", array("<f4", sixteen, [2, 2], "f32", (2, 2)))
    for name, word in (("equal", "=f4"), ("bar", "|f4"), ("none", "f4"), ("greater", ">f4")):
        yield (
            f"npy_f4_{name}",
            good(npy_text(repr(word)), "only < has our order", array(word, sixteen, [2, 2])),
        )
    yield "npy_i3", good(npy_text("'<i3'"), "any size", array("<i3", bytes(range(12)), [2, 2]))
    yield (
        "npy_times",
        good(npy_text("'<M8[25ns]'", "(1,)"), "a unit", array("<M8[25ns]", sixteen[:8], [1])),
    )
    yield "npy_question_mark", bad(npy_text("'?'"), "no digits")
    fields = "[('a', '<f4'), (('t', 'b'), '|V4', (2,))]"
    yield (
        "npy_fields",
        good(
            npy_text(fields, "(1,)"),
            "items of several fields",
            array(fields, bytes(range(12)), [1]),
        ),
    )
    yield (
        "npy_fields_blanks",
        good(
            npy_text("[ ('\\xe9','<f4') ,]", "(1,)"),
            "the dtype is as Python's ascii spells the value",
            array("[('\\xe9', '<f4')]", four, [1]),
        ),
    )
    yield (
        "npy_subarray",
        good(
            npy_text("('<f4', (2,))", "(1,)"),
            "items of several items",
            array("('<f4', (2,))", sixteen[:8], [1]),
        ),
    )
    objects = b"\x80\x02N.and more"
    yield (
        "npy_objects",
        good(
            npy_text("'|O'", "(1,)"), "a pickle, to the end of the file", array("|O", objects, [1])
        ),
    )
    yield (
        "npy_no_objects",
        good(npy_text("'|O'", "(0,)"), "whatever the shape", array("|O", objects, [0])),
    )
    structured = "[('a', '<f4'), ('b', [('c', '|O')])]"
    yield (
        "npy_objects_in_fields",
        good(
            npy_text(structured, "(1,)"), "an object in any field", array(structured, objects, [1])
        ),
    )
    hidden = "[('a', '<f4'), ('b', 'O', (0,))]"
    yield (
        "npy_no_objects_in_fields",
        good(npy_text(hidden, "(1,)"), "even if the field has none", array(hidden, objects, [1])),
    )
    yield (
        "npy_empty_far",
        good(
            npy_text("'<f4'", "(0, 18446744073709551615)"),
            "no items",
        ),
    )
    yield "npy_items_of_nothing", good(npy_text("'|S0'", "(9,)"), "items of no bytes")
    yield (
        "npy_bytes_after",
        good(npy_text("'|u1'", "(4,)"), "", array("|u1", four, [4], "u8", (4,)), Piece(b"more")),
    )
    yield (
        "npy_fortran",
        good(
            npy_text("'<f4'", "(1, 4)", "True"),
            "",
            tensor("data", sixteen, "<f4", [1, 4], "f32", held=[4, 1], order="F"),
        ),
    )
    yield "npy_outside", bad(npy_text("'<f4'", "(5,)"), "the data reaches outside")
    yield "npy_shape_of_one", bad(npy_text("'<f4'", "(4)"), "no tuple")
    yield "npy_shape_true", bad(npy_text("'<f4'", "(True,)"), "True is no integer")
    yield (
        "npy_shape_long",
        good(
            npy_text("'<f4'", "(4L,)"),
            "as Python 2 wrote it",
            array("<f4", sixteen, [4], "f32", (4,)),
        ),
    )
    yield "npy_shape_long_in_3", bad(npy_text("'<f4'", "(4L,)"), "not in version 3", version=3)
    yield "npy_order_one", bad(npy_text("'<f4'", "(4,)", "1"), "no boolean")
    yield (
        "npy_key_twice",
        bad(npy_text("'<f4'", "(4,)").replace("}", "'descr': '<f4'}"), "a key is there twice"),
    )
    yield "npy_none", bad(npy_text("None"), "None is no value")
    yield "npy_comment", bad(npy_text("'<f4'", "(4,)").replace("}", "#\n}"), "no comments")
    yield (
        "npy_latin_1",
        good(
            npy_text("[('\xe9', '<f4')]", "(4,)"),
            "latin-1 in versions 1.0 and 2.0",
            array("[('\\xe9', '<f4')]", sixteen, [4]),
        ),
    )
    yield (
        "npy_utf_8",
        good(
            npy_text("[('\xe9', '<f4')]", "(4,)"),
            "UTF-8 in version 3.0",
            array("[('\\xe9', '<f4')]", sixteen, [4]),
            version=3,
        ),
    )
    deepest = "[('a', " * 15 + "'<f4'" + ")]" * 15
    # The dictionary is one level, each list and each tuple another, the string the last.
    yield "npy_deepest", good(npy_text(deepest, "(4,)"), "32 levels", array(deepest, sixteen, [4]))
    deeper = "[('a', " * 15 + "['<f4']" + ")]" * 15
    yield "npy_too_deep", bad(npy_text(deeper, "(4,)"), "33 levels")
