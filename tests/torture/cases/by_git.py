"""Commands of git, which start the filter, the drivers and the hooks."""

from __future__ import annotations

from tests.kit import safetensors
from tests.torture.cases.places import PROGRAM, REMOTE, Killed, Place
from tests.torture.cases.starts import (
    KEY,
    MODEL,
    OTHER,
    branches,
    changed,
    conflict,
    missing,
    sealed,
    unsealed,
)


def hooked(place: Place) -> None:
    """Sealed and staged, with the hooks."""
    sealed(place)
    place.call("seal", "--staged", *KEY)
    add_hook(place, "pre-commit")


def sealing(place: Place) -> None:
    """A change that is staged, and a hook that seals it."""
    sealed(place)
    add_hook(place, "pre-commit")
    place.git("config", "wtxtgit.autoSeal", "true")
    place.git("config", "wtxtgit.signingKey", "alice")


def pushed(place: Place) -> None:
    """A sealed commit that the other side does not have, and the hook that judges it."""
    sealed(place)
    place.git("config", "wtxtgit.trustRoot", "HEAD~1")
    place.git("init", "-q", "--bare", f"../{REMOTE}")
    place.git("push", "-q", f"../{REMOTE}", "HEAD~1:refs/heads/main")
    add_hook(place, "pre-push")


def add_hook(place: Place, name: str) -> None:
    hook = place.repo / ".git/hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} hook {name} "$@"\n')
    hook.chmod(0o755)


def merging(place: Place) -> None:
    """Two branches that seal different checkpoints, and the hook that judges their merge."""
    unsealed(place)
    place.call("seal", "--staged", *KEY)
    place.commit()
    for branch, name, number in (("topic", MODEL, 5), ("main", OTHER, 6)):
        place.git("checkout", "-q", "-B", branch, "main" if branch == "topic" else "topic~1")
        place.write(name, safetensors(*range(number, 3000)))
        place.call("add", name)
        place.call("seal", "--staged", *KEY)
        place.commit()
    add_hook(place, "pre-merge-commit")


def mailed(place: Place) -> None:
    """A commit as a mail, and the hook that judges what it makes."""
    merging(place)
    mails = place.git("format-patch", "-1", "--stdout", "--binary", "topic")
    (place.top / "mail").write_bytes(mails)
    add_hook(place, "pre-applypatch")


def unmerged(place: Place) -> None:
    conflict(place)
    place.git("merge", "--abort")


BY_GIT = (
    Killed("git add: filter", changed, ("add", "."), is_git=True),
    Killed("git checkout: filter", missing, ("checkout", "-q", "--", "."), is_git=True,
           may_miss=True),
    Killed("git commit: pre-commit", hooked, ("commit", "-q", "-m", "c"), is_git=True,
           is_random=True, over=1),
    Killed("git commit: pre-commit that seals", sealing, ("commit", "-q", "-m", "c"), is_git=True,
           is_random=True, over=1),
    Killed("git push: pre-push", pushed, ("push", "-q", f"../{REMOTE}", "main"), is_git=True,
           is_random=True),
    Killed("git merge: driver", branches, ("merge", "-q", "--no-edit", "topic"), is_git=True,
           may_miss=True, healed=(("merge", "--abort"), ("reset", "-q", "--hard"))),
    Killed("git merge: driver, in conflict", unmerged, ("merge", "-q", "--no-edit", "topic"),
           is_git=True, may_miss=True, code=1,
           healed=(("merge", "--abort"), ("reset", "-q", "--hard"))),
    Killed("git merge: pre-merge-commit", merging, ("merge", "-q", "--no-edit", "topic"),
           is_git=True, may_miss=True, healed=(("merge", "--abort"),)),
    Killed("git am: pre-applypatch", mailed, ("am", "-q", "../mail"), is_git=True, may_miss=True,
           over=128, healed=(("am", "--abort"), ("reset", "-q", "--hard"))),
    Killed("git diff: driver", branches, ("diff", "base", "topic"), is_git=True),
)  # fmt: skip
