"""Sealed histories read once more, as plainly as can be, to hold `chain.release` against.

Written from docs/spec alone, over objects in memory: each is a kind and its bytes, by its id. The
states of an audit are those of `tests.trust.naive`; what is read here besides is of small files
that stand for themselves, with attributes of whole names or of `*`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import xxhash
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.trust import naive
from tests.trust.symbolic import Signed
from wtxtgit.filter.content import opaque_hash
from wtxtgit.model.array import Meta, Signature
from wtxtgit.model.ledger import Ledger, LedgerHead, Record
from wtxtgit.trust.state import SignersContent, SignersState, Tree

Objects = Mapping[str, tuple[str, bytes]]
Entry = tuple[int, str]
"""What stands at a path: its mode and the id."""

SIGNERS, SIGNERS_LEDGER = b".wtxt/signers", b".wtxt/signers.wsum"
ATTRIBUTES = b".gitattributes"
_HEAD = re.compile(rb"WLEDGER 1 repo=([0-9a-f]{64}) path=(\S+)\n")
_RECORD = re.compile(
    rb"(?:at path=(?P<at>\S+)\n)?"
    rb"meta schema=(?P<schema>\S+) gen=(?P<gen>[0-9]{6}) ts=(?P<ts>\S+) build=(?P<build>\S+) "
    rb"endian=LE host=(?P<host>\S+) cuda=(?P<cuda>\S+)\n"
    rb"WSUM 1 sha256_all=(?P<all>[0-9a-f]{64}) merkle_prev=(?P<prev>[0-9a-f]{64}) "
    rb"merkle_this=(?P<this>[0-9a-f]{64})\n"
    rb"(?P<signs>(?:sign ed25519=\S{88} keyid=[0-9a-f]{16}\n)*)"
)
_SIGN = re.compile(rb"sign ed25519=(\S+) keyid=(\S+)\n")
_SIGNER = re.compile(rb"(\S+) ssh-ed25519 (\S+)(?: .*)?")


@dataclass(frozen=True)
class Commit:
    tree: str
    parents: tuple[str, ...]
    rest: tuple[bytes, ...]
    """The lines of the head but tree, parents and signatures."""
    message: bytes


def commit(objects: Objects, oid: str) -> Commit:
    head, _, message = objects[oid][1].partition(b"\n\n")
    lines = head.split(b"\n")
    tree = lines.pop(0).decode()[5:]
    parents = []
    while lines and lines[0].startswith(b"parent "):
        parents.append(lines.pop(0).decode()[7:])
    rest: list[bytes] = []
    dropped = False
    for line in lines:
        if not line.startswith(b" "):
            dropped = line.split(b" ")[0] in (b"gpgsig", b"gpgsig-sha256", b"mergetag")
        if not dropped:
            rest.append(line)
    return Commit(tree, tuple(parents), tuple(rest), message)


def files(objects: Objects, tree: str) -> dict[bytes, Entry]:
    found: dict[bytes, Entry] = {}
    left = objects[tree][1]
    while left:
        mode, _, left = left.partition(b" ")
        name, _, left = left.partition(b"\0")
        oid, left = left[:20].hex(), left[20:]
        if mode == b"40000":
            found |= {name + b"/" + path: one for path, one in files(objects, oid).items()}
        else:
            found[name] = int(mode, 8), oid
    return found


def line(objects: Objects, tip: str) -> list[str]:
    """A commit, its first parent, and so on; the oldest first."""
    parents = commit(objects, tip).parents
    return [*(line(objects, parents[0]) if parents else ()), tip]


# Ledgers and signers.


@cache
def ledger(content: bytes) -> Ledger | None:
    """None for what breaks a rule of docs/spec/ledger.md."""
    head = _HEAD.match(content)
    if head is None:
        return None
    at, records = head.end(), list[Record]()
    while at < len(content):
        found = _RECORD.match(content, at)
        if found is None:
            return None
        at = found.end()
        word = {name: (value or b"").decode() for name, value in found.groupdict().items()}
        meta = Meta(
            word["schema"], int(word["gen"]), word["ts"], word["build"], word["host"], word["cuda"]
        )
        content_hash, prev, this = (bytes.fromhex(word[name]) for name in ("all", "prev", "this"))
        said = (word["ts"] + word["gen"] + word["build"]).encode()
        last = records[-1] if records else None
        if (
            this != sha256(prev + content_hash + said).digest()
            or prev != (last.merkle_this if last else bytes(32))
            or (last and (meta.gen <= last.meta.gen or meta.ts < last.meta.ts))
        ):
            return None
        signatures = [
            Signature(base64.b64decode(one), name.decode())
            for one, name in _SIGN.findall(found["signs"])
        ]
        names = [one.keyid for one in signatures]
        if names != sorted(set(names)) or len(names) > 8:
            return None
        records.append(
            Record(meta, content_hash, prev, this, tuple(signatures), found["at"] or None)
        )
    return Ledger(LedgerHead(bytes.fromhex(head[1].decode()), head[2]), tuple(records))


def covered(of: Ledger, n: int) -> bytes:
    """What the signatures of a record are over."""
    record, meta = of.records[n], of.records[n].meta
    at = b"at path=%b\n" % record.at if record.at else b""
    said = (
        f"meta schema={meta.schema} gen={meta.gen:06d} ts={meta.ts} build={meta.build} endian=LE "
        f"host={meta.host} cuda={meta.cuda}\nWSUM 1 sha256_all={record.sha256_all.hex()} "
        f"merkle_prev={record.merkle_prev.hex()} merkle_this={record.merkle_this.hex()}\n"
    )
    return b"WLEDGER 1 repo=%b path=%b\n" % (of.head.repo.hex().encode(), of.head.path) + (
        at + said.encode()
    )


@cache
def made(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def signed_by(of: Ledger, n: int, keys: frozenset[bytes]) -> Signed:
    message = covered(of, n)
    named = {xxhash.xxh64_hexdigest(key): key for key in keys}
    valid, invalid, unknown = [], [], []
    for one in of.records[n].signatures:
        key = named.get(one.keyid)
        if key is None:
            unknown.append(one.keyid)
        elif made(key, one.signature, message):
            valid.append(key)
        else:
            invalid.append(one.keyid)
    return Signed(frozenset(valid), tuple(invalid), tuple(unknown))


@cache
def opaque(content: bytes) -> bytes:
    return opaque_hash(memoryview(content))


@cache
def signers(content: bytes) -> SignersContent | None:
    threshold, principals = 1, set()
    for one in content.splitlines():
        if one.startswith(b"# threshold: "):
            threshold = int(one[13:])
        elif one and not one.startswith(b"#"):
            found = _SIGNER.fullmatch(one)
            if found is None:
                return None
            principals.add((base64.b64decode(found[2])[-32:], found[1].decode()))
    if threshold > len({who for _, who in principals}):
        return None
    return SignersContent(frozenset(principals), threshold, opaque(content))


# An audit.


def is_file(entry: Entry | None) -> bool:
    return entry is not None and entry[0] in (0o100644, 0o100755)


def artifacts(there: Mapping[bytes, Entry]) -> set[bytes]:
    sealed = {path.removesuffix(b".wsum") for path in there if path.endswith(b".wsum")}
    return sealed | ({SIGNERS} & there.keys())


def seen(objects: Objects, oid: str) -> Tree:
    """A commit's tree as the rules of trust see it."""
    there = files(objects, commit(objects, oid).tree)
    ledgers, broken = {}, set()
    for path, entry in there.items():
        content = objects[entry[1]][1] if is_file(entry) else b""
        if path.endswith(b".wsum") and content.startswith(b"WLEDGER "):
            read = ledger(content)
            if read is None:
                broken.add(path)
            else:
                ledgers[path] = read
    file = there.get(SIGNERS)
    told = signers(objects[file[1]][1]) if file is not None and is_file(file) else None
    fault = "no file" if file is not None and told is None else None
    return Tree(ledgers, frozenset(broken), told, fault, frozenset(artifacts(there)))


def lines_for(objects: Objects, there: Mapping[bytes, Entry], path: bytes) -> Iterator[bytes]:
    """The attributes that a path has."""
    entry = there.get(ATTRIBUTES)
    for one in objects[entry[1]][1].splitlines() if entry and is_file(entry) else ():
        pattern, *words = one.split()
        if pattern in (b"*", path, path.rpartition(b"/")[2]):
            yield from words


def holds(objects: Objects, oid: str, path: bytes) -> bool:
    """Whether what a checkout writes at an artifact's path is what was sealed last."""
    there = files(objects, commit(objects, oid).tree)
    entry = there.get(path)
    for above in range(len(path)):
        if path[above : above + 1] == b"/" and path[:above] in there:
            return False
    if any(one.startswith(path + b"/") for one in there):
        return False
    if entry is None:
        return True
    beside = there.get(path + b".wsum")
    if not is_file(entry) or beside is None or not is_file(beside):
        return False
    altering = (b"ident", b"filter=", b"working-tree-encoding=", b"export-subst", b"eol=crlf")
    for word in lines_for(objects, there, path):
        if word.startswith(altering) or word in (b"text", b"text=auto"):
            return False
    read = ledger(objects[beside[1]][1])
    return read is not None and read.last.sha256_all == opaque(objects[entry[1]][1])


def reached(objects: Objects, oid: str) -> set[str]:
    return {oid}.union(*(reached(objects, one) for one in commit(objects, oid).parents))


def ordered(objects: Objects, tip: str, done: list[str]) -> list[str]:
    """All that a commit reaches, parents first."""
    for one in commit(objects, tip).parents:
        if one not in done:
            ordered(objects, one, done)
    if tip not in done:
        done.append(tip)
    return done


def audit(objects: Objects, tip: str, root: str) -> bool:
    """Whether an audit from a commit, whose signers are known, ends with 0."""
    every = ordered(objects, tip, [])
    start_tree = seen(objects, root)
    if root not in every or start_tree.signers is None or not start_tree.signers.keys:
        return False
    below = reached(objects, root)
    start = SignersState(start_tree.signers, start_tree.ledgers.get(SIGNERS_LEDGER))
    number = {oid: n for n, oid in enumerate(every)}
    history = [
        naive.Commit(tuple(number[one] for one in commit(objects, oid).parents), seen(objects, oid))
        for oid in every
    ]
    judged = naive.judge(
        start, start_tree, frozenset(number[oid] for oid in below & {*every}), history, signed_by
    )
    # As changes: what fails at a path that differs from the first parent.
    for oid in line(objects, tip):
        if oid in below:
            continue
        now = files(objects, commit(objects, oid).tree)
        parents = commit(objects, oid).parents
        was = files(objects, commit(objects, parents[0]).tree) if parents else {}

        def differs(path: bytes, now: dict = now, was: dict = was) -> bool:  # type: ignore[type-arg]
            return any(now.get(one) != was.get(one) for one in (path, path + b".wsum"))

        one = judged[number[oid]]
        if any(differs(path) for _, path in one.findings):
            return False
        changed = {
            path for path in now if differs(path) or ATTRIBUTES in (path, *_changed(now, was))
        }
        if not all(
            holds(objects, oid, path)
            for path in {*artifacts(now), *one.places} & changed
            if path not in (SIGNERS,)
        ):
            return False
    # The tip, as a state: everything.
    findings = judged[number[tip]].findings
    if tip in below:
        rules = naive.Rules(signed_by)
        findings = frozenset(rules.step(seen(objects, tip), rules.start(start, start_tree))[1])
    now = files(objects, commit(objects, tip).tree)
    if findings:
        return False
    places = {*artifacts(now), *judged[number[tip]].places}
    return all(holds(objects, tip, path) for path in places)


def _changed(now: Mapping[bytes, Entry], was: Mapping[bytes, Entry]) -> set[bytes]:
    return {path for path in {*now, *was} if now.get(path) != was.get(path)}
