"""What a shell completes: commands, files, REV:PATH, revisions, names of keys and tensors.

A shell puts what it is given into the command line as it stands, and names in repositories and
files may be anybody's: those that mean something to a shell are left out.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from wtxtgit.errors import WtxtgitError

VARIABLE = "_WTXTGIT_COMPLETE"
"""Set by the shell; click has the scripts that set it, but for bash's."""
_PLAIN = re.compile(r"[\w./:@+=,-]*", re.ASCII)
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
            plain) COMPREPLY+=("${value#"$before"}") ;;
        esac
    done < <(COMP_LINE=$line %(complete_var)s=bash_complete "$1")
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


class _Bash(BashComplete):
    """Completion in bash of words that it takes for several, and of names beside files.

    Click's own script asks for what stands behind the last colon, and drops names where there
    may be files too.
    """

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() else (words[:-1], "".join(words[-1:]))


def main(instruction: str) -> int:
    """Answer a shell; whatever goes wrong, it gets nothing to complete."""
    from wtxtgit.cli.main import cli

    add_completion_class(_Bash)
    with contextlib.suppress(WtxtgitError, OSError):
        return shell_complete(cli, {}, "wtxtgit", VARIABLE, instruction)
    return 0


def plain(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The names that go on from what was typed, and mean nothing else to a shell."""
    begun = (name for name in names if name.startswith(incomplete))
    # What was typed, as the revision of HEAD~1:, is the user's own.
    wanted = (name for name in begun if _PLAIN.fullmatch(name, len(incomplete)))
    return [CompletionItem(name) for name, _ in zip(wanted, range(_MOST), strict=False)]


def targets(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files, and what a revision has at a path once there is a colon."""
    revision, colon, path = incomplete.partition(":")
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
    target = context.params.get("target")
    if not isinstance(target, str):
        return []
    from wtxtgit.checkpoint.contents import opened_lazily
    from wtxtgit.checkpoint.open import read_checkpoint
    from wtxtgit.model.tensor import ReadOptions

    with opened_lazily(target, read_checkpoint(target), ReadOptions()) as checkpoint:
        return plain((tensor.name for tensor in checkpoint.tensors), incomplete)


def _listed(*arguments: str) -> list[str]:
    """What git lists; nothing outside of a repository, or of what there is not."""
    from wtxtgit.git.repository import Repository
    from wtxtgit.git.run import records

    try:
        return list(map(os.fsdecode, records(Repository.discover().git(*arguments))))
    except WtxtgitError:
        return []
