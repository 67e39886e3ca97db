"""A home and a repository in which every command has something to do, and the commands.

Each trial has a copy of its own. `COMMANDS` is the table: what the command line's help lists, and
what git starts of it.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyrage
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.data import FIXTURES
from tests.kit import ATTRIBUTES, LAUNCHER, safetensors
from tests.kit.lfs import kept_by_lfs
from tests.kit.starts import TRUE_START
from tests.store.chunks import added, weights
from tests.stream.rings import filled
from wtxtgit.api.functions import dumps
from wtxtgit.git import run
from wtxtgit.store.store import Store

MODEL = "model.safetensors"
_VALUES = 200_000
"""Values of the model's tensor: enough for commands to take several threads."""
_WTXTGIT = " ".join(LAUNCHER.arguments)
_FOLD = FIXTURES / "fold"
_TEMPORARY = (".wtxtgit-", "tmp_obj_", "tmp_pack_")


def model(number: int) -> bytes:
    """A version of the model."""
    return safetensors(*[number + n / 7 for n in range(_VALUES)])


@dataclass(frozen=True)
class Call:
    """A command line; `git` is one that git carries out, which starts ours."""

    line: str
    stdin: str = ""
    """A file of `files` that the command gets."""
    folder: str = "repo"
    finds: bool = False
    """Whether exit code 1 tells what is wrong: with the system, or where things are sent to."""

    @property
    def by_git(self) -> bool:
        return self.line.startswith("git ")

    @property
    def argv(self) -> list[str]:
        words = self.line.split()
        return words if self.by_git else [*LAUNCHER.arguments, *words]


COMMANDS = {
    call.line: call
    for call in (
        Call("--help"),
        Call("--version"),
        Call("install --global --force"),
        Call("install --local --hooks"),
        Call("uninstall"),
        Call("track *.gguf"),
        Call("untrack *.fold"),
        Call("migrate info"),
        Call("migrate import --include *.safetensors --everything", folder="raw"),
        Call("migrate import --include *.safetensors --detached", folder="raw"),
        Call("migrate export --everything", folder="detached"),
        Call("doctor", finds=True),
        Call("doctor --json", finds=True),
        Call("add changed.safetensors"),
        Call("checkout model.safetensors"),
        Call("checkout topic -- small.fold"),
        Call("status"),
        Call("ls-files"),
        Call("inspect changed.safetensors"),
        Call("inspect HEAD~1:model.safetensors"),
        Call("cat changed.safetensors __metadata__ -o ../files/out"),
        Call("verify ../files/model.wtxt"),
        Call("verify small.fold"),
        Call("verify ../files/large.aero"),
        Call("verify model.safetensors.wsum"),
        Call("diff ../files/1.safetensors changed.safetensors"),
        Call("diff HEAD~1:model.safetensors model.safetensors"),
        Call("review root..HEAD"),
        Call("review root..HEAD --format html -o ../files/out.html"),
        Call("merge-file ../files/2.fold ../files/1.fold ../files/2.fold -o ../files/out.fold"),
        Call("resolve", folder="merging"),
        Call("resolve small.fold --strategy ours", folder="merging"),
        Call("emit changed.safetensors -o ../files/out.wtxt"),
        Call("emit changed.safetensors"),
        Call("restore ../files/model.wtxt -o ../files/out"),
        Call("attach ../files/model.wtxt -o ../files/out"),
        Call("detach ../files/model.wtxt -o ../files/out"),
        Call("finalize ../files/pending.wtxt"),
        Call("finalize ../files/pending.wtxt --inline"),
        Call("encrypt changed.safetensors -R ../files/recipients -o ../files/out.wtxt.age"),
        Call("decrypt ../files/old.wtxt.age -i ../files/identity -o ../files/out.wtxt"),
        Call("rekey ../files/old.wtxt.age -R ../files/both -i ../files/identity"),
        Call("store ls"),
        Call("store verify"),
        Call("store repack"),
        Call("store prune --recent 0", folder="detached"),
        Call("store use git+origin"),
        Call("store import --from-lfs refs/lfs/tree"),
        Call("fetch", folder="lacking"),
        Call("push", folder="detached"),
        Call("ring ls ../files/exp1"),
        Call("ring verify ../files/exp1"),
        Call("ring prune ../files/exp1 1"),
        Call("ring push ../files/exp1 --to ../files/sent", finds=True),
        Call("pull ../files/exp1 -o ../files/out.safetensors"),
        Call("convert changed.safetensors ../files/out.npz"),
        Call("convert small.fold ../files/out.safetensors"),
        Call("repack ../files/1.fold --compression none -o ../files/out.fold"),
        Call("reseal ../files/aeroset"),
        Call("recover --ecc ../files/flipped.fold"),
        Call("delta make ../files/1.safetensors changed.safetensors -o ../files/out.wtxtdelta"),
        Call("delta apply ../files/1.safetensors ../files/model.wtxtdelta -o ../files/out"),
        Call("taridx build ../files/train_0.tar -o ../files/out.taridx"),
        Call("taridx ls ../files/train.taridx"),
        Call("taridx cat ../files/train.taridx a.txt"),
        Call("taridx verify ../files/train.taridx"),
        Call("seal --key alice", folder="staged"),
        Call("seal --staged --key alice", folder="staged"),
        Call("check --staged", folder="staged"),
        Call("key new --name bob --no-passphrase"),
        Call("key import ../files/openssh --name carol --no-passphrase"),
        Call("key list"),
        Call("key show alice"),
        Call("signers add bob@example.com ../files/openssh.pub"),
        Call("signers remove alice@example.com"),
        Call("signers list"),
        Call("signers threshold 1"),
        Call("log model.safetensors"),
        Call("history model.safetensors"),
        Call("audit --trust-root root"),
        Call("audit --trust-root root --format sarif"),
        Call("release root --trust-root root --key alice -o ../files/out.sig"),
        Call("clean model.safetensors", stdin="1.safetensors"),
        Call("smudge model.safetensors", stdin="model.wtxt"),
        Call("hook pre-commit", folder="staged"),
        Call("git add changed.safetensors"),
        Call("git add ."),
        Call("git status --porcelain"),
        Call("git checkout -q topic"),
        Call("git --no-pager diff HEAD~1 -- model.safetensors"),
        Call("git merge -q --no-edit topic"),
        Call("git commit -q -m staged", folder="staged"),
    )
}


def environment(home: Path) -> dict[str, str]:
    """Nothing of the caller's but what processes need to run."""
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(home.parent / "temporary"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
        "RUST_BACKTRACE": "0",
        **({TRUE_START: "1"} if TRUE_START in os.environ else {}),
    }


@dataclass(frozen=True)
class World:
    """A folder with a home, repositories and files beside them."""

    folder: Path

    def start(
        self, call: Call, env: Mapping[str, str] | None = None, **more: object
    ) -> subprocess.Popen[bytes]:
        """Start a command in its repository."""
        path = self.folder / "files" / call.stdin if call.stdin else Path(os.devnull)
        with path.open("rb") as stdin:
            return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
                call.argv,
                cwd=self.folder / call.folder,
                env={**environment(self.folder / "home"), **(env or {})},
                **{
                    "stdin": stdin,
                    "stdout": subprocess.PIPE,
                    "stderr": subprocess.PIPE,
                    **more,
                },
            )

    def git(self, *arguments: str, folder: str = "repo") -> bytes:
        """Run git; gives what it says."""
        return subprocess.run(
            (run.executable(), *arguments),
            cwd=self.folder / folder,
            env=environment(self.folder / "home"),
            check=True,
            capture_output=True,
        ).stdout

    def wtxtgit(self, line: str, folder: str = "repo") -> None:
        """Run a command that has to succeed."""
        process = self.start(Call(line, folder=folder))
        out, err = process.communicate()
        assert process.returncode == 0, (line, out, err)

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What lies in the folder and is no part of git's own, by path."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and ".git" not in path.relative_to(self.folder).parts
        }

    def staged(self, folder: str) -> bytes:
        """What git has of a repository: index, branches and HEAD."""
        return b"".join(
            self.git(*words, folder=folder)
            for words in (("ls-files", "-s"), ("for-each-ref",), ("rev-parse", "HEAD"))
        )

    def left_behind(self) -> list[str]:
        """Temporary files and locks, but for those of a git that fetched packs: a later fetch of
        ours takes them away."""
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if (path.name.startswith(_TEMPORARY) and "/wtxt/objects/" not in path.as_posix())
            or path.name.endswith(".lock")
            or (path.parent.name == "temporary")
        )


def make(folder: Path) -> None:
    """Make the world of which each trial has a copy."""
    world = World(folder)
    for name in ("home/.config", "repo", "files", "temporary"):
        (folder / name).mkdir(parents=True)
    (folder / "home/.gitconfig").write_text(
        "[user]\n\tname = A U Thor\n\temail = author@example.com\n[init]\n\tdefaultBranch = main\n"
        "[maintenance]\n\tauto = false\n[core]\n\tcheckStat = minimal\n\ttrustctime = false\n"
    )
    for key, value in LAUNCHER.values().items():
        world.git("config", "--global", key, value, folder="home")
    repo, files = folder / "repo", folder / "files"
    for number in (1, 2):
        (files / f"{number}.safetensors").write_bytes(model(number))
        shutil.copy(_FOLD / f"pair_zstd3_v{number}.fold", files / f"{number}.fold")
    shutil.copy(_FOLD / "none_rs16_flipped_a.fold", files / "flipped.fold")
    shutil.copy(FIXTURES / "aero/pair_ihsh_phsh_v1.aero", files / "large.aero")
    shutil.copytree(FIXTURES / "aero/aeroset_onepart_a", files / "aeroset")
    _write_tar(files / "train_0.tar")
    _write_encrypted(files)
    filled(files / "exp1", None, count=2)
    _write_key(files / "openssh")
    world.git("init", "-q")
    for example in (repo / ".git/hooks").glob("*.sample"):
        example.unlink()
    (repo / ".gitattributes").write_text(
        "".join(f"{pattern} {ATTRIBUTES}\n" for pattern in ("*.safetensors", "*.fold"))
    )
    world.wtxtgit("key new --name alice --no-passphrase")
    world.wtxtgit("signers add alice@example.com alice")
    for number in (1, 2):
        (repo / MODEL).write_bytes(model(number))
        if number == 1:
            shutil.copy(files / "1.fold", repo / "small.fold")
        world.git("add", ".")
        world.wtxtgit("seal --staged --key alice")
        world.git("commit", "-q", "-m", f"version {number}")
        if number == 1:
            world.git("tag", "root")
    world.git("checkout", "-q", "-b", "topic")
    shutil.copy(files / "2.fold", repo / "small.fold")
    world.git("commit", "-q", "-a", "-m", "topic")
    world.git("checkout", "-q", "main")
    for seed in (1, 2):
        added(Store(repo / ".git/wtxt/store"), weights(40, seed))
    _write_pointer(world)
    _make_detached(world)
    _make_raw(world)
    shutil.copytree(repo, folder / "staged")
    (folder / "staged" / MODEL).write_bytes(model(3))
    world.git("add", MODEL, folder="staged")
    shutil.copytree(repo, folder / "merging")
    shutil.copy(_FOLD / "pair_none_v2.fold", folder / "merging/small.fold")
    world.git("commit", "-q", "-a", "-m", "ours", folder="merging")
    world.start(Call("git merge -q --no-edit topic", folder="merging")).communicate()
    (repo / "changed.safetensors").write_bytes(model(4))
    world.wtxtgit(f"emit {MODEL} -o ../files/model.wtxt")
    world.wtxtgit(f"emit {MODEL} --pending -o ../files/pending.wtxt")
    (files / "pending.wtxt.root.wsum").unlink()
    world.wtxtgit(f"delta make ../files/1.safetensors {MODEL} -o ../files/model.wtxtdelta")
    world.wtxtgit("taridx build ../files/train_0.tar -o ../files/train.taridx")


def _make_detached(world: World) -> None:
    """A repository with payload of which its remote has the older part, and a clone without any."""
    repo = world.folder / "detached"
    remote = ".git/remote.git"
    world.git("init", "-q", "--initial-branch=main", str(repo), folder="home")
    world.git("init", "-q", "--bare", remote, folder="detached")
    world.git("remote", "add", "origin", remote, folder="detached")
    detached = ATTRIBUTES.replace("filter=wtxt", "filter=wtxt-detached")
    (repo / ".gitattributes").write_text(f"*.safetensors {detached}\n")
    for number in (1, 2, 3):
        (repo / MODEL).write_bytes(model(number))
        world.git("add", ".", folder="detached")
        world.git("commit", "-q", "-m", f"version {number}", folder="detached")
        if number == 2:
            world.wtxtgit("push", folder="detached")
            world.git("push", "-q", "origin", "main", folder="detached")
            clone = ("clone", "-q", f"../detached/{remote}", "../lacking")
            world.git(*clone, folder="detached")
            lacking = world.folder / "lacking"
            shutil.rmtree(lacking / ".git/wtxt")
            (lacking / MODEL).write_bytes(
                world.git("cat-file", "blob", f":{MODEL}", folder="lacking")
            )
            world.git("add", ".", folder="lacking")


def _make_raw(world: World) -> None:
    """A repository whose checkpoints are no texts, with a tag, notes and something stashed."""
    repo = world.folder / "raw"
    world.git("init", "-q", str(repo), folder="home")
    for number in (1, 2):
        (repo / MODEL).write_bytes(model(number))
        world.git("add", ".", folder="raw")
        world.git("commit", "-q", "-m", f"version {number}", folder="raw")
    world.git("tag", "-a", "-m", "a tag", "v1", "HEAD~1", folder="raw")
    world.git("notes", "add", "-m", "a note", folder="raw")
    (repo / MODEL).write_bytes(safetensors(1.0))
    world.git("stash", "-q", folder="raw")


def _write_key(file: Path) -> None:
    """An OpenSSH key, as ssh-keygen writes it."""
    key = Ed25519PrivateKey.generate()
    file.touch(mode=0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    file.with_suffix(".pub").write_bytes(public + b"\n")


def _write_encrypted(files: Path) -> None:
    secret, other = (pyrage.x25519.Identity.generate() for _ in range(2))
    (files / "identity").touch(mode=0o600)
    (files / "identity").write_text(f"{secret}\n")
    (files / "recipients").write_text(f"{secret.to_public()}\n")
    (files / "both").write_text(f"{secret.to_public()}\n{other.to_public()}\n")
    text = dumps({"w": np.zeros(_VALUES)})
    encrypted = pyrage.encrypt(text, [secret.to_public()], armored=True)
    (files / "old.wtxt.age").write_bytes(encrypted)


def _write_pointer(world: World) -> None:
    """A tree with a checkpoint as git-lfs keeps it."""
    pointer = world.folder / "files/pointer"
    content = safetensors(*range(40_000))
    pointer.write_bytes(kept_by_lfs(world.folder / "repo/.git/lfs", content)[0])
    blob = world.git("hash-object", "-w", pointer).decode().strip()
    world.git("update-index", "--add", "--cacheinfo", f"100644,{blob},large.safetensors")
    pointer.unlink()
    tree = world.git("write-tree").decode().strip()
    world.git("update-ref", "refs/lfs/tree", tree)
    world.git("reset", "-q")


def _write_tar(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("a.txt", "b.txt"):
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"words"))
