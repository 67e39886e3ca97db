"""What differs beside tensors and metadata: nothing of a file is left out of a diff."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data import FIXTURES
from wtxtgit.comparison.diff import diff
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import OTHER_BYTES, DiffReport


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
    "padding": (FOLD, FOLD + bytes(9), [OTHER_BYTES]),
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


def test_compressed_tensors_are_told_as_tensors(tmp_path: Path) -> None:
    files = []
    for value in (1.0, 2.0):
        file = io.BytesIO()
        np.savez_compressed(file, w=np.full(60, value))
        files.append(file.getvalue())
    report = compared(tmp_path, files[0], files[1])
    assert (report.parts, len(report.by_change())) == ((), 1)
