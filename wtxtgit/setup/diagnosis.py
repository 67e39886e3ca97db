"""What doctor finds: one finding a check, and how it names files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wtxtgit.errors import clipped, counted
from wtxtgit.git.index import Entry

_SHOWN_PATHS = 5
_SHOWN_CHARACTERS = 200
"""Characters that a message shows of a path."""
_COMMAND_CHARACTERS = 1000
"""Characters from which on a command names fewer paths."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `fix` says what helps, `fixable` whether `--fix` does it."""

    name: str
    level: Level
    message: str
    fix: str | None = None
    fixable: bool = False
    paths: tuple[bytes, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "level": str(self.level),
            "message": self.message,
            "fix": self.fix,
            "fixable": self.fixable,
            "paths": [os.fsdecode(path) for path in self.paths],
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, and what was repaired before they were made."""

    checks: tuple[Check, ...]
    repaired: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.level is not Level.ERROR for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "checks": [check.as_dict() for check in self.checks],
            "repaired": list(self.repaired),
        }


def listed(paths: Iterable[bytes]) -> str:
    """Name the first few paths, quoted for a shell, the middle of endless ones left out."""
    every = list(paths)
    named = " ".join(clipped(shown(path), _SHOWN_CHARACTERS) for path in every[:_SHOWN_PATHS])
    more = len(every) - _SHOWN_PATHS
    return f"{named} and {more} more" if more > 0 else named


def arguments(paths: Sequence[bytes]) -> str:
    """Spell paths for a command, whole; dots stand for those that are too many to show."""
    spelled = [shown(path) for path in paths[:_SHOWN_PATHS]]
    while len(spelled) > 1 and sum(map(len, spelled)) > _COMMAND_CHARACTERS:
        spelled.pop()
    more = " ..." if len(paths) > len(spelled) else ""
    return " ".join(spelled) + more


def shown(path: bytes) -> str:
    """Quote a path for a shell."""
    return shlex.quote(path.decode("utf-8", "backslashreplace"))


def counted_files(entries: Iterable[Entry]) -> str:
    """`1 tracked file`, `2 tracked files`."""
    return counted(len(distinct(entries)), "tracked file")


def distinct(entries: Iterable[Entry]) -> list[bytes]:
    """The paths of entries, of which a conflict has up to three for one."""
    return list(dict.fromkeys(entry.path for entry in entries))
