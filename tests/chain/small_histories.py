"""Small sealed histories, and every one-step edit of them.

What is so in one is told by `Truth`, which knows who sealed what, and none of the rules.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1, sha256
from pathlib import Path

import xxhash
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.chain.naive_history import ATTRIBUTES, SIGNERS, SIGNERS_LEDGER, ledger, opaque

File = tuple[int, bytes]
"""A mode, and bytes: the content of a file, where a link leads to, a submodule's commit."""
Files = dict[bytes, File]
PLAIN, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
NOBODY = (
    b"author A <a@example.com> 1767225600 +0000",
    b"committer C <c@example.com> 1767225600 +0000",
)
GONE = b""


class Key:
    """A principal's key."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self._secret = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        self.public = self._secret.public_key().public_bytes_raw()
        self.id = xxhash.xxh64_hexdigest(self.public)

    def sign(self, message: bytes) -> bytes:
        made = base64.b64encode(self._secret.sign(message))
        return b"sign ed25519=%b keyid=%b\n" % (made, self.id.encode())


ALICE, BOB, MALLORY = KEYS = (Key("alice", 1), Key("bob", 2), Key("mallory", 3))


def signers_file(keys: Iterable[Key], threshold: int = 1) -> bytes:
    head = b"\0\0\0\x0bssh-ed25519\0\0\0 "
    lines = [
        f"{key.name}@example.com ssh-ed25519 ".encode() + base64.b64encode(head + key.public)
        for key in keys
    ]
    return b"\n".join([b"# threshold: %d" % threshold, *lines, b""])


def record(
    before: bytes,
    head: tuple[bytes, bytes] | None,
    content: bytes,
    keys: Iterable[Key],
    *,
    at: bytes | None = None,
    build: str = "none",
) -> bytes:
    """A ledger with a record more, or one that begins with `head`, a repository and a path."""
    first = b"WLEDGER 1 repo=%b path=%b\n" % (head[0].hex().encode(), head[1]) if head else b""
    text = before or first
    read = ledger(before) if before else None
    gen, previous = (
        (1, bytes(32)) if read is None else (read.last.meta.gen + 1, read.last.merkle_this)
    )
    when = f"2026-01-01T00:00:{gen:02d}Z"
    this = sha256(previous + opaque(content) + f"{when}{gen:06d}{build}".encode()).digest()
    said = (b"at path=%b\n" % at if at else b"") + (
        f"meta schema=opaque/v1 gen={gen:06d} ts={when} build={build} endian=LE host=any cuda=off\n"
        f"WSUM 1 sha256_all={opaque(content).hex()} merkle_prev={previous.hex()} "
        f"merkle_this={this.hex()}\n"
    ).encode()
    message = text.partition(b"\n")[0] + b"\n" + said
    ordered = sorted(keys, key=lambda key: key.id)
    return text + said + b"".join(key.sign(message) for key in ordered)


@dataclass(frozen=True)
class Made:
    """A commit as it was made. `more` are parents besides the first."""

    files: Files
    first: Made | None = None
    more: tuple[Made, ...] = ()
    head: tuple[bytes, ...] = NOBODY
    message: bytes = b"m\n"
    signature: bytes = b""
    trusted: tuple[frozenset[str], int] = (frozenset({"alice"}), 1)
    """Who is trusted here, and how many of them seal for all; of honest commits."""

    def on(self, first: Made | None, **others: object) -> Made:
        return replace(self, first=first, **others)  # type: ignore[arg-type]

    @property
    def line(self) -> list[Made]:
        return [*(self.first.line if self.first else []), self]

    @property
    def below(self) -> list[Made]:
        parents = [one for one in (self.first, *self.more) if one is not None]
        return [self, *(one for parent in parents for one in parent.below)]


@dataclass
class Store:
    """Objects of git, in memory and in a repository."""

    folder: Path | None = None
    objects: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    ids: dict[int, tuple[Made, str]] = field(default_factory=dict)

    def put(self, kind: str, content: bytes) -> str:
        whole = b"%b %d\0%b" % (kind.encode(), len(content), content)
        oid = sha1(whole, usedforsecurity=False).hexdigest()
        if oid not in self.objects:
            self.objects[oid] = kind, content
            if self.folder is not None:
                place = self.folder / oid[:2]
                place.mkdir(exist_ok=True)
                (place / oid[2:]).write_bytes(zlib.compress(whole, 1))
        return oid

    def tree(self, files: Files) -> str:
        folders: dict[bytes, Files] = {}
        rows: list[tuple[bytes, bytes]] = []
        for path, (mode, content) in files.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                folders.setdefault(name, {})[rest] = mode, content
                continue
            oid = content.hex() if mode == SUBMODULE else self.put("blob", content)
            rows.append((name, b"%o %b\0" % (mode, name) + bytes.fromhex(oid)))
        for name, inside in folders.items():
            oid = self.tree(inside)
            rows.append((name + b"/", b"40000 %b\0" % name + bytes.fromhex(oid)))
        return self.put("tree", b"".join(row for _, row in sorted(rows)))

    def commit(self, made: Made) -> str:
        known = self.ids.get(id(made))
        if known is None:
            parents = [self.commit(one) for one in (made.first, *made.more) if one is not None]
            lines = [f"tree {self.tree(made.files)}", *(f"parent {one}" for one in parents)]
            head = b"\n".join([*(one.encode() for one in lines), *made.head])
            known = made, self.put("commit", head + made.signature + b"\n\n" + made.message)
            # The value is held, so that its id stays its own.
            self.ids[id(made)] = known
        return known[1]


# Who sealed what.

Seal = tuple[bytes, bytes]
"""A path and a content."""


@dataclass
class Truth:
    """What really happened: seals in their order."""

    store: Store
    seals: dict[bytes, tuple[int, bytes, bytes | None, str]] = field(default_factory=dict)
    """By the record's own hash: number, path, content (None: gone), and by whom."""

    def sealed(
        self,
        files: Files,
        path: bytes,
        content: bytes | None,
        keys: Sequence[Key],
        *,
        moved_from: bytes | None = None,
        build: str = "none",
    ) -> Files:
        """Files with a content sealed at a path."""
        files = dict(files)
        beside = (moved_from or path) + b".wsum"
        before = files.pop(beside, (PLAIN, b""))[1]
        files.pop(moved_from or path, None)
        own = files.get(SIGNERS_LEDGER)
        read = ledger(own[1]) if own is not None and path != SIGNERS else None
        repo = read.records[0].merkle_this if read is not None else bytes(32)
        at = path if moved_from else None
        build = "deleted" if content is None else build
        made = record(before, (repo, path), content or GONE, keys, at=at, build=build)
        files[path + b".wsum"] = PLAIN, made
        if content is not None:
            files[path] = PLAIN, content
        last = ledger(made)
        assert last is not None
        self.seals[last.last.merkle_this] = (
            len(self.seals), path, content, keys[-1].name if keys else "",
        )  # fmt: skip
        return files

    def known(self, made: Made) -> dict[bytes, list[tuple[int, bytes | None]]]:
        """The seals by honest people that a history has, by path."""
        found: dict[bytes, list[tuple[int, bytes | None]]] = {}
        for one in made.below:
            for path, (_, content) in one.files.items():
                read = ledger(content) if path.endswith(b".wsum") else None
                for entry in read.records if read is not None else ():
                    seal = self.seals.get(entry.merkle_this)
                    if seal is not None and seal[3] in ("alice", "bob"):
                        found.setdefault(seal[1], []).append((seal[0], seal[2]))
                        # A move lets go of the place before.
                        if entry.at is not None and read is not None:
                            found.setdefault(read.head.path, []).append((seal[0], None))
        return found


# Histories.

M, K, N = b"m.bin", b"sub/k.bin", b"n.bin"


def begun(truth: Truth) -> Files:
    files: Files = {
        b"README": (PLAIN, b"1\n"),
        b"run": (EXECUTABLE, b"#!/bin/sh\n"),
        b"link": (LINK, b"README"),
        b"module": (SUBMODULE, bytes(range(20))),
    }
    files = truth.sealed(files, SIGNERS, signers_file([ALICE]), [ALICE])
    return truth.sealed(files, M, b"m1", [ALICE])


def plain(truth: Truth) -> Made:
    """Generations one after the other, and code that changes."""
    root = Made(begun(truth), message=b"root\n")
    one = Made(truth.sealed(root.files, M, b"m2", [ALICE]), root, message=b"two\n")
    files = {**one.files, b"README": (PLAIN, b"2\n")}
    two = Made(files, one, message=b"code\n", head=(*NOBODY, b"encoding latin-1"))
    return Made(truth.sealed(two.files, M, b"m3", [ALICE]), two, message=b"three\n")


def rotated(truth: Truth) -> Made:
    """Bob comes in, both have to seal, and alice's last generation is followed by bob's."""
    root = Made(begun(truth), message=b"root\n")
    both = frozenset({"alice", "bob"})
    files = truth.sealed(root.files, SIGNERS, signers_file([ALICE, BOB]), [ALICE])
    one = Made(files, root, message=b"bob\n", trusted=(both, 1))
    files = truth.sealed(one.files, SIGNERS, signers_file([ALICE, BOB], 2), [ALICE])
    two = Made(files, one, message=b"two have to\n", trusted=(both, 2))
    return Made(truth.sealed(two.files, M, b"m2", [BOB]), two, message=b"m2\n", trusted=(both, 2))


def merged(truth: Truth) -> Made:
    """A side branch brings another checkpoint."""
    root = Made(begun(truth), message=b"root\n")
    side = Made(truth.sealed(root.files, K, b"k1", [ALICE]), root, message=b"side\n")
    one = Made(truth.sealed(root.files, M, b"m2", [ALICE]), root, message=b"m2\n")
    both = {**one.files, K: side.files[K], K + b".wsum": side.files[K + b".wsum"]}
    two = Made(both, one, (side,), message=b"merge\n")
    return Made(truth.sealed(two.files, K, b"k2", [ALICE]), two, message=b"k2\n")


def moved(truth: Truth) -> Made:
    """A checkpoint goes to another name, another one goes for good."""
    root = Made(truth.sealed(begun(truth), K, b"k1", [ALICE]), message=b"root\n")
    one = Made(truth.sealed(root.files, N, b"m2", [ALICE], moved_from=M), root, message=b"moved\n")
    two = Made(truth.sealed(one.files, K, None, [ALICE]), one, message=b"deleted\n")
    return Made(truth.sealed(two.files, N, b"m3", [ALICE]), two, message=b"m3\n")


HISTORIES = {one.__name__: one for one in (plain, rotated, merged, moved)}


def afterwards(truth: Truth, tip: Made) -> Iterator[tuple[str, Made]]:
    """What may come upon a tip."""

    def then(files: Files, *more: Made, message: bytes = b"later\n") -> Made:
        return Made(files, tip, more, message=message, trusted=tip.trusted)

    path = M if M in tip.files else N
    trusted = [key for key in KEYS if key.name in tip.trusted[0]]
    yield "a generation", then(truth.sealed(tip.files, path, b"next", trusted[:1]))
    yield "mallory's", then(truth.sealed(tip.files, path, b"theirs", [MALLORY]))
    yield "code", then({**tip.files, b"README": (PLAIN, b"later\n")})
    yield "unsealed", then({**tip.files, path: (PLAIN, b"evil")})
    yield (
        "mallory as a signer",
        then(truth.sealed(tip.files, SIGNERS, signers_file([MALLORY]), [MALLORY])),
    )
    yield "attributes", then({**tip.files, ATTRIBUTES: (PLAIN, b"* ident\n")})
    for n, before in enumerate(tip.line[:-1]):
        yield f"the files of {n}", then(before.files)
        for name in sorted({M, K, N} & before.files.keys()):
            names = (name, name + b".wsum")
            older = {one: before.files[one] for one in names if one in before.files}
            yield f"{name.decode()} of {n}", then({**tip.files, **older})
        yield f"a merge of {n}", then(tip.files, before)
    evil = Made({M: (PLAIN, b"evil")}, message=b"evil\n")
    yield "a merge of another history", then(tip.files, evil)
