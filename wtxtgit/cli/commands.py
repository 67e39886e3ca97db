"""The commands by name, with what the first page of the help says of them.

Data alone: that page is printed without what it takes to run a command.
"""

from __future__ import annotations

ABOUT = """Keep model checkpoints in ordinary git, as text that checks itself.

\b
wtxtgit install                    once a machine
wtxtgit track '*.safetensors'      once a repository
git add, commit, push, clone       as ever

Exit codes: 0 all holds, 1 a check found something, 2 usage, 3 input is not
what it claims to be, 4 untrusted, 5 environment, 70 a bug in wtxtgit.
"""
"""Paragraphs; one that starts with a line of `\\b` keeps its lines, as click has it."""

MAX_COLUMNS = 100
"""The widest that a page of help gets, on a wider screen too."""

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Set up": {
        "install": ("setup:install", "Set git up: filter, diff and merge drivers."),
        "uninstall": ("setup:uninstall", "Take back what install did."),
        "track": ("setup:track", "Keep files that match a pattern as text in git."),
        "untrack": ("setup:untrack", "Stop tracking a pattern."),
        "doctor": ("setup:doctor", "Find what is set up wrong, and mend it."),
    },
    "Files": {
        "add": ("files:add", "Add files to the index: git add, several times as fast."),
        "checkout": ("files:checkout", "Write checkpoints to the work tree, fast."),
    },
    "Look": {
        "status": ("files:status", "Show the state of every tracked file."),
        "ls-files": ("files:ls_files", "List tracked files."),
        "inspect": ("inspect:inspect", "Show what a checkpoint holds."),
        "verify": ("inspect:verify", "Check everything that can be checked."),
        "diff": ("inspect:diff", "Show what changed in the weights."),
        "review": ("review:review", "Show what a branch changes of checkpoints."),
    },
    "Merge": {
        "merge-file": ("merge:merge_file", "Merge three checkpoints, tensor by tensor."),
        "resolve": ("merge:resolve", "Settle what a merge of a checkpoint left open."),
    },
    "Convert": {
        "emit": ("emit:emit", "Make the text of a checkpoint."),
        "restore": ("emit:restore", "Make the checkpoint of a text."),
        "convert": ("convert:convert", "Write a checkpoint in another format."),
        "repack": ("convert:repack", "Change a checkpoint's compression."),
        "recover": ("convert:recover", "Mend a damaged checkpoint from its parity."),
        "delta": ("emit:delta", "Send what changed of a checkpoint as text."),
    },
    "Containers": {
        "taridx": ("taridx:taridx", "Build, list and check indexes of tar shards."),
    },
    "Trust": {
        "seal": ("seal:seal", "Sign what checkpoints hold, generation by generation."),
        "check": ("seal:check", "Check what is about to be committed."),
        "key": ("keys:key", "Make, import and list keys that sign."),
        "signers": ("keys:signers", "Say who may sign in a repository."),
        "log": ("audit:log", "List the sealed generations of a checkpoint."),
        "audit": ("audit:audit", "Prove the chain of all checkpoints across commits."),
    },
    "Called by git": {
        "filter-process": ("plumbing_help:filter_process", "Clean and smudge many files."),
        "clean": ("plumbing_help:clean", "One file to text."),
        "smudge": ("plumbing_help:smudge", "One text to file."),
        "diff-driver": ("plumbing_help:diff_driver", "What a diff shows of one file."),
        "merge-driver": ("plumbing_help:merge_driver", "Merge a file that both sides changed."),
        "hook": ("hook:hook", "What git's hooks run."),
    },
}
"""Sections of the help, with commands: where each is, and a line about it."""

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
