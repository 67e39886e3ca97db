"""Distributed checkpoints of torch: tensors put together from chunks, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.containers.distributed_files import VALUES, make
from tests.containers.distributed_pickles import (
    FILESYSTEM,
    METADATA,
    NONE,
    VALUE,
    chunk,
    index,
    made,
    metadata,
    saved,
    tensor,
)
from tests.containers.torch_files import (
    archive,
    call,
    dict_of,
    list_of,
    name,
    named,
    number,
    pickled,
    text,
    vector,
)
from tests.data import DATA
from wtxtgit.checkpoint.members import members
from wtxtgit.checkpoint.open import read_checkpoint
from wtxtgit.containers import any_format
from wtxtgit.containers.torch import distributed_metadata
from wtxtgit.errors import PICKLE, FormatError, InputError
from wtxtgit.model.tensor import Description, ReadOptions
from wtxtgit.tensors.tensor_bytes import sha256_of

SAMPLES = DATA / "distributed"
EXPECTED: dict[str, dict[str, list[Any]]] = json.loads((SAMPLES / "expected.json").read_text())
OPTIONS = ReadOptions()


def described(folder: Path) -> Description:
    return any_format.describe(read_checkpoint(str(folder)), OPTIONS, members(str(folder)))


def assert_as_expected(folder: Path, expected: Mapping[str, list[Any]]) -> None:
    """The tensors are those that torch has, to the last byte, and nothing is wrong."""
    found = {t.name: t for t in described(folder).tensors}
    assert found.keys() == expected.keys()
    for name_, (dtype, shape, digest) in expected.items():
        tensor_ = found[name_]
        assert list(tensor_.shape) == shape
        assert tensor_.absent is None
        assert sha256_of(tensor_).hex() == digest
        assert tensor_.dtype == dtype or folder.name == "hf"
    findings = any_format.check(read_checkpoint(str(folder)), OPTIONS, members(str(folder)))
    assert (findings.errors, findings.warnings) == ([], [])


@pytest.mark.parametrize("sample", EXPECTED)
def test_what_torch_wrote(sample: str) -> None:
    assert_as_expected(SAMPLES / sample, EXPECTED[sample])


def test_values_that_are_no_tensors() -> None:
    found = described(SAMPLES / "single")
    assert found.metadata["values"] == VALUES
    assert found.tags == {"opt.name": "adam"}
    assert set(found.untold) == set(VALUES) - {"opt.name"}


@pytest.mark.torch
def test_what_torch_writes_today(tmp_path: Path) -> None:
    make(tmp_path)
    assert json.loads((tmp_path / "expected.json").read_text()) == EXPECTED
    for sample, expected in EXPECTED.items():
        assert_as_expected(tmp_path / sample, expected)


A = archive(vector("0", 6), {"0": bytes(range(24))})
"""A chunk of six items."""
B = archive(vector("0", 2), {"0": bytes(8)})
GOOD = metadata(
    {"a": tensor((8,), chunk((0,), (6,)), chunk((6,), (2,)))},
    (index("a", (0,)), saved("x.distcp", 0, len(A))),
    (index("a", (6,)), saved("x.distcp", len(A), len(B))),
)
FILES = {"x.distcp": A + B}


def opener(files: Mapping[str, bytes]) -> Callable[[str], memoryview]:
    def open_member(path: str) -> memoryview:
        if path not in files:
            raise InputError("no such file")
        return memoryview(files[path])

    return open_member


def errors_of(pickle: bytes, files: Mapping[str, bytes] = FILES) -> list[tuple[str, str]]:
    """Kinds and messages of all errors; whatever is wrong, listing raises only our error."""
    findings = any_format.check(memoryview(pickle), OPTIONS, opener(files))
    try:
        listed = any_format.describe(memoryview(pickle), OPTIONS, opener(files)).tensors
    except FormatError:
        listed = ()
    for one in listed:
        if one.absent is None and findings.errors:
            try:
                one.view  # noqa: B018 - it is read
            except FormatError:
                continue
    return [(error.kind, error.message) for error in findings.errors]


def test_chunks_by_hand() -> None:
    assert errors_of(GOOD) == []
    (found,) = any_format.describe(memoryview(GOOD), OPTIONS, opener(FILES)).tensors
    assert (found.name, found.shape, found.element) == ("a", (8,), "f32")
    assert bytes(found.data) == bytes(range(24)) + bytes(8)
    assert any_format.identify(memoryview(GOOD)) == "torch-distributed"


def of(a: bytes, *items: tuple[bytes, bytes], **more: bytes) -> bytes:
    """One tensor."""
    return metadata({"a": a}, *items, **more)


FIRST = index("a", (0,)), saved("x.distcp", 0, len(A))
SECOND = index("a", (6,)), saved("x.distcp", len(A), len(B))
WHOLE = tensor((8,), chunk((0,), (6,)), chunk((6,), (2,)))
WRONG = {
    "a gap": (
        of(tensor((9,), chunk((0,), (6,)), chunk((6,), (2,))), FIRST, SECOND),
        "1 of 9 items",
    ),
    "an overlap": (
        of(
            tensor((7,), chunk((0,), (6,)), chunk((5,), (2,))),
            FIRST,
            (index("a", (5,)), saved("x.distcp", len(A), len(B))),
        ),
        "overlap",
    ),
    "outside": (of(tensor((7,), chunk((0,), (6,)), chunk((6,), (2,))), FIRST, SECOND), "outside"),
    "dimensions": (
        of(tensor((8, 1), chunk((0,), (6,)), chunk((6,), (2,))), FIRST, SECOND),
        "dimensions",
    ),
    "nowhere": (of(WHOLE, FIRST), "is in no file"),
    "of nothing": (of(tensor((6,), chunk((0,), (6,))), FIRST, SECOND), "nothing uses it"),
    "another shape": (
        of(
            tensor((8,), chunk((0,), (2,)), chunk((2,), (6,))),
            FIRST,
            (index("a", (2,)), saved("x.distcp", len(A), len(B))),
        ),
        "has shape [6]",
    ),
    "another dtype": (
        of(tensor((8,), chunk((0,), (6,)), chunk((6,), (2,)), dtype="int32"), FIRST, SECOND),
        "has dtype f32, not i32",
    ),
    "an unknown dtype": (
        of(tensor((8,), chunk((0,), (6,)), chunk((6,), (2,)), dtype="uint7"), FIRST, SECOND),
        "has dtype f32",
    ),
    "shared bytes": (of(WHOLE, FIRST, (index("a", (6,)), FIRST[1])), "shares bytes with"),
    "beyond the file": (
        of(WHOLE, FIRST, (index("a", (6,)), saved("x.distcp", len(A), 2**62))),
        "reaches outside",
    ),
    "far beyond": (
        of(WHOLE, FIRST, (index("a", (6,)), saved("x.distcp", 2**62, 2**62))),
        "reaches outside",
    ),
    "a file that is not there": (
        of(WHOLE, FIRST, (index("a", (6,)), saved("y.distcp", 0, 8))),
        "can't be opened",
    ),
    "transformed": (
        of(
            WHOLE,
            FIRST,
            (
                index("a", (6,)),
                saved("x.distcp", len(A), len(B), transform_descriptors=list_of(text("zstd/1"))),
            ),
        ),
        "which wtxtgit can't undo",
    ),
    "bytes of nothing": (of(tensor((6,), chunk((0,), (6,))), FIRST), "are in no chunk"),
    "twice at the same place": (of(WHOLE, FIRST, FIRST), "stored twice"),
    "two chunks at the same place": (
        of(tensor((12,), chunk((0,), (6,)), chunk((0,), (6,))), FIRST),
        "at the same place",
    ),
    **{
        f"a path {path!r}": (of(WHOLE, FIRST, (index("a", (6,)), saved(path, 0, 8))), "not a path")
        for path in ("../x.distcp", "/etc/passwd", "a/../../x", "C:\\x", "a//b", "./x", "")
    },
    "an offset below 0": (of(WHOLE, (FIRST[0], saved("x.distcp", -1, 8))), "invalid offset"),
    "a huge offset": (of(WHOLE, (FIRST[0], saved("x.distcp", 2**64, 8))), "invalid offset"),
    "no dict": (
        pickled(made("Metadata", state_dict_metadata=list_of(), storage_data=dict_of())),
        "no dict",
    ),
    "no attributes": (pickled(made("Metadata", state=list_of())), "where Metadata is expected"),
    "two states": (pickled(made("Metadata") + dict_of() + b"b"), "where Metadata is expected"),
    "another object": (
        metadata({"a": made("MetadataIndex", fqn=text("a"))}),
        "has something else where TensorStorage",
    ),
    "a name that is not a string": (
        pickled(
            made(
                "Metadata", state_dict_metadata=dict_of((number(1), VALUE)), storage_data=dict_of()
            )
        ),
        "not a string",
    ),
    "a name more than once": (
        pickled(
            made(
                "Metadata",
                state_dict_metadata=dict_of((text("a"), VALUE), (text("a"), VALUE)),
                storage_data=dict_of(),
            )
        ),
        "lists a name more than once",
    ),
    "bytes behind": (GOOD + b"more", "after its end"),
    "cut short": (GOOD[:-9], "cut short"),
    "a storage": (
        of(WHOLE, planner_data=pickled(b"")[2:-1] + text("s") + b"Q"),
        "refers to a storage",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong(case: str) -> None:
    pickle, message = WRONG[case]
    found = errors_of(pickle)
    assert any(message in said for _, said in found), found
    assert all(kind in ("structure", "limit") for kind, _ in found)


@pytest.mark.parametrize(
    "other",
    [
        call(name("os", "system"), text("true")),
        name("builtins", "getattr"),
        made("Metadata", "somewhere.else"),
        made("Thing", METADATA),
        made("Thing", FILESYSTEM),
    ],
)
def test_what_would_have_to_be_run(other: bytes) -> None:
    (found,) = errors_of(of(WHOLE, FIRST, SECOND, planner_data=other))
    assert found[0] == PICKLE
    assert "can't be read without running a pickle: it names" in found[1]


def test_tensors_of_which_a_file_is_gone_have_no_bytes() -> None:
    listed = any_format.describe(memoryview(GOOD), OPTIONS, opener({})).tensors
    with pytest.raises(FormatError, match="no such file"):
        sha256_of(listed[0])


def test_damage_in_a_shard_is_told_where_it_is() -> None:
    damaged = bytearray(A + B)
    damaged[len(A) + B.rindex(bytes(8), 0, B.index(b"PK\1\2"))] ^= 1
    (found,) = any_format.check(
        memoryview(GOOD), OPTIONS, opener({"x.distcp": bytes(damaged)})
    ).errors
    assert (found.kind, found.chunk) == ("crc32", "x.distcp")
    assert found.offset is not None
    assert found.offset > len(A)


def test_a_cycle_in_values_ends() -> None:
    # A list that holds itself: MEMO 9, then a reference to it.
    cycle = archive(b"]q\x09h\x09a", {})
    pickle = metadata({"v": VALUE}, (index("v"), saved("x", 0, len(cycle))))
    told = any_format.describe(memoryview(pickle), OPTIONS, opener({"x": cycle})).metadata
    assert list(told["values"]["v"]) == ["sha256", "globals"]  # type: ignore[index]


def test_values_that_a_load_would_run_are_told_by_their_names() -> None:
    odd = archive(call(name("os", "system"), text("true")), {})
    pickle = metadata({"v": VALUE}, (index("v"), saved("x", 0, len(odd))))
    told = any_format.describe(memoryview(pickle), OPTIONS, opener({"x": odd})).metadata
    assert told["values"]["v"]["globals"] == ["os.system"]  # type: ignore[index]
    found = any_format.check(memoryview(pickle), OPTIONS, opener({"x": odd}))
    assert any("os.system" in warning.message for warning in found.warnings)


def test_many_references_to_one_list_are_refused_soon() -> None:
    # 2,000 tensors that share one list of 2,000 chunks, each kept in the memo.
    chunks = chunk((0,), (1,)) + b"q\x01" + b"h\x01" * 1999
    shared = made(
        "TensorStorageMetadata",
        properties=made("TensorProperties", state=b"(" + name("torch", "float32") + b"t"),
        size=call(name("torch", "Size"), b"(K\x01t"),
        chunks=b"](" + chunks + b"eq\x02",
    )
    again = made(
        "TensorStorageMetadata",
        properties=made("TensorProperties", state=b"(" + name("torch", "float32") + b"t"),
        size=call(name("torch", "Size"), b"(K\x01t"),
        chunks=b"h\x02",
    )
    listed = {"first": shared} | {f"t{n}": again for n in range(2000)}
    started = time.process_time()
    with pytest.raises(FormatError, match=r"at the same place|over 1000000"):
        distributed_metadata.read(memoryview(metadata(listed)))
    assert time.process_time() - started < 2


def test_items_that_all_claim_the_same_bytes_are_looked_at_once() -> None:
    listed = {f"t{n}": tensor((6,), chunk((0,), (6,))) for n in range(300)}
    items = [(index(key, (0,)), saved("x.distcp", 0, len(A))) for key in listed]
    errors = errors_of(metadata(listed, *items), {"x.distcp": A})
    assert sum("shares bytes with" in message for _, message in errors) == 299


def test_attributes_that_are_not_known_are_passed_over() -> None:
    assert errors_of(of(WHOLE, FIRST, SECOND, storage_meta=NONE, extra=named(a=number(1)))) == []
