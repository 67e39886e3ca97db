"""`wtxtgit`, `git-wtxt` and `python -m wtxtgit`.

Git starts a filter for every command that touches a tracked file, and a diff
driver for every file, and waits for a hook before every commit, so those calls
go straight to their code, as do those for the help's first page; all others get
the full command line.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` puts the current folder first, which may be anybody's repository. What Python
    # itself has imported from there by now is out of reach: docs/threat-model.md.
    sys.path.pop(0)

import contextlib
import os
from importlib import import_module
from typing import NoReturn

PLUMBING = {
    "filter-process": "plumbing",
    "clean": "plumbing",
    "smudge": "plumbing",
    "diff-driver": "diff_driver",
    "merge-driver": "merge_driver",
}
"""Commands that need no command line around them, with their module."""
_ENDED_AT_ONCE = ("filter-process", "add", "checkout", "hook")


def main() -> int:
    try:
        return _main()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stderr.write("wtxtgit: error: interrupted\n")
        return 130
    except (ImportError, MemoryError, OSError) as error:
        # What has the words for it may be what could not be loaded.
        if os.environ.get("WTXTGIT_DEBUG"):
            raise
        reason = getattr(error, "strerror", None) or str(error) or "out of memory"
        with contextlib.suppress(OSError):
            sys.stderr.write(f"wtxtgit: error: can't start: {reason.lower()}\n")
        return 5


def _main() -> int:
    # numpy's linear algebra is not used here, and starting its threads costs as
    # much CPU as all the rest of numpy's import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = sys.argv[1:]
    asks_help = arguments[1:2] in (["--help"], ["-h"])
    module_name = PLUMBING.get(arguments[0]) if arguments and not asks_help else None
    if arguments == ["hook", "pre-commit"]:
        module_name = "commit_hooks"
    if module_name == "diff_driver":
        shared = _shared_diff(arguments)
        if shared is not None:
            return shared
    if module_name is not None:
        module = import_module(f"wtxtgit.cli.{module_name}")
        code: int = module.main(arguments)
        return code
    if instruction := os.environ.get("_WTXTGIT_COMPLETE"):
        from wtxtgit.cli import completion

        return completion.main(instruction)
    from wtxtgit.cli import front_page

    # "-h -V" is click's to read: which of the two counts is its rule.
    if not arguments or (len(arguments) == 1 and arguments[0] in front_page.OPTIONS):
        return front_page.main(arguments)
    from wtxtgit.cli.main import main as porcelain

    return porcelain(arguments)


def _shared_diff(arguments: list[str]) -> int | None:
    """The exit code of a diff that another process has shown; None where it is to be shown here."""
    from wtxtgit.cli import diff_helper

    place = diff_helper.place()
    if place is None:
        return None
    path, git = place
    code = diff_helper.ask(path, arguments)
    if code is None:
        from wtxtgit.cli import diff_server

        diff_server.start(path, git, arguments)
    return code


def start() -> NoReturn:
    """Run a command, and end the process."""
    _end(main())


def _end(code: int) -> NoReturn:
    """End the process without taking the interpreter apart, where somebody waits for that.

    It takes as long as loading a good part of it, and these commands leave nothing to be done.
    """
    word = sys.argv[1:2]
    if word and word[0] in _ENDED_AT_ONCE:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            # Python has words for it; git would not wait for a filter's.
            if word[0] != "filter-process":
                sys.exit(code)
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    start()
