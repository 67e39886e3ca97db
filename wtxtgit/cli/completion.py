"""What a shell completes: commands, files, REV:PATH, revisions, names of keys and tensors.

Names in repositories and files may be anybody's. Zsh and fish quote what they put into the command
line. Bash puts it in as it stands, so it is given names with all quoted that means something to it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from wtxtgit.errors import WtxtgitError

VARIABLE = "_WTXTGIT_COMPLETE"
"""Set by the scripts of the shells."""
_PLAIN = re.compile(r"[\w./:@+=,-]*", re.ASCII)
_SPECIAL = re.compile(r"[^\w./:@+=,-]")
"""What a backslash comes before, for bash."""
_TYPED = re.compile(r"[\w./:@+=,~^-]*")
"""What means the same to bash with and without a backslash within a word, as HEAD~1 or HEAD^."""
_MOST = 1000
"""More than anybody reads; a file may have a million tensors."""
_BASH = """\
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} before= files= type value
    local word=${line##*[[:space:]]} breaks=${COMP_WORDBREAKS//[^:=@]/}
    # Readline replaces only what comes after the last colon, as that of HEAD:model.
    [[ -z $breaks ]] || before=${word%%"${word##*[$breaks]}"}
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            file) files=1 ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE=$line COMP_WORDBREAKS=$breaks %(complete_var)s=bash_complete "$1")
    if [[ -z $files ]]; then
        [[ ${#COMPREPLY[@]} -ne 1 || $COMPREPLY != */ ]] || compopt -o nospace
    elif [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default
    else
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${word#"$before"}")
        compopt -o filenames
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""Click's own script asks for what stands behind the last colon, and drops names where there may be
files too.
"""
_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a names described answer
    local type key about
    (( $+commands[%(prog_name)s] )) || return 1
    answer=("${(@f)$(COMP_WORDS="${(F)words[1,CURRENT-1]}"$'\\n'"$PREFIX" \\
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    local files=
    for type key about in "${answer[@]}"; do
        case $type in
            file) files=1 ;;
            plain) [[ $about == _ ]] && names+=("$key") || described+=("$key:$about") ;;
        esac
    done
    (( ! $#described )) || _describe -V unsorted described -U
    # What ends in a slash goes on.
    local -a folders=("${(@M)names:#*/}")
    names=("${(@)names:#*/}")
    (( ! $#names )) || compadd -U -V unsorted -a names
    (( ! $#folders )) || compadd -U -S '' -V unsorted -a folders
    if [[ -n $files ]]; then
        [[ $PREFIX != --*=* ]] || compset -P '*='
        _path_files -f
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""
"""Click's own script has no words that were typed behind `--key=`."""
_FISH = """\
function %(complete_func)s
    set -l typed (commandline -ct | string collect)
    set -l line (commandline -cp | string collect)
    set -l before (string match -r -- '^--[^=]*=' $typed)
    set -lx COMP_WORDS "$line"
    set -lx COMP_CWORD "$typed"
    for line in (%(complete_var)s=fish_complete %(prog_name)s)
        set -l answer (string split -m 1 , -- $line)
        switch $answer[1]
            case file
                set -l rest (string sub -s (math 1 + (string length -- "$before")) -- $typed)
                printf '%%s\\n' "$before"(__fish_complete_path $rest)
            case plain
                printf '%%s\\n' $answer[2]
        end
    end
end

complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
"""Click's own script cuts names at their commas."""


class _Whole(ShellComplete):
    """Completion of whole words: a value behind `--key=` is given together with that."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        option, sign, _ = incomplete.partition("=")
        before = option + sign if sign and option.startswith("--") else ""
        found = super().get_completions(args, incomplete)
        for item in found:
            if item.type == "plain":
                item.value = before + item.value
        return found


class _Zsh(_Whole, ZshComplete):
    source_template = _ZSH

    def get_completion_args(self) -> tuple[list[str], str]:
        # Word by word: an unfinished quote of one must not swallow the next.
        lines = os.environ["COMP_WORDS"].split("\n")
        words = ["".join(split_arg_string(line)) for line in lines]
        return words[1:-1], words[-1]


class _Fish(_Whole, FishComplete):
    source_template = _FISH

    def get_completion_args(self) -> tuple[list[str], str]:
        typed = os.environ["COMP_CWORD"]
        before = os.environ["COMP_WORDS"].removesuffix(typed)
        return split_arg_string(before)[1:], "".join(split_arg_string(typed))


class _Bash(_Whole, BashComplete):
    """Completion in bash of words that it takes for several, and of names beside files."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        # With something behind it, a quoted blank is no end of a word.
        words = split_arg_string(os.environ["COMP_LINE"] + "-")[1:]
        return words[:-1], "".join(words[-1:])[:-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        kept, is_open = _kept_by_bash(
            os.environ["COMP_LINE"], os.environ.get("COMP_WORDBREAKS", "")
        )
        # Beside files, and within quotation marks, bash itself quotes.
        quotes = not is_open and all(item.type == "plain" for item in found)
        given = []
        for item in found:
            if item.type == "plain":
                # What was typed, as the revision of HEAD~1:, is the user's own.
                if not (quotes or _PLAIN.fullmatch(item.value.removeprefix(incomplete))):
                    continue
                item.value = item.value[kept:]
                if quotes:
                    typed = max(0, len(incomplete) - kept)
                    # What the user typed plainly, bash compares as it was typed.
                    item.value = _quoted(item.value, typed)
            given.append(item)
        return given


def _quoted(value: str, typed: int) -> str:
    """The value for bash; of its first characters, which were `typed`, what stands there anyway."""
    plain = _TYPED.match(value, 0, typed)
    kept = 0 if plain is None else plain.end()
    return value[:kept] + _SPECIAL.sub(r"\\\g<0>", value[kept:])


def _kept_by_bash(line: str, breaks: str) -> tuple[int, bool]:
    """How many characters of the last word, without its quotes, bash leaves as they are, since one
    of `breaks` comes after them; and whether a quotation mark is open.
    """
    length = kept = 0
    mark, is_escaped = "", False
    for char in line:
        if is_escaped:
            is_escaped = False
            length += 1
        elif char == "\\" and mark != "'":
            is_escaped = True
        elif char == mark:
            mark = ""
        elif not mark and char in "'\"":
            mark = char
        elif not mark and char.isspace():
            length = kept = 0
        else:
            length += 1
            if not mark and char in breaks:
                kept = length
    return kept, bool(mark)


def main(instruction: str) -> int:
    """Answer a shell; whatever goes wrong, it gets nothing to complete."""
    from wtxtgit.cli.main import cli

    for shell in (_Bash, _Zsh, _Fish):
        add_completion_class(shell)
    with contextlib.suppress(WtxtgitError, OSError, click.ClickException):
        return shell_complete(cli, {}, "wtxtgit", VARIABLE, instruction)
    return 0


def plain(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The names that go on from what was typed; shells are given one a line."""
    wanted = (name for name in names if name.startswith(incomplete) and name.isprintable())
    return [CompletionItem(name) for name, _ in zip(wanted, range(_MOST), strict=False)]


def targets(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files, and what a revision has at a path once there is a colon."""
    revision, colon, path = incomplete.partition(":")
    if "@" in incomplete and (found := plain(_generations(incomplete), incomplete)):
        return found
    if not colon:
        return [CompletionItem(incomplete, type="file"), *revisions(context, parameter, incomplete)]
    folder = path.rpartition("/")[0]
    place = f"{revision}:{folder}{'/' if folder else ''}"
    listed = _listed("ls-tree", "-z", place.removesuffix("/"))
    names = []
    for line in listed:
        about, _, name = line.partition("\t")
        names.append(f"{place}{name}{'/' if ' tree ' in about else ''}")
    return plain(names, incomplete)


def _generations(incomplete: str) -> Iterator[str]:
    """The names of a file's generations, by the ledger in the work tree, the last one first."""
    from wtxtgit.io.files import read_small
    from wtxtgit.model.ledger import LEDGER_SUFFIX
    from wtxtgit.text import ledger

    path, of_signer, _ = incomplete.partition("@signed-by:")
    if not of_signer:
        path = incomplete.rpartition("@")[0]
    try:
        report = ledger.read(
            read_small(Path(path + LEDGER_SUFFIX.decode()), ledger.MAX_SIZE, "a ledger")
        )
    except WtxtgitError:
        return
    if report.ledger is not None:
        yield f"{path}@latest"
        yield from (f"{path}@gen:{one.meta.gen}" for one in reversed(report.ledger.records))
        yield from (f"{path}@signed-by:{principal}" for principal in _principals())


def _principals() -> list[str]:
    """Who may sign, by the work tree; nobody outside of a repository."""
    from wtxtgit.chain.signers import list_signers
    from wtxtgit.git.repository import Repository

    try:
        listed = list_signers(Repository.discover()).signers
    except WtxtgitError:
        return []
    return list(dict.fromkeys(one.principal for one in listed))


def principals(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Who may sign."""
    return plain(_principals(), incomplete)


def patterns(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What is tracked in this folder; files if none of that goes on from what was typed."""
    from wtxtgit.git.attributes import FILE_NAME
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup.track import list_patterns

    try:
        repo = Repository.discover()
        here = repo.prefix + FILE_NAME.encode()
        listed = [one for one in list_patterns(repo).patterns if one.file == here]
    except WtxtgitError:
        listed = []
    found = plain((os.fsdecode(one.pattern) for one in listed), incomplete)
    return found or [CompletionItem(incomplete, type="file")]


def revisions(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Branches and tags; of a range what comes behind its dots."""
    start, dots, last = re.fullmatch(r"(.*?)(\.{2,3})?([^.]*)", incomplete, re.DOTALL).groups()  # type: ignore[union-attr]
    begun = f"{start}{dots}" if dots else ""
    kinds = ("refs/heads/", "refs/tags/", "refs/remotes/")
    names = _listed("for-each-ref", "--format=%(refname:short)%00", *kinds)
    typed = begun + (last if dots else incomplete)
    return plain((begun + name.strip("\n") for name in ("HEAD", *names)), typed)


def keys(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The keys of the user's key ring, and files."""
    from wtxtgit.setup.keys import users_keyring

    names = users_keyring(os.environ).names()
    return [*plain(names, incomplete), CompletionItem(incomplete, type="file")]


def tensors(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The tensors of the checkpoint that was named before."""
    # Behind an option that lacks its value, click takes no word for an argument.
    words = [context.params.get(name) for name in ("target", "path")] + context.args
    target = next(filter(None, words), None)
    if not isinstance(target, str):
        return []
    from wtxtgit.checkpoint.contents import opened_lazily
    from wtxtgit.checkpoint.open import read_checkpoint
    from wtxtgit.model.tensor import ReadOptions

    with opened_lazily(target, read_checkpoint(target), ReadOptions()) as checkpoint:
        return plain((tensor.name for tensor in checkpoint.tensors), incomplete)


def strategies(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """How conflicts of a merge may be settled."""
    from wtxtgit.report.merge import Strategy

    return plain((one for one in Strategy if one is not Strategy.BASE), incomplete)


def _listed(*arguments: str) -> list[str]:
    """What git lists; nothing outside of a repository, or of what there is not."""
    from wtxtgit.git.repository import Repository
    from wtxtgit.git.run import records

    try:
        return list(map(os.fsdecode, records(Repository.discover().git(*arguments))))
    except WtxtgitError:
        return []
