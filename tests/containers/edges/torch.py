"""torch files at the edges of the spec."""

from __future__ import annotations

import struct
from typing import Any

from tests.containers import torch_files
from tests.containers.edges.pieces import (
    FOUR,
    Case,
    Made,
    Piece,
    opaque,
    part,
    tensor,
)
from tests.containers.edges.zips import zip_pieces


def made() -> Made:
    t = torch_files
    w = tensor("w", FOUR, "float32", [1], "f32", held=[1])
    kept = part("archive_data_0", FOUR, "archive/data/0")

    def pieces(value: bytes, storage: Piece, folder: str = "archive/") -> tuple[Piece, ...]:
        name = f"{folder}data.pkl"
        plain = "".join(c if c.isalnum() else "_" for c in name)
        pickle = part(plain if plain[0] != "_" else f"t{plain}", t.pickled(value), name)
        return zip_pieces([(name, [pickle]), (f"{folder}data/0", [storage])])

    def good(value: bytes, note: str, storage: Piece = w, **also: Any) -> Case:
        return Case(note, "torch", pieces(value, storage, **also))

    def bad(value: bytes, note: str, **also: Any) -> Case:
        return opaque(b"".join(piece.raw for piece in pieces(value, kept, **also)), note)

    def rebuilt(function: str, *args: bytes, module: str = "torch._utils") -> bytes:
        return t.call(t.name(module, function), *args)

    held = t.storage("FloatStorage", "0", 1)
    zero, one = t.number(0), t.tuple_of(t.number(1))
    rest = b"\x89", t.EMPTY_HOOKS
    v2 = held, zero, one, one, *rest
    floats = t.name("torch", "float32")
    plain = t.named(w=rebuilt("_rebuild_tensor_v2", *v2))
    yield "torch_plain", good(plain, "")

    def with_byteorder(word: bytes, storage: Piece, value: bytes = plain) -> tuple[Piece, ...]:
        pickle = part("archive_data_pkl", t.pickled(value), "archive/data.pkl")
        order = part("archive_byteorder", word, "archive/byteorder")
        return zip_pieces(
            [
                ("archive/data.pkl", [pickle]),
                ("archive/byteorder", [order]),
                ("archive/data/0", [storage]),
            ]
        )

    for name, folder in (("top", ""), ("slash", "/")):
        yield (
            f"torch_folder_{name}",
            Case(
                "the folder may be missing, or have no name",
                "torch",
                pieces(plain, w, folder=folder),
            ),
        )
    pickle = t.pickled(plain)
    yield (
        "torch_folder_of_a_later_member",
        Case(
            "the folder of the first member has no pickle: the first that has one counts",
            "torch",
            zip_pieces(
                [
                    ("notes", [part("notes", b"abc", "notes")]),
                    ("archive/data.pkl", [part("archive_data_pkl", pickle, "archive/data.pkl")]),
                    ("archive/data/0", [w]),
                ]
            ),
        ),
    )
    yield (
        "torch_folder_of_the_first_member",
        Case(
            "the folder of the first member has a pickle, though another one's comes before it",
            "torch",
            zip_pieces(
                [
                    ("b/version", [part("b_version", b"3\n", "b/version")]),
                    ("a/data.pkl", [part("a_data_pkl", pickle, "a/data.pkl")]),
                    ("a/data/0", [part("a_data_0", FOUR, "a/data/0")]),
                    ("b/data.pkl", [part("b_data_pkl", pickle, "b/data.pkl")]),
                    ("b/data/0", [w]),
                ]
            ),
        ),
    )
    yield "torch_folder_deep", bad(plain, "data.pkl two folders down: no torch file", folder="a/b/")
    # Arguments.
    yield (
        "torch_rebuild_tensor",
        good(
            t.named(w=rebuilt("_rebuild_tensor", held, zero, one, one)),
            "storage, offset, size, stride",
        ),
    )
    yield (
        "torch_rebuild_tensor_v2_short",
        good(
            t.named(w=rebuilt("_rebuild_tensor_v2", held, zero, one, one)),
            "arguments behind may miss",
        ),
    )
    raw = t.storage("UntypedStorage", "0", 4)
    yield (
        "torch_rebuild_tensor_v3",
        good(
            t.named(w=rebuilt("_rebuild_tensor_v3", raw, zero, one, one, *rest, floats)),
            "the dtype is an argument",
        ),
    )
    yield (
        "torch_rebuild_tensor_v3_unknown_storage",
        good(
            t.named(
                w=rebuilt(
                    "_rebuild_tensor_v3",
                    t.storage("OddStorage", "0", 1),
                    zero,
                    one,
                    one,
                    *rest,
                    floats,
                )
            ),
            "the dtype is an argument, whatever the class of the storage",
        ),
    )
    yield (
        "torch_rebuild_tensor_v3_short",
        bad(
            t.named(w=rebuilt("_rebuild_tensor_v3", raw, zero, one, one, *rest)),
            "without its dtype",
        ),
    )
    yield (
        "torch_untyped",
        good(
            t.named(
                w=rebuilt("_rebuild_tensor_v2", raw, zero, t.tuple_of(t.number(4)), one, *rest)
            ),
            "untyped storages have bytes",
            tensor("w", FOUR, "uint8", [4], held=[4]),
        ),
    )
    scheme = t.tuple_of(t.name("torch", "per_tensor_affine"), t.number(1), t.number(0))
    quantised = t.storage("QInt32Storage", "0", 1)
    yield (
        "torch_rebuild_qtensor",
        good(
            t.named(w=rebuilt("_rebuild_qtensor", quantised, zero, one, one, scheme, *rest)),
            "a quantised tensor is u8",
            tensor("w", FOUR, "qint32", [1]),
        ),
    )
    yield (
        "torch_rebuild_parameter",
        good(
            t.named(w=rebuilt("_rebuild_parameter", rebuilt("_rebuild_tensor_v2", *v2), *rest)),
            "the tensor is the first argument",
        ),
    )
    inner = t.name("torch._utils", "_rebuild_tensor_v2"), t.name("a", "Sub"), t.tuple_of(*v2)
    for name in ("_rebuild_from_type", "_rebuild_from_type_v2"):
        yield (
            f"torch{name}",
            good(
                t.named(w=rebuilt(name, *inner, t.dict_of(), module="torch._tensor")),
                "function, class, arguments, state",
            ),
        )
    again = rebuilt("_rebuild_tensor_v2", *v2)
    yield (
        "torch_rebuild_parameter_with_state",
        good(
            t.named(w=rebuilt("_rebuild_parameter_with_state", again, *rest, t.named(x=b"N"))),
            "the tensor is the first argument",
        ),
    )
    device = again, floats, t.text("cuda:0"), b"\x89"
    yield (
        "torch_rebuild_device_tensor",
        good(
            t.named(w=rebuilt("_rebuild_device_tensor_from_cpu_tensor", *device)),
            "the tensor is the first argument",
        ),
    )
    yield (
        "torch_rebuild_meta",
        good(
            t.named(
                w=rebuilt("_rebuild_meta_tensor_no_storage", floats, one, one, b"\x89"), v=plain
            ),
            "a tensor without storage, and one with",
            tensor("v_w", FOUR, "float32", [1], "f32", name="v.w", held=[1]),
        ),
    )
    yield (
        "torch_rebuild_from_type_of_three",
        good(
            t.named(
                w=rebuilt("_rebuild_from_type_v2", again, again, again, module="torch._tensor")
            ),
            "three arguments: any object, with three tensors",
            kept,
        ),
    )
    conj = t.named(conj=b"\x88")
    yield (
        "torch_rebuild_tensor_v3_metadata",
        good(
            t.named(w=rebuilt("_rebuild_tensor_v3", raw, zero, one, one, *rest, floats, conj)),
            "an eighth argument of this one",
            tensor("w", FOUR, "float32", [1]),
        ),
    )
    yield (
        "torch_rebuild_tensor_metadata",
        good(
            t.named(w=rebuilt("_rebuild_tensor", held, zero, one, one, *rest, conj)),
            "and none of this one",
        ),
    )
    odd = t.name("numpy", "float32")
    yield (
        "torch_dtype_unknown",
        good(
            t.named(w=rebuilt("_rebuild_tensor_v3", raw, zero, one, one, *rest, odd)),
            "a dtype is one of torch's: else it covers nothing",
            kept,
        ),
    )
    yield (
        "torch_dtype_text",
        bad(
            t.named(w=rebuilt("_rebuild_tensor_v3", raw, zero, one, one, *rest, t.text("float32"))),
            "a dtype is a global",
        ),
    )
    yield (
        "torch_rebuild_elsewhere",
        good(
            t.named(w=rebuilt("_rebuild_tensor_v2", *v2, module="torch.utils")),
            "a function of another module is any object",
            kept,
        ),
    )
    for name, (value, kind) in {
        "conj": (t.named(conj=b"\x88"), "u8"),
        "neg": (t.named(neg=b"\x88"), "u8"),
        "conj_false": (t.named(conj=b"\x89", neg=b"\x89"), "f32"),
        "conj_one": (t.named(conj=b"K\1"), "f32"),
        "conj_then_not": (t.dict_of((t.text("conj"), b"\x88"), (t.text("conj"), b"\x89")), "u8"),
        "other": (t.named(other=b"\x88"), "f32"),
        "none": (b"N", "f32"),
    }.items():
        shape = [1] if kind == "f32" else None
        yield (
            f"torch_metadata_{name}",
            good(
                t.named(w=rebuilt("_rebuild_tensor_v2", *v2, value)),
                "a seventh argument: a dict whose conj or neg is True changes the values",
                tensor("w", FOUR, "float32", [1], kind, held=shape),
            ),
        )
    # Types of arguments.
    for name, value in {
        "list": t.list_of(t.number(1)),
        "size": t.call(t.name("torch", "Size"), t.tuple_of(t.number(1))),
        "size_of_list": t.call(t.name("torch", "Size"), t.list_of(t.number(1))),
    }.items():
        yield (
            f"torch_sizes_{name}",
            good(
                t.named(w=rebuilt("_rebuild_tensor_v2", held, zero, value, value, *rest)),
                "sizes are a tuple, a list or torch.Size of one",
            ),
        )
    for name, args in {
        "offset_true": (held, b"\x88", one, one),
        "offset_negative": (held, t.number(-1), one, one),
        "size_true": (held, zero, t.tuple_of(b"\x88"), one),
        "size_float": (held, zero, t.tuple_of(b"G" + struct.pack(">d", 1.0)), one),
        "more_strides": (held, zero, one, t.tuple_of(t.number(1), t.number(1))),
        "no_storage": (t.text("0"), zero, one, one),
        "three": (held, zero, one),
    }.items():
        yield (
            f"torch_wrong_{name}",
            bad(
                t.named(w=rebuilt("_rebuild_tensor_v2", *args, *(rest if len(args) == 4 else ()))),
                "not as torch writes it",
            ),
        )
    # Storages.
    for name, (item, kind) in {
        "Int": ("int32", "i32"),
        "Bool": ("bool", "u8"),
        "Half": ("float16", "u16"),
        "BFloat16": ("bfloat16", "u16"),
        "Short": ("int16", "i16"),
        "Char": ("int8", "i8"),
        "Byte": ("uint8", "u8"),
    }.items():
        size = {"i32": 4, "u16": 2, "i16": 2}.get(kind, 1)
        value = t.tensor("0", 4 // size, [4 // size], [1], kind=f"{name}Storage")
        yield (
            f"torch_storage_{name.lower()}",
            good(
                t.named(w=value),
                "the class says the dtype",
                tensor("w", FOUR, item, [4 // size], kind, held=[4 // size]),
            ),
        )
    yield (
        "torch_storage_of_module",
        good(
            t.named(w=t.vector("0", 1).replace(b"ctorch\nFloat", b"ctorch.cuda\nFloat")),
            "the module of a storage's class does not matter",
        ),
    )
    yield (
        "torch_storage_unknown",
        good(t.named(w=t.tensor("0", 1, [1], [1], kind="OddStorage")), "covers nothing", kept),
    )
    yield (
        "torch_storage_missing",
        good(t.named(w=t.tensor("1", 1, [1], [1])), "nothing is opaque because of it", kept),
    )
    yield (
        "torch_storage_with_none",
        good(
            t.named(
                w=rebuilt("_rebuild_tensor_v2", t.storage("FloatStorage", "0", 1, b"N"), *v2[1:])
            ),
            "a sixth item: None, or a part",
        ),
    )
    whole = t.tuple_of(t.text("x"), zero, t.number(1))
    yield (
        "torch_storage_part",
        good(
            t.named(
                w=rebuilt("_rebuild_tensor_v2", t.storage("FloatStorage", "0", 1, whole), *v2[1:])
            ),
            "a part of a storage, even if it is all of it, covers nothing",
            kept,
        ),
    )
    beyond = t.storage("FloatStorage", "0", 1, t.tuple_of(t.text("x"), t.number(1), t.number(1)))
    yield (
        "torch_storage_part_outside",
        bad(
            t.named(
                w=rebuilt("_rebuild_tensor_v2", t.storage("FloatStorage", "0", 1, beyond), *v2[1:])
            ),
            "a part reaches outside of its storage",
        ),
    )
    yield (
        "torch_storage_other_numel",
        good(t.named(w=t.tensor("0", 7, [1], [1])), "the member's length counts, not numel"),
    )
    yield (
        "torch_key_number",
        bad(t.named(w=t.vector("0", 1).replace(t.text("0"), b"K\0")), "a key is a text"),
    )
    yield (
        "torch_byteorder_big",
        Case(
            "numbers of a big-endian file are u8",
            "torch",
            with_byteorder(b"big", tensor("w", FOUR, "float32", [1])),
        ),
    )
    for word, dtype, shape, array, note in (
        ("Char", "int8", [2, 2], "i8", "items of one byte have no order"),
        ("Bool", "bool", [2, 2], "u8", "the same of booleans"),
        ("Short", "int16", [1, 2], None, "items of two bytes have one"),
    ):
        value = rebuilt(
            "_rebuild_tensor_v2",
            t.storage(f"{word}Storage", "0", shape[0] * 2),
            zero,
            t.tuple_of(*map(t.number, shape)),
            t.tuple_of(t.number(2), t.number(1)),
            *rest,
        )
        held_as = None if array is None else shape
        big = tensor("w", FOUR, dtype, shape, array or "u8", held=held_as)
        yield (
            f"torch_byteorder_big_{dtype}",
            Case(note, "torch", with_byteorder(b"big", big, t.named(w=value))),
        )
    yield (
        "torch_byteorder_other",
        opaque(b"".join(piece.raw for piece in with_byteorder(b"big\n", kept)), "another word"),
    )
    words = t.text("storage"), t.name("torch", "FloatStorage"), t.text("0"), t.text("cpu")
    yield (
        "torch_id_of_four",
        bad(
            t.tuple_of(*words) + b"Q",
            "a persistent id without numel",
        ),
    )
    yield (
        "torch_id_other",
        bad(t.tuple_of(t.text("tensor"), t.text("0")) + b"Q", "names no storage"),
    )
    yield (
        "torch_id_not_reached",
        bad(
            t.text("x") + b"Q0" + plain, "a persistent id that nothing refers to is looked at, too"
        ),
    )
    # The walk.
    wrong = rebuilt("_rebuild_tensor_v2", held, zero, one)
    yield (
        "torch_call_not_reached",
        good(wrong + b"0" + plain, "a tensor that the walk does not reach is not looked at"),
    )
    yield (
        "torch_tensor_not_reached",
        good(rebuilt("_rebuild_tensor_v2", *v2) + b"0" + plain, "and not counted"),
    )
    yield (
        "torch_below_the_top",
        good(rebuilt("_rebuild_tensor_v2", *v2) + plain, "nor is one below the top of the stack"),
    )
    tensor_call = rebuilt("_rebuild_tensor_v2", *v2)
    yield (
        "torch_two_tensors",
        good(t.named(v=tensor_call, w=tensor_call), "two calls are two tensors", kept),
    )
    yield (
        "torch_two_names",
        good(t.named(w=tensor_call + b"q\1", v=b"h\1"), "one call, two names: the first counts"),
    )
    yield "torch_dup", good(t.text("x") + b"2" + b"00" + plain, "DUP is read")
    yield "torch_dict", good(b"(" + t.text("w") + tensor_call + b"d", "DICT is read")
    yield (
        "torch_list",
        good(
            b"(" + tensor_call + b"l",
            "LIST is read",
            tensor("0", FOUR, "float32", [1], "f32", held=[1]),
        ),
    )
    yield (
        "torch_whole_value",
        good(
            tensor_call,
            "a tensor that is the value",
            tensor("tensor", FOUR, "float32", [1], "f32", held=[1]),
        ),
    )
    yield "torch_opcode_int", bad(b"I1\n0" + plain, "an opcode of protocol 0")
    yield "torch_open_mark", bad(b"(" + plain, "a mark is open at STOP")
    yield (
        "torch_name_surrogate",
        bad(t.dict_of((t.text("\ud800"), tensor_call)), "a lone surrogate in a tensor's name"),
    )
