"""Which git command started a filter: told by its command line, where the system shows that.

The protocol does not say whether git will store what a filter gives, or only
compares it. A wrong answer costs time or an object that nobody needs, which
`git gc` removes; never a byte of what is stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_ADDING = ("add", "stage")
_WITH_VALUE = {
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix",
    "--attr-source",
}  # fmt: skip
_ONLY_LOOKING = ("--dry-run", "--intent-to-add", "--refresh", "--interactive", "--patch", "--edit")
_LETTERS = re.compile(r"-[A-Za-z]*[nNpie]")
_SHELLS = ("sh", "dash", "bash", "busybox")
_MOST = 64 * 1024


def is_adding() -> bool:
    """Whether this process was started by a `git add` that stores what it is given."""
    process = os.getppid()
    for _ in range(2):
        words = _command_line(process)
        if words and words[0].rpartition("/")[2] in _SHELLS:
            # Git starts a command that has quotes in it through a shell.
            process = _parent(process)
            continue
        return stores(words)
    return False


def stores(words: Sequence[str]) -> bool:
    """Whether a command line is that of a `git add` that stores contents."""
    if not words or words[0].rpartition("/")[2] != "git":
        return False
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    if not rest or rest[0] not in _ADDING:
        return False
    for word in rest[1:]:
        if word == "--":
            return True
        if _LETTERS.match(word) and not word.startswith("--"):
            return False
        # Git takes the beginning of an option for it.
        if len(word) > 2 and any(option.startswith(word) for option in _ONLY_LOOKING):
            return False
    return True


def _command_line(process: int) -> list[str]:
    try:
        with Path(f"/proc/{process}/cmdline").open("rb") as file:
            content = file.read(_MOST)
    except OSError:
        return []
    return [os.fsdecode(word) for word in content.split(b"\0")[:-1]]


def _parent(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
        # The name, in parentheses, may hold anything.
        return int(status.rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
