"""What differs beside tensors and metadata: nothing of a file is left out of a diff."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.containers import torch_files
from tests.data import FIXTURES
from wtxtgit.comparison.diff import diff
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import DiffReport


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def with_members(content: bytes, **members: bytes) -> bytes:
    file = io.BytesIO(content)
    with zipfile.ZipFile(file, "a") as archive:
        for name, held in members.items():
            archive.writestr(name, held)
    return file.getvalue()


ARRAYS = npz(w=np.arange(60.0))
SECRET = b"s" * 9


def zip_of(content: bytes, *, extra: bytes = b"", comment: bytes = b"", end: bytes = b"") -> bytes:
    """The members of a zip written anew, each with an extra field and a comment."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as archive:
        for name in old.namelist():
            info = zipfile.ZipInfo(name)
            info.extra, info.comment = extra, comment
            archive.writestr(info, old.read(name))
        archive.comment = end
    return file.getvalue()


def with_gap(content: bytes, gap: bytes) -> bytes:
    """A zip with bytes between its last member and its directory."""
    end = len(content) - 22
    (start,) = struct.unpack_from("<I", content, end + 16)
    moved = struct.pack("<I", start + len(gap))
    return content[:start] + gap + content[start : end + 16] + moved + content[end + 20 :]


def field(kind: int, body: bytes) -> bytes:
    return struct.pack("<HH", kind, len(body)) + body


PADDING = int.from_bytes(b"FB", "little")
EXTRAS = {
    "an unknown field": (field(0xCAFE, SECRET), 2 * [13]),
    "a time that is too long": (field(0x5455, SECRET * 2), 2 * [22]),
    "padding that is not": (field(PADDING, SECRET), 2 * [13]),
    "bytes that are no field": (b"abc", 2 * [3]),
    "padding": (field(PADDING, b"Z" * 60), []),
    "a time": (field(0x5455, SECRET), []),
    "both": (field(0x5455, b"12345") + field(1, SECRET) + field(0xCAFE, SECRET), 2 * [13]),
}
FOLD = (FIXTURES / "fold/none_json_a.fold").read_bytes()


def compared(folder: Path, before: bytes, after: bytes) -> DiffReport:
    paths = [folder / name for name in ("before", "after")]
    for path, content in zip(paths, (before, after), strict=True):
        path.write_bytes(content)
    return diff(*map(str, paths), ReadOptions())


def told(folder: Path, before: bytes, after: bytes) -> list[str]:
    return [part.message for part in compared(folder, before, after).parts]


ARCHIVE = (
    f"{len(ARRAYS)} bytes at offset {len(FOLD)}, which begin like npz, that belong to no tensor "
    f"or part were added"
)
CASES = {
    "a further member": (ARRAYS, with_members(ARRAYS, x=b"1" * 9), ["part x: new, 9 bytes"]),
    "a member that is gone": (
        with_members(ARRAYS, x=b"1"),
        ARRAYS,
        ["part x: removed, was 1 byte"],
    ),
    "another member": (
        with_members(ARRAYS, x=b"1" * 9),
        with_members(ARRAYS, x=b"2" * 8),
        ["part x: changed bytes, 9 before, 8 after"],
    ),
    "a second archive behind": (
        FOLD,
        FOLD + ARRAYS,
        [ARCHIVE],
    ),
    "one that is gone": (
        FOLD + b"abc",
        FOLD,
        [f"3 bytes at offset {len(FOLD)} that belong to no tensor or part were removed"],
    ),
    "zeros behind": (
        FOLD, FOLD + bytes(9),
        [f"9 zero bytes at offset {len(FOLD)} that belong to no tensor or part were added"],
    ),
    "zeros that are gone": (
        FOLD + bytes(9), FOLD,
        [f"9 zero bytes at offset {len(FOLD)} that belong to no tensor or part were removed"],
    ),
    "another order": (
        npz(a=np.zeros(3), b=np.ones(3)), npz(b=np.ones(3), a=np.full(3, 7.0)),
        ["2 tensors or parts stand in another order"],
    ),
    "tensors and their checksums": (ARRAYS, npz(w=np.arange(60.0) + 1), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_is_told(tmp_path: Path, case: str) -> None:
    before, after, wanted = CASES[case]
    assert told(tmp_path, before, after) == wanted
    assert told(tmp_path, after, after) == []


def test_another_archive_in_front(tmp_path: Path) -> None:
    """A zip is read from its end: what stands in front of it is another one's."""
    (part,) = compared(tmp_path, ARRAYS, npz(w=np.zeros(60)) + ARRAYS).parts
    assert (part.name, part.looks_like) == (None, "npz")


def test_a_comment_of_a_zip(tmp_path: Path) -> None:
    file = io.BytesIO(ARRAYS)
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"secret"
    (part,) = compared(tmp_path, ARRAYS, file.getvalue()).parts
    assert (part.name, part.after) == (None, 6)


@pytest.mark.parametrize("case", EXTRAS)
def test_extra_fields_while_a_tensor_changes(tmp_path: Path, case: str) -> None:
    """In the local header and in the directory."""
    extra, wanted = EXTRAS[case]
    after = zip_of(npz(w=np.zeros(60)), extra=extra)
    found = compared(tmp_path, zip_of(ARRAYS), after)
    assert [part.after for part in found.parts] == wanted
    assert [one.name for one in found.by_change()] == ["w"]
    assert compared(tmp_path, after, zip_of(ARRAYS, extra=extra)).parts == ()


def test_comments_while_a_tensor_changes(tmp_path: Path) -> None:
    after = zip_of(npz(w=np.zeros(60)), comment=SECRET, end=b"of all")
    assert sorted(part.after or 0 for part in compared(tmp_path, ARRAYS, after).parts) == [6, 9]


def test_a_local_name_that_no_reader_asks_for(tmp_path: Path) -> None:
    after = npz(w=np.zeros(60)).replace(b"w.npy", b"hides", 1)
    (part,) = compared(tmp_path, ARRAYS, after).parts
    assert (part.name, part.offset, part.after) == (None, 30, 5)


def test_bytes_behind_an_array_in_its_member(tmp_path: Path) -> None:
    before, after = (npz(w=np.full(60, n)) for n in range(2))
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(after)) as old, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("w.npy", old.read("w.npy") + SECRET)
    (part,) = compared(tmp_path, before, file.getvalue()).parts
    assert (part.name, part.after) == (None, 9)


def test_zip64_records(tmp_path: Path) -> None:
    """Those that torch writes are told of no more than their like; further bytes in one are."""
    size = len(ARRAYS)
    entry = ARRAYS.index(b"PK\1\2")
    files = []
    for more in (b"", SECRET):
        counts = struct.pack("<QQQQ", 1, 1, size - 22 - entry, entry)
        facts = struct.pack("<QHHII", 44 + len(more), 45, 45, 0, 0)
        record = b"PK\6\6" + facts + counts + more
        locator = b"PK\6\7" + struct.pack("<IQI", 0, size - 22, 1)
        files.append(ARRAYS[:-22] + record + locator + ARRAYS[-22:])
    plain = npz(w=np.zeros(60))
    assert compared(tmp_path, plain, files[0]).parts == ()
    (part,) = compared(tmp_path, plain, files[1]).parts
    assert (part.name, part.offset, part.after) == (None, size - 22 + 56, 9)


def test_an_empty_member(tmp_path: Path) -> None:
    after = with_members(npz(w=np.zeros(60)), **{"a message": b""})
    assert told(tmp_path, ARRAYS, after) == ["part a message: new, 0 bytes"]


IDS = {
    "digits": (b"1" * 40, b"2" * 40, []),
    "one that is gone": (b"1" * 40, None, []),
    "other bytes": (b"1" * 40, b"2" * 39 + b"x", ["new, 40 bytes"]),
    "more digits": (b"1" * 40, b"2" * 41, ["new, 41 bytes"]),
}


@pytest.mark.parametrize("case", IDS)
def test_the_fingerprint_of_a_torch_file(tmp_path: Path, case: str) -> None:
    files = []
    for value, word in zip((0.0, 1.0), IDS[case][:2], strict=True):
        more = {} if word is None else {".data/serialization_id": word}
        storages = {"0": np.full(2, value, "f4").tobytes()}
        content = torch_files.named(w=torch_files.vector("0", 2))
        files.append(torch_files.archive(content, storages, more=more))
    wanted = [f"part archive/.data/serialization_id: {what}" for what in IDS[case][2]]
    assert told(tmp_path, *files) == wanted


STORAGES = {"0": np.arange(50, dtype="f4").tobytes(), "1": np.ones(50, "f4").tobytes()}


def torch_file(*deflated: str, lr: int | bytes = 3, **more: bytes) -> bytes:
    tensors = {key: torch_files.vector(key, 50) for key in STORAGES}
    rate = lr if isinstance(lr, bytes) else torch_files.number(lr)
    content = torch_files.named(**tensors, lr=rate)
    held = STORAGES | {key[1:]: value for key, value in more.items()}
    return torch_files.archive(content, held, deflated=deflated)


ALL = ("data.pkl", "byteorder", "version", "/0", "/1", "/9")


@pytest.mark.parametrize("count", [9, 64, 100])
def test_zeros_between_members_of_zips_are_padding(tmp_path: Path, count: int) -> None:
    """In torch's zips as in numpy's, whatever alignment torch states for its storages."""
    for content in (ARRAYS, torch_file()):
        with_zeros = told(tmp_path, content, with_gap(content, bytes(count)))
        assert with_zeros == [
            "tensors and metadata are the same, but other bytes of the files differ"
        ]
        (gap,) = told(tmp_path, content, with_gap(content, b"s" + bytes(count - 1)))
        assert gap.startswith(f"{count} bytes at offset"), gap


def test_a_torch_file_that_is_compressed(tmp_path: Path) -> None:
    wanted = ["5 members of the zip are compressed in another way"]
    assert told(tmp_path, torch_file(), torch_file(*ALL)) == wanted
    assert told(tmp_path, torch_file(*ALL), torch_file()) == wanted
    assert told(tmp_path, torch_file(*ALL), torch_file("/0", *ALL[1:])) == [
        "1 member of the zip is compressed in another way"
    ]


def pickled(**values: bytes) -> bytes:
    return torch_files.archive(
        torch_files.named(w=torch_files.vector("0", 50), **values), {"0": STORAGES["0"]}
    )


def number(value: int) -> bytes:
    return torch_files.number(value)


def text(value: str) -> bytes:
    return torch_files.text(value)


def run(word: str) -> bytes:
    return torch_files.call(torch_files.name("argparse", "Namespace"), text(word))


VALUES = {
    "a number": (number(3), number(4), [("/v", 3, 4)]),
    "a type": (number(1), b"\x88", [("/v", 1, True)]),
    "a float": (
        b"G" + struct.pack(">d", 0.5), b"G" + struct.pack(">d", np.nan), [("/v", 0.5, "nan")],
    ),
    "in a list": (
        torch_files.list_of(number(1), text("a")),
        torch_files.list_of(number(1), text("b"), number(2)),
        [("/v/1", "a", "b"), ("/v/2", None, 2)],
    ),
    "beside tensors": (
        torch_files.list_of(torch_files.vector("0", 50), number(1)),
        torch_files.list_of(torch_files.vector("0", 50), number(2)),
        [("/v/1", 1, 2)],
    ),
    "in a dict": (
        torch_files.named(**{"a/b": number(1)}),
        torch_files.named(**{"a/b": number(2)}),
        [("/v/a~1b", 1, 2)],
    ),
    "what an object is given": (run("a"), run("b"), [("/v/0", "a", "b")]),
    "an object": (
        run("a"),
        torch_files.call(torch_files.name("os", "system"), text("a")),
        [("/v/()", "argparse.Namespace", "os.system")],
    ),
    "bytes": (b"C\2ab", b"C\2cd", [("/v", "6162", "6364")]),
    "keys that are spelled alike": (
        torch_files.dict_of((number(1), number(5)), (text("1"), number(6))),
        torch_files.dict_of((number(1), number(5)), (text("1"), number(7))),
        [("/v/1 (1)", 6, 7)],
    ),
}  # fmt: skip


TOLD = ("a float", "what an object is given")


@pytest.mark.parametrize("case", VALUES)
def test_values_of_a_pickle(tmp_path: Path, case: str) -> None:
    before, after, wanted = VALUES[case]
    report = compared(tmp_path, pickled(v=before), pickled(v=after))
    found = [
        (one.path, one.before, one.after)
        for one in report.metadata
        if not one.path.startswith("/globals")
    ]
    assert found == [(f"/values{path}", old, new) for path, old, new in wanted]
    # What differs in nothing but numbers and texts is told by them.
    is_told = all({type(old), type(new)} <= {int, float} for _, old, new in wanted) or case in TOLD
    assert [part.name for part in report.parts] == ([] if is_told else ["archive/data.pkl"])


def test_pickles_that_differ_beside_their_numbers(tmp_path: Path) -> None:
    """Whatever would hide as a number that changed."""
    plain = torch_files.named(n=number(3))
    for other in (
        number(7) + b"0" + plain,
        b"K\4" + b"2" + b"00" + plain,
        b"(K\1K\2" + b"1" + plain,
        text("hidden") + b"0" + plain,
    ):
        for files in ((plain, other), (other, plain), (other, other.replace(b"\4", b"\5"))):
            pair = [
                torch_files.archive(raw.replace(b"\3", bytes([n + 3])))
                for n, raw in enumerate(files)
            ]
            assert "archive/data.pkl" in [one.name for one in compared(tmp_path, *pair).parts]
    # Of two spellings of a value nothing is told but that there are other bytes.
    wide = torch_files.archive(torch_files.named(n=b"M\3\0"))
    assert [
        one.name
        for one in compared(tmp_path, torch_files.archive(torch_files.named(n=b"K\3")), wide).parts
    ] == [None]


def test_a_dict_that_gets_its_first_tensor_was_nothing_that_matters(tmp_path: Path) -> None:
    """As the state of an optimizer before its first step."""
    empty, full = torch_files.named(), torch_files.named(a=torch_files.vector("0", 50))
    report = compared(tmp_path, pickled(state=empty), pickled(state=full))
    assert [(one.path, one.matters) for one in report.metadata] == [("/values/state", False)]
    report = compared(tmp_path, pickled(vocab=empty), pickled(vocab=full))
    assert [(one.path, one.matters) for one in report.metadata] == [("/values/vocab", True)]


def test_a_list_of_numbers_that_grows(tmp_path: Path) -> None:
    files = [pickled(v=torch_files.list_of(*map(number, range(n)))) for n in (3, 4)]
    report = compared(tmp_path, *files)
    assert [one.path for one in report.metadata] == ["/values/v/3"]
    assert report.parts == ()


def test_times_and_counts_in_a_text_of_a_pickle(tmp_path: Path) -> None:
    files = [pickled(v=text(f"epoch {n} of 10, 2026-11-28 10:0{n}")) for n in (3, 4)]
    assert compared(tmp_path, *files).parts == ()


def test_bytes_of_numpy_in_a_pickle(tmp_path: Path) -> None:
    """Protocol 2 spells them as a text that is encoded: losses, states of random generators."""
    files = [
        pickled(
            v=torch_files.call(torch_files.name("_codecs", "encode"), text(raw), text("latin1"))
        )
        for raw in ("\x00\x00\x00\x00\x00\x00\xf0?", "\x9a\x99\x99\x99\x99\x99\xe0@")
    ]
    report = compared(tmp_path, *files)
    assert [(one.path, one.matters) for one in report.metadata] == [("/values/v", False)]
    assert report.parts == ()


def test_names_of_what_is_called_in_a_pickle_of_protocol_4(tmp_path: Path) -> None:
    files = [pickled(v=text(word) + text("Odd") + b"\x93") for word in ("mine", "other")]
    assert "archive/data.pkl" in [one.name for one in compared(tmp_path, *files).parts]


def test_a_long_text_in_a_pickle(tmp_path: Path) -> None:
    """It is told by its hash."""
    files = [pickled(v=torch_files.list_of(text("x" * 5000 + end))) for end in "ab"]
    (one,) = compared(tmp_path, *files).metadata
    assert one.path == "/values/v/0/sha256"


def test_hostile_pickles_are_limited(tmp_path: Path) -> None:
    """A value that contains itself, one of a thousand levels, and 2 to the 60 of them."""
    itself = b"]q\1(h\1K\1e"
    deep = b"]" * 900 + b"K\1a" + b"a" * 899
    many = b"]K\1a" + b"".join(
        b"q" + bytes([n]) + b"]h" + bytes([n]) + b"ah" + bytes([n]) + b"a" for n in range(60)
    )
    for content in (itself, deep, many):
        report = compared(
            tmp_path, pickled(v=content, n=number(1)), pickled(v=content, n=number(2))
        )
        assert [part.name for part in report.parts] == ["archive/data.pkl"]


def test_a_compressed_pickle_that_changed(tmp_path: Path) -> None:
    assert told(tmp_path, torch_file(*ALL), torch_file(*ALL, lr=4)) == []
    assert told(tmp_path, torch_file(*ALL), torch_file(*ALL, lr=b"\x88")) == [
        "part archive/data.pkl: changed bytes, 288 before, 286 after"
    ]


@pytest.mark.parametrize("deflated", [(), ("/0",)])
def test_a_storage_that_tensors_share_is_told_by_them(
    tmp_path: Path, deflated: tuple[str, ...]
) -> None:
    """Such as that of tied weights; its key is another one wherever a tensor comes before it."""
    vector, tensor = torch_files.vector("0", 50), torch_files.tensor
    shared = {
        "tied": (vector, vector),
        "halves": (tensor("0", 50, [25], [1]), tensor("0", 50, [5, 5], [1, 5], offset=25)),
        "columns": (tensor("0", 50, [25], [2]), tensor("0", 50, [25], [2], offset=1)),
        "a part": (tensor("0", 50, [25], [1]), tensor("0", 50, [24], [1], offset=25)),
    }
    ones = np.ones(50, "f4").tobytes()
    for kind, (first, second) in shared.items():
        content = torch_files.named(a=first, b=second)
        files = [
            torch_files.archive(content, {"0": raw}, deflated=deflated)
            for raw in (STORAGES["0"], ones)
        ]
        names = [one.name for one in compared(tmp_path, *files).parts]
        assert names == (["archive/data/0"] if kind in ("columns", "a part") else []), kind


def test_a_compressed_storage_that_no_tensor_has(tmp_path: Path) -> None:
    assert told(tmp_path, torch_file(*ALL), torch_file(*ALL, _9=SECRET)) == [
        "part archive/data/9: new, 9 bytes"
    ]


def test_bytes_behind_an_array_in_a_compressed_member(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(ARRAYS)) as old, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("w.npy", old.read("w.npy") + SECRET, zipfile.ZIP_DEFLATED)
    notes = compared(tmp_path, ARRAYS, file.getvalue()).notes
    assert [note.split(": ", 1)[1] for note in notes] == [
        "w.npy: 9 bytes after its array are not read",
        'chunk "w.npy", byte 35: 9 bytes follow the array',
    ]


def test_compressed_tensors_are_told_as_tensors(tmp_path: Path) -> None:
    files = []
    for value in (1.0, 2.0):
        file = io.BytesIO()
        np.savez_compressed(file, w=np.full(60, value))
        files.append(file.getvalue())
    report = compared(tmp_path, files[0], files[1])
    assert (report.parts, len(report.by_change())) == ((), 1)


def test_swapped_arrays_of_files(tmp_path: Path) -> None:
    a, b = np.arange(60.0), np.arange(60.0) ** 2
    report = compared(tmp_path, npz(a=a, b=b, c=a), npz(a=b, b=a, c=a))
    assert [(one.name, one.values_of) for one in report.tensors] == [
        ("a", "b"), ("b", "a"), ("c", None),
    ]  # fmt: skip


def test_the_folder_of_a_torch_file(tmp_path: Path) -> None:
    """It is named after the file that was saved, mostly with the number of a step."""

    def saved(folder: str, value: int) -> bytes:
        return pickled(n=number(value)).replace(b"archive/", folder.encode())

    old = saved("step_10/", 3)
    assert told(tmp_path, old, saved("step_20/", 4)) == []
    assert told(tmp_path, old, saved("archive/", 4)) == [
        "part archive/: the folder of all members was named step_10/"
    ]
