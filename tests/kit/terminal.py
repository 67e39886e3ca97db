"""A pseudo-terminal: what a command writes to it, and what then is seen there."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_STEPS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+|\x1b")


def on_a_terminal(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: IO[bytes] | None = None,
    outputs: str = "both",
) -> tuple[int, bytes, str]:
    """Run a command with a terminal as its standard error, and as its standard output, too, unless
    `outputs` is "error".

    Returns its exit code, what it wrote to a standard output that is a pipe, and to the terminal.
    """
    leader, follower = pty.openpty()
    with subprocess.Popen(
        argv,
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=follower if outputs == "both" else subprocess.PIPE,
        stderr=follower,
        env=env,
        cwd=cwd,
    ) as process:
        os.close(follower)
        told = b""
        while True:
            try:
                piece = os.read(leader, 65_536)
            except OSError:
                break
            if not piece:
                break
            told += piece
        out = b"" if process.stdout is None else process.stdout.read()
        process.wait(60)
    os.close(leader)
    return process.returncode, out, told.decode()


def screens(told: str) -> tuple[list[str], list[str]]:
    """Every state of a line that was shown, and the lines that stand there in the end."""
    shown: list[str] = []
    lines, row, column = [""], 0, 0
    for step in _STEPS.finditer(told):
        text, words, code = step[0], step[1], step[2]
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif code == "A":
            row = max(0, row - int(words or 1))
        elif code == "K":
            assert words == "2", text
            lines[row] = ""
        elif code is None:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + text + line[column + len(text) :]
            column += len(text)
            shown.append(lines[row])
    return shown, [line.rstrip() for line in lines if line.strip()]
