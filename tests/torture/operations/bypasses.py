"""Commits that pass by a rule on purpose: what an audit tells of them, and of nothing else.

Told is each at its commit, and at the tip where the commit itself is not looked at. Then it is
taken back, or mended in a commit of its own, of which nothing is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tests.e2e import hostile
from tests.kit import LAUNCHER, text_of
from tests.torture.operations.contents import changed
from tests.torture.operations.pair import Pair
from tests.torture.operations.sealed import (
    LEDGER,
    SEALED,
    SIGNERS,
    audit,
    checkpoints,
    head,
    sync,
)
from wtxtgit.text import ledger as text_ledger

Bypass = Callable[[Pair, Random, str], set[tuple[str, str]] | None]
"""Stages what no rule allows, and gives path and kind of all that an audit has to tell of it."""


def bypass(done: Bypass) -> Bypass:
    name = f"past the rules: {done.__name__.replace('_', ' ')}"
    SEALED[name] = 1, lambda pair, rng: pass_by(pair, rng, done)
    return done


def pass_by(pair: Pair, rng: Random, stage: Bypass) -> bool:
    """Commit it; see that it is told; then take it back, or mend it in a commit of its own."""
    names = [name for name in checkpoints(pair) if (pair.plain.path / name).read_bytes()]
    if not names:
        return False
    side = pair.filtered
    before = side.git("rev-parse", "HEAD").decode().strip()
    wanted = stage(pair, rng, rng.choice(names))
    if wanted is None:
        side.git("reset", "-q", "--hard", before)
        return False
    pair.tick()
    past, after, mended = (f"{word} {pair.clock}" for word in ("past", "after", "mended"))
    side.git("commit", "-q", "--no-verify", "-m", past)
    pair.log.append("git commit --no-verify")
    pair.bypassed[head(pair)] = frozenset(wanted)
    audit(pair)
    if rng.random() < 0.5:
        side.git("reset", "-q", "--hard", before)
        pair.log.append("git reset --hard HEAD~1")
        return True
    side.git("commit", "-q", "--no-verify", "--allow-empty", "-m", after)
    pair.log.append("git commit --no-verify --allow-empty")
    # As a change it is told of the first commit; of the tip where nobody looks at that.
    audit(pair)
    pair.bypassed[head(pair)] = frozenset(wanted)
    audit(pair, "HEAD~1")
    del pair.bypassed[head(pair)]
    side.git("read-tree", "-u", "--reset", before)
    side.run(*LAUNCHER.arguments, "seal", "--reseal")
    side.git("commit", "-q", "--allow-empty", "-m", mended)
    pair.log.append("git read-tree -u --reset HEAD~2; wtxtgit seal --reseal; git commit")
    audit(pair, "HEAD~1", "--no-cache")
    for message in (past, after):
        pair.plain.git("commit", "-q", "--allow-empty", "-m", message)
    sync(pair)
    pair.plain.git("commit", "-q", "--allow-empty", "-m", mended)
    return True


def _staged(pair: Pair, name: str) -> bytes:
    return pair.filtered.git("cat-file", "blob", f":{name}")


def _stage(pair: Pair, name: str, blob: bytes) -> None:
    pair.log.append(f"git update-index --cacheinfo  # {name}, {len(blob)} bytes")
    hostile.stage(pair.filtered, name, blob)
    # The work tree as a checkout would have it.
    (pair.filtered.path / name).unlink(missing_ok=True)
    pair.filtered.run("git", "checkout", "-q", "--", f":(literal){name}")


def _other(pair: Pair, rng: Random, name: str) -> bytes:
    """Another text for a checkpoint."""
    while True:
        content = changed(name, (pair.plain.path / name).read_bytes(), rng)
        if content:
            return text_of(content)


@bypass
def unsealed_content(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    _stage(pair, name, _other(pair, rng, name))
    return {(name, "content-mismatch")}


@bypass
def new_file(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    _stage(pair, "unsealed.safetensors", _other(pair, rng, name))
    return {("unsealed.safetensors", "unsealed")}


@bypass
def raw_binary(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    content = (pair.plain.path / name).read_bytes()
    hostile.stage(pair.filtered, name, content)
    return {(name, "raw-binary")}


@bypass
def edited_blob(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    text = bytearray(_staged(pair, name))
    at = rng.randrange(text.index(b"\narr ") if b"\narr " in text else 10, len(text) - 1)
    text[at] = ord("A") if text[at] != ord("A") else ord("B")
    _stage(pair, name, bytes(text))
    return {(name, "corrupt-text")}


@bypass
def not_canonical(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    """A text of the same file that clean would not make."""
    emitted = pair.top / "emitted.wtxt"
    pair.filtered.run(
        *LAUNCHER.arguments,
        "emit",
        "--gen",
        "7",
        "--build",
        "other",
        "-o",
        str(emitted),
        "--",
        name,
    )
    _stage(pair, name, emitted.read_bytes())
    emitted.unlink()
    return {(name, "not-canonical")}


@bypass
def forged_record(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    """By a key that nobody trusts."""
    text = _other(pair, rng, name)
    ledger = hostile.appended(_staged(pair, name + LEDGER), text, "mallory")
    _stage(pair, name, text)
    _stage(pair, name + LEDGER, ledger)
    return {(name, "untrusted-signer")}


@bypass
def record_without_signature(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    text = _other(pair, rng, name)
    _stage(pair, name, text)
    _stage(pair, name + LEDGER, hostile.appended(_staged(pair, name + LEDGER), text))
    return {(name, "missing-signature")}


@bypass
def ledger_removed(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    pair.filtered.git("rm", "-q", "--", f":(literal){name}{LEDGER}")
    return {(name, "ledger-removed"), (name, "unsealed")}


@bypass
def ledger_shortened(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]] | None:
    ledger = _staged(pair, name + LEDGER)
    rows = hostile.records(ledger)[1]
    if len(rows) < 2:
        return None
    shorter = hostile.shortened(ledger, 1)
    _stage(pair, name + LEDGER, shorter)
    first, last = (re.search(rb"WSUM 1 sha256_all=\w+", b"".join(rows[at])) for at in (0, -1))
    assert first
    assert last
    found = {(name, "ledger-rewritten")}
    if first[0] != last[0]:
        found.add((name, "content-mismatch"))
    known = text_ledger.read(shorter).ledger
    # Where the lost record sealed a move, the ledger is that of the place before.
    if known and known.place != name.encode():
        found.add((name, "bad-record"))
    return found


@bypass
def signers_changed(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    pair.filtered.run(*LAUNCHER.arguments, "signers", "add", "mallory@example.com", "mallory")
    pair.filtered.git("add", "--", SIGNERS)
    return {(SIGNERS, "signers-changed"), (SIGNERS, "content-mismatch")}


@bypass
def link_in_place(pair: Pair, rng: Random, name: str) -> set[tuple[str, str]]:
    file = pair.filtered.path / name
    file.unlink()
    file.symlink_to("elsewhere")
    pair.filtered.git("add", "--", f":(literal){name}")
    return {(name, "untracked-artifact")}
