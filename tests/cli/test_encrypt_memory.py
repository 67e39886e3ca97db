"""Encrypting and decrypting takes no more memory for more bytes, and no file but the output."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyrage
import pytest

from tests.cli.command import Command
from wtxtgit.api.functions import dump

pytestmark = [pytest.mark.slow, pytest.mark.true_start]

SMALL, LARGE = 4, 48
"""MiB of the array in a text."""
MORE = 16 * 1024
"""KiB that the larger one may take more: a share of it that is no multiple."""


def without_files() -> None:
    """Let the process write nothing but pipes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def peak(wtxtgit: Command, *arguments: str | Path, descriptors: Sequence[int] = ()) -> int:
    """Run a command, whose output is thrown away by a pipe; gives the most memory in KiB."""
    process = subprocess.Popen(
        wtxtgit.argv(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=without_files,
        pass_fds=descriptors,
        **wtxtgit.options(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    size = 0
    while piece := process.stdout.read(1 << 20):
        size += len(piece)
    told = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    assert (process.returncode, told) == (0, "")
    assert size > SMALL << 20
    return usage.ru_maxrss


def test_memory_and_files(wtxtgit: Command) -> None:
    key = pyrage.x25519.Identity.generate()
    file = wtxtgit.folder.parent / "key"
    file.touch(mode=0o600)
    file.write_text(f"{key}\n")
    words = wtxtgit.folder.parent / "words"
    words.write_text("correct horse\n")
    peaks = []
    for size in (SMALL, LARGE):
        text = wtxtgit.folder / f"{size}.wtxt"
        dump({"w": np.arange(size << 18, dtype="<u4")}, text)
        with words.open("rb") as given:
            to_key = ("encrypt", text, "-r", str(key.to_public()))
            with_words = ("encrypt", text, "-p", "--passphrase-fd", str(given.fileno()))
            assert wtxtgit(*to_key, "-o", text.with_suffix(".age")).code == 0
            opening = ("decrypt", text.with_suffix(".age"), "-i", file)
            peaks.append(
                (
                    peak(wtxtgit, *to_key),
                    peak(wtxtgit, *with_words, descriptors=(given.fileno(),)),
                    peak(wtxtgit, *opening),
                )
            )
    for small, large in zip(*peaks, strict=True):
        assert large - small < MORE
