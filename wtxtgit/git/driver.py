"""The configuration keys of the drivers `wtxt` and `wtxt-detached`, and who set their values.

A value is ours if it is the constant that we set, or a command that starts wtxtgit. Any other value
belongs to somebody else: it is not overwritten unless forced, and never unset.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

UNFILTERED = (
    *("-c", "filter.wtxt.process="),
    *("-c", "filter.wtxt.clean="),
    *("-c", "filter.wtxt.required=false"),
    *("-c", "filter.wtxt-detached.process="),
    *("-c", "filter.wtxt-detached.clean="),
    *("-c", "filter.wtxt-detached.required=false"),
)
"""Options with which git compares contents without filtering them.

Git compares contents of files that are as young as the index, even if it is asked for stat fields
only. Without the filter that takes no time, and such files are reported as different.
"""

COMMANDS = {
    "filter.wtxt.process": "filter-process",
    "filter.wtxt.clean": "clean -- %f",
    "filter.wtxt.smudge": "smudge -- %f",
    "filter.wtxt-detached.process": "filter-process --detached",
    "filter.wtxt-detached.clean": "clean --detached -- %f",
    "filter.wtxt-detached.smudge": "smudge -- %f",
    "diff.wtxt.command": "diff-driver --",
    "merge.wtxt.driver": "merge-driver -- %O %A %B %L %P",
    "merge.wtxt-ledger.driver": "merge-driver --ledger -- %O %A %B %L %P",
}
"""Keys whose value is our command with these arguments.

Git replaces and quotes `%f` and `%P`, and appends the arguments of a diff.
"""

CONSTANTS = {
    "filter.wtxt.required": "true",
    "filter.wtxt-detached.required": "true",
    "diff.wtxt.xfuncname": "^arr name=([A-Za-z0-9_]+)",
    "merge.wtxt.name": "wtxtgit: merge of model checkpoints",
    # A criss-cross merge makes virtual ancestors, which have no sides: keep the base of what both
    # changed, so that no conflict seems settled.
    "merge.wtxt.recursive": "binary",
    "merge.wtxt-ledger.name": "wtxtgit: merge of ledgers",
    "merge.wtxt-ledger.recursive": "binary",
}

KEYS = (*COMMANDS, *CONSTANTS)

PROGRAMS = ("wtxtgit", "git-wtxt")
"""Names of the installed console scripts."""


class Launcher(NamedTuple):
    """How git starts wtxtgit: a program by absolute path, and its first arguments."""

    arguments: tuple[str, ...]

    def command(self, rest: str = "") -> str:
        """Return the command line for git, which passes it to `sh`."""
        return f"{shlex.join(self.arguments)} {rest}".rstrip()

    def values(self) -> dict[str, str]:
        """Return the value of each key that install sets."""
        commands = {key: self.command(rest) for key, rest in COMMANDS.items()}
        return {**commands, **CONSTANTS}


def is_ours(key: str, value: str) -> bool:
    """Tell whether a value is one that some install of wtxtgit set."""
    if key in CONSTANTS:
        return value == CONSTANTS[key]
    return launcher_of(key, value) is not None


def launcher_of(key: str, value: str) -> Launcher | None:
    """Return how a command starts wtxtgit; None if no install of ours wrote that command."""
    try:
        words = shlex.split(value)
    except ValueError:
        return None
    rest = COMMANDS[key].split()
    return launcher_in(words[: -len(rest)]) if words[-len(rest) :] == rest else None


def launcher_in(words: Sequence[str]) -> Launcher | None:
    """Return the launcher that consists of these words; None if they do not start wtxtgit."""
    # With any interpreter and in any folder: an install that has moved since is still ours.
    is_module = tuple(words[-2:]) == ("-m", "wtxtgit")
    is_script = len(words) == 1 and words[0].rpartition("/")[2] in PROGRAMS
    return Launcher(tuple(words)) if is_module or is_script else None
