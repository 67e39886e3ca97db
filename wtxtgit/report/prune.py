"""What pruning a history would do, or did: the contract of `prune --json`."""

from __future__ import annotations

from dataclasses import dataclass

from wtxtgit.model.plain import JsonObject


@dataclass(frozen=True, slots=True)
class PrunedCommit(JsonObject):
    """A commit of the branch: `why` lists the reasons for keeping it, none for one that is dropped.

    `new` is its id in the shorter history, if it is in it.
    """

    KEYS = "commit=oid date subject why new?"

    oid: str
    date: str
    subject: str
    why: tuple[str, ...]
    new: str | None = None


@dataclass(frozen=True, slots=True)
class ForgottenDeletion(JsonObject):
    """A sealed deletion of `path`, by the record `gen`, whose ledger is in no kept commit.

    An audit of the shorter history accepts the deleted checkpoint if it comes back. `commit` has
    the ledger, and nothing is at its path at the tip; None if there is no such commit.
    """

    KEYS = "path gen commit?"

    path: bytes
    gen: int
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class PruneReport(JsonObject):
    """A pruning of `branch` (a full name) from `tip`; `before` counts the commits before the line.

    `remotes` have what is dropped, so far as is known here, and so do the refs in `others`. The new
    versions of `signed_tags` (full names) have no signature. `root` is the new trust root and
    `backup` the place of the former refs; both are None in a dry run.
    """

    KEYS = "branch tip before commits remotes others signed_tags forgotten root? backup?"

    branch: str
    tip: str
    before: int
    commits: tuple[PrunedCommit, ...]
    remotes: tuple[str, ...]
    others: tuple[str, ...]
    signed_tags: tuple[str, ...] = ()
    forgotten: tuple[ForgottenDeletion, ...] = ()
    root: str | None = None
    backup: str | None = None

    @property
    def kept(self) -> tuple[PrunedCommit, ...]:
        return tuple(commit for commit in self.commits if commit.why)


@dataclass(frozen=True, slots=True)
class PruneProof(JsonObject):
    """A pruning that was proved: the new root, the old tip, how many were kept, who sealed it.

    `forgotten` are deletions that the old history has, and the new one does not.
    """

    root: str
    old: str
    kept: int
    signers: tuple[str, ...]
    forgotten: tuple[ForgottenDeletion, ...] = ()
