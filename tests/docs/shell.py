"""Blocks of console lines, run by a shell as they stand."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.docs.pages import Block
from tests.kit.json_output import assert_as_specified

_PROMPT = "$ "
_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?$")
_LOST = ": not all of it could be recovered"
_END = "\x1e"
_COMMIT = re.compile(r"[0-9a-f]{7,40}(?= )")


@dataclass(frozen=True)
class Step:
    """A command, with the lines of output that the page gives for it."""

    where: str
    command: str
    output: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the page shows it failing."""
        failures = ("FAILED", "wtxtgit: error: ")
        return any(line.startswith(failures) or _LOST in line for line in self.output)


@dataclass(frozen=True)
class Done:
    step: Step
    code: int
    output: str

    def __str__(self) -> str:
        return f"{self.step.where}: {self.step.command}\nended with {self.code}:\n{self.output}"


def steps(*blocks: Block) -> list[Step]:
    """The commands of console blocks, here documents included, in order."""
    found: list[Step] = []
    until: str | None = None
    for block in blocks:
        for number, line in enumerate(block.text.splitlines(), block.line):
            if until is not None:
                found[-1] = replace(found[-1], command=f"{found[-1].command}\n{line}")
                until = None if line == until else until
            elif line.startswith(_PROMPT):
                command = line.removeprefix(_PROMPT)
                found.append(Step(f"{block.page}:{number}", command, ()))
                started = _HERE_DOCUMENT.search(command)
                until = started[1] if started else None
            else:
                assert found, f"{block.page}:{number}: output of no command"
                found[-1] = replace(found[-1], output=(*found[-1].output, line))
    assert until is None, "a here document has no end"
    return found


def run(
    todo: Iterable[Step], folder: Path, environment: Mapping[str, str] | None = None
) -> list[Done]:
    """Run steps in one shell, in `folder`; a step that fails does not stop the next."""
    todo = list(todo)
    script = "".join(f"{step.command}\nprintf '\\036%d\\n' \"$?\"\n" for step in todo)
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    pieces = re.split(rf"{_END}(\d+)\n", done.stdout.decode())
    assert len(pieces) == 2 * len(todo) + 1, done.stdout.decode()
    for step, output, code in zip(todo, pieces[::2], pieces[1::2], strict=False):
        name, *words = step.command.split() or [""]
        if name == "wtxtgit" and not {"|", ">", "2>", "&&"} & set(words):
            assert_as_specified(words, int(code), output.encode())
    return [
        Done(step, int(code), output)
        for step, output, code in zip(todo, pieces[::2], pieces[1::2], strict=False)
    ]


_EXPLAINS = re.compile(r"^wtxtgit: (note|hint): ", re.MULTILINE)


def assert_as_shown(done: Iterable[Done]) -> None:
    """Every step ended as the page says, and put out what the page shows, if it shows anything.

    A line `...` stands for lines that the page leaves out, `...` at the end of a line for its
    rest. Empty lines do not count, and a page may be silent about notes and hints, which
    explain. A commit's id is another one each time, but one commit keeps its id.
    """
    ids: dict[str, str] = {}
    for one in done:
        assert one.code == (1 if one.step.fails else 0), one
        if shown := [line for line in one.step.output if line.strip()]:
            silent = _EXPLAINS.search("\n".join(shown)) is None
            real = [
                line
                for line in one.output.splitlines()
                if line.strip() and not (silent and _EXPLAINS.match(line))
            ]
            _assert_shown(shown, real, ids, str(one))


def _assert_shown(shown: list[str], real: list[str], ids: dict[str, str], step: str) -> None:
    at, left_out = 0, False
    for index, line in enumerate(shown):
        if line.strip() == "...":
            left_out = True
            continue
        if left_out and "..." not in map(str.strip, shown[index:]):
            # What follows the last gap ends the output.
            at = max(at, len(real) - len(shown) + index)
        while left_out and at < len(real) and not _same(line, real[at], ids):
            at += 1
        assert at < len(real), (line, step)
        assert _same(line, real[at], ids), (line, real[at], step)
        at, left_out = at + 1, False
    assert left_out or at == len(real), (real[at], step)


def _same(shown: str, real: str, ids: dict[str, str]) -> bool:
    theirs, ours = _COMMIT.match(shown), _COMMIT.match(real)
    if theirs and ours:
        shown, real = shown[theirs.end() :], real[ours.end() :]
    same = real.startswith(shown[:-3]) if shown.endswith("...") else real == shown
    if same and theirs and ours:
        assert ids.setdefault(theirs[0], ours[0]) == ours[0], (shown, real)
    return same
