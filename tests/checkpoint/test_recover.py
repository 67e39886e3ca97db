"""What a recovery takes of memory and disk, whatever the damaged text says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.fuzz.container_oracle import peak_of
from wtxtgit.checkpoint.other_copies import FoundCopies, Place
from wtxtgit.checkpoint.partial_file import write_partial
from wtxtgit.checkpoint.recover import RecoveredText, recover_text
from wtxtgit.errors import CheckError
from wtxtgit.io.view import view_of
from wtxtgit.model.array import Array, Layout, Meta, Snapshot, default_rows
from wtxtgit.model.tensor import Decoding
from wtxtgit.text.grammar import CAP
from wtxtgit.text.recovery.rebuilding import recover, text_of
from wtxtgit.text.write import dumps

MIB = 1024 * 1024


def text_with_layout(extents: Sequence[str], size: int) -> bytes:
    """A text of two arrays and a layout that says this."""
    named = ",".join(extents)
    raw = f'{{"extents":[{named}],"format":"opaque","size":{size},"v":1}}'.encode()
    layout = Array("_layout", "u8", (len(raw),), memoryview(raw))
    arrays = [
        Array(name, "u8", (100,), memoryview(bytes(range(first, first + 100))))
        for first, name in enumerate("ab")
    ]
    said = Layout("opaque", 0, ())
    return dumps(
        Snapshot(Meta(schema="opaque/v1"), (layout, *arrays), (*CAP, "layout"), layout=said)
    )


def without_array(text: bytes, name: str) -> bytes:
    start = text.index(b"arr name=%b " % name.encode())
    return text[:start] + text[text.index(b"endarr\n", start) + 7 :]


def recovered(folder: Path, text: bytes) -> tuple[RecoveredText, str]:
    path = folder / "bad.wtxt"
    path.write_bytes(text)
    return recover_text(str(path), memoryview(text)), str(path)


AB = ('{"array":"a"}', '{"array":"b"}')


def test_a_lost_array_has_the_size_that_the_file_leaves_it(tmp_path: Path) -> None:
    done, name = recovered(tmp_path, without_array(text_with_layout(AB, 64 * MIB), "b"))
    out = tmp_path / "out.bin"
    assert done.report.missing == ("b",)
    assert peak_of(lambda: write_partial(done, out, name)) < 4 * MIB
    assert out.stat().st_size == 64 * MIB
    assert out.read_bytes()[:101] == bytes(range(100)) + b"\0"
    assert write_partial(done, out, name).lost == ((100, 64 * MIB),)


LONG = 99_999_999_999


@pytest.mark.parametrize(
    "text",
    [
        without_array(text_with_layout(AB, 10**19), "b"),
        without_array(text_with_layout(AB, 5 * 2**30), "b"),
        text_with_layout([*AB, *['{"zeros":65536}'] * 1024], 200 + 2**26),
        # A chunk that claims to be long.
        b"len=%d sha".join(
            b"shape=%d order=C bytes=%d ".join(
                text_with_layout(AB, 100 + LONG).rsplit(b"shape=100 order=C bytes=100 ", 1)
            ).rsplit(b"len=100 sha", 1)
        )
        % (LONG, LONG, LONG),
    ],
    ids=["size", "over 4 GiB", "runs of zeros", "chunk"],
)
def test_zeros_that_a_text_asks_for_have_a_bound(tmp_path: Path, text: bytes) -> None:
    done, name = recovered(tmp_path, text)
    out = tmp_path / "out.bin"
    with pytest.raises(
        CheckError, match=r"bytes of its file would be zeros, over the limit of 1[0-9]{6}$"
    ) as told:
        write_partial(done, out, name, Decoding(lambda: MIB))
    assert told.value.hint == "git config wtxtgit.decodeLimit SIZE allows more"
    assert not out.exists()


def test_the_bound_is_a_setting(tmp_path: Path) -> None:
    done, name = recovered(tmp_path, without_array(text_with_layout(AB, 2 * MIB), "b"))
    out = tmp_path / "out.bin"
    with pytest.raises(CheckError, match="2097052 bytes of its file would be zeros"):
        write_partial(done, out, name, Decoding(lambda: MIB))
    write_partial(done, out, name, Decoding(lambda: 2 * MIB))


def large_text() -> bytes:
    values = np.random.default_rng(1).standard_normal((4096, 1024)).astype("f4")
    return wtxtgit.dumps({"w": values})


def with_wrong_characters(text: bytes, places: Sequence[int]) -> bytes:
    damaged = bytearray(text)
    for at in places:
        damaged[at] = ord("A") if damaged[at] & 0xF != 1 else ord("B")
    return bytes(damaged)


@pytest.mark.slow
def test_a_large_text_is_not_held_in_memory(tmp_path: Path) -> None:
    text = large_text()
    damaged = with_wrong_characters(text, range(10**6, len(text), 5 * 10**6))
    path = tmp_path / "bad.wtxt"
    path.write_bytes(damaged + b"-- \nSomebody\n")
    with path.open("rb") as file:
        view = view_of(file.fileno())

    assert peak_of(lambda: recover(view)) < len(text) // 4
    snapshot = recover(view).snapshot
    assert snapshot is not None
    assert b"".join(map(bytes, text_of(snapshot))) == text


def test_places_that_have_nothing_are_not_kept() -> None:
    text = text_with_layout(AB, 200)
    start = text.index(b"\nendch\n", text.index(b"arr name=b "))
    damaged = text[: start - 79] + text[start + 1 :]
    opened: list[str] = []

    def place(name: str, content: bytes) -> Place:
        def view() -> memoryview:
            opened.append(name)
            return memoryview(content)

        return Place(name, view)

    places = [place("nothing", b"x"), place("without", without_array(text, "b"))]
    heal = FoundCopies(lambda: [*places, place("old", text), place("later", text)])
    done = recover(memoryview(damaged), heal)
    assert [slot.source for array in done.arrays for slot in array.slots if slot.source] == ["old"]
    assert opened == ["nothing", "without", "old"]


def of_values(first: int) -> bytes:
    """A text of which only the array `b` differs."""
    raw = b'{"extents":[%b,%b],"format":"opaque","size":200,"v":1}' % tuple(
        one.encode() for one in AB
    )
    rows = default_rows("u8", (100,))
    arrays = (
        Array("_layout", "u8", (len(raw),), memoryview(raw), default_rows("u8", (len(raw),))),
        Array("a", "u8", (100,), memoryview(bytes(range(100))), rows),
        Array("b", "u8", (100,), memoryview(bytes(range(first, first + 100))), rows),
    )
    said = Layout("opaque", 0, ())
    return dumps(Snapshot(Meta(schema="opaque/v1"), arrays, (*CAP, "layout"), layout=said))


def changed_in_b(text: bytes) -> bytes:
    return with_wrong_characters(text, [text.index(b" lines=", text.index(b"arr name=b ")) + 20])


WHOLE = of_values(1)


@pytest.mark.parametrize(
    "nearer",
    [
        [changed_in_b(WHOLE)],
        [without_array(WHOLE, "b"), changed_in_b(of_values(50)), of_values(50), of_values(51)],
    ],
    ids=["damaged", "another-content"],
)
def test_an_array_without_a_line_is_sought_in_every_version(nearer: list[bytes]) -> None:
    texts = [*nearer, WHOLE, of_values(70)]
    places = [Place(str(n), partial(memoryview, one)) for n, one in enumerate(texts)]
    damaged = without_array(WHOLE, "b")
    heal = FoundCopies(lambda: places)
    done = recover(memoryview(damaged), heal)
    assert done.missing == ()
    assert done.snapshot is not None
    assert b"".join(map(bytes, text_of(done.snapshot))) == WHOLE
    assert str(len(nearer)) in {slot.source for array in done.arrays for slot in array.slots}


def test_versions_that_are_tried_are_few() -> None:
    texts = [of_values(first) for first in range(2, 40)]
    places = [Place(str(n), partial(memoryview, one)) for n, one in enumerate(texts)]
    done = recover(memoryview(without_array(WHOLE, "b")), FoundCopies(lambda: places))
    assert done.snapshot is None
    assert {slot.source for array in done.arrays for slot in array.slots} == {None, "0"}
    assert any("--from COMMIT" in line for line in done.notes)
