"""Git remotes, as git itself resolves them: where a fetch asks, and where a push goes.

A remote may be fetched from one repository and pushed to others (`remote.NAME.pushurl`,
`url.BASE.pushInsteadOf`). What one of them has says nothing about another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from wtxtgit.git import history, run
from wtxtgit.git.repository import Repository
from wtxtgit.git.transfer import PLAIN

_BY_URL = "wtxtgit-url"
"""The name that git is told for a repository which is none of the configured remotes."""
_WAYS = ("proxy", "proxyAuthMethod", "uploadpack", "receivepack", "vcs")
"""Settings of a remote without which its repositories might not be reached."""


class GitRemote(NamedTuple):
    """One repository that git fetches from and pushes to.

    `told` is what git is told, with the variables `env`: a configured remote, or a URL. `address`
    is its URL if git has resolved it already, else the same as `told`.
    """

    told: str
    address: str
    env: run.Environment = PLAIN


def names(repo: Repository) -> list[str]:
    """List the configured remotes."""
    return repo.git("remote").decode("utf-8", "surrogateescape").splitlines()


def asked(remote: str) -> GitRemote:
    """Return the repository that git fetches from for a remote's name, or a URL."""
    return GitRemote(remote, remote)


def alone(repo: Repository, remote: GitRemote) -> GitRemote:
    """Return the repository that git fetches from, such that pushes go there too."""
    if remote.told not in names(repo):
        return remote
    urls = _urls(repo, remote.told)
    if urls[:1] == _urls(repo, remote.told, "--push"):
        return remote
    return _at_url(repo, urls[0], remote.told, is_resolved=True)


def pushed_to(repo: Repository, remote: str, url: str | None = None) -> list[GitRemote]:
    """Return the repositories that git pushes to for a remote's name, or a URL.

    `url` is the one among them that a pre-push hook is told.
    """
    known = names(repo)
    if remote not in known:
        if url is None:
            return [_at_url(repo, remote)]
        # The URL of a remote may be given instead of its name.
        for name in known:
            if [url] == _urls(repo, name)[:1] == _urls(repo, name, "--push"):
                return [asked(name)]
        return [_at_url(repo, url, is_resolved=True)]
    urls = _urls(repo, remote, "--push")
    # Git fetches from the first URL alone.
    if urls == _urls(repo, remote)[:1] and url in (None, *urls):
        return [asked(remote)]
    of_hook = urls if url is None else (url,)
    return [_at_url(repo, one, remote, is_resolved=True) for one in of_hook]


def pushed_by_default(repo: Repository) -> list[GitRemote]:
    """Return the repositories that `git push` takes on its own; none if there is no remote.

    git-config(1), `branch.NAME.pushRemote`.
    """
    remote = _of_branch(repo, "branch.{}.pushRemote", "remote.pushDefault", "branch.{}.remote")
    remote = remote or main(repo)
    return [] if remote is None else pushed_to(repo, remote)


def fetched_by_default(repo: Repository) -> GitRemote | None:
    """Return the repository that the present branch is fetched from, if it has a remote."""
    remote = _of_branch(repo, "branch.{}.remote")
    if remote is None:
        return None
    return asked(remote) if remote in names(repo) else _at_url(repo, remote)


def main(repo: Repository) -> str | None:
    """Return the remote `origin`, or the only one."""
    known = names(repo)
    if "origin" in known:
        return "origin"
    return known[0] if len(known) == 1 else None


def that_have(repo: Repository, revisions: Sequence[str]) -> list[str]:
    """Return the remotes with a remote-tracking branch that reaches one of some commits.

    The main one comes first.
    """
    oids = (history.find(repo, f"{revision}^{{commit}}") for revision in revisions)
    containing = [word for oid in oids if oid is not None for word in ("--contains", oid)]
    if not containing:
        return []
    listed = repo.git("for-each-ref", "--format=%(refname)", *containing, "refs/remotes/")
    refs = listed.decode("utf-8", "surrogateescape").splitlines()
    first = main(repo)
    ordered = sorted(names(repo), key=lambda name: name != first)
    starts = {name: f"refs/remotes/{name}/" for name in ordered}
    return [name for name, start in starts.items() if any(ref.startswith(start) for ref in refs)]


def is_this(repo: Repository, remote: GitRemote) -> bool:
    """Tell whether the repository is the one that is pushed from, or a work tree of its own."""
    place = os.path.realpath(repo.home / remote.address.removeprefix("file://"))
    return place in map(os.path.realpath, (repo.home, repo.git_dir, repo.common_dir))


def _of_branch(repo: Repository, *keys: str) -> str | None:
    """Return the first of some settings of the present branch, unless it is this repository."""
    branch = repo.call("symbolic-ref", "-q", "--short", "HEAD", ok=(0, 1)).stdout
    name = branch.decode("utf-8", "surrogateescape").strip()
    found = (repo.config.get(key.format(name)) for key in keys)
    return next((remote for remote in found if remote and remote != "."), None)


def _urls(repo: Repository, remote: str, *which: str) -> Sequence[str]:
    listed = repo.git("remote", "get-url", "--all", *which, "--", remote)
    return listed.decode("utf-8", "surrogateescape").splitlines()


def _at_url(
    repo: Repository, url: str, remote: str | None = None, *, is_resolved: bool = False
) -> GitRemote:
    """Return the repository at a URL, with the settings of a remote.

    The URL is given in the environment, since everybody on the machine sees arguments. If git has
    resolved it no part is replaced once more.
    """
    config = {f"remote.{_BY_URL}.url": url}
    if is_resolved:
        config |= {f"url.{url}.{key}": url for key in ("insteadOf", "pushInsteadOf")}
    for way in _WAYS if remote is not None else ():
        if value := repo.config.get(f"remote.{remote}.{way}"):
            config[f"remote.{_BY_URL}.{way}"] = value
    return GitRemote(_BY_URL, url, {**PLAIN, **run.with_config(config)})
