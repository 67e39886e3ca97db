"""The memory of `wtxtgit checkout`, which does not grow with the file."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data import seeded
from tests.kit import LAUNCHER, Repo

MIB = 1024 * 1024
LAYERS = 12
SCRIPT = """
import re, sys
from pathlib import Path
from wtxtgit.cli.main import main
assert main(["checkout"]) == 0
# Not ru_maxrss, which begins with what the parent had.
status = Path("/proc/self/status").read_text()
print(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1], file=sys.stderr)
"""
MOST = 128 * MIB
"""Of which Python and its libraries are half; the text alone has more."""


def layers(path: Path, size: int) -> None:
    """Write a file of layers in the order of their numbers, noise in zeros."""
    each = size // LAYERS // 4096 * 4096
    tensors = {
        f"layers.{number}.w": {
            "dtype": "F32",
            "shape": [each // 4096, 1024],
            "data_offsets": [number * each, (number + 1) * each],
        }
        for number in range(LAYERS)
    }
    header = json.dumps(tensors).encode()
    noise = seeded("layers").randbytes(100_000)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        start = file.tell()
        for place in range(0, LAYERS * each, 10 * len(noise)):
            file.seek(start + place)
            file.write(noise[: LAYERS * each - place])
        file.truncate(start + LAYERS * each)


@pytest.mark.slow
@pytest.mark.true_start
def test_a_file_is_written_while_its_text_arrives(repo: Repo, driver: None) -> None:
    repo.track("*.safetensors")
    file = repo.path / "model.safetensors"
    layers(file, 96 * MIB)
    raw = file.read_bytes()
    subprocess.run((*LAUNCHER.arguments, "add", "."), cwd=repo.path, check=True)
    assert int(repo.git("cat-file", "-s", ":model.safetensors")) > MOST
    file.unlink()
    done = subprocess.run(
        (sys.executable, "-c", SCRIPT),
        cwd=repo.path,
        env={**os.environ, "WTXTGIT_THREADS": "2"},
        check=True,
        capture_output=True,
    )
    assert file.read_bytes() == raw
    assert int(done.stderr) * 1024 < MOST
