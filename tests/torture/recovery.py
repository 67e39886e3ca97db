"""What comes back of damaged texts: from themselves, and with the version before at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random

from tests.data import seeded
from tests.kit import safetensors
from tests.text.recovery.damage import is_mendable, recovered, texts, wrong_characters
from tests.torture.tables import Table
from wtxtgit.checkpoint.other_copies import FoundCopies, Place
from wtxtgit.errors import counted
from wtxtgit.filter.clean import clean
from wtxtgit.text.recovery.pieces import ChunkState
from wtxtgit.text.recovery.rebuilding import recover, text_of

CHARACTERS = 4
LINES = (1, 10, 100)
LINE = 79


def run(folder: Path, tries: int, seed: int, only: Collection[str] | None) -> Table:
    """Rows of what was tried, how often, and how many texts came back byte for byte."""
    rows: list[Sequence[str]] = []
    broken: list[str] = []
    if not only or "characters" in only:
        rows.append(_characters(tries, seed, broken))
    for count in LINES:
        if not only or "lines" in only:
            rows += _lines(count, max(1, tries // 10), seed, broken)
    head = ("damage", "texts", "as they were", "damaged chunks", "mended", "healed", "lost")
    return Table(head, rows, broken)


def _characters(tries: int, seed: int, broken: list[str]) -> Sequence[str]:
    """Texts of real files with four wrong characters, no more than two of them in a chunk."""
    rng = seeded(f"characters {seed}")
    tried = whole = 0
    while tried < tries:
        text = rng.choice(texts())
        places = rng.sample(range(len(text)), CHARACTERS)
        if not is_mendable(text, places):
            continue
        tried += 1
        if recovered(wrong_characters(text, places, rng)) == text:
            whole += 1
        else:
            broken.append(f"{len(text)} bytes with other characters at {places}")
    what = f"{CHARACTERS} wrong characters, at most two in a chunk"
    return what, str(tried), str(whole), "", "", "", ""


def _lines(count: int, tries: int, seed: int, broken: list[str]) -> list[Sequence[str]]:
    """A text of 6 MiB with so many damaged lines, alone and with the version before at hand."""
    rng = seeded(f"lines {count} {seed}")
    values = [rng.random() for _ in range(_VALUES)]
    before = [*values[: _VALUES // 2], *(rng.random() for _ in range(_VALUES // 2))]
    text, old = (_text_of(safetensors(*each)) for each in (values, before))
    start, end = text.index(b"lines=1150\n") + 11, text.rindex(b"\nendch")
    rows: list[Sequence[str]] = []
    for what, copies in (("alone", []), ("half of it is in the previous version", [old])):
        whole = 0
        states: Counter[ChunkState] = Counter()
        for _ in range(tries):
            damaged = _with_damaged_lines(text, start, end, count, rng)
            places = [Place("before", lambda one=one: memoryview(one)) for one in copies]
            heal = FoundCopies(lambda found=tuple(places): found)
            done = recover(memoryview(damaged), heal)
            states.update(slot.state for array in done.arrays for slot in array.slots)
            if done.snapshot is None:
                continue
            whole += 1
            if b"".join(map(bytes, text_of(done.snapshot))) != text:
                broken.append(f"{count} damaged lines gave another text")
        del states[ChunkState.INTACT]
        chunks = sum(states.values())
        told = [f"{states[state] / chunks:.0%}" for state in _TOLD]
        name = f"{counted(count, 'damaged line')}, {what}"
        rows.append((name, str(tries), str(whole), str(chunks), *told))
    return rows


_VALUES = 1_200_000
_TOLD = (ChunkState.MENDED, ChunkState.HEALED, ChunkState.LOST)


def _text_of(raw: bytes) -> bytes:
    return b"".join(map(bytes, clean(memoryview(raw)).pieces()))


def _with_damaged_lines(text: bytes, start: int, end: int, count: int, rng: Random) -> bytes:
    """Lines with one wrong character, or gone, or doubled."""
    damaged = bytearray(text)
    for at in sorted((rng.randrange(start, end) for _ in range(count)), reverse=True):
        line = damaged.rfind(b"\n", 0, at) + 1
        next_line = damaged.index(b"\n", line) + 1
        match rng.randrange(8):
            case 0:
                del damaged[line:next_line]
            case 1:
                damaged[line:line] = damaged[line:next_line]
            case _:
                damaged[at] = rng.choice([c for c in range(32, 127) if c != damaged[at]])
    return bytes(damaged)
