"""`wtxtgit --help` and `--version` without click, and the commands that the page lists.

People ask for these before all else, and click takes longer to import than
both take together. The page is laid out as click lays out those of the
commands: `click.formatting`, HelpFormatter.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from shutil import get_terminal_size
from textwrap import wrap

from wtxtgit.cli import boundary
from wtxtgit.errors import UsageError
from wtxtgit.version import __version__

ABOUT = """Keep model checkpoints in ordinary git, as text that checks itself.

\b
wtxtgit install                              once per machine
wtxtgit track '*.safetensors'                once per repository
git add, commit, push, clone                 as usual; after track --detached,
                                             install --hooks or wtxtgit push

To seal checkpoints, so that others can prove who made them:

\b
wtxtgit key new                              once: your key
wtxtgit signers add you@example.com KEY      once per repository
wtxtgit seal --staged, then git commit       after each git add
wtxtgit review, wtxtgit audit                what changed; what is proved

Exit codes: 0 everything holds, 1 a check found something, 2 usage, 3 input is not
what it claims to be, 4 untrusted, 5 environment, 70 a bug in wtxtgit.
"""
"""Paragraphs; one that starts with a line of `\\b` keeps its lines, as click has it."""

MAX_COLUMNS = 100
"""The widest that a page of help gets, on a wider screen too."""

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Set up": {
        "install": ("setup:install", "Set up git: filter, diff and merge drivers."),
        "uninstall": ("setup:uninstall", "Undo what install did."),
        "track": ("setup:track", "Keep files that match a pattern as text in git."),
        "untrack": ("setup:untrack", "Stop tracking a pattern."),
        "migrate": ("migrate:migrate", "Convert a history to texts, and back."),
        "doctor": ("setup:doctor", "Find setup problems, and fix them."),
    },
    "Files": {
        "add": ("files:add", "Add files to the index, several times faster than git add."),
        "checkout": ("files:checkout", "Write checkpoints to the work tree, on all cores."),
    },
    "Look": {
        "status": ("files:status", "Show the state of every tracked file."),
        "ls-files": ("files:ls_files", "List tracked files."),
        "inspect": ("inspect:inspect", "Show what a checkpoint holds."),
        "cat": ("cat:cat", "Write one tensor, part or value of a checkpoint."),
        "verify": ("inspect:verify", "Check everything that can be checked."),
        "diff": ("inspect:diff", "Show what changed in the weights."),
        "review": ("review:review", "Show how a branch changes checkpoints."),
        "history": ("history:history", "Show a checkpoint's versions and how its values moved."),
    },
    "Merge": {
        "merge-file": ("merge:merge_file", "Merge three checkpoints, tensor by tensor."),
        "resolve": ("merge:resolve", "Settle the conflicts that a merge left."),
    },
    "Convert": {
        "emit": ("emit:emit", "Make the text of a checkpoint."),
        "restore": ("emit:restore", "Make the checkpoint of a text."),
        "attach": ("forms:attach", "Put the data back into a detached text."),
        "detach": ("forms:detach", "Move a text's data into the store."),
        "finalize": ("finalize:finalize", "Write the root hash of a pending text."),
        "convert": ("convert:convert", "Write a checkpoint in another format."),
        "repack": ("convert:repack", "Change a checkpoint's compression."),
        "reseal": ("convert:reseal", "Rewrite the index of a set."),
        "recover": ("recover:recover", "Recover what a damaged text or file holds."),
        "delta": ("emit:delta", "Send the changes to a checkpoint as text."),
    },
    "Encrypt": {
        "encrypt": ("encrypt:encrypt", "Encrypt the text of a checkpoint, for age."),
        "decrypt": ("encrypt:decrypt", "Decrypt a text."),
        "rekey": ("encrypt:rekey", "Encrypt files again for other recipients."),
    },
    "Containers": {
        "taridx": ("taridx:taridx", "Build, list and check indexes of tar shards."),
    },
    "Payload": {
        "fetch": ("payload:fetch", "Fetch the data of detached texts."),
        "push": ("payload:push", "Send the data of detached texts to the remote."),
        "store": ("store:store", "List, check and repack the data of detached texts."),
    },
    "Training": {
        "ring": ("ring:ring", "List, check and send snapshots of a training run."),
        "pull": ("ring:pull", "Fetch a snapshot from the target it was sent to."),
    },
    "Trust": {
        "seal": ("seal:seal", "Sign each generation of a checkpoint."),
        "check": ("seal:check", "Check what is about to be committed."),
        "key": ("keys:key", "Make, import and list signing keys."),
        "signers": ("keys:signers", "Say who may sign in a repository."),
        "log": ("audit:log", "List the sealed generations of a checkpoint."),
        "audit": ("audit:audit", "Prove the signed chain of every checkpoint across commits."),
        "release": ("release:release", "Sign a list of the checkpoints at a tag."),
    },
    "Called by git": {
        "filter-process": ("plumbing_help:filter_process", "Clean and smudge many files."),
        "clean": ("plumbing_help:clean", "Turn one file into text."),
        "smudge": ("plumbing_help:smudge", "Turn one text into a file."),
        "diff-driver": ("plumbing_help:diff_driver", "Show git the diff of one file."),
        "merge-driver": ("plumbing_help:merge_driver", "Merge a file that both sides changed."),
        "hook": ("hook:hook", "Run one of git's hooks."),
    },
}
"""Sections of the help: for each command, its module and a line about it."""

COMMANDS = reduce(or_, SECTIONS.values())
"""For each command, its module and a line about it."""

VERSION = ("-V", "--version")
HELP = ("-h", "--help")
OPTIONS = (*VERSION, *HELP)

_OPTIONS = {
    ", ".join(VERSION): "Show the version and exit.",
    ", ".join(HELP): "Show this message and exit.",
}
_MARGIN = 2
"""Columns that stay empty at the right of the screen, and the indent of a section."""
_LEAST = 50
_UNWRAPPED = "\b\n"


def main(arguments: list[str]) -> int:
    """Print the help or the version; returns the exit code."""
    return boundary.run(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    asks_version = arguments[:1] and arguments[0] in VERSION
    print(f"wtxtgit {__version__}" if asks_version else page(get_terminal_size().columns))
    return 0 if arguments else UsageError.exit_code


def page(columns: int) -> str:
    """Return the first page of the help, for a screen of so many columns; no newline at its end."""
    width = max(min(columns, MAX_COLUMNS) - _MARGIN, _LEAST)
    paragraphs = [_paragraph(text, width) for text in ABOUT.strip().split("\n\n")]
    sections = {"Options": _OPTIONS} | {
        title: {name: about for name, (_, about) in commands.items()}
        for title, commands in SECTIONS.items()
    }
    parts = ["Usage: wtxtgit [OPTIONS] COMMAND [ARGS]...", *paragraphs]
    parts += [f"{title}:\n{_definitions(rows, width)}" for title, rows in sections.items()]
    return "\n\n".join(parts)


def _paragraph(text: str, width: int) -> str:
    indent = " " * _MARGIN
    if text.startswith(_UNWRAPPED):
        return "\n".join(indent + line for line in text.removeprefix(_UNWRAPPED).split("\n"))
    return "\n".join(indent + line for line in wrap(text, width - _MARGIN))


def _definitions(rows: dict[str, str], width: int) -> str:
    """Format terms and, in a second column, their meanings."""
    first = max(map(len, rows)) + 2
    hanging = "\n" + " " * (_MARGIN + first)
    return "\n".join(
        " " * _MARGIN + term.ljust(first) + hanging.join(wrap(about, width - first - _MARGIN))
        for term, about in rows.items()
    )
