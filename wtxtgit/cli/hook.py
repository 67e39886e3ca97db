"""`wtxtgit hook`: what git's hooks run."""

from __future__ import annotations

import os
import shlex
import sys
from functools import cache
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import commit_hooks, environment
from wtxtgit.cli.boundary import complain, note, warn
from wtxtgit.cli.commit_hooks import finding_line
from wtxtgit.cli.options import discover, is_strict, root_of_trust
from wtxtgit.cli.output import print_json, progress
from wtxtgit.errors import CheckError, EnvironmentFailure, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wtxtgit.chain.push import Ref
    from wtxtgit.git.remotes import GitRemote
    from wtxtgit.git.repository import Repository

_MOST = 50
"""The most findings that are printed for one ref."""


@click.command()
@click.argument(
    "name", type=click.Choice(["pre-commit", "pre-merge-commit", "pre-applypatch", "pre-push"])
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def hook(name: str, arguments: tuple[str, ...], as_json: bool) -> int:
    """Run the checks of one of git's hooks.

    pre-commit, pre-merge-commit and pre-applypatch check the staged files, as `wtxtgit
    check --staged` does, except files that are the same in HEAD. pre-push sends the
    data of detached texts to the remote, and audits the pushed commits. Any exit code
    but 0 stops git. With the config wtxtgit.autoSeal, pre-commit seals staged files
    first; with wtxtgit.strict, warnings are errors. `wtxtgit install --hooks` installs
    all of these; ARGUMENTS come from git.

    \b
    wtxtgit hook pre-commit
    """
    if name == "pre-push":
        return _push(discover(), arguments[:2], as_json)
    return commit_hooks.run(name, as_json=as_json)


def _push(repo: Repository, told: Sequence[str], as_json: bool) -> int:
    """Audit what is pushed; returns the worst of the refs' exit codes.

    `told` are the arguments of githooks(5): the remote's name, and the URL that is pushed to.
    """
    from wtxtgit.chain import push
    from wtxtgit.git import remotes
    from wtxtgit.report.audit import hint

    pushed_ref = environment.pushed_by_framework()
    if pushed_ref is None:
        refs = push.parse(sys.stdin.buffer.read(push.MAX_LINES + 1))
    else:
        refs = [push.Ref(*pushed_ref)]
    told = told or environment.framework_remote() or ()
    to = remotes.pushed_to(repo, *told) if told else remotes.pushed_by_default(repo)
    if removed := push.removed_payload(refs) or _mirrored_away(repo, told, to):
        _refuse_removal(repo, told, len(removed))
        return CheckError.exit_code
    root = root_of_trust(repo)
    key_file = environment.facts_key()
    known = cache(lambda: _known(repo, to))
    push_arguments = (repo, refs, known, root, environment.processes, key_file)
    with progress("auditing", None, waits=True) as advance:
        pushed = list(push.audit_push(*push_arguments, strict=is_strict(repo), progress=advance))
    codes = [audited.report.exit_code for audited in pushed]
    if not any(codes):
        codes.append(_push_payload(repo, refs, to, as_json=as_json))
    if as_json:
        print_json({"refs": pushed})
        return _worst(codes)
    folder = environment.git_prefix()
    for audited in pushed:
        for finding in audited.report.findings[:_MOST]:
            say = complain if finding in audited.report.errors else warn
            say(
                f"{audited.ref.local}: {finding_line(finding)}",
                hint(finding, folder, audited.report.settled),
            )
        if len(audited.report.findings) > _MOST:
            more = len(audited.report.findings) - _MOST
            ref = shlex.quote(audited.ref.local)
            complain(f"{audited.ref.local}: and {more} more", f"wtxtgit audit {ref} lists them")
        # Who installed the hooks, and seals, has to know what it rests on.
        for line in audited.report.notes if audited.report.findings else ():
            note(line)
    return _worst(codes)


def _known(repo: Repository, to: Sequence[GitRemote]) -> list[str]:
    """Return the commits that what is pushed to has, as far as its remote-tracking branches say.

    Of a repository without any, it is asked.
    """
    from wtxtgit.chain.push import tracked_tips
    from wtxtgit.git import remotes
    from wtxtgit.remotes.payload.remote import known_commits

    names = remotes.names(repo)
    return [
        oid
        for one in to
        for oid in (tracked_tips(repo, one.told) if one.told in names else known_commits(repo, one))
    ]


def _mirrored_away(repo: Repository, told: Sequence[str], to: Sequence[GitRemote]) -> list[str]:
    """Return the refs of payload that git will delete because it mirrors."""
    from wtxtgit.chain import push
    from wtxtgit.cli.pushing import is_mirror
    from wtxtgit.remotes.payload.remote import refs_of

    if not (told and repo.config.is_true(f"remote.{told[0]}.mirror")) and not is_mirror():
        return []
    here = repo.git("for-each-ref", "--format=%(refname)", push.PAYLOAD).decode().splitlines()
    return [ref for one in to for ref in refs_of(repo, one, push.PAYLOAD + "*") if ref not in here]


def _refuse_removal(repo: Repository, told: Sequence[str], count: int) -> None:
    """Say that a push would delete the data of texts, and how to push all else."""
    from wtxtgit.remotes.payload.store_url import spelled

    remote = told[0] if told else "REMOTE"
    is_mirror = repo.config.is_true(f"remote.{remote}.mirror")
    off = f"-c {shlex.quote(f'remote.{remote}.mirror=false')} " if is_mirror else ""
    place, remote = spelled(remote), shlex.quote(spelled(remote))
    complain(
        f"{counted(count, 'ref')} of payload would be deleted at {place}",
        f"git {off}push --prune {remote} '+refs/*:refs/*' '^refs/wtxt/*' mirrors all other refs",
    )


def _push_payload(
    repo: Repository, refs: Sequence[Ref], to: Sequence[GitRemote], *, as_json: bool
) -> int:
    """Send the payload of the commits before any ref is pushed; a failure stops the push."""
    from wtxtgit.chain import push
    from wtxtgit.filter.process import NOT_SENT
    from wtxtgit.git import remotes
    from wtxtgit.remotes.payload.remote import push_refs

    tips, known = push.ends(repo, refs)
    to_others = [one for one in to if not remotes.is_this(repo, one)]
    if not tips or (to and not to_others):
        return 0
    with progress("sending", None, noun="pack") as advance:
        sent = push_refs(repo, to_others, tips, known, advance)
    for text in sent.lacking:
        path = os.path.relpath(os.fsdecode(text.path), environment.git_prefix() or ".")
        complain(
            f"{os.fsdecode(text.path)}: {counted(text.chunks, 'chunk')} of its data missing both "
            f"here and at {sent.remote}",
            NOT_SENT
            if repo.is_bare
            else f"git add --renormalize -- {shlex.quote(path)} puts the data into the store again",
        )
    if sent.chunks and not as_json:
        note(f"{counted(sent.chunks, 'chunk')} of payload sent to {sent.remote}")
    return EnvironmentFailure.exit_code if sent.lacking else 0


def _worst(codes: list[int]) -> int:
    """Return the worst exit code: broken integrity is worse than broken trust."""
    return min((code for code in codes if code), default=0)
