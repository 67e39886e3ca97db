"""Commands on the payload of detached texts, and git's that need it."""

from __future__ import annotations

import json
import random
import struct

from tests.kit.lfs import kept_by_lfs
from tests.store.chunks import added, trained, weights
from tests.torture.cases.by_git import add_hook
from tests.torture.cases.places import REMOTE, THERE, Killed, Place
from tests.torture.cases.starts import MODEL, OTHER, plain
from wtxtgit.store.store import Store

TEXT = "sent.wtxt"
_ATTRIBUTES = b"*.safetensors filter=wtxt-detached diff=wtxt merge=wtxt -text\n"


def model(seed: int, size: int = 160_000) -> bytes:
    """Three chunks, or those of another size, none of which is like any of another one."""
    values = random.Random(seed).randbytes(size)  # noqa: S311 - the same each time
    about = {"dtype": "U8", "shape": [len(values)], "data_offsets": [0, len(values)]}
    header = json.dumps({"w": about}).encode()
    return struct.pack("<Q", len(header)) + header + values


def stored(place: Place) -> None:
    """Small packs, one of which has chunks that are in another, and chunks of which have bases."""
    plain(place)
    folder = place.repo / ".git/wtxt/store"
    old = weights(3)
    added(Store(folder), old[:2])
    added(Store(folder), trained(old[:2]), before=old[:2])
    added(Store(place.top / "other"), [*old[1:], *trained(old[:1])])
    for pack in (place.top / "other/packs").iterdir():
        pack.rename(folder / "packs" / pack.name)


def kept_elsewhere(place: Place) -> None:
    """Two versions of a checkpoint as git-lfs has them."""
    plain(place)
    for seed in (1, 2):
        pointer, _ = kept_by_lfs(place.repo / ".git/lfs", model(seed))
        place.write("large.weights", pointer)
        place.commit()


def committed(place: Place) -> None:
    """Three versions of a file, and a file that stays."""
    place.write(".gitattributes", _ATTRIBUTES)
    place.write(OTHER, model(9))
    for seed in range(3):
        place.write(MODEL, model(seed))
        place.call("add", ".")
        place.commit()
    place.git("init", "-q", "--bare", f"../{REMOTE}")
    place.git("remote", "add", "origin", f"../{REMOTE}")


def changed(place: Place) -> None:
    committed(place)
    place.write(MODEL, model(3))
    place.write("new.safetensors", model(4))


def many_changed(place: Place) -> None:
    """Each of the files becomes a pack at first."""
    committed(place)
    for seed in range(10, 16):
        place.write(f"new-{seed}.safetensors", model(seed))


def many_edited(place: Place) -> None:
    many_changed(place)
    place.call("add", ".")
    place.commit()
    for seed in range(10, 16):
        place.write(f"new-{seed}.safetensors", model(seed + 10))


def missing(place: Place) -> None:
    committed(place)
    (place.repo / MODEL).unlink()
    (place.repo / OTHER).write_bytes(place.git("cat-file", "blob", f"HEAD:{OTHER}"))
    place.git("update-index", "-q", "--refresh", ok=None)


def large_missing(place: Place) -> None:
    """So much that two processes decode it."""
    committed(place)
    place.write(MODEL, model(10, 33 * 1024 * 1024))
    place.call("add", ".")
    place.commit()
    (place.repo / MODEL).unlink()


def attached(place: Place) -> None:
    """A text that has its data, which the store lacks."""
    committed(place)
    place.write("sent.safetensors.bin", model(11))
    place.call("emit", "sent.safetensors.bin", "-o", TEXT)


def detached(place: Place) -> None:
    attached(place)
    place.call("detach", TEXT)


def with_folder(place: Place) -> None:
    """Payload goes to a folder."""
    committed(place)
    place.git("config", "wtxtgit.store", (place.top / THERE).as_uri())


def hooked(place: Place) -> None:
    committed(place)
    add_hook(place, "pre-push")


def hooked_with_folder(place: Place) -> None:
    with_folder(place)
    add_hook(place, "pre-push")


def sent(place: Place) -> None:
    """All is at the remotes, payload in several packs; a branch is there that nobody needs."""
    for revision in ("HEAD~2", "HEAD~1", "HEAD"):
        place.call("push", *(() if place.git("config", "wtxtgit.store", ok=None) else ("origin",)),
                   revision)  # fmt: skip
    place.git("push", "-q", "--no-verify", "origin", "main")


def lacking(place: Place) -> None:
    """All versions are at a folder alone."""
    with_folder(place)
    sent(place)
    empty(place)


def lacking_of_git(place: Place) -> None:
    committed(place)
    sent(place)
    empty(place)


def empty(place: Place) -> None:
    for path in (place.repo / ".git/wtxt/store").rglob("*"):
        if path.is_file():
            path.unlink()
    for name in (MODEL, OTHER):
        (place.repo / name).write_bytes(place.git("cat-file", "blob", f"HEAD:{name}"))
    place.git("update-index", "-q", "--refresh", ok=None)


def old(place: Place) -> None:
    """A pack holds what is needed and what is not, others what is not."""
    with_folder(place)
    place.call("store", "repack")
    place.write(MODEL, model(5))
    place.call("add", ".")
    place.commit()
    place.write(MODEL, model(6))
    place.call("add", ".")
    place.commit()
    sent(place)


def old_and_changed(place: Place) -> None:
    """What is added is like nothing, like what goes, and what goes."""
    old(place)
    place.write(MODEL, model(0))
    place.write("new.safetensors", model(4))


def old_and_many_new(place: Place) -> None:
    old(place)
    for seed in range(10, 18):
        place.write(f"new-{seed}.safetensors", model(seed))


def four_work_trees(place: Place) -> None:
    """Each has a new file of its own, and one that all have."""
    committed(place)
    for number in range(4):
        place.git("worktree", "add", "-q", "--detach", f"../wt{number}")
        for name, seed in ((MODEL, 30 + number), ("same.safetensors", 40)):
            (place.top / f"wt{number}" / name).write_bytes(model(seed))


def unneeded(place: Place) -> None:
    """Branches of which only packs are left, some at a time, at both remotes."""
    for seed in (7, 8):
        place.git("checkout", "-q", "--orphan", f"b{seed}")
        place.write(MODEL, model(seed))
        place.call("add", ".")
        place.commit()
        place.call("push")
    place.git("checkout", "-q", "main")
    place.git("branch", "-qD", "b7", "b8")
    place.git("reflog", "expire", "--expire=now", "--all")


def unneeded_in_folder(place: Place) -> None:
    with_folder(place)
    sent(place)
    unneeded(place)


def unneeded_at_git(place: Place) -> None:
    committed(place)
    sent(place)
    unneeded(place)
    place.call("store", "prune", "--remote")


_ALL = ("HEAD~2", "HEAD~1", "HEAD")
_REMOTE = ("store", "prune", "--remote", "--force", "--expire", "0")
PAYLOAD = (
    Killed("store repack", stored, ("store", "repack"), same_packs=True),
    Killed("store import", kept_elsewhere, ("store", "import", "--from-lfs", "--all")),
    Killed("add: detached", changed, ("add", ".")),
    Killed("checkout: detached", missing, ("checkout",)),
    Killed("checkout: detached, by two", large_missing, ("checkout",)),
    Killed("detach", attached, ("detach", TEXT)),
    Killed("attach", detached, ("attach", TEXT)),
    Killed("push: folder", with_folder, ("push",)),
    Killed("push: git", committed, ("push", "origin")),
    Killed("fetch: folder", lacking, ("fetch", *_ALL), fetches=True),
    Killed("fetch: git", lacking_of_git, ("fetch", *_ALL), fetches=True),
    Killed("store prune", old, ("store", "prune", "--recent", "0")),
    Killed("store prune: folder as remote", unneeded_in_folder, _REMOTE),
    Killed("store prune: git as remote", unneeded_at_git, _REMOTE),
    Killed("git add: detached", changed, ("add", "."), is_git=True),
    Killed("git add of many: detached", many_changed, ("add", "."), is_git=True),
    Killed("git commit of many: detached", many_edited, ("commit", "-q", "-a", "-m", "c"),
           is_git=True, over=1),
    Killed("git checkout: detached", missing, ("checkout", "-q", "--", "."), is_git=True,
           may_miss=True),
    Killed("git checkout: detached, by two", large_missing, ("checkout", "-q", "--", "."),
           is_git=True, may_miss=True),
    Killed("git push: payload to a folder", hooked_with_folder, ("push", "-q", "origin", "main"),
           is_git=True),
    Killed("git push: payload to git", hooked, ("push", "-q", "origin", "main"), is_git=True),
)  # fmt: skip
