"""A small repository in which a hint is told, and followed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.e2e.sealed import Sealed
from tests.kit.pasting import HERE, paste
from tests.kit.uncommitted import assert_kept, begin_work, uncommitted

UP = "../"
NEW = "new model.safetensors"


@dataclass(frozen=True)
class World(Sealed):
    """A repository with two sealed checkpoints, in a folder of which commands are given."""

    def said(self, *words: str) -> tuple[int, str, str]:
        """Exit code and what is printed of a command that is given in the folder."""
        if words[0] == "git":
            ran = self.run(*words, cwd=HERE, ok=range(256))
            return ran.returncode, ran.stdout.decode(), ran.stderr.decode()
        done = self.call(*words, ok=range(256), folder=HERE)
        return done.code, done.out, done.err


Words = list[str]
Make = Callable[[World], Words]
"""Makes what is to be told of; gives the command that tells it."""

COMMAND, INSTEAD, OPTION, NAMED, LISTS = "command", "instead", "option", "named", "lists"
DOCTOR = ["doctor", "--json"]
_TOLD = re.compile(r"^wtxtgit: (?:error|warning|note): (.*)\nwtxtgit: hint: (.*)$", re.MULTILINE)
_BEFORE = re.compile(r"^(change to a repository, or run |whoever committed it has to run )")
_CUT = re.compile(
    r"(,? (says|shows|lists|checks|overwrites|takes|makes|brings|keeps|replaces|seals|goes on"
    r"|begins|compares|converts|moves|starts|chooses|adds|puts|fetches|gives|names|writes|joins|sets|removes|commits"
    r"|stores|stages|continues|where|in the folder)\b.*"
    r"|,? (or|with) .*|[,;] .*|  # .*| first$)"
)


@dataclass(frozen=True)
class Row:
    """A hint: what makes it, and what it is.

    A COMMAND is run, and what was told is gone then. An OPTION is given to the same command. What
    LISTS only shows more, INSTEAD is run in the place of what was given, and NAMED says how the
    last word of that is spelled. `then` is the code of the same command afterwards, or of `again`;
    `ends` are codes that the commands of the hint may have. `meant` says by what a word in capitals
    is replaced, as a shell reads it; a command that others have to give is given in the folder
    `where`. `among_work` says that it is told in a repository with other uncommitted work, too,
    which some commands refuse. `rewrites` are ends of names of files that the command replaces.
    """

    make: Make
    what: str = COMMAND
    then: int = 0
    again: tuple[str, ...] = ()
    ends: tuple[int, ...] = (0,)
    meant: Mapping[str, str] = field(default_factory=dict)
    where: str = HERE
    among_work: bool = True
    rewrites: tuple[str, ...] = ()


def follow(world: World, hint: str, row: Row) -> None:
    """Have it told, follow it, and see that it is gone, and nothing that is not committed."""
    words = row.make(world)
    is_there = (world.path / ".git").exists()
    # No migration begins among such work.
    if is_there and row.among_work and "migrate" not in (words[0], *hint.split()):
        begin_work(world)
    found, message = told(hint, world.said(*words))
    before = uncommitted(world) if is_there else {}
    _follow(world, row, words, found, message)
    if is_there:
        # A seal writes the ledger anew.
        ledgers = (".wsum",) if "wtxtgit seal" in found else ()
        assert_kept(world, before, but=(*row.rewrites, *ledgers))


def _follow(world: World, row: Row, words: Words, found: str, message: str) -> None:
    for capitals, meant in row.meant.items():
        assert capitals in found
        found = found.replace(capitals, meant)
    match row.what:
        case "lists":
            # What is wrong with a file makes its list end with 1.
            assert paste(world, commands(found)[0], ok=(0, 1)).strip()
            return
        case "instead":
            paste(world, commands(found)[0].replace("FILE", "file"))
            return
        case "option" if found.startswith("leave out"):
            words = [word for word in words if word not in found.split()]
        case "option":
            option = re.match(r"(?:.*or )?(-o .*(?= replaces)|--[a-z-]+)", found)
            assert option
            words = [*words, *shlex.split(option[1])]
        case "named":
            spelled = re.search(r"\./[\w.]+|^\S+\.pub$|(?<=mean )\S+(?=\?)", found)
            assert spelled
            words = [*words[:-1], *shlex.split(spelled[0])]
        case _:
            for command in commands(found):
                command += " -qm followed" if command == "git commit" else ""
                paste(world, command, row.where, ok=row.ends)
    again, out, after = world.said(*(row.again or words))
    assert message not in after, after
    assert message not in (one for one, _ in _of_doctor(out))
    assert again == row.then, (out, after)


def commands(hint: str) -> list[str]:
    """The commands of a hint, without what is said of them."""
    steps = hint.rpartition(": ")[2].split(", then ")
    steps = ["git commit" if step == "commit" else step for step in steps]
    return [_CUT.sub("", _BEFORE.sub("", step)).strip() for step in steps]


def told(hint: str, said: tuple[int, str, str]) -> tuple[str, str]:
    """A hint as it was told, and of what."""
    code, out, err = said
    pairs = [*_TOLD.findall(err), *_of_doctor(out)]
    pattern = ".*".join(re.escape(part) for part in hint.split("{}"))
    for message, found in pairs:
        if re.fullmatch(pattern, found):
            return found, message
    raise AssertionError((hint, code, pairs, out, err))


def _of_doctor(out: str) -> list[tuple[str, str]]:
    """Messages and hints of a report of doctor."""
    if not out.startswith("{"):
        return []
    checks = json.loads(out).get("checks", ())
    return [(one["message"], one["fix"] or "") for one in checks if one["level"] != "ok"]
