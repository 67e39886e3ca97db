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
COPY = """
import os, sys
from hashlib import sha256
from io import FileIO
from functools import partial
from wtxtgit.git.filter_protocol import (
    MAX_PAYLOAD, PACKETS_A_CALL, FilterProcess, PacketReader, PacketWriter, widen_pipe,
)
from wtxtgit.io.view import write_all, write_parts
from wtxtgit.io.workers import Workers, default_threads

class Output:
    def write(self, data):
        write_all(1, (data,))
    def writelines(self, parts):
        write_parts(1, parts)
    def flush(self):
        pass

def block(place):
    data = memoryview(os.pread(file, SIZE, place))
    if hashes:
        for start in range(0, len(data), 65536):
            sha256(data[start : start + 65536]).digest()
    return data

SIZE = MAX_PAYLOAD * PACKETS_A_CALL
file = os.open(sys.argv[1], os.O_RDONLY)
hashes = sys.argv[2:] == ["hash"]
blocks = [partial(block, place) for place in range(0, os.fstat(file).st_size, SIZE)]
for descriptor in (0, 1):
    widen_pipe(descriptor)
process = FilterProcess(PacketReader(FileIO(0, closefd=False)), PacketWriter(Output()))
process.handshake()
for request in process.requests():
    with Workers(blocks, default_threads()) as made:
        process.success(made)
"""

Command = tuple[str | Path, ...]


def hashing(*files: Path) -> Command:
    """Files hashed once with hashlib, by a process of its own."""
    return (PYTHON, "-c", HASH, *files)


def comparing(a: Path, b: Path) -> Command:
    """The floor of a diff: both files hashed once, and compared with numpy."""
    return (PYTHON, "-c", COMPARE, a, b)


def copying(file: Path, *, hashes: bool) -> Command:
    """A filter that gives git a file, whatever it is asked for; each 64 KiB are hashed before."""
    return (PYTHON, "-E", "-P", "-c", COPY, file, *(["hash"] * hashes))


def merging(base: Path, ours: Path, theirs: Path, out: Path) -> Command:
    """What numpy alone takes for a merge: nothing is checked, everything is held."""
    return (PYTHON, "-c", MERGE, base, ours, theirs, out)
