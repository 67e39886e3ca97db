"""AEROSET: a model in several AERO files, listed in a JSON file beside them; reading and checking.

The JSON names the parts, with the numbers of the weight shards in each, and an index: an AERO file
whose TIDX lists the tensors of all parts. Inside a part its shards are counted from 0. Files that
are not in the folder are fetched from `base_url`. Spec: `docs/spec/aero.md`, "AEROSET".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import attrgetter
from typing import Any

from wtxtgit.containers import json_text
from wtxtgit.containers.aero import MAGIC
from wtxtgit.containers.aero.check import check_file
from wtxtgit.containers.aero.content import Allowance, digest, short
from wtxtgit.containers.aero.describe import (
    ARCHITECTURE_TAG,
    NAME_TAG,
    TensorReader,
    is_tag,
    model_tags,
)
from wtxtgit.containers.aero.read import HASH_KEY, SHARD_NAME, Aero, IndexEntry
from wtxtgit.containers.aero.read import read as read_file
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import ListingBudget, fail, quoted
from wtxtgit.containers.format import (
    MAX_SET_FILES,
    SET_HEAD,
    FileSet,
    OpenMember,
    SetFolder,
    is_in_folder,
    unlisted,
)
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import MAX_JSON
from wtxtgit.errors import FormatError, InputError, NotRead
from wtxtgit.io.view import ByteView, hashed, pieces
from wtxtgit.model.findings import Findings, MemberFindings
from wtxtgit.model.tensor import Description, ReadOptions, Tensor

FORMAT = "aeroset"
FORMAT_NAME = "AEROSET"
VERSIONS = ((0, 1), (0, 2))
NO_PART = NotRead("its shard is in no part")

_NAMED = re.compile(rb'"name"\s*:\s*"AEROSET"')
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = frozenset({"format", "model", "parts", "global_tidx", "base_url"})
"""The keys of an index that are used."""
_ENTRY_KEYS = frozenset({"path", "sha256", "size_bytes", "shards"})
_FORMAT_KEYS = frozenset({"name", "version"})


@dataclass(frozen=True, slots=True)
class SetFile:
    """A file of a set, by its path in the set's folder; `shards` are numbers in the set.

    `sha256` is in hex, spelled as in the index.
    """

    path: str
    sha256: str | None
    size: int | None
    shards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AeroSet(FileSet):
    """A set that was read; its files are opened when they are needed.

    `homes` has, for each shard, its part and its number in that part. `listing` is what all files
    together may still list after the JSON.
    """

    version: tuple[int, int]
    model: dict[str, object]
    parts: tuple[SetFile, ...]
    index: SetFile
    homes: dict[int, tuple[SetFile, int]]
    open_member: OpenMember
    listing: ListingBudget
    base_url: str | None = None
    further: dict[str, object] = field(default_factory=dict)
    """Values of the index under keys that nobody specified."""

    def describe(self, options: ReadOptions) -> Description:
        """List the tensors of the index, with their bytes in the parts.

        Tensors whose part can't be opened are absent. Raises FormatError if the index can't be
        opened.
        """
        listing = self.listing.apart()
        index = self.open(self.index, listing)
        readers = _Readers(self, options, listing)
        tensors = tuple(readers.tensor(entry) for entry in index.entries)
        tags, untold = model_tags(index)
        size = len(index.data)
        names = {entry.name for entry in index.entries}
        beside: list[str] = []
        for path, aero in readers.files.items():
            size += len(aero.data)
            beside += unlisted(path, {entry.name for entry in aero.entries} - names)
            more, lacking = model_tags(aero)
            tags = more | tags
            untold = tuple(dict.fromkeys((*untold, *lacking)))
        for key, tag in (("name", NAME_TAG), ("architecture", ARCHITECTURE_TAG)):
            value = self.model.get(key)
            if value and is_tag(value):
                tags[tag] = str(value)
        metadata: dict[str, object] = {
            "version": ".".join(map(str, self.version)),
            "model": self.model,
            "parts": [{"path": part.path, "shards": list(part.shards)} for part in self.parts],
            "global_tidx": self.index.path,
        }
        if self.base_url is not None:
            metadata["base_url"] = self.base_url
        if self.further:
            metadata["further"] = self.further
        return Description(
            FORMAT, tensors, metadata, tags=tags, untold=untold, size=size, unlisted=tuple(beside)
        )

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of the set's files, the index first."""
        return (self.index.path, *(part.path for part in self.parts))

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files of the set, and the index against them; raises nothing."""
        return map(SetCheck(self, options).member, paths)

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Join the findings of all files, in their order, to the findings of the set."""
        return Findings.of_members(members)[0]

    def open(self, member: SetFile, listing: ListingBudget) -> Aero:
        """Read a file of the set; raises FormatError whatever is wrong with it."""
        return self.read(member, self.view(member), listing)

    def view(self, member: SetFile) -> ByteView:
        """Return the bytes of a file of the set; raises FormatError if it can't be opened."""
        try:
            return self.open_member(member.path)
        except InputError as error:
            why = NotRead.because(error)
        fetch = self.open_member.elsewhere if isinstance(self.open_member, SetFolder) else None
        if self.base_url is not None and fetch is not None:
            try:
                return fetch(self.base_url, member.path)
            except InputError as error:
                why = NotRead.because(error, f"{why}, and ")
        message = f"{quoted(member.path)} can't be opened: {why}"
        raise FormatError.because(message, why, field="path")

    @staticmethod
    def read(member: SetFile, data: ByteView, listing: ListingBudget) -> Aero:
        """Parse the bytes of a file of the set; raises FormatError.

        What the file lists counts in the `listing` of the set.
        """
        try:
            if data[: len(MAGIC)] != MAGIC:
                fail("not an AERO file", offset=0, field="magic")
            return read_file(data, listing.of_file(len(data)))
        except FormatError as error:
            raise error.within(quoted(member.path)) from None


class _Readers:
    """The tensors of a set's parts, each part opened once."""

    def __init__(self, aeroset: AeroSet, options: ReadOptions, listing: ListingBudget) -> None:
        self._set = aeroset
        self._options = options
        self._listing = listing
        self._decoded = DecodedParts(options)
        self.files: dict[str, Aero] = {}
        self._readers: dict[str, TensorReader | NotRead] = {}

    def tensor(self, entry: IndexEntry) -> Tensor:
        home = self._set.homes.get(entry.shard_id)
        reader = NO_PART if home is None else self._reader(home[0])
        if home is not None and isinstance(reader, TensorReader):
            # No offset: it would be a position in another file.
            return replace(reader.tensor(entry, home[1]), offset=None)
        none, why = memoryview(b""), NO_PART if isinstance(reader, TensorReader) else reader
        kind = entry.dtype_name, entry.shape
        return Tensor(entry.name, *kind, none, None, entry.element, absent=why)

    def _reader(self, part: SetFile) -> TensorReader | NotRead:
        reader = self._readers.get(part.path)
        if reader is None:
            try:
                aero = self._set.open(part, self._listing)
            except FormatError as error:
                reader = NotRead.because(error)
            else:
                self.files[part.path] = aero
                decoded = self._decoded.of_file(len(aero.data))
                reader = TensorReader(aero, self._options, decoded)
            self._readers[part.path] = reader
        return reader


def is_index(data: ByteView) -> bool:
    """Whether a JSON file is the index of a set, judged by its first bytes."""
    return len(data) <= MAX_JSON and _NAMED.search(bytes(data[:SET_HEAD])) is not None


def read(data: ByteView, open_member: OpenMember) -> AeroSet:
    """Read `model.aeroset.json`.

    `open_member` opens its files when they are needed. Raises FormatError.
    """
    listing = ListingBudget(len(data))
    value = json_text.parse(data, "index", unique_keys=True, listing=listing)
    if not isinstance(value, dict):
        fail("index is not an object", offset=0, field="format")
    version = _version(value.get("format"))
    model = value.get("model")
    parts = value.get("parts")
    if not isinstance(parts, list):
        fail("index does not list its parts", offset=0, field="parts")
    if len(parts) > MAX_SET_FILES:
        fail(f"index lists {len(parts)} parts", offset=0, field="parts", kind="limit")
    members = tuple(_member(part, "parts", has_shards=True) for part in parts)
    index = _member(value.get("global_tidx"), "global_tidx", has_shards=False)
    paths: set[str] = set()
    homes: dict[int, tuple[SetFile, int]] = {}
    for member in (index, *members):
        if member.path in paths:
            fail(f"{quoted(member.path)} is listed more than once", offset=0, field="path")
        paths.add(member.path)
        for local, shard in enumerate(member.shards):
            if shard in homes:
                fail(f"shard {shard} is in two parts", offset=0, field="shards")
            homes[shard] = (member, local)
    if len(homes) > MAX_TENSORS:
        fail(f"index lists {len(homes)} shards", offset=0, field="shards", kind="limit")
    about = model if isinstance(model, dict) else {}
    url = value.get("base_url")
    base_url = url if isinstance(url, str) and url and json_text.is_text(url) else None
    further = {key: item for key, item in value.items() if key not in _KEYS}
    further |= _further(value)
    return AeroSet(version, about, members, index, homes, open_member, listing, base_url, further)


def _further(index: dict[str, Any]) -> dict[str, object]:
    """Return what stands under unknown keys within an index that was read, by place."""
    unknown: dict[str, object] = {}
    lists = [("format", index["format"], _FORMAT_KEYS)]
    entries = (*index["parts"], index["global_tidx"])
    lists += [(entry["path"], entry, _ENTRY_KEYS) for entry in entries]
    for where, value, known in lists:
        more = {key: item for key, item in value.items() if key not in known}
        if more:
            unknown[where] = more
    if not isinstance(index.get("model"), dict | None):
        unknown["model"] = index["model"]
    return unknown


def _version(value: object) -> tuple[int, int]:
    name, version = None, None
    if isinstance(value, dict):
        name, version = value.get("name"), value.get("version")
    if name != FORMAT_NAME:
        fail(f"format is not {FORMAT_NAME}", offset=0, field="format")
    known_version = next((known for known in VERSIONS if version == list(known)), None)
    if known_version is None:
        fail(f"version {ascii(version)[:20]} is unknown", offset=0, field="version")
    return known_version


def _member(value: object, what: str, *, has_shards: bool) -> SetFile:
    if not isinstance(value, dict):
        fail(f"{what} has an invalid entry", offset=0, field=what)
    path, digest, size = (value.get(key) for key in ("path", "sha256", "size_bytes"))
    if not isinstance(path, str):
        fail(f"{what} has an entry with no path", offset=0, field="path")
    json_text.check_name(path, "path", offset=0)
    if not is_in_folder(path):
        fail(f"{quoted(path)} is not a path in the set's folder", offset=0, field="path")
    if digest is not None and not (isinstance(digest, str) and _SHA256.fullmatch(digest.lower())):
        fail(f"{quoted(path)} has an invalid sha256", offset=0, field="sha256")
    if size is not None and (type(size) is not int or size < 0):
        fail(f"{quoted(path)} has an invalid size", offset=0, field="size_bytes")
    shards = value.get("shards") if has_shards else []
    if not isinstance(shards, list) or any(type(n) is not int or n < 0 for n in shards):
        fail(f"{quoted(path)} has an invalid list of shards", offset=0, field="shards")
    return SetFile(path, digest, size, tuple(shards))


class SetCheck:
    """A check of a set in progress: file by file, in any order.

    Findings in a file have the file's path before their message, and offsets in that file.
    """

    def __init__(self, aeroset: AeroSet, options: ReadOptions) -> None:
        self._set = aeroset
        self._options = options
        self._parts = {part.path: part for part in aeroset.parts}
        self._listed: dict[str, list[IndexEntry]] | None = None
        self._is_listed = False
        # The index's share of the budget stays used; each part is checked by itself.
        self._listing = aeroset.listing.apart()

    def member(self, path: str) -> MemberFindings:
        """Check one of the set's files; raises nothing."""
        findings, index = Findings(label=attrgetter("path")), self._set.index
        member = index if path == index.path else self._parts[path]
        aero = self._check_file(member, findings)
        if member is index:
            self._list(aero)
            for entry in aero.entries if aero is not None else ():
                if entry.shard_id not in self._set.homes:
                    findings.error(
                        _named(member, entry, f"can't be read: {NO_PART}"),
                        "shard_id",
                        None,
                        member,
                    )
        elif aero is not None:
            if not self._is_listed:
                try:
                    self._listing = self._set.listing.apart()
                    self._list(self._set.open(index, self._listing))
                except FormatError:
                    self._list(None)
            # Without a readable index there is nothing to compare with.
            if self._listed is not None:
                self._check_agreement(member, aero, self._listed.get(path, []), findings)
        return findings.of_member()

    def _list(self, index: Aero | None) -> None:
        """Record what the index lists for each part, once for all parts."""
        self._is_listed = True
        if index is None:
            return
        self._listed = {}
        for entry in index.entries:
            home = self._set.homes.get(entry.shard_id)
            if home is not None:
                self._listed.setdefault(home[0].path, []).append(entry)

    def _check_file(self, member: SetFile, findings: Findings) -> Aero | None:
        """Check one file; returns None if it can't be read."""
        try:
            data = self._set.view(member)
            _check_identity(member, data, findings)
            is_index = member is self._set.index
            listing = (self._set.listing if is_index else self._listing).apart()
            aero = self._set.read(member, data, listing)
            if is_index:
                self._listing = listing
        except FormatError as error:
            findings.refuse(error, member)
            return None
        inner = check_file(aero, self._options, shards_elsewhere=member is self._set.index)
        errors, warnings = (
            tuple(
                replace(problem, message=f"{quoted(member.path)}: {problem.message}")
                for problem in problems
            )
            for problems in (inner.errors, inner.warnings)
        )
        findings.add(MemberFindings(errors, warnings))
        return aero

    def _check_agreement(
        self, part: SetFile, aero: Aero, entries: list[IndexEntry], findings: Findings
    ) -> None:
        """Check what the index says of a part's tensors."""
        own: dict[str, IndexEntry] = {}
        for entry in aero.entries:
            own.setdefault(entry.name, entry)
        _check_shards(part, aero, findings)
        decoded = DecodedParts(self._options).of_file(len(aero.data))
        reader = TensorReader(aero, self._options, decoded)
        allowance = Allowance(len(aero.data), self._options)
        for entry in entries:
            number = self._set.homes[entry.shard_id][1]
            shard = aero.shard(number)
            own_entry = own.pop(entry.name, None)
            if shard is None or not entry.is_inside(shard):
                findings.error(
                    _named(part, entry, "is missing from its part"), "shard_id", None, part
                )
                continue
            if own_entry is None:
                findings.warn(
                    _named(part, entry, "is not in its part's index"), "tensors", None, part
                )
            elif _place(own_entry, own_entry.shard_id) != _place(entry, number):
                findings.error(
                    _named(part, entry, "differs from the entry in its part's index"),
                    "tensors",
                    None,
                    part,
                )
            stated = entry.digest
            # The part's own check computes its hash; only a different one has to be checked here.
            if stated is None or (own_entry is not None and stated == own_entry.digest):
                continue
            try:
                allowance.hash(entry.data_len, shard.offset)
            except FormatError as error:
                findings.error(error.message, HASH_KEY, None, part, kind=error.kind)
                return
            tensor = reader.tensor(entry, number)
            computed = digest(tensor.view)
            if tensor.absent is None and computed != stated:
                problem = f"has BLAKE3 {short(computed)}, the index has {short(stated)}"
                findings.error(_named(part, entry, problem), HASH_KEY, None, part, kind="blake3")
        for entry in own.values():
            findings.error(
                _named(part, entry, "is not listed in the set's index"), "tensors", None, part
            )


def _check_shards(part: SetFile, aero: Aero, findings: Findings) -> None:
    """Check that a part has exactly the shards that the set lists for it."""
    listed = {SHARD_NAME % number for number in range(len(part.shards))}
    for name in sorted(listed - aero.shards.keys()):
        message = f"{quoted(part.path)} lacks {name.decode()}, which the set lists"
        findings.error(message, "shards", None, part)
    for name, chunk in aero.shards.items():
        if chunk.ulen and name not in listed:
            message = f"{quoted(part.path)} has {quoted(aero.label(chunk))}, not listed by the set"
            findings.error(message, "shards", None, part)


def _check_identity(member: SetFile, data: ByteView, findings: Findings) -> None:
    path = quoted(member.path)
    if member.size is not None and member.size != len(data):
        findings.error(
            f"{path} has {len(data)} bytes, the set says {member.size}", "size_bytes", None, member
        )
    if member.size is None:
        findings.error(f"{path} has no size", "size_bytes", None, member)
    if member.sha256 is None:
        findings.error(f"{path} has no hash", "sha256", None, member, kind="sha256")
        return
    if member.sha256 != member.sha256.lower():
        # The original reader compares these as texts.
        findings.error(f"sha256 of {path} is not in lowercase", "sha256", None, member)
    computed, stated = hashed(sha256(), pieces(data)).digest(), bytes.fromhex(member.sha256)
    if computed != stated:
        findings.error(
            f"sha256 of {path} is {short(computed)}, the set has {short(stated)}",
            "sha256",
            None,
            member,
            kind="sha256",
        )


def _place(entry: IndexEntry, shard_id: int) -> tuple[object, ...]:
    return entry.dtype, entry.shape, shard_id, entry.data_off, entry.data_len


def _named(member: SetFile, entry: IndexEntry, problem: str) -> str:
    return f"{quoted(member.path)}: tensor {quoted(entry.name)} {problem}"
