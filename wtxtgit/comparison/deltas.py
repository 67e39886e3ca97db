"""Deltas as sides of a comparison: each stands for the checkpoint that it makes."""

from __future__ import annotations

from collections.abc import Sequence

from wtxtgit.checkpoint.delta import checked
from wtxtgit.checkpoint.delta_base import BaseFinder, base_of, change_made, has_root, opened_base
from wtxtgit.checkpoint.open import attached_text, read, repository_of, shown_name
from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git import history
from wtxtgit.io.view import ByteView
from wtxtgit.text.grammar import is_delta


def base_named(target: str, *, threads: int | None = None) -> str | None:
    """Return the base of a delta as REV:PATH; None if the target is not a delta.

    Raises CheckError for a delta that does not hold, or whose base is not in the repository.
    """
    data = read(target, threads=threads)
    if not is_delta(data):
        return None
    checked(shown_name(target), data)
    finder = _finder(target)
    base = None if finder is None else finder.find(base_of(data) or b"")
    if base is None:
        raise _not_there(target, data)
    return base.name


def targets(
    names: Sequence[str], contents: Sequence[ByteView], *, threads: int | None = None
) -> tuple[list[ByteView], tuple[str, ...]]:
    """Replace each side that is a delta by the checkpoint that it makes; also return notes.

    If the other side is a delta's base, that is used. Raises CheckError for a delta that does not
    hold, or whose base is missing, and what reading either side raises.
    """
    sides, notes = [], []
    for name, data, other_name, other in zip(
        names, contents, reversed(names), reversed(contents), strict=True
    ):
        if not is_delta(data):
            sides.append(data)
            continue
        report = checked(shown_name(name), data)
        root = base_of(data) or b""
        if not is_delta(other) and has_root(other, root):
            base_name, base = (
                shown_name(other_name),
                attached_text(other_name, other, threads=threads),
            )
        else:
            base_name, base = _base_in_repository(name, data, root, threads)
        change = change_made(shown_name(name), data, base_name, base, report, threads=threads)
        notes += [
            f"no hash covers {fact}: it is known only from the delta" for fact in change.uncovered
        ]
        sides.append(change.after)
    return sides, tuple(notes)


def _base_in_repository(
    name: str, data: ByteView, root: bytes, threads: int | None
) -> tuple[str, ByteView]:
    finder = _finder(name)
    base = None if finder is None else finder.find(root)
    if finder is None or base is None:
        raise _not_there(name, data)
    return base.name, opened_base(finder.repo, base, threads=threads)


def _finder(target: str) -> BaseFinder | None:
    """Return what searches a target's repository for bases; None without a repository or commit."""
    try:
        repo = repository_of(target)
    except EnvironmentFailure:
        return None
    head, tips = history.head(repo), history.tips(repo)
    # Other branches may have what HEAD does not.
    return BaseFinder(repo, [] if head is None else [head.oid], tips) if head or tips else None


def _not_there(target: str, data: ByteView) -> CheckError:
    digest = (base_of(data) or b"").hex()[:16]
    return CheckError(
        f"{shown_name(target)}: verified by itself; its base, with sha256_all {digest}..., is not "
        "in the repository",
        hint="wtxtgit diff BASE DELTA compares with a file",
    )
