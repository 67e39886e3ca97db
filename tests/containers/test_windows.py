"""Files that are read through windows are cut, listed, checked and written as those in memory."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tests.data import fixture, golden, one_of_each
from tests.io.copies import windowed
from wtxtgit.containers.any_format import (
    check,
    describe,
    identify,
    read,
    resealer,
    split,
    tensors,
)
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.tensor import Description, PlacedEntry, ReadOptions

OPTIONS = ReadOptions()


def facts(found: Description) -> object:
    """All that a description says."""
    untold: list[str] = []
    listed = [
        (each.name, each.dtype, each.shape, each.offset, each.element, each.absent)
        + (() if each.absent else (sha256(each.data).hexdigest(),))
        for each in tensors(found, OPTIONS, untold)
    ]
    # NaN is not equal to itself, but has one spelling.
    return listed, untold, repr(found.metadata), found.tags, found.parts, found.untold


def described(data: ByteView) -> object:
    try:
        return facts(describe(data))
    except FormatError as error:
        return error.message, error.offset, error.field


def cut(data: ByteView) -> object:
    found = split(data)
    held = [(each.name, each.dtype, each.shape, bytes(each.data)) for each in found.arrays]
    return found.layout, found.reason, held


def resealed(data: ByteView) -> object:
    """The file, written again by its format's own writer."""
    found = resealer(data)
    if found is None:
        return None
    try:
        container = read(data)
        entries = found.entries(container, OPTIONS)
        placed = [PlacedEntry(container, number) for number in range(len(entries))]
        rest = found.rest(container, OPTIONS)
        shown = [(each.name, each.stored and bytes(each.stored), each.unread) for each in entries]
        return shown, rest, b"".join(found.reseal(container, placed, None, OPTIONS))
    except FormatError as error:
        return error.message, error.offset, error.field


def check_file(path: str) -> None:
    content = fixture(path)
    whole = memoryview(content)
    assert identify(windowed(content)) == identify(whole)
    assert cut(windowed(content)) == cut(whole)
    assert described(windowed(content)) == described(whole)
    assert check(windowed(content)) == check(whole)
    assert resealed(windowed(content)) == resealed(whole)


@pytest.mark.parametrize("path", one_of_each())
def test_a_file_of_each_format_behind_windows_is_the_same_file(path: str) -> None:
    check_file(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", golden())
def test_any_file_behind_windows_is_the_same_file(path: str) -> None:
    check_file(path)
