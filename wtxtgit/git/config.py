"""Git's configuration: the keys of the driver, set and unset politely.

A value is ours when it is the constant that we set, or a command that starts
wtxtgit. Any other value is somebody else's: it is not overwritten unless
forced, and never unset.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wtxtgit.git import run

DRIVER = "wtxt"
TRUST_ROOT = "wtxtgit.trustRoot"
"""The key for where trust starts: a commit, or a file of signers."""
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

_VALUELESS = b"\0"
"""Of a key that stands alone, which is true; as a string it is empty. No value holds it."""
_BOOLEANS = {
    _VALUELESS: True, b"true": True, b"yes": True, b"on": True, b"1": True,
    b"false": False, b"no": False, b"off": False, b"0": False, b"": False,
}  # fmt: skip
_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,17}")
_writes = 0

PROGRAMS = ("wtxtgit", "git-wtxt")
"""Names of the installed console scripts."""


class Launcher(NamedTuple):
    """How git starts wtxtgit: a program by absolute path, and its first arguments."""

    arguments: tuple[str, ...]

    def command(self, rest: str = "") -> str:
        """Spell it for git, which gives the line to `sh`."""
        return f"{shlex.join(self.arguments)} {rest}".rstrip()

    def values(self) -> dict[str, str]:
        """The value of every key that install sets."""
        commands = {key: self.command(rest) for key, rest in COMMANDS.items()}
        return {**commands, **CONSTANTS}


class Config:
    """The configuration that git obeys in a folder, read once, when first asked for.

    One process lists all values. They are spelled as they were written; what a
    spelling means is decided here where it is plain, and by git elsewhere.
    """

    def __init__(self, cwd: Path | None) -> None:
        self._cwd = cwd
        self._values: dict[str, bytes] = {}
        self._read_at = -1

    def get(self, key: str) -> str | None:
        """The value that git obeys, the last one; None for a key that is not set."""
        value = self._last(key)
        return None if value is None else os.fsdecode(value.removeprefix(_VALUELESS))

    def path(self, key: str) -> str | None:
        """A value that may be a path; git puts a home in the place of its `~`."""
        value = self.get(key)
        if value is not None and value.startswith(("~", "%(")):
            return os.fsdecode(run.records(self._by_git(key, "--type=path", "-z").stdout)[0])
        return value

    def is_true(self, key: str, *, default: bool = False) -> bool:
        """A value that is true or false, as git spells them; `default` for a key not set.

        Raises GitFailure for one that is neither.
        """
        value = self._last(key)
        if value is None:
            return default
        known = _BOOLEANS.get(value.lower())
        return self._by_git(key, "--type=bool").stdout == b"true\n" if known is None else known

    def size(self, key: str, default: int) -> int:
        """A number of bytes with git's own suffixes (k, m, g); `default` for what is none."""
        value = self._last(key)
        if value is None or _DECIMAL.fullmatch(value):
            return default if value is None else int(value)
        try:
            return int(self._by_git(key, "--type=int", ok=(0, 128)).stdout)
        except ValueError:
            return default

    def _last(self, key: str) -> bytes | None:
        if self._read_at != _writes:
            self._values = {}
            for record in run.records(run.git("config", "--list", "-z", cwd=self._cwd)):
                name, equals, value = record.partition(b"\n")
                self._values[os.fsdecode(name)] = value if equals else _VALUELESS
            self._read_at = _writes
        # Git lists all but the middle part in lower case.
        section, _, rest = key.partition(".")
        middle, dot, last = rest.rpartition(".")
        return self._values.get(f"{section.lower()}.{middle}{dot}{last.lower()}")

    def _by_git(self, key: str, *how: str, ok: Iterable[int] = (0,)) -> run.Result:
        return run.call("config", *how, "--get", key, cwd=self._cwd, ok=ok)


def get_all(key: str, *, scope: str, cwd: Path | None = None) -> list[str]:
    """Read all values of a key in one scope, last one strongest."""
    found = run.call("config", f"--{scope}", "-z", "--get-all", key, cwd=cwd, ok=(0, 1))
    return [os.fsdecode(value) for value in run.records(found.stdout)]


def change(scope: str, *arguments: str | bytes, cwd: Path | None = None) -> None:
    """Have git write to one scope; what was read before is read again."""
    global _writes
    run.git("config", f"--{scope}", *arguments, cwd=cwd)
    _writes += 1


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
