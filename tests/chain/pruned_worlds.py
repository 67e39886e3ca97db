"""Small histories, all prunings of them, and every one-step edit of those; docs/spec/pruned.md.

A world is an old tip, a branch and a trust root. Whether the page's claim is so in one is told by
`Truth`, which knows who sealed what and who stated which pruning, and none of the rules: files are
compared as they were made, not as git or a ledger has them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1, sha256
from itertools import combinations
from pathlib import Path

import xxhash
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.chain.naive_pruned import (
    ATTRIBUTES,
    PRUNED,
    PRUNED_LEDGER,
    SIGNERS,
    SIGNERS_LEDGER,
    ledger,
    opaque,
)

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
    is_honest: bool = True

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
    """What really happened: seals in their order, and who stated which prunings."""

    store: Store
    seals: dict[bytes, tuple[int, bytes, bytes | None, str]] = field(default_factory=dict)
    """By the record's own hash: number, path, content (None: gone), and by whom."""
    stated: dict[bytes, tuple[bytes, frozenset[str]]] = field(default_factory=dict)
    """The words of each pruning, and who stated them, by the ledger that says so."""

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

    def is_whole(self, made: Made) -> bool:
        """Whether at a commit each path has what was sealed last for it, of all that is known."""
        for path, seals in self.known(made).items():
            _, content = max(seals, key=lambda one: one[0])
            there = made.files.get(path)
            # An artifact that is gone keeps its ledger; nothing comes in its place.
            if there is not None and (content is None or there[1] != content):
                return False
            if there is not None and there[0] not in (PLAIN, EXECUTABLE):
                return False
        return True

    def claims(self, old: Made, branch: Made) -> bool:
        """The claim of the page."""
        names, threshold = old.trusted
        line, news = old.line, branch.line
        said = self.stated.get(news[0].files.get(PRUNED_LEDGER, (0, b""))[1])
        if said is None or len(said[1] & names) < threshold:
            return False
        for count in range(1, len(news) + 1):
            for kept in combinations(line, count):
                words = pruning(self.store, old, kept)
                if kept[-1] is not old or words != said[0]:
                    continue
                pairs = list(zip(kept, news, strict=False))
                if all(is_copy(was, now, news[0]) for was, now in pairs) and all(
                    now.more == () for now in news[:count]
                ):
                    return old.is_honest and self.is_whole(old) and self.is_whole(branch)
        return False


def is_copy(was: Made, now: Made, root: Made) -> bool:
    added = {path: root.files[path] for path in (PRUNED, PRUNED_LEDGER) if path in root.files}
    return (
        {**was.files, **added} == now.files
        and (was.head, was.message) == (now.head, now.message)
        and len(added) == 2
    )


def pruning(store: Store, old: Made, kept: Sequence[Made]) -> bytes:
    """The record of a pruning."""
    lines = ["WTXTGIT-PRUNED 1", f"from={store.commit(old)}"]
    lines += [f"kept={store.commit(one)}" for one in kept]
    return "".join(f"{one}\n" for one in lines).encode()


# Old histories.

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


def pruned_before(truth: Truth) -> Made:
    """A history that was pruned, and went on."""
    old = plain(truth)
    tip = branch_of(truth, old, old.line[-2:], [ALICE])
    one = Made(truth.sealed(tip.files, M, b"m4", [ALICE]), tip, message=b"four\n")
    return Made({**one.files, b"README": (PLAIN, b"4\n")}, one, message=b"code\n")


OLD = {one.__name__: one for one in (plain, rotated, merged, moved, pruned_before)}


# Prunings.


def sealed_pruning(
    truth: Truth,
    old: Made,
    words: bytes,
    keys: Sequence[Key],
    *,
    build: str = "pruned",
    is_stated: bool = True,
    repo: bytes | None = None,
    path: bytes = PRUNED,
    before: bytes | None = None,
) -> Files:
    """The record and its ledger, signed by keys."""
    own = ledger(old.files[SIGNERS_LEDGER][1])
    assert own is not None
    had = old.files.get(PRUNED_LEDGER, (0, b""))[1] if before is None else before
    head = own.records[0].merkle_this if repo is None else repo, path
    made = record(had, head, words, keys, build=build)
    if is_stated:
        truth.stated[made] = words, frozenset(key.name for key in keys)
    return {PRUNED: (PLAIN, words), PRUNED_LEDGER: (PLAIN, made)}


def copies(kept: Sequence[Made], added: Files) -> list[Made]:
    """The commits of a pruning, not yet one upon the other."""
    return [
        replace(one, files={**one.files, **added}, first=None, more=(), signature=b"")
        for one in kept
    ]


def joined(line: Sequence[Made], tip: Made | None = None) -> Made:
    """Commits one upon the other."""
    for one in line:
        tip = one.on(tip)
    assert tip is not None
    return tip


def branch_of(truth: Truth, old: Made, kept: Sequence[Made], keys: Sequence[Key]) -> Made:
    added = sealed_pruning(truth, old, pruning(truth.store, old, kept), keys)
    return joined(copies(kept, added))


# One-step edits: each gives other branches, as they follow from the commits of an honest one.


def edited(
    truth: Truth, old: Made, kept: Sequence[Made], keys: Sequence[Key]
) -> Iterator[tuple[str, Made]]:
    store = truth.store
    words = pruning(store, old, kept)
    added = sealed_pruning(truth, old, words, keys)
    line = copies(kept, added)
    yield "honest", joined(line)
    yield from _shapes(old, line)
    for n in range(len(line)):
        for how, one in _commits(truth, old, line, n):
            yield f"{how} at {n}", joined([*line[:n], one, *line[n + 1 :]])
    for how, other in _records(truth, old, kept, keys, words):
        yield how, joined(copies(kept, other))
    for how, one in _others(truth, old, kept, keys, words):
        yield how, one
    for how, one in afterwards(truth, old, joined(line)):
        yield f"then {how}", one


def _others(
    truth: Truth, old: Made, kept: Sequence[Made], keys: Sequence[Key], words: bytes
) -> Iterator[tuple[str, Made]]:
    """Prunings that hold as far as commits go, and say or have signed something else."""
    right = sealed_pruning(truth, old, words, keys)
    *line, tip = old.line
    for count in range(len(line) + 1):
        for some in combinations(line, count):
            if (*some, tip) != (*kept,):
                other = pruning(truth.store, old, (*some, tip))
                told = ", ".join(str(old.line.index(one)) for one in (*some, tip))
                # Who has what was signed keeps something else by it.
                yield (
                    f"{told} under the ledger",
                    joined(copies((*some, tip), {**right, PRUNED: (PLAIN, other)})),
                )
                yield (
                    f"{told} by mallory",
                    joined(copies((*some, tip), sealed_pruning(truth, old, other, [MALLORY]))),
                )
    for n in range(len(kept) - 1):
        doubled = (*kept[: n + 1], *kept[n:])
        swapped = (*kept[:n], kept[n + 1], kept[n], *kept[n + 2 :])
        for how, others in (("twice", doubled), ("behind the next one", swapped)):
            # Signers sealed what is none of a pruning.
            said = pruning(truth.store, old, others)
            added = sealed_pruning(truth, old, said, keys, is_stated=False)
            yield f"{n} {how}, and said to be", joined(copies(others, added))
    for n, before in enumerate(line):
        # A pruning of an older tip, which its signers did state.
        names, _ = before.trusted
        stated = [key for key in KEYS if key.name in names]
        yield f"of {n} in its place", branch_of(truth, before, (before,), stated)


def _shapes(old: Made, line: list[Made]) -> Iterator[tuple[str, Made]]:
    for n in range(len(line)):
        if len(line) > 1:
            yield f"without {n}", joined([*line[:n], *line[n + 1 :]])
        yield f"twice {n}", joined([*line[: n + 1], *line[n:]])
        empty = replace(line[n], message=b"empty\n")
        yield f"empty before {n}", joined([*line[:n], empty, *line[n:]])
        if n:
            swapped = [*line[: n - 1], line[n], line[n - 1], *line[n + 1 :]]
            yield f"swapped {n}", joined(swapped)
        if n:
            with_old = replace(line[n], more=(old,))
            yield f"merges the old one at {n}", joined([*line[:n], with_old, *line[n + 1 :]])
            root = joined(line[:n])
            begins = line[n].on(None)
            yield f"begins anew at {n}", joined([begins, *line[n + 1 :]])
            twice = replace(line[n], more=(root,))
            yield f"the same parent twice at {n}", joined([*line[:n], twice, *line[n + 1 :]])
    yield "on the old one", joined(line, old)
    yield "the old one", old


def _commits(truth: Truth, old: Made, line: list[Made], n: int) -> Iterator[tuple[str, Made]]:
    """Other commits for one."""
    one = line[n]
    author, committer, *more = one.head
    yield "another author", replace(one, head=(author.replace(b"A", b"B"), committer, *more))
    yield "another date", replace(one, head=(author, committer.replace(b"1767", b"1768"), *more))
    yield "another zone", replace(one, head=(author.replace(b"+0000", b"-0000"), committer, *more))
    yield "another encoding", replace(one, head=(author, committer, b"encoding utf-7"))
    yield "a line more", replace(one, head=(author, committer, *more, b"x-note 1"))
    yield (
        "a parent's line below",
        replace(one, head=(author, committer, *more, b"parent " + b"0" * 40)),
    )
    yield "another message", replace(one, message=one.message + b"\n")
    # A signature is no part of what a copy is: it is as the one without.
    yield "a signature", replace(one, signature=b"\ngpgsig -----BEGIN\n  abc\n -----END")

    def put(path: bytes, mode: int, content: bytes) -> Made:
        return replace(one, files={**one.files, path: (mode, content)})

    def drop(*paths: bytes) -> Made:
        left = {path: file for path, file in one.files.items() if path not in paths}
        return replace(one, files=left)

    yield "a file more", put(b"setup.py", PLAIN, b"x")
    yield "a folder more", put(b".wtxt/pruned.d/x", PLAIN, b"x")
    yield "a file less", drop(b"README")
    yield "other code", put(b"README", PLAIN, b"9\n")
    yield "another mode", put(b"README", EXECUTABLE, one.files[b"README"][1])
    yield "a link for a file", put(b"README", LINK, one.files[b"README"][1])
    yield "another link", put(b"link", LINK, b"run")
    yield "another submodule", put(b"module", SUBMODULE, bytes(20))
    yield "attributes", put(ATTRIBUTES, PLAIN, b"* ident\n")
    yield "attributes of the record", put(ATTRIBUTES, PLAIN, b".wtxt/pruned ident\n")
    renamed = {(b"READMF" if path == b"README" else path): at for path, at in one.files.items()}
    yield "another file's name", replace(one, files=renamed)
    yield "the record without its ledger", drop(PRUNED_LEDGER)
    yield "no record", drop(PRUNED, PRUNED_LEDGER)
    yield "the ledger alone", drop(PRUNED)
    yield "a record that can be run", put(PRUNED, EXECUTABLE, one.files[PRUNED][1])
    yield (
        "a ledger that can be run",
        put(PRUNED_LEDGER, EXECUTABLE, one.files[PRUNED_LEDGER][1]),
    )
    yield "a link for the record", put(PRUNED, LINK, one.files[PRUNED][1])
    yield "a link for the ledger", put(PRUNED_LEDGER, LINK, one.files[PRUNED_LEDGER][1])
    yield (
        "more record",
        put(PRUNED, PLAIN, one.files[PRUNED][1] + one.files[PRUNED][1][-46:]),
    )
    yield "no signers", drop(SIGNERS)
    yield "mallory", put(SIGNERS, PLAIN, signers_file([ALICE, MALLORY]))
    yield (
        "mallory, sealed by mallory",
        replace(one, files=truth.sealed(one.files, SIGNERS, signers_file([MALLORY]), [MALLORY])),
    )
    for path in sorted({M, K, N} & one.files.keys()):
        yield f"{path.decode()} not as it was sealed", put(path, PLAIN, b"evil")
        yield f"{path.decode()} gone", drop(path)
        yield f"{path.decode()} and its ledger gone", drop(path, path + b".wsum")
        yield (
            f"{path.decode()} sealed by mallory",
            replace(one, files=truth.sealed(one.files, path, b"evil", [MALLORY])),
        )
        yield (
            f"{path.decode()} sealed by alice",
            replace(one, files=truth.sealed(one.files, path, b"mine", [ALICE])),
        )
    for n, other in enumerate(old.line):
        both = {path: one.files[path] for path in (PRUNED, PRUNED_LEDGER)}
        if {**other.files, **both} != one.files:
            yield f"the files of {n}", replace(one, files={**other.files, **both})


def _records(
    truth: Truth, old: Made, kept: Sequence[Made], keys: Sequence[Key], words: bytes
) -> Iterator[tuple[str, Files]]:
    """Other records for the right one."""
    line, store = old.line, truth.store
    oid = {n: store.commit(one).encode() for n, one in enumerate(line)}
    some = [b"kept=%b\n" % store.commit(one).encode() for one in kept]
    first = b"WTXTGIT-PRUNED 1\nfrom=%b\n" % oid[len(line) - 1]
    others = {
        "kept in another order": first + b"".join(reversed(some)),
        "kept twice": first + b"".join([*some, some[-1]]),
        "nothing kept": first,
        "without the tip": first + b"".join(some[:-1]),
        "another version": words.replace(b"PRUNED 1", b"PRUNED 2"),
        "upper case": words.replace(
            b"from=" + oid[len(line) - 1], b"from=" + oid[len(line) - 1].upper()
        ),
        "no last LF": words[:-1],
        "a line more": words + b"x=1\n",
        "an empty line more": words + b"\n",
        "CRLF": words.replace(b"\n", b"\r\n"),
        "short ids": words.replace(oid[len(line) - 1], oid[len(line) - 1][:12]),
        "ids of no commits": words.replace(some[0], b"kept=%b\n" % (b"0" * 40)),
    }
    for n in range(len(line) - 1):
        others[f"from {n}"] = words.replace(b"from=" + oid[len(line) - 1], b"from=" + oid[n])
        if line[n] not in kept:
            others[f"{n} said to be kept"] = first + b"kept=%b\n" % oid[n] + b"".join(some)
    side = [one for made in line for one in made.more]
    if side:
        others["a side branch said to be kept"] = (
            first + b"kept=%b\n" % store.commit(side[0]).encode() + b"".join(some)
        )
    for how, other in others.items():
        # Signers sealed these words, which are none of a pruning that there was.
        if other != words:
            yield how, sealed_pruning(truth, old, other, keys, is_stated=False)
    for count in range(len(KEYS) + 1):
        for chosen in combinations(KEYS, count):
            names = "and".join(key.name for key in chosen) or "nobody"
            yield f"by {names}", sealed_pruning(truth, old, words, chosen)
    yield "sealed as a file", sealed_pruning(truth, old, words, keys, build="none", is_stated=False)
    yield "deleted", sealed_pruning(truth, old, words, keys, build="deleted", is_stated=False)
    yield (
        "of another repository",
        sealed_pruning(truth, old, words, keys, repo=bytes(32), is_stated=False, before=b""),
    )
    yield (
        "of another path",
        sealed_pruning(truth, old, words, keys, path=M, is_stated=False, before=b""),
    )
    right = sealed_pruning(truth, old, words, keys)
    had = right[PRUNED_LEDGER][1]
    yield (
        "a record more",
        {**right, PRUNED_LEDGER: (PLAIN, record(had, None, words, keys, build="pruned"))},
    )
    yield "of other content", {**right, PRUNED: (PLAIN, first + some[-1])}
    yield "no ledger's bytes", {**right, PRUNED_LEDGER: (PLAIN, had[:-9])}
    yield (
        "moved",
        {
            **right,
            PRUNED_LEDGER: (
                PLAIN,
                record(right[PRUNED_LEDGER][1], None, words, keys, at=M, build="pruned"),
            ),
        },
    )
    own = ledger(had)
    assert own is not None
    head = own.head.repo, own.head.path
    yield "moved at once", {
        **right, PRUNED_LEDGER: (PLAIN, record(b"", head, words, keys, at=M, build="pruned")),
    }  # fmt: skip
    another = b""
    for n in range(len(own.records)):
        another = record(
            another, head, b"%d" % n if n + 1 < len(own.records) else words, keys, build="pruned"
        )
    if len(own.records) > 1:
        yield "a ledger of as many records", {**right, PRUNED_LEDGER: (PLAIN, another)}
    by_bob = [BOB.sign(b"something else")]
    yield "a signature of something else", {
        **right, PRUNED_LEDGER: (PLAIN, b"".join([had.partition(b"sign ")[0], *by_bob])),
    }  # fmt: skip
    if PRUNED_LEDGER in old.files:
        yield "begun anew", sealed_pruning(truth, old, words, keys, before=b"", is_stated=False)
        yield "the old record", {path: old.files[path] for path in (PRUNED, PRUNED_LEDGER)}


def afterwards(truth: Truth, old: Made, tip: Made) -> Iterator[tuple[str, Made]]:
    """What may come upon the copies."""

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
    yield "another record", then({**tip.files, PRUNED: (PLAIN, b"evil")})
    yield (
        "no record",
        then({name: one for name, one in tip.files.items() if name not in (PRUNED, PRUNED_LEDGER)}),
    )
    yield "attributes", then({**tip.files, ATTRIBUTES: (PLAIN, b"* ident\n")})
    for n, before in enumerate(old.line[:-1]):
        ours = {name: tip.files[name] for name in (PRUNED, PRUNED_LEDGER) if name in tip.files}
        yield f"the files of {n}", then({**before.files, **ours})
        for name in sorted({M, K, N} & before.files.keys()):
            names = (name, name + b".wsum")
            older = {one: before.files[one] for one in names if one in before.files}
            yield f"{name.decode()} of {n}", then({**tip.files, **older})
        yield f"a merge of {n}", then(tip.files, before)
    yield "a merge of the old one", then(tip.files, old)
    evil = Made({M: (PLAIN, b"evil")}, message=b"evil\n", is_honest=False)
    yield "a merge of another history", then(tip.files, evil)
