"""What is done in random histories: each a git command, or some that people give together.

A step chooses what it works on by its own random numbers and by what is there, so that a history
still makes sense when other steps are left out. It gives False where there is nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random

from tests.torture.operations.contents import NAMES, changed, ending, is_tracked
from tests.torture.operations.pair import Pair, Violation

Step = Callable[[Pair, Random], bool | None]
STEPS: dict[str, tuple[int, Step]] = {}
"""By name: how often it is taken, and what it does."""
BRANCHES = ("main", "topic", "other", "näher")


def step(weight: int = 2) -> Callable[[Step], Step]:
    def register(done: Step) -> Step:
        STEPS[done.__name__.replace("_", " ")] = weight, done
        return done

    return register


# Files


def present(pair: Pair) -> list[str]:
    """Files of the work tree."""
    return [name for name in pair.plain.names() if name != ".gitattributes"]


def tracked(pair: Pair) -> list[str]:
    listed = pair.plain.git("ls-files", "-z").decode().split("\0")[:-1]
    return sorted(name for name in set(listed) if name != ".gitattributes")


def put(pair: Pair, rng: Random, name: str) -> None:
    file = pair.plain.path / name
    before = file.read_bytes() if file.exists() else b""
    executable = rng.random() < 0.3 if rng.random() < 0.1 else None
    pair.write(name, changed(name, before, rng), executable=executable)


@step(14)
def write(pair: Pair, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        put(pair, rng, rng.choice(NAMES))


@step(3)
def delete(pair: Pair, rng: Random) -> bool:
    names = present(pair)
    if not names:
        return False
    pair.remove(rng.choice(names))
    return True


@step()
def copy(pair: Pair, rng: Random) -> bool:
    """A content that git knows already, at another path."""
    names = [name for name in present(pair) if ending(name) in (".safetensors", ".fold", ".npz")]
    if not names:
        return False
    name = rng.choice(names)
    other = rng.choice([one for one in NAMES if ending(one) == ending(name)])
    pair.write(other, (pair.plain.path / name).read_bytes())
    return True


@step()
def touch(pair: Pair, rng: Random) -> bool:
    names = present(pair)
    if not names:
        return False
    name = rng.choice(names)
    pair.log.append(f"touch {name}")
    for side in pair.sides:
        os.utime(side.path / name, (1_600_000_000 + pair.clock, 1_600_000_000 + pair.clock))
    return True


@step()
def chmod(pair: Pair, rng: Random) -> bool:
    names = present(pair)
    if not names:
        return False
    name = rng.choice(names)
    mode = rng.choice((0o644, 0o755))
    pair.log.append(f"chmod {mode:o} {name}")
    for side in pair.sides:
        (side.path / name).chmod(mode)
    return True


# The index


@step(8)
def add(pair: Pair, rng: Random) -> None:
    names = present(pair)
    how: list[tuple[str, ...]] = [
        ("-A",),
        ("-A",),
        (".",),
        ("-u",),
        ("--renormalize", "."),
        ("-N", "."),
    ]
    if names:
        how += [
            ("--", rng.choice(names)),
            ("--", rng.choice(names)),
            ("-f", "--", rng.choice(names)),
        ]
        how += [("--chmod=+x", "--", rng.choice(names))]
    pair.git("add", *rng.choice(how))


@step(8)
def wtxtgit_add(pair: Pair, rng: Random) -> None:
    names = present(pair)
    how: list[tuple[str, ...]] = [("-A",), ("-A",), (".",), ("-u",)]
    if names:
        how += [("--", rng.choice(names)), ("-f", "--", rng.choice(names))]
    chosen = rng.choice(how)
    pair.wtxtgit("add", *chosen, plain=("add", *chosen), ok=(0, 1, 2, 3, 5))


@step()
def rm(pair: Pair, rng: Random) -> bool:
    names = tracked(pair)
    if not names:
        return False
    pair.git("rm", "-q", *rng.choice(((), ("--cached",), ("-f",))), "--", rng.choice(names))
    return True


@step(3)
def mv(pair: Pair, rng: Random) -> bool:
    names = tracked(pair)
    if not names:
        return False
    name = rng.choice(names)
    others = [one for one in NAMES if ending(one) == ending(name) and one != name]
    if not others:
        return False
    other = rng.choice(others)
    for side in pair.sides:
        (side.path / other).parent.mkdir(parents=True, exist_ok=True)
    pair.git("mv", *rng.choice(((), ("-f",))), "--", name, other)
    return True


@step()
def clean(pair: Pair, rng: Random) -> None:
    pair.git("clean", "-q", rng.choice(("-fd", "-fdx", "-f")))


@step(3)
def restore(pair: Pair, rng: Random) -> bool:
    names = tracked(pair)
    if not names:
        return False
    how = rng.choice(((), ("--staged",), ("--staged", "--worktree"), ("--source=HEAD~1",)))
    pair.git("restore", *how, "--", rng.choice((rng.choice(names), ".")))
    return True


@step(3)
def wtxtgit_checkout(pair: Pair, rng: Random) -> bool:
    """Files that are gone come back: in place of `git checkout`."""
    # Of a file that is only meant to be added git makes an empty one, and wtxtgit none.
    meant = pair.plain.git("diff", "--name-only", "--diff-filter=A", "-z").decode().split("\0")
    names = [name for name in present(pair) if name in tracked(pair) and name not in meant]
    if not names:
        return False
    gone = rng.sample(names, min(len(names), 3))
    for name in gone:
        pair.log.append(f"rm {name}")
        for side in pair.sides:
            (side.path / name).unlink()
    staged = [name for name in gone if is_tracked(name)]
    others = [name for name in gone if not is_tracked(name)]
    if others:
        pair.git("checkout", "--", *others)
    if staged:
        pair.wtxtgit("checkout", "--", *staged, plain=("checkout", "--", *staged), ok=(0, 1))
    return True


@step()
def wtxtgit_status(pair: Pair, rng: Random) -> None:
    pair.wtxtgit("status", *rng.choice(((), ("--no-cache",))), ok=(0, 1))


# Commits


@step(12)
def commit(pair: Pair, rng: Random) -> None:
    names = tracked(pair)
    how: list[tuple[str, ...]] = [(), (), ("-a",), ("-a",), ("--allow-empty",)]
    how += [("--amend",), ("--amend", "-a", "--no-edit")]
    if names:
        how += [("--", rng.choice(names)), ("-i", "--", rng.choice(names))]
    options, paths = [], rng.choice(how)
    pair.git("commit", "-q", "-m", f"commit {pair.clock}", *options, *paths) if (
        "--no-edit" not in paths
    ) else pair.git("commit", "-q", *paths)


@step(10)
def commit_all(pair: Pair, rng: Random) -> None:
    put(pair, rng, rng.choice(NAMES))
    if rng.random() < 0.5:
        pair.git("add", "-A")
    else:
        pair.wtxtgit("add", "-A", plain=("add", "-A"), ok=(0, 1))
    pair.git("commit", "-q", "-m", f"commit {pair.clock}")


def revisions(pair: Pair) -> list[str]:
    listed = pair.plain.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
    names = listed.decode().split()
    return ["HEAD", "HEAD~1", "HEAD~2", "HEAD^2", *names, *(f"{name}~1" for name in names)]


@step(6)
def checkout(pair: Pair, rng: Random) -> None:
    how = [("-q", "-B", rng.choice(BRANCHES)), ("-q", "-f", rng.choice(BRANCHES))]
    how += [("-q", rng.choice(BRANCHES)), ("-q", rng.choice(BRANCHES)), ("-q", "--detach")]
    how += [("-q", rng.choice(revisions(pair)), "--", ".")]
    how += [("-q", rng.choice(revisions(pair)), "--", rng.choice(NAMES))]
    pair.git("checkout", *rng.choice(how))


@step(5)
def switch(pair: Pair, rng: Random) -> None:
    how = [("-C", rng.choice(BRANCHES)), ("-",), ("--detach", rng.choice(revisions(pair)))]
    how += [(rng.choice(BRANCHES),), ("--discard-changes", rng.choice(BRANCHES))]
    how += [("-m", rng.choice(BRANCHES))]
    pair.git("switch", "-q", *rng.choice(how))
    settle(pair, rng, ())


@step()
def branch(pair: Pair, rng: Random) -> None:
    name = rng.choice(BRANCHES[1:])
    pair.git(
        "branch", *rng.choice((("-D", name), (name,), ("-f", name, rng.choice(revisions(pair)))))
    )


@step(1)
def tag(pair: Pair, rng: Random) -> None:
    pair.git("tag", "-f", f"v{rng.randrange(4)}", rng.choice(revisions(pair)))


@step(4)
def reset(pair: Pair, rng: Random) -> None:
    how = rng.choice(("--soft", "--mixed", "--hard", "--hard", "--keep", "--merge"))
    pair.git(
        "reset", "-q", how, rng.choice(("HEAD", "HEAD~1", "HEAD~2", rng.choice(revisions(pair))))
    )


@step(6)
def stash(pair: Pair, rng: Random) -> None:
    ways = ("push -q", "push -q -u", "push -q -k", "push -q -a", "pop -q",
            "pop -q", "pop -q --index", "apply -q", "drop -q", "branch stashed")  # fmt: skip
    how = rng.choice((*map(str.split, ways), ["push", "-q", "--", rng.choice(NAMES)]))
    pair.git("stash", *how)
    settle(pair, rng, ())
    if how[0] == "branch":
        pair.git("switch", "-q", rng.choice(BRANCHES))
        pair.git("branch", "-q", "-D", "stashed")


# Bringing branches together


def unmerged(pair: Pair) -> dict[str, set[str]]:
    """The stages of each path in conflict, which are the same on both sides."""
    found: list[dict[str, set[str]]] = []
    for side in pair.sides:
        stages: dict[str, set[str]] = {}
        for line in side.git("ls-files", "-u", "-z").decode().split("\0")[:-1]:
            about, _, path = line.partition("\t")
            stages.setdefault(path, set()).add(about.split()[2])
        found.append(stages)
    if found[0] != found[1]:
        raise Violation(f"in conflict are {found[0]}, in plain git {found[1]}")
    return found[0]


def settle(pair: Pair, rng: Random, goes_on: Sequence[str]) -> None:
    """Settle conflicts, or take all back."""
    for _ in range(12):
        conflicts = unmerged(pair)
        if conflicts:
            pair.counts["conflicts settled"] += 1
            pair.check()
        if goes_on and rng.random() < 0.15:
            pair.git(goes_on[0], "--abort")
            return
        for path, stages in conflicts.items():
            settle_path(pair, rng, path, stages)
        if not goes_on or not is_under_way(pair):
            return
        code = pair.git(*goes_on)
        if code and not unmerged(pair):
            if goes_on[0] == "merge":
                return
            # What has become empty.
            pair.git(goes_on[0], "--skip")
    pair.git(goes_on[0], "--abort")


def settle_path(
    pair: Pair, rng: Random, path: str, stages: set[str], *, keep: bool = False
) -> None:
    """Take a side; of one that is gone on the other side `keep` it, or not."""
    sides = [side for stage, side in (("2", "--ours"), ("3", "--theirs")) if stage in stages]
    if not sides or (len(sides) == 1 and not keep and rng.random() < 0.5):
        pair.git("rm", "-q", "--sparse", "--", path)
    elif len(sides) == 2 and is_tracked(path) and rng.random() < 0.4 and resolve(pair, rng, path):
        content = (pair.filtered.path / path).read_bytes()
        pair.log.append(f"# plain git takes what was resolved, {len(content)} bytes")
        mode = (pair.filtered.path / path).stat().st_mode
        pair.plain.write(path, content).chmod(mode)
        pair.plain.git("add", "--sparse", "--", path)
    else:
        pair.git("checkout", "-q", rng.choice(sides), "--", path)
        pair.git("add", "--sparse", "--", path)


def resolve(pair: Pair, rng: Random, path: str) -> bool:
    """Whether `wtxtgit resolve` settles a path: not where the file was changed before the merge."""
    strategy = rng.choice(("ours", "theirs"))
    done = pair.wtxtgit("resolve", "--strategy", strategy, "--", path, ok=(0, 1))
    if done.returncode and b"changed since the merge" not in done.stderr:
        raise Violation(f"wtxtgit resolve: {done.stderr.decode()}")
    return not done.returncode


_UNDER_WAY = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
)


def is_under_way(pair: Pair) -> bool:
    return any((pair.plain.path / ".git" / name).exists() for name in _UNDER_WAY)


@step(8)
def merge(pair: Pair, rng: Random) -> None:
    ways = ("--no-edit", "--no-edit --no-ff", "--ff-only", "--squash", "--no-edit -s ours",
            "--no-edit -Xfind-renames=100%", "--no-commit --no-ff",
            "--no-edit --autostash")  # fmt: skip
    pair.git("merge", "-q", *rng.choice(ways).split(), rng.choice(BRANCHES))
    settle(pair, rng, ("merge", "--continue"))


@step(5)
def cherry_pick(pair: Pair, rng: Random) -> None:
    name = rng.choice(BRANCHES)
    how = rng.choice(((name,), (f"{name}~1",), (f"{name}~2..{name}",), ("-n", name), ("-m1", name)))
    pair.git("cherry-pick", *how)
    settle(pair, rng, ("cherry-pick", "--continue"))


@step(4)
def revert(pair: Pair, rng: Random) -> bool:
    how = rng.choice((("HEAD",), ("HEAD~1",), ("-n", "HEAD"), ("-m1", "HEAD"), ("HEAD~2..HEAD",)))
    # Without its attributes git's answers are of another kind.
    if not pair.plain.run("git", "rev-parse", "-q", "--verify", "HEAD~2", ok=(0, 1)).stdout:
        return False
    pair.git("revert", "--no-edit", *how)
    settle(pair, rng, ("revert", "--continue"))
    return True


@step(5)
def rebase(pair: Pair, rng: Random) -> None:
    name = rng.choice(BRANCHES)
    how = rng.choice((
        (name,), (name,), ("--autostash", name), ("--onto", name, "HEAD~2"),
        ("--rebase-merges", name), ("--root", "--onto", name), ("-f", "HEAD~2"),
    ))  # fmt: skip
    pair.git("rebase", "-q", *how)
    settle(pair, rng, ("rebase", "--continue"))
