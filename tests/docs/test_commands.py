"""The command line as pages and its own help describe it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from tests.docs.pages import blocks, lines, page_names, spans, tables
from tests.docs.shell import steps
from tests.kit.json_output import SCHEMAS
from tests.kit.starts import WTXTGIT
from wtxtgit import errors
from wtxtgit.cli.front_page import SECTIONS
from wtxtgit.cli.main import cli

NAMES = [name for section in SECTIONS.values() for name in section]


def _groups() -> dict[str, tuple[str, ...]]:
    """The commands that have commands of their own, with those."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in NAMES}
    return {
        name: tuple(command.list_commands(context))
        for name, command in commands.items()
        if isinstance(command, click.Group)
    }


GROUPS = _groups()
COMMANDS = [(name,) for name in NAMES] + [(g, name) for g in GROUPS for name in GROUPS[g]]
"""Commands by the words that call them, those of groups after all others."""
CALLED_BY_GIT = set(SECTIONS["Called by git"])
OF_GIT = {"--filter", "--ext-diff", "--no-ext-diff", "--ours", "--theirs"}
"""Options that a page names without the git command that has them."""
NO_CALLS = {"wtxtgit salt", "diff --wtxt"}
"""Spans that start like a call and are none."""
WIDTH = 100
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


@cache
def help_of(*command: str) -> str:
    done = subprocess.run([WTXTGIT, *command, "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode("ascii")


def options_of(*command: str) -> set[str]:
    _, _, listed = help_of(*command).partition("\nOptions:\n")
    rows = re.findall(r"^  (-.*?)(?:  |$)", listed, re.MULTILINE)
    return {option for row in rows for option in _OPTION.findall(row)}


def called(command: str, words: list[str]) -> tuple[str, ...]:
    """The command that a call is of: of a group, the one that follows its name."""
    if words and words[0] in GROUPS.get(command, ()):
        return command, words[0]
    return (command,)


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """The calls of wtxtgit in a piece of shell: command and words after it."""
    for piece in re.split(r"&&|\|\|?|;|\n", text):
        try:
            words = shlex.split(piece, comments=True)
        except ValueError:
            words = piece.split()
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words[:2] == ["git", "wtxt"]:
            words = ["wtxtgit", *words[2:]]
        if len(words) > 1 and words[0] == "wtxtgit":
            yield words[1], words[2:]
        elif len(words) > 1 and words[0] in NAMES:
            yield words[0], words[1:]


def quoted() -> Iterator[tuple[str, str]]:
    """Every piece of code in the pages that may be a call, with its place."""
    for page in page_names():
        for line in lines(page):
            yield from ((str(line), span) for span in line.spans if span not in NO_CALLS)
        if "```console\n" in Path(__file__).parents[2].joinpath(page).read_text():
            for step in steps(*blocks(page, "console")):
                yield step.where, step.command


def test_the_help_lists_the_commands() -> None:
    _, _, listed = help_of().partition("\nSet up:\n")
    found = re.findall(r"^  ([a-z-]+)  +[A-Z].*\.$", listed, re.MULTILINE)
    assert found == NAMES


def test_the_readme_lists_the_same_commands() -> None:
    table = tables("README.md", "Commands")[0]
    assert [name for row in table for name in spans(row[0])] == NAMES


def test_the_help_of_a_group_lists_its_commands() -> None:
    assert set(GROUPS) == {"taridx", "delta", "ring", "store", "migrate", "key", "signers"}
    for name, wanted in GROUPS.items():
        _, _, listed = help_of(name).partition("\nCommands:\n")
        assert tuple(re.findall(r"^  ([a-z-]+)  +[A-Z].*$", listed, re.MULTILINE)) == wanted


@pytest.mark.parametrize("spelled", [" ".join(command) for command in COMMANDS])
def test_help(spelled: str) -> None:
    command = tuple(spelled.split())
    text = help_of(*command)
    usage, _, rest = text.partition("\n\n")
    about, _, listed = rest.partition("\n\nOptions:\n")
    listed, _, _ = listed.partition("\n\nCommands:\n")
    assert usage.startswith(f"Usage: wtxtgit {spelled} [OPTIONS]")
    paragraphs = about.split("\n\n")
    assert re.fullmatch(r"  [A-Z][^\n]*(?:\n  [^\n]*)*\.", paragraphs[0]), "a description"
    assert all(len(line) <= WIDTH for line in text.splitlines())

    takes_arguments = usage.rpartition("[OPTIONS]")[2].strip()
    examples = [call for paragraph in paragraphs[1:] for call in calls(paragraph)]
    if takes_arguments and (command[0] not in CALLED_BY_GIT or command[0] == "hook"):
        own = [called(name, words)[: len(command)] for name, words in examples if words]
        assert command in own, "an example"
    for name, words in examples:
        assert name in NAMES
        assert {w for w in words if _OPTION.fullmatch(w)} <= options_of(*called(name, words))

    rows = re.findall(r"^  (-\S.*)$", listed, re.MULTILINE)
    assert rows[-1].split() == ["-h,", "--help", "Show", "this", "message", "and", "exit."]
    described = re.split(r"^  (?=-)", listed, flags=re.MULTILINE)[1:]
    for row in described:
        assert re.search(r"\s{2,}[A-Za-z-].*[.\]]\s*$", row, re.DOTALL), f"no description: {row}"


def test_pages_name_options_that_exist() -> None:
    checked = 0
    everywhere = {option for command in COMMANDS for option in options_of(*command)}
    for where, text in quoted():
        for command, words in calls(text):
            if command != "COMMAND" and not command.startswith("-"):
                assert command in NAMES, f"{where}: {text}"
            known = command in NAMES
            had = options_of(*called(command, words)) if known else everywhere | {"--version"}
            for word in words:
                if word.startswith("-") and word != "-":
                    checked += 1
                    assert word.partition("=")[0] in had, f"{where}: {text}"
        if text.startswith("--"):
            checked += 1
            assert _OPTION.findall(text)[0] in everywhere | OF_GIT, f"{where}: {text}"
    assert checked >= 15


def test_pages_name_commands_that_exist() -> None:
    every = [call for _, text in quoted() for call in calls(text)]
    named = {command for command, _ in every}
    assert named - set(NAMES) == {"COMMAND"}
    assert {"install", "uninstall", "track", "untrack", "status", "verify", "convert"} <= named
    for group, names in GROUPS.items():
        assert set(names) <= {words[0] for command, words in every if command == group and words}


def test_commands_that_report_take_json() -> None:
    """As the README says; those that give a file's content or are git's own do not."""
    silent = {(name,) for name in CALLED_BY_GIT - {"hook"}} | {(group,) for group in GROUPS}
    silent |= {
        ("cat",),
        ("encrypt",),
        ("decrypt",),
        ("emit",),
        ("restore",),
        ("attach",),
        ("detach",),
        ("taridx", "build"),
        ("taridx", "cat"),
    }
    silent |= {("delta", "make"), ("delta", "apply"), ("add",)}
    reporting = {c for c in COMMANDS if "--json" in options_of(*c)}
    assert reporting == set(COMMANDS) - silent
    # tests/docs/schemas.py says what they print, `make schemas` writes the files.
    assert {f"{'-'.join(c)}.json" for c in reporting} == {f.name for f in SCHEMAS.iterdir()}


def test_exit_codes_are_the_same_everywhere() -> None:
    classes = [errors.WtxtgitError, *errors.WtxtgitError.__subclasses__()]
    raised = {kind.exit_code for kind in classes}
    (table,) = (t for t in tables("README.md", "Commands") if t[0][0] == "0")
    assert {int(row[0]) for row in table} == {0, *raised}
    _, _, told = " ".join(help_of().split()).partition("Exit codes: ")
    told = told.partition(".")[0]
    assert {int(code) for code in re.findall(r"(?:^|, )(\d+) ", told)} == {0, *raised}
