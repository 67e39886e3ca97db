"""What an attacker does by hand: trees, commits, objects and records; and what must come of it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.e2e.sealed import ROOT, Found, Said, Sealed, assert_holds, secret
from tests.kit import Repo, changes
from wtxtgit.filter.content import examine
from wtxtgit.git import run
from wtxtgit.text import digest

NEW, NEW_LEDGER = "new.safetensors", "new.safetensors.wsum"
DATA, DATA_LEDGER = "tokenizer.json", "tokenizer.json.wsum"
"""A file that no filter is for, sealed by its name."""
SECOND = "c2"
"""The tag of an honest main's tip."""
REVOKED = "revoked"
"""The tag of the commit that takes mallory's key away."""
BEFORE = "before"
"""The tag of the last commit where mallory is trusted."""
MALLORY = "mallory@example.com"
EVERY = "--every"
"""The option by which all commits of a range are judged."""
UNJUDGED = (3, 5)
"""Exit codes of an audit that could not judge."""
REWRITTEN = "ledger-rewritten"
UNTRUSTED = ("untrusted-signer", "missing-signature", "bad-signature", REWRITTEN)
"""One of these is told of a record that nobody trusted has signed."""
WAYS = 4 if changes.is_nightly() else 2 if changes.why_all(changes.AUDIT) else 1
"""Of the ways in which a tip is audited so many are tried.

Found out here: tests don't see what the variables of this run say.
"""


# What must come of it


def audit(repo: Sealed, *arguments: str, root: str | None = ROOT) -> Said:
    """Audit anew; whatever comes of it but a wrong use."""
    pinned = ("--trust-root", root) if root is not None else ()
    options = ("--json", "--no-cache", "--require-signed")
    return repo.call("audit", *options, *pinned, *arguments, ok=(0, 1, 3, 4, 5))


def assert_refused(
    repo: Sealed,
    tip: str,
    *kinds: str,
    was: str | None = None,
    root: str | None = ROOT,
    unjudged: bool = False,
) -> None:
    """Every audit of a tip refuses it: by default, of every commit, and of a push after `was`.

    It tells one of `kinds`, where any are given, as an error. Where the
    repository itself is broken, `unjudged`, it may end without a verdict.
    Every night an audit goes all four ways. Else, where what audits has changed, two of them: one
    from the first commit and one of a push, by default and of every commit; and one where it has
    not. Which, the attack's name says, and what is told of it.
    """
    ways: list[tuple[str, ...]] = [(tip,), (EVERY, tip)]
    if was:
        ways = [ways[0], (EVERY, f"{was}..{tip}"), (f"{was}..{tip}", "--was", was), ways[1]]
    for arguments in chosen(ways, WAYS, str(kinds)):
        said = audit(repo, *arguments, root=root)
        if unjudged and said.code in UNJUDGED:
            assert said.err
            continue
        assert said.code in (1, 4), (arguments, said)
        if kinds:
            assert errors(said) & set(kinds), (arguments, said.found)


def chosen(ways: Sequence[tuple[str, ...]], most: int, told: str = "") -> Sequence[tuple[str, ...]]:
    """So many of the ways in which an audit goes, next to each other: which, the test's name says.

    Pairs, where some are, begin at even places.
    """
    if len(ways) <= most:
        return ways
    first = zlib.crc32(f"{os.environ['PYTEST_CURRENT_TEST']} {told}".encode()) // most * most
    return [ways[(first + n) % len(ways)] for n in range(most)]


def errors(said: Said) -> set[str]:
    """The kinds of the errors that were told."""
    return {found.kind for found in said.found if found.severity == "error"}


def errors_at(said: Said) -> set[tuple[str, str]]:
    """Path and kind of the errors that were told."""
    return {(found.path, found.kind) for found in said.found if found.severity == "error"}


def honest(repo: Sealed, tip: str = "HEAD", root: str | None = ROOT) -> str:
    """The id of a tip that every audit takes: the control, without which a refusal says nothing.

    One of both ways where nothing that audits has changed.
    """
    for arguments in chosen(((tip,), (EVERY, tip)), WAYS):
        assert_holds(repo, "--require-signed", *arguments, root=root)
    return repo.oid(tip)


def warned(repo: Sealed, tip: str = "HEAD") -> list[Found]:
    """What is told of a tip that no audit refuses."""
    said = audit(repo, tip)
    assert said.code == 0, said
    return said.found


# Trees and commits


def commit_of(
    repo: Sealed, *parents: str, tree: str | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Commit a commit's tree (a tree's id is one too), or the index; no branch moves."""
    made = repo.git("write-tree") if tree is None else repo.git("rev-parse", f"{tree}^{{tree}}")
    named = [word for parent in parents for word in ("-p", parent)]
    command = ("commit-tree", *named, "-m", "c", made.decode().strip())
    return repo.git(*command, env=dict(env or {})).decode().strip()


def at_once(repo: Sealed, message: str = "evil") -> str:
    """Commit the index past all hooks."""
    return repo.commit(message, "--no-verify")


def store(repo: Repo, content: bytes, kind: str = "blob") -> str:
    """Store an object as it is, whatever git holds of it."""
    command = ("hash-object", "-w", "--literally", "-t", kind, "--stdin")
    return repo.git(*command, stdin=content).decode().strip()


def stage(repo: Repo, path: str | bytes, content: bytes, mode: str = "100644") -> None:
    """Stage a blob as it is, through no filter and past the work tree."""
    stage_id(repo, path, store(repo, content), mode)


def stage_id(repo: Repo, path: str | bytes, oid: str, mode: str = "100644") -> None:
    spelled = path.encode() if isinstance(path, str) else path
    line = f"{mode} {oid}\t".encode() + spelled + b"\0"
    repo.git("update-index", "-z", "--index-info", stdin=line)


def unstage(repo: Repo, *paths: str) -> None:
    repo.git("rm", "-rq", "--cached", "--ignore-unmatch", "--", *paths)


def stage_move(repo: Repo, old: str, new: str) -> None:
    """Stage a checkpoint and its ledger at another path; nobody seals that."""
    (repo.path / new).parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", ".wsum"):
        repo.git("mv", "-f", old + suffix, new + suffix)


def put_copy(repo: Sealed, revision: str, old: str, new: str) -> None:
    """Stage a checkpoint and its ledger as they are elsewhere."""
    for suffix in ("", ".wsum"):
        stage(repo, new + suffix, repo.blob(old + suffix, revision))


def attributes(repo: Sealed, *lines: str, file: str = ".gitattributes") -> None:
    """Stage lines at the end of a gitattributes file."""
    there = repo.run("git", "cat-file", "blob", f":{file}", ok=(0, 128)).stdout
    stage(repo, file, there + "".join(f"{line}\n" for line in lines).encode())


Entry = tuple[bytes, bytes, str]
"""Of a tree: mode, name, id."""


def entries(repo: Repo, tree: str) -> list[Entry]:
    raw = repo.git("cat-file", "tree", tree)
    made = []
    while raw:
        head, _, rest = raw.partition(b"\0")
        mode, _, name = head.partition(b" ")
        made.append((mode, name, rest[:20].hex()))
        raw = rest[20:]
    return made


def tree_of(repo: Repo, rows: Sequence[Entry]) -> str:
    """Store a tree of these entries in this order, which git itself would not make."""
    raw = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in rows)
    return store(repo, raw, "tree")


# Objects that are not what their names say


def loose(repo: Repo, oid: str) -> Path:
    return repo.path / ".git/objects" / oid[:2] / oid[2:]


def overwrite(repo: Repo, oid: str, content: bytes, kind: str = "blob") -> None:
    """Put other bytes into the loose object of a name."""
    file = loose(repo, oid)
    file.unlink()
    file.write_bytes(zlib.compress(f"{kind} {len(content)}\0".encode() + content))


def git_gives(repo: Repo, revision: str, path: str) -> bytes:
    """What a checkout without the driver writes."""
    target = repo.path.parent / "given"
    command = (run.executable(), f"--work-tree={target}", "checkout", "-f", revision, "--", ".")
    target.mkdir(exist_ok=True)
    index = {"GIT_INDEX_FILE": str(repo.path.parent / "given.index")}
    repo.run(*command, env=index)
    return (target / path).read_bytes()


# Records, from docs/spec/ledger.md and specs/trust.md alone


def records(ledger: bytes) -> tuple[bytes, list[list[bytes]]]:
    """The first line, and the lines of each record: any `at`, meta, WSUM, any signatures."""
    head, *lines = ledger.splitlines(keepends=True)
    made: list[list[bytes]] = []
    is_open = False
    for line in lines:
        if line.startswith((b"at ", b"meta ")) and not is_open:
            made.append([])
            is_open = True
        made[-1].append(line)
        is_open = is_open and not line.startswith(b"WSUM ")
    return head, made


def joined(head: bytes, rows: Sequence[Sequence[bytes]]) -> bytes:
    return head + b"".join(line for row in rows for line in row)


def hash_of(content: bytes) -> str:
    """What a record says of a content; of a text, what its own root line says."""
    found = re.search(rb"^root sha256_all=([0-9a-f]{64}) ", content[:10_000], re.MULTILINE)
    if content.startswith(b"WTXT 1\n") and found:
        return found[1].decode()
    sha256_all = examine(memoryview(content)).sha256_all
    assert sha256_all is not None
    return sha256_all.hex()


def record(
    ledger: bytes,
    content: bytes | str,
    *keys: str,
    at: str | None = None,
    build: str = "none",
    gen: int | None = None,
    ts: str | None = None,
) -> list[bytes]:
    """One more record for a content (or its hash), with an `at` line and these signatures."""
    head, rows = records(ledger)
    last = b"".join(rows[-1]).decode()
    fields = dict(re.findall(r"(\w+)=(\S+)", last))
    number = int(fields["gen"]) + 1 if gen is None else gen
    time = fields["ts"] if ts is None else ts
    content_hash = content if isinstance(content, str) else hash_of(content)
    said = re.search(r" merkle_this=(\w+)", last)
    assert said
    prev = said[1]
    this = hashlib.sha256(
        bytes.fromhex(prev + content_hash) + f"{time}{number:06}{build}".encode()
    ).hexdigest()
    place = [f"at path={at}\n".encode()] if at is not None else []
    meta = f"meta schema={fields['schema']} gen={number:06} ts={time} build={build} "
    meta += f"endian={fields['endian']} host={fields['host']} cuda={fields['cuda']}\n"
    wsum = f"WSUM 1 sha256_all={content_hash} merkle_prev={prev} merkle_this={this}\n"
    covered = [*place, meta.encode(), wsum.encode()]
    return [*covered, *signatures(head + b"".join(covered), *keys)]


def signatures(covered: bytes, *keys: str) -> list[bytes]:
    """The `sign` lines of keys of the keyring."""
    made = []
    for name in keys:
        key = secret(name)
        said = digest.keyid(key.public_key)
        signature = b64encode(key.sign(covered)).decode()
        made.append((said, f"sign ed25519={signature} keyid={said}\n".encode()))
    return [line for _, line in sorted(made)]


def appended(
    ledger: bytes,
    content: bytes | str,
    *keys: str,
    at: str | None = None,
    build: str = "none",
    gen: int | None = None,
) -> bytes:
    return ledger + b"".join(record(ledger, content, *keys, at=at, build=build, gen=gen))


def shortened(ledger: bytes, keep: int) -> bytes:
    """Its first records alone."""
    head, rows = records(ledger)
    return joined(head, rows[:keep])


def sealed_move(repo: Sealed, old: str, new: str, key: str = "alice") -> None:
    """Stage a move, and the record that seals it, by hand."""
    stage_move(repo, old, new)
    ledger = repo.blob(f"{new}.wsum")
    made = appended(ledger, repo.blob(new), key, at=new)
    stage(repo, f"{new}.wsum", made)
    (repo.path / f"{new}.wsum").write_bytes(made)


# Signers


def remove_mallory(repo: Sealed) -> str:
    repo.call("signers", "remove", MALLORY)
    repo.add(".wtxt/signers")
    return repo.change_signers("alice")


def python(repo: Repo, *arguments: str) -> bytes:
    """Run a file of a work tree, as its user does."""
    done = subprocess.run(
        ["python3", "-I", *arguments], cwd=repo.path, capture_output=True, check=True
    )
    return done.stdout


Attack = Callable[[Sealed], object]
"""Stages or commits something in an honest repository."""
