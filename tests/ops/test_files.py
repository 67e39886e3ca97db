"""Files whole or not at all, and spools on a disk that fills up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wtxtgit.errors import UsageError
from wtxtgit.model.reading import ReadOptions
from wtxtgit.ops.files import replace_file, write_all
from wtxtgit.ops.inspect import inspect
from wtxtgit.ops.spool import IN_MEMORY, Spool


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="no regular file"):
        replace_file(pipe, lambda fd: write_all(fd, (b"x",)))
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"kept")
    link.symlink_to(target)
    replace_file(link, lambda fd: write_all(fd, (b"new",)))
    assert (target.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"kept", b"new", False)


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY - 1, IN_MEMORY, 3 * IN_MEMORY + 5])
def test_a_spool_gives_what_it_got(size: int, tmp_path: Path) -> None:
    data = os.urandom(size)
    spool = Spool(lambda: tmp_path)
    for start in range(0, size, 1_000_003):
        spool.write(data[start : start + 1_000_003])
    assert spool.view() == data
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_spool_on_a_full_disk_keeps_the_rest_in_memory(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the temporary file end in the middle of a piece."""
    program = f"""
import os, resource, signal
from pathlib import Path
from wtxtgit.ops.spool import IN_MEMORY, Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = IN_MEMORY + IN_MEMORY // 2
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
data = os.urandom(4 * IN_MEMORY)
spool = Spool(lambda: Path({str(tmp_path)!r}))
for start in range(0, len(data), 1_000_003):
    spool.write(data[start:start + 1_000_003])
assert spool.view() == data
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_tensors_that_all_span_a_file_are_not_all_hashed(tmp_path: Path) -> None:
    size = 1_000_000
    header = json.dumps(
        {
            f"t{n}": {"dtype": "U8", "shape": [size - n], "data_offsets": [n, size]}
            for n in range(99)
        }
    ).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    listed = inspect(str(path), ReadOptions()).tensors
    assert len(listed) == 99
    hashed = [tensor for tensor in listed if tensor.sha256 is not None]
    assert 0 < sum(tensor.size for tensor in hashed) <= 64 * 2**20
    assert len(hashed) < 99
