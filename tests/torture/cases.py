"""The commands and hooks that are killed, and what each starts from.

`CASES` is the table: whatever writes files, the index, git's configuration or keys.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.data import FIXTURES
from tests.kit import ATTRIBUTES, safetensors
from tests.torture.processes import run_forked
from wtxtgit.git.driver import Launcher

MODEL, OTHER = "model.safetensors", "sub/other.safetensors"
OLD, NEW = safetensors(*range(3000)), safetensors(*range(1, 3001))
CONFIG = """\
[user]
\tname = A
\temail = a@example.com
[init]
\tdefaultBranch = main
[maintenance]
\tauto = false
"""
PROGRAM = (sys.executable, "-E", "-s", str(Path(__file__).with_name("processes.py")))
"""What git starts: not as one's own program would be, but it is the same code."""
_KEY = ("--key", "alice")


@dataclass(frozen=True)
class Place:
    """A home and a repository, in one folder that is copied for each try."""

    top: Path

    @property
    def repo(self) -> Path:
        return self.top / "repo"

    @property
    def env(self) -> dict[str, str]:
        home = str(self.top / "home")
        return {
            "HOME": home, "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_STATE_HOME": f"{home}/.local/state", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0", "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }  # fmt: skip

    def git(self, *arguments: str, ok: Sequence[int] | None = (0,), **more: str) -> bytes:
        env = {**os.environ, **self.env, **more}
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.repo, env=env, capture_output=True, check=False)
        assert ok is None or done.returncode in ok, (command, done)
        return done.stdout

    def call(self, *arguments: str) -> None:
        ended = run_forked(arguments, self.repo, self.env)
        assert ended.code == 0, (arguments, ended.code)

    def write(self, name: str, content: bytes) -> None:
        file = self.repo / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "-m", "c")

    def files(self) -> dict[str, bytes]:
        """What stands in the work tree and among the keys."""
        folders = (self.repo, self.top / "home/.config")
        return {
            file.relative_to(self.top).as_posix(): file.read_bytes()
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file() and file.relative_to(folder).parts[0] != ".git"
        }

    def settings(self) -> tuple[list[bytes], dict[str, bytes]]:
        """Git's configuration, and the hooks by name."""
        configured = self.git("config", "--list", "-z").split(b"\0")
        hooks = (self.repo / ".git/hooks").glob("*[!e]")
        return sorted(configured), {file.name: file.read_bytes() for file in hooks}

    def state(self) -> tuple[bytes, ...]:
        """The index and what HEAD has."""
        tree = self.git("rev-parse", "-q", "--verify", "HEAD^{tree}", ok=None)
        return self.git("ls-files", "-s", "-z"), tree


@dataclass(frozen=True)
class Killed:
    """A command: what it starts from, and how its end is judged where it differs each time.

    `is_git` commands start what is killed. `healed` are git commands that a user gives before the
    next try; `over` is the code of a run that finds all done. `may_miss` files are git's to write,
    and gone for a moment. `is_random` ends have other bytes each time: files are compared by name,
    and ledgers by their records.
    """

    name: str
    prepare: Callable[[Place], None]
    command: Sequence[str]
    is_git: bool = False
    is_random: bool = False
    may_miss: bool = False
    over: int = 0
    healed: Sequence[Sequence[str]] = ()


def plain(place: Place) -> None:
    """A commit with two checkpoints."""
    place.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n".encode())
    place.write(MODEL, OLD)
    place.write(OTHER, OLD)
    place.call("add", ".")
    place.commit()


def changed(place: Place) -> None:
    plain(place)
    place.write(MODEL, NEW)
    place.write("new.safetensors", NEW)
    place.write("plain", b"not filtered")


def missing(place: Place) -> None:
    plain(place)
    (place.repo / MODEL).unlink()
    (place.repo / OTHER).write_bytes(place.git("cat-file", "blob", f"HEAD:{OTHER}"))
    place.git("update-index", "-q", "--refresh", ok=None)


def missing_and_new(place: Place) -> None:
    missing(place)
    place.write("new.safetensors", NEW)


def texts(place: Place) -> None:
    changed(place)
    place.call("emit", MODEL, "-o", "model.wtxt")
    place.call("emit", OTHER, "-o", "other.wtxt")


def pending(place: Place) -> None:
    changed(place)
    place.call("emit", MODEL, "--pending", "-o", "model.wtxt")


def pending_alone(place: Place) -> None:
    pending(place)
    (place.repo / "model.wtxt.root.wsum").unlink()


def delta(place: Place) -> None:
    changed(place)
    place.call("delta", "make", OTHER, MODEL, "-o", "change.wtxtdelta")


def keys(place: Place) -> None:
    plain(place)
    for name in ("alice", "bob"):
        place.call("key", "new", "--name", name, "--no-passphrase")


def signers(place: Place) -> None:
    keys(place)
    for name in ("alice", "bob"):
        place.call("signers", "add", f"{name}@example.com", name)
    place.commit()


def unsealed(place: Place) -> None:
    signers(place)
    place.write(MODEL, NEW)
    place.call("add", MODEL)


def sealed(place: Place) -> None:
    unsealed(place)
    place.call("seal", "--staged", *_KEY)
    place.commit()
    place.write(MODEL, OLD)
    place.call("add", MODEL)


def both_changed(place: Place) -> None:
    unsealed(place)
    place.call("seal", *_KEY)
    place.write(OTHER, NEW)


def both_staged(place: Place) -> None:
    signers(place)
    for name in (MODEL, OTHER):
        place.write(name, NEW)
    place.call("add", ".")


def hooked(place: Place) -> None:
    """Sealed and staged, with the hooks."""
    sealed(place)
    place.call("seal", "--staged", *_KEY)
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
    place.git("init", "-q", "--bare", "../remote.git")
    place.git("push", "-q", "../remote.git", "HEAD~1:refs/heads/main")
    add_hook(place, "pre-push")


def audited(place: Place) -> None:
    sealed(place)
    place.git("config", "wtxtgit.trustRoot", "HEAD~1")


def add_hook(place: Place, name: str) -> None:
    hook = place.repo / ".git/hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} hook {name} "$@"\n')
    hook.chmod(0o755)


def imported(place: Place) -> None:
    plain(place)
    made = ("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", place.top / "openssh")
    subprocess.run(("ssh-keygen", *made), check=True)


def damaged(place: Place) -> None:
    """A text with a wrong character is committed, and stands in the work tree."""
    plain(place)
    text = bytearray(place.git("cat-file", "blob", f"HEAD:{MODEL}"))
    at = text.index(b"\nch ix=0")
    at = text.index(b"\n", at + 1) + 20
    text[at] = ord("A") if text[at] != ord("A") else ord("B")
    (place.top / "damaged").write_bytes(text)
    oid = place.git("hash-object", "-w", "--no-filters", "../damaged").decode().strip()
    place.git("update-index", "--cacheinfo", f"100644,{oid},{MODEL}")
    place.git("commit", "-q", "--no-verify", "-m", "damaged")
    (place.repo / MODEL).unlink()
    place.git("checkout", "--", MODEL)


def ill(place: Place) -> None:
    """All that `doctor --fix` mends."""
    damaged(place)
    (place.repo / OTHER).write_bytes(place.git("cat-file", "blob", f"HEAD:{OTHER}"))
    place.git("update-index", "-q", "--refresh", ok=None)
    place.write("raw.safetensors", NEW)
    place.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n*.npz filter=wtxt\n".encode())
    off = ("filter.wtxt.process=", "filter.wtxt.clean=", "filter.wtxt.required=false")
    settings = [word for setting in off for word in ("-c", setting)]
    place.git(*settings, "add", "raw.safetensors")
    place.git("config", "--global", "--unset", "diff.wtxt.command")


def folds(place: Place) -> None:
    plain(place)
    names = {"pair_zstd3_v1": "base", "pair_npz_v1": "ours", "pair_zstd3_v2": "theirs"}
    names["none_rs16_flipped_a"] = "flipped"
    for name, to in names.items():
        shutil.copy(FIXTURES / f"fold/{name}.fold", place.repo / f"{to}.fold")
    shutil.copy(place.repo / "base.fold", place.repo / "ours.fold")


def tars(place: Place) -> None:
    plain(place)
    for tar in (FIXTURES / "taridx/enforced_a").glob("*.tar"):
        shutil.copy(tar, place.repo)
    place.write("all.taridx", b"what was there")


def installed(place: Place) -> None:
    """With the driver and all hooks, beside a hook of somebody else's."""
    plain(place)
    hook = place.repo / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    place.call("install", "--local", "--hooks")


def bare_home(place: Place) -> None:
    """Texts in the work tree, and no driver; a hook of somebody else's."""
    missing(place)
    (place.top / "home/.gitconfig").write_text(CONFIG)
    hook = place.repo / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)


def branches(place: Place) -> None:
    """Two branches that change rows of one tensor that are far from each other."""
    diverge(place, {"topic": (10, -1.0), "main": (2000, -1.0)})


def conflict(place: Place) -> None:
    """Two branches that change the same row, and their merge."""
    diverge(place, {"topic": (10, -1.0), "main": (10, -2.0)})
    place.git("merge", "-q", "topic", ok=(1,))


def diverge(place: Place, rows: Mapping[str, tuple[int, float]]) -> None:
    plain(place)
    place.git("branch", "base")
    values = list(map(float, range(3000)))
    for branch, (row, value) in rows.items():
        place.git("checkout", "-q", "-B", branch, "base")
        place.write(MODEL, safetensors(*values[:row], value, *values[row + 1 :]))
        place.call("add", MODEL)
        place.commit()


TARS = tuple(sorted(tar.name for tar in (FIXTURES / "taridx/enforced_a").glob("*.tar")))


def new_place(folder: Path) -> Place:
    """An empty repository, and a home with the driver in its configuration."""
    place = Place(folder)
    (place.top / "home").mkdir(parents=True)
    place.repo.mkdir()
    (place.top / "home/.gitconfig").write_text(CONFIG)
    place.git("init", "-q")
    for key, value in Launcher((sys.executable, "-E", "-P", "-m", "wtxtgit")).values().items():
        place.git("config", "--global", key, value)
    return place


CASES = (
    Killed("add", changed, ("add", ".")),
    Killed("checkout", missing, ("checkout",)),
    Killed("checkout REV", branches, ("checkout", "topic", "--", MODEL)),
    Killed("emit -o", texts, ("emit", MODEL, "-o", "other.wtxt")),
    Killed("restore -o", texts, ("restore", "model.wtxt", "-o", OTHER)),
    Killed("finalize", pending_alone, ("finalize", "model.wtxt")),
    Killed("finalize --inline", pending, ("finalize", "model.wtxt", "--inline"), over=3),
    Killed("recover -o", texts, ("recover", "model.wtxt", "-o", OTHER)),
    Killed("recover --as-commit", damaged, ("recover", MODEL, "--as-commit")),
    Killed("recover --ecc", folds, ("recover", "--ecc", "flipped.fold")),
    Killed("convert", changed, ("convert", MODEL, OTHER)),
    Killed("convert --max-shard", changed,
           ("convert", MODEL, "set.safetensors", "--max-shard", "4KiB")),
    Killed("delta make", delta, ("delta", "make", OTHER, MODEL, "-o", "change.wtxtdelta")),
    Killed("delta apply", delta, ("delta", "apply", OTHER, "change.wtxtdelta", "-o", MODEL)),
    Killed("repack", folds, ("repack", "base.fold", "--compression", "none", "-o", "ours.fold")),
    Killed("merge-file", folds, ("merge-file", "base.fold", "ours.fold", "theirs.fold")),
    Killed("taridx build", tars, ("taridx", "build", *TARS, "-o", "all.taridx")),
    Killed("review -o", branches,
           ("review", "base..topic", "--format", "html", "-o", "review.html")),
    Killed("key new", plain, ("key", "new", "--name", "alice", "--no-passphrase"), is_random=True,
           over=2),
    Killed("key import", imported,
           ("key", "import", "../openssh", "--name", "carol", "--no-passphrase"), is_random=True,
           over=2),
    Killed("signers add", keys, ("signers", "add", "alice@example.com", "alice")),
    Killed("signers remove", signers, ("signers", "remove", "bob@example.com"), over=2),
    Killed("signers threshold", signers, ("signers", "threshold", "2")),
    Killed("seal", unsealed, ("seal", *_KEY), is_random=True),
    Killed("seal --staged", sealed, ("seal", "--staged", *_KEY), is_random=True),
    Killed("seal --reseal", sealed, ("seal", "--reseal", *_KEY), is_random=True),
    Killed("audit", audited, ("audit",), is_random=True),
    Killed("install", bare_home, ("install", "--hooks")),
    Killed("install --hooks", missing, ("install", "--local", "--hooks")),
    Killed("uninstall", installed, ("uninstall", "--local")),
    Killed("track", changed, ("track", "*.npz")),
    Killed("untrack", changed, ("untrack", "*.safetensors"), over=2),
    Killed("doctor --fix", ill, ("doctor", "--fix")),
    Killed("resolve", conflict, ("resolve", MODEL, "--strategy", "theirs"), over=3),
    Killed("git add: filter", changed, ("add", "."), is_git=True),
    Killed("git checkout: filter", missing, ("checkout", "-q", "--", "."), is_git=True,
           may_miss=True),
    Killed("git commit: pre-commit", hooked, ("commit", "-q", "-m", "c"), is_git=True,
           is_random=True, over=1),
    Killed("git commit: pre-commit that seals", sealing, ("commit", "-q", "-m", "c"), is_git=True,
           is_random=True, over=1),
    Killed("git push: pre-push", pushed, ("push", "-q", "../remote.git", "main"), is_git=True,
           is_random=True),
    Killed("git merge: driver", branches, ("merge", "-q", "--no-edit", "topic"), is_git=True,
           may_miss=True, healed=(("merge", "--abort"), ("reset", "-q", "--hard"))),
)  # fmt: skip
