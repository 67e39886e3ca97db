"""Steps in other repositories and work trees, with archives and patches, and of the set-up."""

from __future__ import annotations

import io
import shutil
import tarfile
from random import Random

from tests.torture.operations.contents import NAMES, changed
from tests.torture.operations.pair import Pair, Side, Violation
from tests.torture.operations.steps import BRANCHES, STEPS, commit_all, revisions, settle, step

__all__ = ["STEPS", "others", "same_tree"]

# Other repositories


@step()
def push(pair: Pair, rng: Random) -> None:
    how = rng.choice(((), ("-f",), ("--tags",)))
    pair.git("push", "-q", *how, "origin", rng.choice(BRANCHES))


@step()
def pull(pair: Pair, rng: Random) -> None:
    how = rng.choice(("--ff-only", "--no-rebase", "--rebase"))
    pair.git("pull", "-q", "--no-edit", how, "origin", rng.choice(BRANCHES))
    settle(pair, rng, ("rebase" if how == "--rebase" else "merge", "--continue"))


@step()
def fetch(pair: Pair, rng: Random) -> None:
    pair.git("fetch", "-q", *rng.choice(((), ("--prune",), ("--all",))), "origin")


def others(pair: Pair) -> tuple[Side, Side]:
    """Places for two other repositories."""
    places = [side.at(pair.top / f"other-{side.path.name}") for side in pair.sides]
    for side in places:
        shutil.rmtree(side.path, ignore_errors=True)
    return places[0], places[1]


def same_tree(pair: Pair, filtered: Side, plain: Side, what: str) -> None:
    """Two other work trees have the same files, and nothing to be committed."""
    pair.check_files(filtered, plain)
    told = filtered.git("status", "--porcelain")
    if told:
        raise Violation(f"{what}: git status tells {told!r}")


@step(3)
def clone(pair: Pair, rng: Random) -> None:
    """A clone has the same files, and brings a commit back."""
    filtered, plain = others(pair)
    how = rng.choice(((), ("--depth=1",), ("--filter=blob:none",), ("--no-hardlinks",), ("text",)))
    options = [word for word in how if word != "text"]
    env = {"WTXTGIT_SKIP_SMUDGE": "1"} if how == ("text",) else {}
    for side, made in zip(pair.sides, (filtered, plain), strict=True):
        side.git("config", "uploadpack.allowFilter", "true")
        side.git("clone", "-q", *options, "--", f"file://{side.path}", str(made.path), env=env)
    pair.log.append(f"git clone {' '.join(how)}")
    if env:
        from tests.kit import LAUNCHER

        filtered.run(*LAUNCHER.arguments, "checkout")
    same_tree(pair, filtered, plain, "in a clone")
    if how == ("--depth=1",) or rng.random() < 0.5:
        return
    name = rng.choice(NAMES)
    content = changed(name, b"", rng)
    pair.tick()
    for side, made in zip(pair.sides, (filtered, plain), strict=True):
        made.write(name, content)
        made.git("add", "-f", "--", name)
        made.git("commit", "-q", "--allow-empty", "-m", f"cloned {pair.clock}")
        side.git("fetch", "-q", "-f", str(made.path), "HEAD:refs/heads/cloned")
    pair.log.append(f"write {name} in the clone; git commit; git fetch it as cloned")
    pair.git("merge", "-q", "--no-edit", "cloned")
    settle(pair, rng, ("merge", "--continue"))


@step(1)
def bundle(pair: Pair, rng: Random) -> None:
    filtered, plain = others(pair)
    for side, made in zip(pair.sides, (filtered, plain), strict=True):
        file = str(pair.top / f"{side.path.name}.bundle")
        side.git("bundle", "create", "-q", file, "--branches", "HEAD")
        side.git("bundle", "verify", "-q", file)
        side.git("clone", "-q", file, str(made.path))
    pair.log.append("git bundle create; git clone of it")
    same_tree(pair, filtered, plain, "in a clone of a bundle")


@step()
def worktree(pair: Pair, rng: Random) -> None:
    """Another work tree, in which something is committed."""
    filtered, plain = others(pair)
    revision, name = rng.choice(revisions(pair)), rng.choice(NAMES)
    content = changed(name, b"", rng)
    pair.log.append(f"git worktree add --detach {revision}; write {name}; git commit -a")
    pair.tick()
    added = [
        side.run(
            *["git", "worktree", "add", "-q", "--detach"], str(made.path), revision, ok=range(256)
        )
        for side, made in zip(pair.sides, (filtered, plain), strict=True)
    ]
    codes = [done.returncode for done in added]
    if codes[0] != codes[1]:
        raise Violation(f"git worktree add ends with {codes}")
    if codes[0]:
        return
    same_tree(pair, filtered, plain, "in a work tree")
    for side, made in zip(pair.sides, (filtered, plain), strict=True):
        made.write(name, content)
        made.git("add", "-f", "--sparse", "--", name)
        made.git("commit", "-q", "--allow-empty", "-m", f"beside {pair.clock}")
        made.git("tag", "-f", "beside")
        side.git("worktree", "remove", "--force", str(made.path))


@step()
def sparse_checkout(pair: Pair, rng: Random) -> None:
    # Without its attributes git merges a file by no driver.
    some = ("set", "--no-cone", "/.gitattributes", "/*.safetensors", "/sub/")
    how = rng.choice((("set", "--cone", "sub"), some,
                      ("disable",), ("disable",), ("disable",), ("reapply",)))  # fmt: skip
    pair.git("sparse-checkout", *how)


@step()
def gc(pair: Pair, rng: Random) -> None:
    how = rng.choice((("gc", "-q"), ("gc", "-q", "--prune=now"), ("repack", "-q", "-a", "-d", "-f"),
                      ("prune",), ("pack-refs", "--all"), ("maintenance", "run", "--quiet"),
                      ("update-index", "--refresh", "-q"), ("fsck", "--no-progress")))  # fmt: skip
    pair.git(*how)


# Archives and patches


@step()
def archive(pair: Pair, rng: Random) -> None:
    found = []
    # Over the threshold git runs no filter.
    command = ("-c", "core.bigFileThreshold=512m", "archive", "HEAD")
    pair.log.append(f"git {' '.join(command)}")
    for side in pair.sides:
        with tarfile.open(fileobj=io.BytesIO(side.git(*command))) as tar:
            members = [(one, tar.extractfile(one)) for one in tar.getmembers()]
            found.append([(one.name, one.mode, file and file.read()) for one, file in members])
    if found[0] != found[1]:
        different = [a[0] for a, b in zip(*found, strict=False) if a != b]
        raise Violation(f"git archive has another {different or 'list of files'}")


@step()
def patch(pair: Pair, rng: Random) -> bool:
    """What the last commit changed, as a patch that is taken back and applied."""
    if pair.plain.git("status", "--porcelain"):
        return False
    kind = rng.choice(("apply", "apply --index", "am"))
    pair.log.append(f"a patch of HEAD; git reset --hard HEAD~1; git {kind} it")
    if pair.plain.run("git", "rev-parse", "-q", "--verify", "HEAD^2", ok=(0, 1)).stdout:
        return False
    if not pair.plain.run("git", "rev-parse", "-q", "--verify", "HEAD^1", ok=(0, 1)).stdout:
        return False
    if not pair.plain.git("diff", "--raw", "HEAD~1", "HEAD"):
        return False
    patches = []
    for side in pair.sides:
        options = ("--binary", "--full-index")
        made = (
            side.git("format-patch", "-1", "--stdout", *options)
            if kind == "am"
            else side.git("diff", "--no-ext-diff", *options, "HEAD~1", "HEAD")
        )
        patches.append(made)
    pair.git("reset", "-q", "--hard", "HEAD~1", ok=(0,))
    codes = [
        side.run("git", *kind.split(), stdin=patch, ok=range(256)).returncode
        for side, patch in zip(pair.sides, patches, strict=True)
    ]
    if codes[0] != codes[1]:
        raise Violation(f"git {kind} ends with {codes[0]}, plain git's with {codes[1]}")
    return True


# The set-up


@step()
def config(pair: Pair, rng: Random) -> None:
    key, value = rng.choice((
        ("core.autocrlf", "true"), ("core.autocrlf", "input"), ("core.autocrlf", "false"),
        ("core.eol", "crlf"), ("core.eol", "native"), ("core.splitIndex", "true"),
        ("core.splitIndex", "false"), ("core.untrackedCache", "true"), ("index.version", "4"),
        ("core.fileMode", "true"), ("core.checkStat", "minimal"), ("core.trustctime", "false"),
        ("core.bigFileThreshold", "1k"), ("core.bigFileThreshold", "512m"),
        ("merge.conflictStyle", "diff3"), ("core.preloadIndex", "false"), ("core.fsync", "all"),
        ("checkout.workers", "2"), ("feature.manyFiles", "true"), ("core.compression", "0"),
    ))  # fmt: skip
    pair.git("config", key, value)


@step(1)
def reinstall(pair: Pair, rng: Random) -> bool:
    """Without wtxtgit another branch is checked out; then it is set up again."""
    if pair.plain.git("status", "--porcelain", "--ignored"):
        return False
    branch = rng.choice(BRANCHES)
    pair.wtxtgit("uninstall")
    pair.tick()
    pair.log.append(f"git checkout {branch}  # without the filter")
    done = pair.filtered.run("git", "checkout", "-q", branch, ok=range(256))
    pair.wtxtgit("install")
    if not done.returncode:
        pair.plain.git("checkout", "-q", branch)
    return True


@step(1)
def untrack(pair: Pair, rng: Random) -> bool:
    """On a commit of its own, which nothing is merged with, a pattern is plain files for once."""
    if pair.plain.git("status", "--porcelain", "--ignored") or _is_sparse(pair):
        return False
    pattern = rng.choice(("*.npz", "*.safetensors", "*.fold"))
    pair.git("switch", "-q", "--detach", ok=(0,))
    for word in ("untrack", "track"):
        pair.wtxtgit(word, pattern)
        pair.plain.write(".gitattributes", (pair.filtered.path / ".gitattributes").read_bytes())
        pair.git("add", "-A", "--", ".gitattributes", ok=(0,))
        pair.git("add", "--renormalize", "--", ".", ok=(0,))
        pair.git("commit", "-q", "--allow-empty", "-m", f"{word} {pair.clock}", ok=(0,))
        if word == "untrack":
            listed = pair.filtered.entries("ls-tree", "-r", "-z", "HEAD").values()
            pair.unfiltered |= {oid for _, oid in listed}
            pair.git("tag", "-f", "untracked", ok=(0,))
        pair.check()
    pair.git("checkout", "-q", "untracked", ok=(0,))
    pair.check()
    pair.git("switch", "-q", rng.choice(BRANCHES[:1]), ok=(0,))
    pair.git("tag", "-d", "untracked", ok=(0,))
    return True


def _is_sparse(pair: Pair) -> bool:
    done = pair.plain.run("git", "config", "core.sparseCheckout", ok=(0, 1))
    return done.stdout.strip() == b"true"


@step(1)
def attributes(pair: Pair, rng: Random) -> None:
    """Lines that change nothing for checkpoints, in a commit."""
    line = rng.choice(("*.txt text\n", "*.txt -text\n", "*.sh eol=lf\n", "*.bin binary\n"))
    file = pair.plain.path / ".gitattributes"
    before = file.read_bytes() if file.exists() else b""
    if not before:
        return
    pair.write(".gitattributes", before.rstrip(b"\n") + b"\n" + line.encode())
    commit_all(pair, rng)
