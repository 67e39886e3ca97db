"""Members of a damaged zip: what its local headers, its directory and its CRC-32s still prove.

The directory is at the end, so a truncated zip has none. Each member has a local header with the
same fields: name, method, sizes and CRC-32; the last three come after the payload if it was written
in one go. Members are searched from the start, each after the one before; a payload counts if a
CRC-32 in the file holds for it. A damaged member may contain a zip of its own: without the
directory its members can't be distinguished. Spec: `docs/spec/npz.md`, "Salvage"; PKWARE's
APPNOTE.TXT 6.3.10
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge

from wtxtgit.containers import zip_read
from wtxtgit.containers.budget import Budget, DecodingBudget
from wtxtgit.containers.cursor import Cursor, fail
from wtxtgit.containers.ranges import MAX_TENSORS
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.zip_read import (
    DEFLATED,
    ENTRY_MAGIC,
    LAYOUTS,
    LOCAL,
    STORED,
    WITH_DESCRIPTOR,
    Directory,
    ZipEntry,
    ZipMember,
)
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError
from wtxtgit.io.view import PIECE, Buffer, ByteView, mapped, pieces
from wtxtgit.model.tensor import ReadOptions

CUT_OFF = "the file ends before it does"
WRONG = "its CRC-32 does not match"
TWICE = "its name appears more than once"
ONCE = "its CRC-32 matches, but only one copy of its name is left"
NO_CRC32 = "the file has no CRC-32"
# How many bytes are read to find where members end and whether they hold, as a multiple of the
# file's size: each is tried as its local header says, and as the directory says if that differs.
_PASSES = 8
_LEAST = 1 << 20
# What searching for a descriptor at one place costs, in bytes.
_LOOK = 256
_STEP = 64


@dataclass(frozen=True, slots=True)
class LeftMember:
    """A member of a damaged zip; it may reach beyond the end of the file.

    `lost` says why its content is missing. `doubt` says what is not proved of one that is whole.
    """

    member: ZipMember
    lost: str | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class LeftZip:
    """The members that can be found, in order of position, and words on what can't be known.

    `is_listed` if the directory, which lists all members, could be read.
    """

    members: tuple[LeftMember, ...]
    end: int
    missing: tuple[str, ...]
    is_listed: bool

    @property
    def whole(self) -> Directory:
        """A directory of only the members that are whole."""
        members = tuple(left.member for left in self.members if left.lost is None)
        return Directory(members, self.end, self.end)


def read(data: ByteView, options: ReadOptions) -> LeftZip:
    """Find the members; raises FormatError (limit) if there are too many."""
    search = _MemberSearch(data, options)
    search.walk()
    search.add_unfound()
    members = _without_shared(search.members)
    return LeftZip(
        tuple(_judged(members)), search.end, tuple(search.missing), search.listed is not None
    )


class _MemberSearch:
    """The search through one file."""

    def __init__(self, data: ByteView, options: ReadOptions) -> None:
        self.data = data
        self.options = options
        self.decoding = DecodingBudget(len(data), options, "payload")
        self.work = Budget(max(_PASSES * len(data), _LEAST), "", "payload")
        entries = _places(data, ENTRY_MAGIC)
        self.marks = array("Q", merge(_places(data, ZIP_MAGIC), entries))
        self.listed: frozenset[int] | None = None
        self.entries = self._entries(entries)
        self.known = sorted(self.entries)
        self.members: list[LeftMember] = []
        self.missing: list[str] = []
        self.end = min((entry.at for entry in self.entries.values()), default=len(data))

    def _entries(self, places: Iterable[int]) -> dict[int, ZipEntry]:
        """Return entries of the directory that can be read, by where their local headers are.

        Members may be zips with entries of their own. The entries of the outer zip stand together
        at the end, or lead to a local header with the same name.
        """
        entries: dict[int, ZipEntry] = {}
        run: list[ZipEntry] = []
        reached = -1
        for at in places:
            cursor = Cursor(self.data, at)
            try:
                entry = zip_read.read_entry(cursor)
            except FormatError:
                continue
            # Entries may share bytes: all names together could be far longer than the file.
            if not self.work.spend(cursor.pos - at):
                break
            if at != reached:
                run = []
            run.append(entry)
            reached = cursor.pos
            if entry.header < at and self._has_name(entry):
                entries.setdefault(entry.header, entry)
        for entry in run:
            if entry.header < entry.at:
                entries.setdefault(entry.header, entry)
        try:
            members = zip_read.read(self.data).members
        except FormatError:
            return entries
        self.listed = frozenset(member.header for member in members)
        return {header: entries[header] for header in self.listed if header in entries}

    def _has_name(self, entry: ZipEntry) -> bool:
        """Whether the local header to which an entry leads has the entry's name."""
        at = entry.header + LOCAL.size
        name = entry.name.encode()
        return bytes(self.data[at : at + len(name)]) == name

    def walk(self) -> None:
        """Go from member to member, from the start of the file to its directory."""
        data, pos = self.data, 0
        directory = {entry.at for entry in self.entries.values()}
        unknown = None
        while pos < len(data) and pos not in directory:
            member = self._at(pos) if data[pos : pos + len(ZIP_MAGIC)] == ZIP_MAGIC else None
            if member is not None:
                self._tell_gap(unknown, pos)
                unknown = None
                self.members.append(member)
                pos = self._behind(member)
                continue
            unknown = pos if unknown is None else unknown
            following = bisect_left(self.marks, pos + 1)
            pos = self.marks[following] if following < len(self.marks) else len(data)
        self._tell_gap(unknown, pos)
        if pos >= len(data) and self.listed is None:
            self.missing.append("any members after the end of the file")

    def _tell_gap(self, start: int | None, end: int) -> None:
        # If there is a directory, only what it lists is a member.
        if start is not None and self.listed is None:
            self.missing.append(f"what bytes {start} to {end} were")

    def _behind(self, left: LeftMember) -> int:
        """Return where to search for the next member."""
        member = left.member
        if left.lost is None:
            behind = zip_read.find(self.data, member, len(self.data))
            return behind[1] if member.flags & WITH_DESCRIPTOR and behind else member.end
        # A length that does not lead to a header is damaged too.
        for end in (member.end, *(member.end + layout.size for layout, _ in LAYOUTS)):
            if self.data[end : end + 4] in (ZIP_MAGIC, ENTRY_MAGIC):
                return end
        # Headers do not overlap, so a file full of magics still has few members.
        following = bisect_left(self.marks, member.header + LOCAL.size)
        return self.marks[following] if following < len(self.marks) else len(self.data)

    def _at(self, pos: int) -> LeftMember | None:
        """Return the member whose local header is at `pos`; None if that can't be read."""
        cursor = Cursor(self.data, pos)
        entry = self.entries.get(pos)
        # A member that the directory does not list is not part of this zip.
        if self.listed is not None and pos not in self.listed:
            return None
        try:
            _, _, flags, method, _, _, crc32, length, size, name_length, extra_length = (
                cursor.record(LOCAL, "local header")
            )
            name = zip_read.read_name(cursor, name_length, flags)
            extra = cursor.take(extra_length, "extra fields")
        except FormatError:
            return None
        length, size = zip_read.wide_sizes(extra, length, size)
        start = cursor.pos
        of_header = ZipMember(name, method, crc32, start, start + length, size, pos, pos, flags)
        if entry is not None:
            of_entry = _of_entry(entry, start)
            if self._holds(of_entry):
                return LeftMember(of_entry, doubt=None if entry.name == name else ONCE)
        if flags & WITH_DESCRIPTOR and not length:
            ended = self._described(of_header)
            # The header has neither sizes nor a CRC-32: alone it would prove an empty payload.
            if ended is None and entry is not None:
                return LeftMember(of_entry, lost=self._why(of_entry))
            if ended is None:
                # Its length is not known.
                is_last = bisect_left(self.marks, start) == len(self.marks)
                return LeftMember(of_header, lost=CUT_OFF if is_last else WRONG)
            of_header = ended
        if self._holds(of_header):
            is_same = entry is not None and entry.name == name
            return LeftMember(of_header, doubt=None if is_same else ONCE)
        claimed = of_header if entry is None else of_entry
        return LeftMember(claimed, lost=self._why(claimed))

    def add_unfound(self) -> None:
        """Add members that the directory lists but whose local headers can't be read."""
        headers = {left.member.header for left in self.members}
        for header, entry in sorted(self.entries.items()):
            if header not in headers:
                self.members.append(self._of_directory(entry))
        self.members.sort(key=lambda left: left.member.header)

    def _of_directory(self, entry: ZipEntry) -> LeftMember:
        """Return a member as the directory has it; its CRC-32 shows where its payload starts."""
        starts = dict.fromkeys(self._starts(entry))
        for start in starts:
            candidate = _of_entry(entry, start)
            if self._holds(candidate):
                return LeftMember(candidate, doubt=None if self._has_name(entry) else ONCE)
        candidate = _of_entry(entry, next(iter(starts)))
        return LeftMember(candidate, lost=self._why(candidate))

    def _starts(self, entry: ZipEntry) -> Iterator[int]:
        """Yield where the payload of a member with a damaged local header may start."""
        name_end = entry.header + LOCAL.size + len(entry.name.encode())
        if entry.header + LOCAL.size <= len(self.data):
            raw = self.data[entry.header : entry.header + LOCAL.size]
            *_, name_length, extra_length = LOCAL.unpack(mapped(raw))
            yield entry.header + LOCAL.size + name_length + extra_length
            yield name_end + extra_length
        yield name_end
        # Directly before the next member, with or without a descriptor between them.
        after = bisect_left(self.known, entry.header + 1)
        following = self.known[after] if after < len(self.known) else self.end
        for size in (0, *(layout.size for layout, _ in LAYOUTS)):
            yield max(following - size - entry.length, 0)

    def _holds(self, member: ZipMember) -> bool:
        """Whether the member's bytes exist and match its CRC-32."""
        length = member.end - member.start
        if member.end > len(self.data) or not self.work.spend(length):
            return False
        try:
            zip_read.check_size(member, self.options.max_chunk)
            if not member.stored and not self.decoding.spend(member.size):
                return False
            blocks = zip_read.blocks(self.data, member, self.options.max_chunk)
            return crc32_of(blocks) == member.crc32
        except FormatError:
            return False

    def _why(self, member: ZipMember) -> str:
        if member.end > len(self.data):
            return CUT_OFF
        try:
            zip_read.check_size(member, self.options.max_chunk)
        except FormatError as error:
            return error.message
        return WRONG

    def _described(self, member: ZipMember) -> ZipMember | None:
        """Return the member with the sizes and the CRC-32 of the descriptor after its payload."""
        if member.method == DEFLATED:
            return self._described_deflate(member)
        return self._described_stored(member) if member.method == STORED else None

    def _described_deflate(self, member: ZipMember) -> ZipMember | None:
        """Do this for a deflated member: its stream shows where it ends."""
        decoder, size, pos = zlib.decompressobj(-zlib.MAX_WBITS), 0, member.start
        pending: Buffer = b""
        while not decoder.eof and (pending or pos < len(self.data)):
            if not pending:
                pending = mapped(self.data[pos : pos + PIECE])
                pos += len(pending)
            try:
                block = decoder.decompress(pending, PIECE)
            except zlib.error:
                return None
            pending = decoder.unconsumed_tail
            size += len(block)
            if size > self.options.max_chunk or not self.decoding.spend(len(block)):
                return None
        if not decoder.eof:
            return None
        end = pos - len(decoder.unused_data) - len(pending)
        for layout, magic in LAYOUTS:
            raw = bytes(self.data[end : end + layout.size])
            if len(raw) == layout.size and raw[: sum(map(len, magic))] == b"".join(magic):
                crc32, length, stated_size = layout.unpack(raw)[len(magic) :]
                if (length, stated_size) == (end - member.start, size):
                    return replace(member, end=end, size=size, crc32=crc32)
        return None

    def _described_stored(self, member: ZipMember) -> ZipMember | None:
        """Do this for a stored member: only what follows its payload shows where it ends.

        A descriptor counts if its length and its CRC-32 match the bytes before it.
        """
        start, crc32, done = member.start, 0, member.start
        for end, stated_crc32 in self._descriptors(start):
            if not self.work.spend(end - done):
                return None
            for piece in pieces(self.data[done:end]):
                crc32 = zlib.crc32(piece, crc32)
            done = end
            if crc32 == stated_crc32:
                return replace(member, end=end, size=end - start, crc32=crc32)
        return None

    def _descriptors(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the ends, and CRC-32s, that descriptors state for a payload that starts at `start`.

        They are in order. Descriptors are followed by a header, the directory, or the end of the
        file.
        """
        first = bisect_left(self.marks, start)
        for number in range(first, len(self.marks) + 1):
            behind = self.marks[number] if number < len(self.marks) else len(self.data)
            if not self.work.spend(_LOOK):
                return
            for layout, magic in LAYOUTS:
                end = behind - layout.size
                if end < start:
                    continue
                raw = bytes(self.data[end:behind])
                if raw[: sum(map(len, magic))] != b"".join(magic):
                    continue
                crc32, length, size = layout.unpack(raw)[len(magic) :]
                if length == size == end - start:
                    yield end, crc32


def first_bytes(data: ByteView, member: ZipMember, most: int) -> ByteView:
    """Return at most `most` bytes of a damaged deflated member, up to the damage."""
    decoder, found, pos = zlib.decompressobj(-zlib.MAX_WBITS), bytearray(), member.start
    while pos < len(data) and len(found) < most and not decoder.eof:
        # Small steps: what a step inflates before it fails is not returned.
        piece = mapped(data[pos : pos + _STEP])
        pos += len(piece)
        try:
            found += decoder.decompress(decoder.unconsumed_tail + bytes(piece), most - len(found))
        except zlib.error:
            break
    return memoryview(bytes(found))


def _of_entry(entry: ZipEntry, start: int) -> ZipMember:
    end = start + entry.length
    return ZipMember(
        entry.name,
        entry.method,
        entry.crc32,
        start,
        end,
        entry.size,
        entry.header,
        entry.at,
        entry.flags,
    )


def _places(data: ByteView, magic: bytes) -> array[int]:
    """Return where the magic occurs in a file; raises FormatError (limit) if that is too often."""
    places = array("Q")
    for start in range(0, len(data), PIECE):
        # Include some bytes of the next piece: the magic may cross the boundary.
        piece = bytes(data[start : start + PIECE + len(magic) - 1])
        at = piece.find(magic)
        while at >= 0:
            if len(places) >= MAX_TENSORS:
                fail("zip has too many members", offset=start + at, field="entries", kind="limit")
            places.append(start + at)
            at = piece.find(magic, at + 1)
    return places


def _without_shared(members: list[LeftMember]) -> list[LeftMember]:
    """Return the members, where those that share bytes with another whole one are lost."""
    numbers = [n for n, left in enumerate(members) if left.lost is None]
    shared = zip_read.overlapping([members[n].member for n in numbers])
    for n in shared:
        number = numbers[n]
        members[number] = replace(members[number], lost="it shares bytes with another member")
    return members


def _judged(members: list[LeftMember]) -> Iterator[LeftMember]:
    """Mark members of equal name as lost, since one of them is false; and what no CRC-32 proves.

    A writer can be told to write no CRC-32 at all: then stored members count as whole but unproved.
    """
    has_crc32 = any(left.member.crc32 for left in members)
    counts = Counter(left.member.name for left in members)
    for left in members:
        if counts[left.member.name] > 1:
            yield replace(left, lost=TWICE)
        elif not has_crc32 and left.lost == WRONG and left.member.stored:
            yield replace(left, lost=None, doubt=NO_CRC32)
        else:
            yield left
