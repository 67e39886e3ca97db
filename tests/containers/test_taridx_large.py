"""An index of two million rows: nothing in its way loops over rows, or keeps them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wtxtgit.containers.taridx.read import HEADER, ROW

ROWS = 2_000_000
STEMS = ROWS // 2
PER_SHARD = 100_000
EXTENSIONS = b"jpg\njson"

SCRIPT = """
import re, sys
from pathlib import Path
from wtxtgit.cli.taridx_rows import json_lines, text_lines
from wtxtgit.containers.any_format import check
from wtxtgit.containers.taridx.shards import find
from wtxtgit.containers.taridx.read import read
from wtxtgit.io.files import read_whole

index = read_whole(Path(sys.argv[1]))
found = check(index)
assert found.errors == [] and found.warnings == [], found
assert len(find(read(index), "s.jpg")) == 0
for lines in (text_lines(read(index), "utf-8"), json_lines(read(index), "x")):
    assert sum(block.count(b"\\n") for block in lines) > 2_000_000
# Not ru_maxrss, which begins with what the parent had.
status = Path("/proc/self/status").read_text()
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) - index.nbytes)
"""
MOST = 80_000_000 + 16 * ROWS
"""Bytes of memory beside the file, which is mapped: an interpreter, and 8 to 16 a row."""


@pytest.mark.slow
def test_millions_of_rows_are_checked_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "big.taridx"
    rows = np.zeros(ROWS, ROW)
    # All over 64 bits, and no two the same: the factor is odd.
    keys = np.arange(1, STEMS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    rows["keyhash"] = np.repeat(keys, 2)
    rows["extid"] = np.arange(ROWS) % 2
    rows["fid"] = np.arange(ROWS) // PER_SHARD
    rows["offset"] = np.arange(ROWS) % PER_SHARD * 1024
    off_arr = HEADER.size + len(EXTENSIONS)
    with path.open("wb") as file:
        file.write(
            HEADER.pack(
                b"TARIDX\0\0",
                1,
                0,
                ROW.itemsize,
                HEADER.size,
                STEMS,
                ROWS,
                2,
                0,
                off_arr,
                off_arr,
                1,
                b"",
            )
            + EXTENSIONS
        )
        rows.tofile(file)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path], check=True, capture_output=True, timeout=120
    )
    assert int(done.stdout) < MOST
