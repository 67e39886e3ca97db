"""A damaged text gives what is intact of it, and says what is not: never another value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit
from tests.data import seeded
from tests.text.recovery.damage import PRINTABLE, wrong_characters
from wtxtgit.errors import DamageWarning, InputError, TextError
from wtxtgit.text.arrays import LazySnapshot

SOURCE: dict[str, np.ndarray[Any, Any]] = {
    "bias": np.arange(7, dtype="f4"),
    "embed.w": np.arange(400, dtype="f4").reshape(40, 10),
    "half": np.arange(30, dtype="f2"),
    "mask": np.arange(50) % 3 == 0,
}
TEXT = wtxtgit.dumps(SOURCE, rows_per_chunk=8)
NATIVE = wtxtgit.dumps({name: SOURCE[name] for name in ("bias", "half")} | {"w": SOURCE["embed.w"]})


def read(text: bytes) -> LazySnapshot:
    return LazySnapshot(memoryview(text), damaged=True)


def without_line(text: bytes, after: bytes, lines: int = 1) -> bytes:
    """The text without the second line behind one that starts so."""
    start = text.index(b"\n", text.index(after)) + 1
    start = text.index(b"\n", start) + 1
    return text[:start] + text[start + 79 * lines :]


def internal(snapshot: LazySnapshot, name: str) -> str:
    return snapshot[name]._index.name


def test_what_is_intact_is_read() -> None:
    name = internal(read(TEXT), "embed.w")
    snapshot = read(without_line(TEXT, b"arr name=%b " % name.encode()))
    assert snapshot.is_damaged
    assert list(snapshot) == list(SOURCE)
    for other in ("bias", "half", "mask"):
        np.testing.assert_array_equal(snapshot[other][...], SOURCE[other])
        assert snapshot[other].dtype == SOURCE[other].dtype
    # Its first chunk lacks a line: the others are there.
    assert snapshot["embed.w"].shape == (40, 10)
    np.testing.assert_array_equal(snapshot["embed.w"][8:], SOURCE["embed.w"][8:])
    with pytest.raises(TextError) as refused:
        snapshot["embed.w"][0]
    assert (refused.value.array, refused.value.chunk) == (name, 0)
    assert refused.value.line is not None
    assert "wtxtgit recover" in str(refused.value.hint)
    assert (name, 0) in [(problem.array, problem.chunk) for problem in snapshot.problems]


def test_opening_a_damaged_file_warns(tmp_path: Path) -> None:
    path = tmp_path / "w.wtxt"
    path.write_bytes(TEXT[:-200])
    match = r"w\.wtxt is damaged: .*wtxtgit recover"
    with pytest.warns(DamageWarning, match=match) as told, wtxtgit.open(path) as snapshot:
        np.testing.assert_array_equal(snapshot["bias"][:], SOURCE["bias"])
    assert told[0].filename == __file__
    path.write_bytes(TEXT)
    with wtxtgit.open(path) as snapshot:
        assert not snapshot.is_damaged
    path.write_bytes(b"no text at all\n")
    with pytest.raises(InputError), wtxtgit.open(path):
        pass


def test_a_strict_reader_refuses_it() -> None:
    with pytest.raises(TextError):
        LazySnapshot(memoryview(TEXT[:-200]))


def test_arrays_of_which_nothing_is_left_are_named() -> None:
    name = internal(read(TEXT), "mask").encode()
    start = TEXT.index(b"arr name=%b " % name)
    end = TEXT.index(b"endarr\n", start) + 7
    snapshot = read(TEXT[:start] + b"?\n" + TEXT[end:])
    assert "mask" not in snapshot
    assert ("mask", "is lost") in [(one.array, one.message) for one in snapshot.problems]
    assert len(snapshot) == 3


@pytest.mark.parametrize("text", [TEXT, NATIVE], ids=["layout", "native"])
def test_no_damage_gives_another_value(text: bytes) -> None:
    rng = seeded("damaged")
    good = {name: array[...] for name, array in read(text).items()}
    lines = text.splitlines(keepends=True)
    for turn in range(60):
        damaged = wrong_characters(text, rng.sample(range(len(text)), 3), rng)
        if turn % 3 == 0:
            at, other = rng.sample(range(len(lines)), 2)
            damaged = b"".join([*lines[:at], lines[other], *lines[at + 1 :]])
        elif turn % 3 == 1:
            at = rng.randrange(len(text))
            damaged = damaged[:at] + bytes((rng.choice(PRINTABLE),)) + damaged[at:]
        try:
            snapshot = read(damaged)
        except TextError:
            continue
        for name, array in snapshot.items():
            try:
                value = array[...]
            except TextError:
                continue
            if name in good and value.dtype == good[name].dtype:
                assert value.tobytes() == good[name].tobytes()
