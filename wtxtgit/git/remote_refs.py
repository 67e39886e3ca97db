"""Listing the refs of a remote, and fetching their objects without keeping refs here.

Git does both, with the user's settings and credentials; no hooks run, and no maintenance.
"""

from __future__ import annotations

from collections.abc import Iterable

from wtxtgit.git import run
from wtxtgit.git.repository import Repository
from wtxtgit.git.transfer import FETCH, PLAIN, failure, transfer, words_of

_NO_UPKEEP = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.writeCommitGraph=0")
# No local commit has any of these blobs: negotiation and checks would only cost time.
_BLOBS = (
    "-c", "fetch.negotiationAlgorithm=noop", "-c", "fetch.unpackLimit=1000000",
    "-c", "fetch.fsckObjects=false", "-c", "core.looseCompression=0", "-c", "core.fsync=none",
    "-c", "core.bigFileThreshold=64k",
)  # fmt: skip


class RemoteRefs:
    """The refs of a remote, given by name or URL, which messages call `label`.

    `env` are variables with which git knows the remote.

    Its methods raise RemoteUnavailable and RemoteRefused.
    """

    def __init__(
        self, repo: Repository, remote: str, label: str, env: run.Environment = PLAIN
    ) -> None:
        self._repo = repo
        self._remote = remote
        self._env = env
        self.label = label

    def list(self, *patterns: str) -> dict[str, str]:
        """Return refs that match the patterns, and their object ids; tags are not peeled."""
        command = ("ls-remote", "--quiet", "--end-of-options", self._remote, *patterns)
        lines = self._run(*command).decode("utf-8", "surrogateescape").splitlines()
        fields = (line.partition("\t") for line in lines)
        return {ref: oid for oid, _, ref in fields if not ref.endswith("^{}")}

    def fetch(
        self, refs: Iterable[str], env: run.Environment | None = None, *, only_blobs: bool = False
    ) -> None:
        """Fetch the objects of refs into the repository, or into the object folder that `env`
        names.

        A server of git's protocol 2 also gives objects by their ids. With `only_blobs` there are
        blobs, and perhaps trees of some: they become loose objects, each as soon as it is complete.
        """
        options = _BLOBS if only_blobs else ()
        self._run(
            *_NO_UPKEEP, *options, *FETCH, "--no-auto-maintenance", "--stdin",
            "--end-of-options", self._remote,
            stdin="".join(f"{ref}\n" for ref in refs).encode("utf-8", "surrogateescape"), env=env,
        )  # fmt: skip

    def _run(
        self, *arguments: str, stdin: bytes = b"", env: run.Environment | None = None
    ) -> bytes:
        result = transfer(self._repo, *arguments, stdin=stdin, env=env or self._env)
        if result.code:
            raise failure(self.label, words_of(result.stderr))
        return result.stdout
