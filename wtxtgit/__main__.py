"""`wtxtgit`, `git-wtxt` and `python -m wtxtgit`.

Git starts a filter for every command that touches a tracked file, so those
calls go straight to their code; all others get the full command line.
"""

from __future__ import annotations

import os
import sys

PLUMBING = frozenset({"filter-process", "clean", "smudge"})


def main() -> int:
    # numpy's linear algebra is not used here, and starting its threads costs as
    # much CPU as all the rest of numpy's import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = sys.argv[1:]
    asks_help = arguments[1:2] in (["--help"], ["-h"])
    if arguments and arguments[0] in PLUMBING and not asks_help:
        from wtxtgit.cli.plumbing import main as plumbing

        return plumbing(arguments)
    from wtxtgit.cli.main import main as porcelain

    return porcelain(arguments)


if __name__ == "__main__":
    sys.exit(main())
