"""Steps of histories in which checkpoints are sealed, by people who keep to the rules.

No audit of theirs is red, but for what others committed past the rules (`bypasses.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from random import Random

from tests.kit import LAUNCHER
from tests.torture.operations import steps as plain_steps
from tests.torture.operations.contents import NAMES, ending, is_tracked
from tests.torture.operations.pair import Pair, Violation
from tests.torture.operations.steps import BRANCHES, Step, put, settle_path, unmerged

SEALED: dict[str, tuple[int, Step]] = {}
ROOT = "root"
LEDGER = ".wsum"
SIGNERS = ".wtxt/signers"


def step(weight: int = 2) -> Callable[[Step], Step]:
    def register(done: Step) -> Step:
        SEALED[f"sealed: {done.__name__.replace('_', ' ')}"] = weight, done
        return done

    return register


def prepare(pair: Pair) -> None:
    """Give the repositories a signer, a key that nobody trusts, hooks, and a trust root."""
    wtxtgit = pair.filtered.run
    for name in ("alice", "bob", "mallory"):
        wtxtgit(*LAUNCHER.arguments, "key", "new", "--name", name, "--no-passphrase")
    wtxtgit(*LAUNCHER.arguments, "signers", "add", "alice@example.com", "alice")
    pair.filtered.git("config", "wtxtgit.signingKey", "alice")
    wtxtgit(*LAUNCHER.arguments, "install", "--local", "--hooks")
    pair.filtered.git("add", "-A")
    commit(pair, "seal", "--staged")
    pair.filtered.git("config", "wtxtgit.trustRoot", ROOT)
    for side in pair.sides:
        side.git("tag", ROOT)
        for branch in BRANCHES[1:]:
            side.git("branch", "-f", branch)
        side.git("push", "-q", "origin", "main")


def is_ledger(name: str) -> bool:
    return name.endswith(LEDGER) or name.startswith(".wtxt/")


def sync(pair: Pair) -> None:
    """Give plain git the ledgers that wtxtgit has staged."""
    listed = [side.entries("ls-files", "-s", "-z") for side in pair.sides]
    for key in sorted(listed[0].keys() | listed[1].keys()):
        name = os.fsdecode(key[2:])
        if not is_ledger(name) or listed[0].get(key) == listed[1].get(key):
            continue
        if b"0 " + key[2:] in listed[0]:
            pair.plain.write(name, pair.filtered.git("cat-file", "blob", f":{name}"))
            pair.plain.git("add", "-f", "--", f":(literal){name}")
        else:
            pair.plain.git("rm", "-q", "-f", "--ignore-unmatch", "--", f":(literal){name}")


def commit(pair: Pair, *seal: str, options: tuple[str, ...] = ()) -> None:
    """Seal and commit; the hook has nothing to say."""
    if seal:
        pair.wtxtgit(*seal)
    sync(pair)
    pair.git("commit", "-q", *(options or ("--allow-empty", "-m", f"commit {pair.clock}")), ok=(0,))


def checkpoints(pair: Pair) -> list[str]:
    """Sealed files of the index."""
    listed = pair.plain.git("ls-files", "-z").decode().split("\0")[:-1]
    return sorted(name for name in listed if f"{name}{LEDGER}" in listed and name != SIGNERS)


def audit(pair: Pair, base: str = ROOT, *options: str) -> None:
    """One of the commits after `base` tells all that passed by a rule there, and nothing else."""
    command = (*LAUNCHER.arguments, "audit", "--json", *options, f"{base}..HEAD")
    told = pair.filtered.run(*command, ok=range(256))
    found = {
        (one["commit"], one["path"], one["kind"])
        for one in json.loads(told.stdout or b'{"findings": []}')["findings"]
        if one["severity"] == "error"
    }
    line = pair.filtered.git("rev-list", "--first-parent", f"{base}..HEAD").decode().split()
    wanted = {(oid, *finding) for oid in line for finding in pair.bypassed.get(oid, ())}
    if found != wanted:
        raise Violation(
            f"the audit lacks {sorted(wanted - found)}, and has {sorted(found - wanted)}: "
            f"{told.stderr.decode()[-200:]}"
        )
    if bool(told.returncode) != bool(wanted):
        raise Violation(f"the audit ends with {told.returncode}")


# What people do who keep to the rules


@step(10)
def generation(pair: Pair, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        put(pair, rng, rng.choice([name for name in NAMES if is_tracked(name)]))
    pair.git("add", "-A", ok=(0,))
    commit(pair, "seal", "--staged")


@step()
def seal_by_the_hook(pair: Pair, rng: Random) -> None:
    put(pair, rng, rng.choice([name for name in NAMES if is_tracked(name)]))
    pair.git("add", "-A", ok=(0,))
    pair.log.append("git -c wtxtgit.autoSeal=true commit")
    done = pair.filtered.run(
        "git", "-c", "wtxtgit.autoSeal=true", "commit", "-q", "--allow-empty", "-m",
        f"commit {pair.clock}",
    )  # fmt: skip
    del done
    sync(pair)
    pair.plain.git("commit", "-q", "--allow-empty", "-m", f"commit {pair.clock}")


@step()
def amend(pair: Pair, rng: Random) -> bool:
    if _is_bypassed(pair, "HEAD") or _is(pair, "HEAD", ROOT):
        return False
    put(pair, rng, rng.choice(checkpoints(pair) or [NAMES[0]]))
    pair.git("add", "-A", ok=(0,))
    commit(
        pair,
        "seal",
        "--staged",
        options=("--amend", "--allow-empty", "-m", f"amended {pair.clock}"),
    )
    return True


@step()
def move(pair: Pair, rng: Random) -> bool:
    names = checkpoints(pair)
    if not names:
        return False
    name = rng.choice(names)
    listed = pair.plain.git("ls-files", "-z").decode().split("\0")
    others = [
        one for one in NAMES
        if ending(one) == ending(name) and one not in listed and f"{one}{LEDGER}" not in listed
    ]  # fmt: skip
    if not others:
        return False
    other = rng.choice(others)
    for side in pair.sides:
        (side.path / other).parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", LEDGER):
        pair.git("mv", "--", name + suffix, other + suffix, ok=(0,))
    commit(pair, "seal", "--staged")
    return True


@step()
def delete(pair: Pair, rng: Random) -> bool:
    names = checkpoints(pair)
    if not names:
        return False
    name = rng.choice(names)
    pair.git("rm", "-q", "--", f":(literal){name}", ok=(0,))
    commit(pair, *rng.choice((("seal", "--staged", "--", name), ())))
    return True


@step()
def signers(pair: Pair, rng: Random) -> None:
    is_there = b"bob@example.com" in (pair.filtered.path / SIGNERS).read_bytes()
    pair.wtxtgit("signers", *(("remove",) if is_there else ("add",)), "bob@example.com",
                 *(() if is_there else ("bob",)))  # fmt: skip
    pair.filtered.git("add", "--", SIGNERS)
    commit(pair, "seal", "--staged")


@step(6)
def switch(pair: Pair, rng: Random) -> None:
    pair.git(
        "switch",
        "-q",
        *rng.choice((("-C", rng.choice(BRANCHES)), (rng.choice(BRANCHES),))),
        ok=(0,),
    )


@step(1)
def reset(pair: Pair, rng: Random) -> None:
    pair.git("reset", "-q", "--hard", rng.choice((*BRANCHES, ROOT)), ok=(0,))


@step()
def stash(pair: Pair, rng: Random) -> None:
    put(pair, rng, rng.choice(NAMES))
    pair.git("add", "-A", ok=(0,))
    pair.git("stash", "push", "-q")
    pair.git("stash", "pop", "-q", "--index")
    commit(pair, "seal", "--staged")


def _gone(pair: Pair) -> list[str]:
    """What is deleted together with its ledger, which has to be sealed by its name."""
    listed = pair.filtered.git("ls-files", "-z").decode().split("\0")
    before = pair.filtered.git("ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")
    names = [name.removesuffix(LEDGER) for name in before if name.endswith(LEDGER)]
    return [name for name in names if name not in listed and name + LEDGER not in listed]


def settle(pair: Pair, rng: Random, goes_on: tuple[str, ...]) -> None:
    """Settle files, then ledgers, and go on, as the pages say."""
    for _ in range(12):
        for path, stages in unmerged(pair).items():
            if not is_ledger(path):
                settle_path(pair, rng, path, stages, keep=True)
        pair.wtxtgit("seal", "--reseal")
        gone = _gone(pair)
        if gone:
            pair.wtxtgit("seal", "--reseal", "--", *gone)
        sync(pair)
        code = pair.git(*goes_on)
        if not code:
            return
        if not unmerged(pair):
            if goes_on[0] == "commit":
                raise Violation(f"git {' '.join(goes_on)} ends with {code}, no conflict being left")
            pair.git(goes_on[0], "--skip")
            if not plain_steps.is_under_way(pair):
                return
    raise Violation("does not end")


@step(6)
def merge(pair: Pair, rng: Random) -> None:
    how = rng.choice((("--no-ff", "--no-commit"), ("--no-ff", "--no-commit"), ("--squash",)))
    pair.git("merge", "-q", *how, rng.choice(BRANCHES))
    settle(pair, rng, ("commit", "-q", "--allow-empty", "-m", f"merged {pair.clock}"))


@step(3)
def merge_at_once(pair: Pair, rng: Random) -> None:
    """A merge that git commits by itself, past the hook that looks at it."""
    if pair.git("merge", "-q", "--no-edit", rng.choice(BRANCHES)):
        settle(pair, rng, ("commit", "-q", "--allow-empty", "-m", f"merged {pair.clock}"))


@step(3)
def cherry_pick(pair: Pair, rng: Random) -> bool:
    name = rng.choice(BRANCHES)
    if _is_bypassed(pair, name) or _is(pair, name, ROOT) or _is_merge(pair, name):
        return False
    pair.git("cherry-pick", "-n", name)
    settle(pair, rng, ("commit", "-q", "--allow-empty", "-m", f"picked {pair.clock}"))
    return True


@step(3)
def revert(pair: Pair, rng: Random) -> bool:
    if _is_bypassed(pair, "HEAD") or _is(pair, "HEAD", ROOT) or _is_merge(pair, "HEAD"):
        return False
    pair.git("revert", "-n", "HEAD")
    settle(pair, rng, ("commit", "-q", "--allow-empty", "-m", f"reverted {pair.clock}"))
    return True


@step(3)
def rebase(pair: Pair, rng: Random) -> bool:
    name = rng.choice(BRANCHES)
    if _is_bypassed(pair, f"{name}..HEAD"):
        return False
    if pair.git("rebase", "-q", name):
        settle(pair, rng, ("rebase", "--continue"))
    return True


@step()
def push(pair: Pair, rng: Random) -> None:
    """The hook audits what is pushed."""
    name = rng.choice(BRANCHES)
    target = rng.choice(BRANCHES)
    pair.log.append(f"git push origin {name}:{target}")
    plain = pair.plain.run("git", "push", "-q", "origin", f"{name}:{target}", ok=range(256))
    command = ("git", "push", "-q", "origin", f"{name}:{target}")
    bypassed = _is_bypassed(pair, f"{ROOT}..{name}")
    done = pair.filtered.run(*command, ok=range(256))
    if done.returncode and not plain.returncode and bypassed:
        done = pair.filtered.run(*command, "--no-verify", ok=range(256))
    if bool(done.returncode) != bool(plain.returncode):
        raise Violation(f"git push ends with {done.returncode}: {done.stderr.decode()[-300:]}")


@step(1)
def clone(pair: Pair, rng: Random) -> None:
    from tests.torture.operations.steps_elsewhere import others, same_tree

    places = others(pair)
    for side, made in zip(pair.sides, places, strict=True):
        side.git("clone", "-q", str(side.path), str(made.path))
    same_tree(pair, *places, "in a clone")
    told = places[0].run(
        *LAUNCHER.arguments, "audit", "--trust-root", ROOT, "--no-cache", ok=(0, 1, 4)
    )
    if bool(told.returncode) != _is_bypassed(pair, f"{ROOT}..HEAD", first_parents=True):
        raise Violation(f"in a clone the audit ends with {told.returncode}")


# What is asked of commits


def head(pair: Pair) -> str:
    return pair.filtered.git("rev-parse", "HEAD").decode().strip()


def _is(pair: Pair, revision: str, other: str) -> bool:
    first, second = pair.plain.git("rev-parse", f"{revision}^0", f"{other}^0").split()
    return first == second


def _is_merge(pair: Pair, revision: str) -> bool:
    return bool(
        pair.plain.run("git", "rev-parse", "-q", "--verify", f"{revision}^2", ok=(0, 1)).stdout
    )


def _is_bypassed(pair: Pair, revisions: str, *, first_parents: bool = False) -> bool:
    """Whether a commit, or one of a range, passed by a rule or mended that."""
    options = ["--first-parent"] if first_parents else []
    if ".." not in revisions:
        options += ["-n1"]
    subjects = pair.filtered.git("log", "--format=%s", *options, revisions).decode().split("\n")
    return any(subject.startswith(("past ", "after ", "mended ")) for subject in subjects)
