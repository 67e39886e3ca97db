"""Checks of an AEROSET: each file, and what the index and the parts say of one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from wtxtgit.containers.aero.aeroset import NO_PART, AeroSet, Member
from wtxtgit.containers.aero.check import check_file
from wtxtgit.containers.aero.content import Allowance
from wtxtgit.containers.aero.description import TensorReader
from wtxtgit.containers.aero.digests import digest, short
from wtxtgit.containers.aero.index import HASH_KEY, IndexEntry
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.tensor_rules import hash_of, is_inside
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.decoded import DecodedParts
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.model.reading import Findings, MemberFindings, ReadOptions


@dataclass(slots=True, eq=False)
class SetCheck:
    """A check of a set under way: file by file, in any order.

    What is found in a file has the file's path before its message, and offsets there.
    """

    aeroset: AeroSet
    options: ReadOptions
    _parts: dict[str, Member] = field(init=False)
    _listed: dict[str, list[IndexEntry]] | None = None
    _is_read: bool = False

    def __post_init__(self) -> None:
        self._parts = {part.path: part for part in self.aeroset.parts}

    def member(self, path: str) -> MemberFindings:
        """Check one of the set's files; raises nothing."""
        found = Findings()
        if path == self.aeroset.index.path:
            self._check_index(found)
            return found.of_member()
        part = self._parts[path]
        aero = _check_member(self.aeroset, part, self.options, found, is_index=False)
        listed = None if aero is None else self._entries_of(part)
        if aero is not None and listed is not None:
            _check_agreement(self.aeroset, part, aero, listed, self.options, found)
        return found.of_member()

    def _check_index(self, found: Findings) -> None:
        aeroset = self.aeroset
        index = _check_member(aeroset, aeroset.index, self.options, found, is_index=True)
        self._take(index)
        for entry in index.entries if index is not None else ():
            if entry.shard_id not in aeroset.homes:
                _entry_error(found, aeroset.index, entry, f"is not read: {NO_PART}", "shard_id")

    def _entries_of(self, part: Member) -> list[IndexEntry] | None:
        """What the index lists in a part; None where the index can't be read."""
        if not self._is_read:
            try:
                self._take(self.aeroset.open(self.aeroset.index))
            except FormatError:
                self._take(None)
        return None if self._listed is None else self._listed.get(part.path, [])

    def _take(self, index: Aero | None) -> None:
        """Keep what an index lists of each part, once for all of them."""
        self._is_read = True
        if index is None:
            return
        self._listed = {}
        for entry in index.entries:
            home = self.aeroset.homes.get(entry.shard_id)
            if home is not None:
                self._listed.setdefault(home[0].path, []).append(entry)


def _check_member(
    aeroset: AeroSet, member: Member, options: ReadOptions, found: Findings, *, is_index: bool
) -> Aero | None:
    """Check one file; None where it can't be read."""
    try:
        data = aeroset.view(member)
        _check_identity(member, data, found)
        aero = aeroset.read(member, data)
    except FormatError as error:
        found.refuse(error, chunk=member.path)
        return None
    inner = check_file(aero, options, shards_elsewhere=is_index)
    for problems, tell in ((inner.errors, found.error), (inner.warnings, found.warn)):
        for problem in problems:
            tell(
                problem.kind,
                f"{quoted(member.path)}: {problem.message}",
                offset=problem.offset,
                field=problem.field,
                chunk=None if problem.chunk is None else str(problem.chunk),
            )
    return aero


def _check_identity(member: Member, data: ByteView, found: Findings) -> None:
    if member.size is not None and member.size != len(data):
        found.error(
            "structure",
            f"{quoted(member.path)} has {len(data)} bytes, the set says {member.size}",
            field="size_bytes",
            chunk=member.path,
        )
    if member.sha256 is None:
        found.warn(
            "sha256", f"{quoted(member.path)} has no hash", field="sha256", chunk=member.path
        )
        return
    got = sha256()
    for piece in pieces(data):
        got.update(piece)
    if got.hexdigest() != member.sha256:
        wanted = short(bytes.fromhex(member.sha256))
        found.error(
            "sha256",
            f"sha256 of {quoted(member.path)} is {short(got.digest())}, the set has {wanted}",
            field="sha256",
            chunk=member.path,
        )


def _check_agreement(
    aeroset: AeroSet,
    part: Member,
    aero: Aero,
    entries: list[IndexEntry],
    options: ReadOptions,
    found: Findings,
) -> None:
    """Check what the index says of a part's tensors."""
    own: dict[str, IndexEntry] = {}
    for entry in aero.entries:
        own.setdefault(entry.name, entry)
    reader = TensorReader(aero, options, DecodedParts(options).of_file(len(aero.data)))
    allowance = Allowance(len(aero.data), options)
    for entry in entries:
        number = aeroset.homes[entry.shard_id][1]
        shard = aero.shard(number)
        there = own.pop(entry.name, None)
        if shard is None or not is_inside(entry, shard):
            _entry_error(found, part, entry, "is not in its part", "shard_id")
            continue
        if there is None:
            _entry_warning(found, part, entry, "is not in its part's index")
        elif _place(there, there.shard_id) != _place(entry, number):
            _entry_error(found, part, entry, "is another one in its part's index", "tensors")
        wanted = hash_of(entry)
        if wanted is None or (there is not None and wanted == hash_of(there)):
            continue
        try:
            allowance.hash(entry.data_len, shard.offset)
        except FormatError as error:
            found.error(error.kind, error.message, field=HASH_KEY, chunk=part.path)
            return
        tensor = reader.tensor(entry, number)
        got = digest(tensor.view)
        if tensor.absent is None and got != wanted:
            _entry_error(
                found,
                part,
                entry,
                f"has BLAKE3 {short(got)}, the index has {short(wanted)}",
                HASH_KEY,
                kind="blake3",
            )
    for entry in own.values():
        _entry_warning(found, part, entry, "is not in the index of the set")


def _place(entry: IndexEntry, shard_id: int) -> tuple[object, ...]:
    return entry.dtype, entry.shape, shard_id, entry.data_off, entry.data_len


def _entry_error(
    found: Findings,
    member: Member,
    entry: IndexEntry,
    problem: str,
    field: str,
    *,
    kind: str = "structure",
) -> None:
    message = f"{quoted(member.path)}: tensor {quoted(entry.name)} {problem}"
    found.error(kind, message, field=field, chunk=member.path)


def _entry_warning(found: Findings, member: Member, entry: IndexEntry, problem: str) -> None:
    message = f"{quoted(member.path)}: tensor {quoted(entry.name)} {problem}"
    found.warn("structure", message, field="tensors", chunk=member.path)
