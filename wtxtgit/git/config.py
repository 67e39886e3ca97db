"""Git's configuration: the keys of the driver, set and unset politely.

A value is ours when it is the constant that we set, or a command that starts
wtxtgit. Any other value is somebody else's: it is not overwritten unless
forced, and never unset.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.git import run

DRIVER = "wtxt"
UNFILTERED = (
    *("-c", f"filter.{DRIVER}.process="),
    *("-c", f"filter.{DRIVER}.clean="),
    *("-c", f"filter.{DRIVER}.required=false"),
)
"""Options with which git compares contents as they are.

It does that for files as young as the index, even where it is asked for stat
fields alone; without the filter that takes no time, and such files are found
to differ.
"""

COMMANDS = {
    "filter.wtxt.process": "filter-process",
    "filter.wtxt.clean": "clean -- %f",
    "filter.wtxt.smudge": "smudge -- %f",
    "diff.wtxt.command": "diff-driver --",
    "merge.wtxt.driver": "merge-driver -- %O %A %B %L %P",
    "merge.wtxt-ledger.driver": "merge-driver --ledger -- %O %A %B %L %P",
}
"""Keys whose value is our command with these arguments.

Git replaces and quotes `%f` and `%P`; what a diff is of it adds.
"""

CONSTANTS = {
    "filter.wtxt.required": "true",
    "diff.wtxt.xfuncname": "^arr name=([A-Za-z0-9_]+)",
    "merge.wtxt.name": "wtxtgit: merge of model checkpoints",
    # Ancestors that a criss-cross merge makes up have no sides: of what both
    # changed, the base stays, so that nothing looks settled that is not.
    "merge.wtxt.recursive": "binary",
    "merge.wtxt-ledger.name": "wtxtgit: merge of ledgers",
    "merge.wtxt-ledger.recursive": "binary",
}

KEYS = (*COMMANDS, *CONSTANTS)

PROGRAMS = ("wtxtgit", "git-wtxt")
"""Names of the installed console scripts."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How git starts wtxtgit: a program by absolute path, and its first arguments."""

    arguments: tuple[str, ...]

    def command(self, rest: str = "") -> str:
        """Spell it for git, which gives the line to `sh`."""
        return f"{shlex.join(self.arguments)} {rest}".rstrip()

    def values(self) -> dict[str, str]:
        """The value of every key that install sets."""
        commands = {key: self.command(rest) for key, rest in COMMANDS.items()}
        return {**commands, **CONSTANTS}


def get_all(key: str, *, scope: str | None = None, cwd: Path | None = None) -> list[str]:
    """Read all values of a key in one scope, or the effective ones, last one strongest."""
    where = (f"--{scope}",) if scope else ()
    found = run.call("config", *where, "-z", "--get-all", key, cwd=cwd, ok=(0, 1))
    return [os.fsdecode(value) for value in run.records(found.stdout)]


def effective(key: str, *, cwd: Path | None = None) -> str | None:
    """Read the value that git obeys; None for a key that is not set."""
    values = get_all(key, cwd=cwd)
    return values[-1] if values else None


def path(key: str, *, cwd: Path | None = None) -> str | None:
    """Read a value that may be a path; git puts a home in the place of its `~`."""
    found = run.call("config", "--type=path", "-z", "--get", key, cwd=cwd, ok=(0, 1))
    return next((os.fsdecode(value) for value in run.records(found.stdout)), None)


def is_true(key: str, *, cwd: Path | None = None, default: bool = False) -> bool:
    """Read a value that is true or false, as git spells them; `default` for a key not set."""
    found = run.call("config", "--type=bool", "--get", key, cwd=cwd, ok=(0, 1))
    return default if found.code else found.stdout.strip() == b"true"


def size(key: str, default: int, *, cwd: Path | None = None) -> int:
    """Read a number of bytes with git's own suffixes (k, m, g)."""
    found = run.call("config", "--type=int", "--get", key, cwd=cwd, ok=(0, 1, 128))
    try:
        return int(found.stdout)
    except ValueError:
        return default


def is_ours(key: str, value: str) -> bool:
    """Tell whether a value is one that some install of wtxtgit set."""
    if key in CONSTANTS:
        return value == CONSTANTS[key]
    return launcher_of(key, value) is not None


def launcher_of(key: str, value: str) -> Launcher | None:
    """How a command starts wtxtgit; None where it is not one that some install of ours set."""
    try:
        words = shlex.split(value)
    except ValueError:
        return None
    rest = COMMANDS[key].split()
    start = words[: -len(rest)]
    if words[-len(rest) :] != rest or not start:
        return None
    is_module = start[-2:] == ["-m", "wtxtgit"]
    is_script = len(start) == 1 and start[0].rpartition("/")[2] in PROGRAMS
    return Launcher(tuple(start)) if is_module or is_script else None
