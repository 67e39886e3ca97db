"""Reports as plain data: what KEYS say, and the same from `as_dict` and from what is printed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from wtxtgit.cli.output import write_json
from wtxtgit.model.plain import JsonObject


class Word(StrEnum):
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Inner(JsonObject):
    KEYS = "size half"

    size: int

    @property
    def half(self) -> float:
        return self.size / 2


@dataclass(frozen=True, slots=True)
class One(JsonObject):
    only: tuple[Inner, ...] = ()


@dataclass(frozen=True, slots=True)
class Outer(JsonObject):
    KEYS = (
        "word path digest:hex paths file=folder missing? there? *inner *nothing *counts "
        "deep=inner.size one names nested"
    )

    word: Word = Word.GOOD
    path: bytes = b"not utf-8 \xff"
    digest: bytes = b"\x00\xff"
    paths: tuple[bytes, ...] = (b"a", b"\xff")
    folder: Path = Path("a/b")
    missing: int | None = None
    there: int | None = 0
    inner: Inner = Inner(3)
    nothing: Inner | None = None
    counts: dict[Word, int] = field(default_factory=lambda: {Word.GOOD: 2})
    one: One = One((Inner(1),))
    names: tuple[str, ...] = ()
    nested: tuple[tuple[str, int], ...] = (("a", 1),)


WANTED = {
    "word": "good",
    "path": "not utf-8 \udcff",
    "digest": "00ff",
    "paths": ["a", "\udcff"],
    "file": "a/b",
    "there": 0,
    "size": 3,
    "half": 1.5,
    "good": 2,
    "deep": 3,
    "one": {"only": [{"size": 1, "half": 0.5}]},
    "names": [],
    "nested": [["a", 1]],
}


def test_as_dict() -> None:
    found = Outer().as_dict()
    assert found == WANTED
    assert list(found) == list(WANTED)
    assert type(found["word"]) is str


def test_what_is_printed_is_the_same() -> None:
    pieces: list[str] = []
    write_json(Outer(), pieces.append)
    assert "".join(pieces) == json.dumps(Outer().as_dict(), indent=2) + "\n"
    pieces.clear()
    write_json(One(), pieces.append)
    assert "".join(pieces) == json.dumps({"only": []}, indent=2) + "\n"
