"""What nothing can be faster than, or what people have today: programs to compare with."""

from __future__ import annotations

from pathlib import Path

from bench.data import COLUMNS
from bench.measure import PYTHON

HASH = """
import hashlib, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        hashlib.file_digest(file, "sha256")
"""
COMPARE = """
import hashlib, mmap, sys
import numpy as np
sides = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    hashlib.sha256(held).digest()
    start = 8 + int.from_bytes(held[:8], "little")
    sides.append(np.frombuffer(held, "<f4", offset=start))
print(np.count_nonzero(sides[0] != sides[1]))
"""
MERGE = f"""
import sys
import numpy as np
base, ours, theirs = (np.fromfile(name, "u1") for name in sys.argv[1:4])
start = len(base) % {COLUMNS * 4}
rows = [side[start:].view("u4").reshape(-1, {COLUMNS}) for side in (base, ours, theirs)]
changed = [(rows[0] != side).any(axis=1) for side in rows[1:]]
assert not (changed[0] & changed[1]).any()
rows[1][changed[1]] = rows[2][changed[1]]
ours.tofile(sys.argv[4])
"""

Command = tuple[str | Path, ...]


def hashing(*files: Path) -> Command:
    """Files hashed once with hashlib, by a process of its own."""
    return (PYTHON, "-c", HASH, *files)


def comparing(a: Path, b: Path) -> Command:
    """The floor of a diff: both files hashed once, and compared with numpy."""
    return (PYTHON, "-c", COMPARE, a, b)


def merging(base: Path, ours: Path, theirs: Path, out: Path) -> Command:
    """What numpy alone takes for a merge: nothing is checked, everything is held."""
    return (PYTHON, "-c", MERGE, base, ours, theirs, out)
