"""Repositories whose checkpoints are sealed, and what an audit of them tells.

The driver is not set up here, as in a clone that does without: files of the
work tree are the texts themselves, and git merges them as it does any other.
Commands run in this process, through the entry of the command line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit import Repo
from wtxtgit.cli.main import main
from wtxtgit.filter.clean import clean
from wtxtgit.filter.content import examine
from wtxtgit.model.array import Signature
from wtxtgit.model.ledger import Ledger, LedgerHead, Record
from wtxtgit.setup.keys import named_key
from wtxtgit.text import digest
from wtxtgit.text import ledger as text_ledger
from wtxtgit.text.ledger import with_signature
from wtxtgit.trust.signing import SigningKey

MODEL, OTHER = "model.safetensors", "other.safetensors"
LEDGER, OTHER_LEDGER = f"{MODEL}.wsum", f"{OTHER}.wsum"
SIGNERS, SIGNERS_LEDGER = ".wtxt/signers", ".wtxt/signers.wsum"
ROOT = "root"
"""The tag of the first commit, whose signer is alice."""
KEYS = ("alice", "bob", "carol", "mallory")


def checkpoint(first: float, second: float = 0.0) -> bytes:
    """A safetensors file of two tensors, far enough from each other to be merged as lines."""
    size = 400
    half = size // 2
    header: dict[str, Any] = {
        name: {"dtype": "F32", "shape": [half // 4], "data_offsets": [start, start + half]}
        for name, start in (("first", 0), ("second", half))
    }
    spelled = json.dumps(header, separators=(",", ":")).encode()
    spelled += b" " * (-len(spelled) % 8)
    values = [first] * (half // 4) + [second] * (half // 4)
    return struct.pack("<Q", len(spelled)) + spelled + struct.pack(f"<{size // 4}f", *values)


@cache
def text(first: float, second: float = 0.0) -> bytes:
    """What git stores for such a file."""
    return b"".join(clean(memoryview(checkpoint(first, second)), threads=1).pieces())


class Found(NamedTuple):
    """A finding, but for its words."""

    commit: str
    path: str
    kind: str
    severity: str = "error"


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.out)
        return told

    @property
    def found(self) -> list[Found]:
        findings = self.report["findings"]
        return [Found(f["commit"], f["path"], f["kind"], f["severity"]) for f in findings]

    @property
    def kinds(self) -> set[str]:
        return {found.kind for found in self.found}


@dataclass(frozen=True)
class Sealed(Repo):
    """A repository, driven through git and the command line."""

    def call(self, *arguments: str, ok: Sequence[int] = (0,), folder: str = "") -> Said:
        """Run wtxtgit here, or in a folder, in this process."""
        out, err = io.StringIO(), io.StringIO()
        handlers = {
            number: signal.getsignal(number)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        with (
            contextlib.chdir(self.path / folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(list(arguments))
        for number, handler in handlers.items():
            signal.signal(number, handler)
        said = Said(code, out.getvalue(), err.getvalue())
        assert code in ok, (arguments, said)
        return said

    def seal(self, *arguments: str, key: str = "alice") -> Said:
        return self.call("seal", "--staged", "--key", key, *arguments)

    def audit(self, *arguments: str, root: str | None = ROOT) -> Said:
        pinned = ("--trust-root", root) if root is not None else ()
        return self.call("audit", "--json", *pinned, *arguments, ok=(0, 1, 4))

    def put(self, first: float, second: float = 0.0, name: str = MODEL) -> None:
        """Stage a content."""
        self.write(name, text(first, second))
        self.add(name)

    def generation(
        self, first: float, second: float = 0.0, *, name: str = MODEL, key: str = "alice"
    ) -> str:
        """Commit a content, sealed."""
        self.put(first, second, name)
        self.seal(name, key=key)
        return self.commit(f"{name} {first} {second}")

    def commit_all(self, message: str = "c") -> str:
        """Commit the work tree as it is, sealed or not."""
        self.git("add", "--all")
        return self.commit(message)

    def take(self, revision: str, *names: str) -> None:
        """Stage files as another commit has them."""
        self.git("checkout", "-q", revision, "--", *names)

    def branch(self, name: str, start: str = "HEAD") -> None:
        self.git("checkout", "-q", "-B", name, start)

    def switch(self, name: str) -> None:
        self.git("checkout", "-q", name)

    def merge(self, *names: str, ok: Sequence[int] = (0,)) -> str:
        """Merge, never as a fast-forward; gives HEAD."""
        self.run("git", "merge", "-q", "--no-ff", "--no-edit", *names, ok=ok)
        return self.head

    @property
    def head(self) -> str:
        return self.oid("HEAD")

    def oid(self, revision: str) -> str:
        return self.git("rev-parse", f"{revision}^{{commit}}").decode().strip()

    def ledger(self, name: str = LEDGER, revision: str = "HEAD") -> bytes:
        return self.blob(name, revision)

    def falsify_signature(self, name: str = LEDGER) -> None:
        """Change a character of the last signature of a ledger, and stage it."""
        before, sign, last = (self.path / name).read_bytes().rpartition(b"\nsign ")
        other = b"A" if last[20:21] != b"A" else b"B"
        self.write(name, before + sign + last[:20] + other + last[21:])
        self.add(name)

    def add_signer(self, name: str) -> None:
        self.call("signers", "add", f"{name}@example.com", name)
        self.add(SIGNERS)

    def set_threshold(self, number: int) -> None:
        file = self.path / SIGNERS
        lines = [
            line if "threshold: " not in line else f"# threshold: {number}"
            for line in file.read_text().splitlines()
        ]
        file.write_text("".join(f"{line}\n" for line in lines))
        self.add(SIGNERS)

    def change_signers(self, *keys: str) -> str:
        """Seal a staged change of the signers by these keys, and commit."""
        self.seal(SIGNERS, key=keys[0])
        for key in keys[1:]:
            self.seal("--cosign", SIGNERS, key=key)
        return self.commit("signers")


def assert_holds(repo: Sealed, *arguments: str, root: str | None = ROOT) -> Said:
    """An audit finds nothing, not even a warning."""
    said = repo.audit(*arguments, root=root)
    assert (said.code, said.found) == (0, []), said.found
    assert said.report["ok"]
    return said


def assert_holds_by_any_range(repo: Sealed) -> None:
    """Nor does one of all commits, or of the last one alone."""
    assert_holds(repo)
    assert_holds(repo, "--every", "--require-signed", f"{ROOT}..HEAD")
    assert_holds(repo, "HEAD~1..HEAD", "--was", "HEAD~1")


def assert_found(
    repo: Sealed, *wanted: tuple[str, str, str], code: int = 1, args: Sequence[str] = (),
    root: str | None = ROOT,
) -> Said:  # fmt: skip
    """An audit finds these errors (commit, path, kind) and nothing else."""
    said = repo.audit(*args, root=root)
    lacking = [Found(*one) for one in wanted if Found(*one) not in said.found]
    strange = [one for one in said.found if tuple(one[:3]) not in wanted]
    assert sorted(said.found) == sorted(Found(*one) for one in wanted), (lacking, strange)
    assert said.code == code
    assert not said.report["ok"]
    return said


def make(folder: Path, *options: str) -> Sealed:
    """A repository whose first commit, the tag `root`, has a signer and two checkpoints."""
    folder.mkdir(parents=True)
    repo = Sealed(folder)
    repo.git("init", "-q", *options)
    repo.track("*.safetensors")
    repo.add_signer("alice")
    for name in (MODEL, OTHER):
        repo.put(1.0, name=name)
    repo.seal()
    repo.commit("first generation")
    repo.git("tag", ROOT)
    return repo


def secret(name: str) -> SigningKey:
    """A key of the keyring, to make records by hand."""
    return named_key(name, os.environ)


def signed_ledger(
    repo: Sealed, name: str, records: Sequence[Record], key: SigningKey | None
) -> bytes:
    """The ledger of a path, made by hand of records that one key signs."""
    signers = text_ledger.read(repo.ledger(SIGNERS_LEDGER)).ledger
    assert signers is not None
    head = LedgerHead(signers.records[0].merkle_this, name.encode())
    return text_ledger.format_ledger(
        Ledger(head, tuple(_signed(head, record, key) for record in records))
    )


def _signed(head: LedgerHead, record: Record, key: SigningKey | None) -> Record:
    if key is None:
        return record
    made = key.sign(text_ledger.covered(head, record))
    return with_signature(record, Signature(made, digest.keyid(key.public_key)))


def forged(
    ledger: bytes,
    content: bytes,
    key: SigningKey | None,
    *,
    keep: int | None = None,
    **meta: Any,
) -> bytes:
    """A ledger with one more record, as it pleases; `keep` records of before stay.

    `meta` may say `gen` and `ts`; the chain's hashes are right whatever it says.
    """
    read = text_ledger.read(ledger).ledger
    assert read is not None
    records = read.records[:keep]
    prev = records[-1].merkle_this if records else bytes(32)
    gen = records[-1].meta.gen + 1 if records else 1
    about = replace(read.last.meta, **{"gen": gen, **meta})
    sha256_all = examine(memoryview(content)).sha256_all
    assert sha256_all is not None
    record = Record(about, sha256_all, prev, digest.merkle(prev, sha256_all, about))
    record = _signed(read.head, record, key)
    return text_ledger.format_ledger(Ledger(read.head, (*records, record)))
