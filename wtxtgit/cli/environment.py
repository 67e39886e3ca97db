"""Environment variables that wtxtgit obeys, and settings that commands share without click."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from wtxtgit.errors import EnvironmentFailure, UsageError

if TYPE_CHECKING:  # commands that decode nothing do without
    from wtxtgit.model.tensor import Decoding

THREADS = "WTXTGIT_THREADS"
MEMORY = "WTXTGIT_MEMORY"
SKIP_SMUDGE = "WTXTGIT_SKIP_SMUDGE"
SIGNING_KEY = "WTXTGIT_KEY"

_MERGED = re.compile("GITHEAD_([0-9a-f]{40}(?:[0-9a-f]{24})?)")
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The file that a step of a GitHub workflow adds its summary to, and one for its outputs."""
STEP_OUTPUT = "GITHUB_OUTPUT"
JOB_FOLDER = "RUNNER_TEMP"
"""The folder for files of a GitHub workflow's job."""


def threads() -> int | None:
    """Return how many threads to use; None for as many as there are cores."""
    value = os.environ.get(THREADS, "")
    if not value:
        return None
    if re.fullmatch("[1-9][0-9]{0,2}", value) is None:
        raise UsageError(f'{THREADS} is "{value[:40]}", expected a number from 1 to 999')
    return int(value)


def memory() -> int | None:
    """Return how many bytes of an input the filter keeps in memory; None: the default limit."""
    value = os.environ.get(MEMORY, "")
    if not value:
        return None
    match = re.fullmatch("([1-9][0-9]{0,6})MiB", value)
    if match is None:
        raise UsageError(f'{MEMORY} is "{value[:40]}", expected a size such as 64MiB')
    return int(match[1]) * 1024 * 1024


def processes() -> int:
    """Return how many processes to use at most: as many as threads."""
    # With numpy, which hooks do without where there is nothing to do.
    from wtxtgit.io.workers import default_threads

    return threads() or default_threads()


def git_prefix() -> str:
    """The folder, from the top level, in which git was called that started this; "" for the top."""
    return os.environ.get("GIT_PREFIX", "")


def git_action() -> str:
    """Return what git is doing, such as `merge topic` or `rebase (pick)`; "" if it does not say."""
    return os.environ.get("GIT_REFLOG_ACTION", "")


def skip_smudge() -> bool:
    """Whether checkouts leave texts as they are."""
    return os.environ.get(SKIP_SMUDGE, "") not in ("", "0")


def facts_key(no_cache: bool = False) -> Path | None:
    """Return the path of the secret that authenticates cached facts about blobs.

    `wtxtgit/facts.key` in the folder of states: never in a repository. None
    where there is no home, and with `no_cache`.
    """
    if no_cache:
        return None
    from wtxtgit.io.files import user_folder

    folder = user_folder("XDG_STATE_HOME", ".local/state")
    return None if folder is None else folder / "facts.key"


def take_signing_key() -> bytes | None:
    """Return the content of a secret file that is given in the environment.

    It is taken out of there: the programs that we start have no use for it.
    """
    # Not even a child process that dumps its environment shall have it.
    value = os.environ.pop(SIGNING_KEY, "")
    return os.fsencode(value) if value else None


def merged_commits() -> tuple[str, ...]:
    """Object ids of what `git merge` is merging: it tells its hooks so before it writes them down.

    GITHEAD_<object id> holds what a commit was called: git's builtin/merge.c, cmd_merge().
    """
    matches = (_MERGED.fullmatch(name) for name in os.environ)
    return tuple(sorted(match[1] for match in matches if match))


def pushed_by_framework() -> tuple[str, str, str, str | None] | None:
    """What the pre-commit framework says is pushed, as in git's line for a pre-push hook.

    None where that framework runs nothing here. It reads git's lines itself,
    and tells of one ref: https://pre-commit.com/#pre-push
    """
    if not os.environ.get("PRE_COMMIT"):
        return None
    local = os.environ.get("PRE_COMMIT_LOCAL_BRANCH") or "HEAD"
    remote = os.environ.get("PRE_COMMIT_REMOTE_BRANCH") or local
    # Of a branch with all of its history it names no commits.
    tip = os.environ.get("PRE_COMMIT_TO_REF") or local
    return local, tip, remote, os.environ.get("PRE_COMMIT_FROM_REF") or None


def framework_remote() -> tuple[str, str] | None:
    """Name and URL of the remote that the pre-commit framework says is pushed to."""
    name, url = (os.environ.get(f"PRE_COMMIT_REMOTE_{what}") for what in ("NAME", "URL"))
    return (name, url) if name and url and os.environ.get("PRE_COMMIT") else None


def pager_in_use() -> bool:
    """Whether git shows what we print in a pager; `COLUMNS` is the width of its terminal.

    git(1), GIT_PAGER_IN_USE: git's pager.c, setup_pager().
    """
    return os.environ.get("GIT_PAGER_IN_USE") == "true"


def is_first_path() -> bool:
    """Whether git starts us for the first path of a diff: git(1), GIT_DIFF_PATH_COUNTER."""
    return os.environ.get("GIT_DIFF_PATH_COUNTER", "1") == "1"


def login_name() -> str | None:
    """Return the name of the user, if that is known."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def path(name: str) -> Path | None:
    """Return the path that a variable holds; None if it is not set, or empty."""
    value = os.environ.get(name, "")
    return Path(value) if value else None


def decoding() -> Decoding:
    """Return the limit on what this command decodes; the config is read when that is needed."""
    from wtxtgit.model.tensor import Decoding

    return Decoding(_configured_limit)


def _configured_limit() -> int | None:
    from wtxtgit.containers.budget import LIMIT_KEY
    from wtxtgit.git.repository import Config

    try:
        configured = Config(None).size(LIMIT_KEY, -1)
    except EnvironmentFailure:
        # What needs no git works without it.
        return None
    return configured if configured >= 0 else None


GOOD, BAD, LOOK, QUIET, BOLD = "32", "31", "33", "36", "1"
"""SGR parameters: green, red, yellow, cyan."""
_END = "\x1b[0m"

WORDS = {
    "ok": GOOD,
    "FAILED": BAD,
    "failed": BAD,
    "error": BAD,
    "corrupt": BAD,
    "conflict": BAD,
    "missing": BAD,
    "raw-binary": BAD,
    "modified": LOOK,
    "unknown": LOOK,
    "warning": LOOK,
    "note": QUIET,
    "hint": QUIET,
}
"""Words that are coloured at the start of a line, or as the whole content of a cell."""


def has_colours(stream: TextIO | None) -> bool:
    """Whether a stream shows colours: not if the variable NO_COLOR is set."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def has_bars(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    if stream is None or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return False
    # A pager has the screen to itself.
    return stream.isatty() and not pager_in_use()


def coloured(text: str, colour: str | None) -> str:
    """Return the text in a colour, if any; for streams that `has_colours`."""
    return text if colour is None else f"\x1b[{colour}m{text}{_END}"


def with_first_word(line: str) -> str:
    """Return a line with its first word in that word's colour, if it has one."""
    word = line.partition(" ")[0].removesuffix(":")
    colour = WORDS.get(word)
    return line if colour is None else coloured(word, colour) + line[len(word) :]
