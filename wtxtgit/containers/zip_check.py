"""Whether all readers find the same members in a zip, with the same content.

Some readers use only the directory, some the local headers; some the last end record, some the
first. If all of these agree and nothing lies between them, all readers agree. What any reader would
refuse or skip is an error. Spec: `docs/spec/npz.md`, "Checks"
"""

from __future__ import annotations

from operator import attrgetter

from wtxtgit.containers import zip_read
from wtxtgit.containers.budget import DecodingBudget
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.containers.zip_read import (
    BLOCK,
    DEFLATED,
    END,
    END_MAGIC,
    ENTRY,
    LOCAL,
    STORED,
    UTF8_NAME,
    WITH_DESCRIPTOR,
    ZIP64_LOCATOR,
    ZIP64_LOCATOR_MAGIC,
    Directory,
    ZipMember,
)
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, counted, is_zeros
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

DEFLATE_LEVEL = 0b110
KNOWN_FLAGS = DEFLATE_LEVEL | WITH_DESCRIPTOR | UTF8_NAME
"""Flags that all readers accept; others need features that most readers lack."""
# The version of APPNOTE 6.3, the latest one: readers refuse members that need a later one.
LAST_VERSION = 63
FOLDER = 0x10
"""The attribute of a folder, whose content readers ignore."""
UNICODE_NAME = 0x7075
"""The id of an extra field with another name for the member."""
VERSION, NAME, EXTRA_LENGTH, DISK, ATTRIBUTES = 2, 10, 11, 13, 15
"""Positions of fields in an entry."""
COUNT = 8


def check_members(
    data: ByteView,
    directory: Directory,
    options: ReadOptions,
    findings: Findings,
    *,
    has_crc32: bool = True,
) -> frozenset[int]:
    """Check a zip, and each byte of its members once; returns positions of intact members.

    Deflated members are inflated block by block, to at most `max_chunk` bytes each.
    `findings.label` has to accept members.
    """
    shared = zip_read.overlapping(directory.members, directory.start)
    decoding = DecodingBudget(len(data), options, "payload")
    good: set[int] = set()
    names: set[str] = set()
    for n, member in enumerate(directory.members):
        name, at = quoted(member.name), member.entry
        if member.name in names:
            findings.error(f"member {name} appears more than once", "name", at, member)
        names.add(member.name)
        _check_entry(data, member, findings)
        if n in shared:
            # Any number of members may claim the same bytes, which are read only once.
            message = (
                f"member {name} shares bytes with another member or with the central directory"
            )
            findings.error(message, "payload", member.start, member)
            continue
        _check_local(data, member, findings)
        if member.encrypted:
            findings.error(f"member {name} is encrypted and not checked", "flags", at, member)
        elif member.method not in (STORED, DEFLATED):
            message = (
                f"compression method {member.method} is not supported, so the member is not checked"
            )
            findings.error(message, "method", at, member)
        elif not member.stored and not decoding.spend(member.size):
            findings.error(decoding.message, "payload", member.start, member, kind="limit")
        elif _check_content(data, member, options, findings, has_crc32=has_crc32):
            good.add(n)
    _check_gaps(data, directory, findings)
    _check_end(data, directory, findings)
    return frozenset(good)


def _check_content(
    data: ByteView, member: ZipMember, options: ReadOptions, findings: Findings, *, has_crc32: bool
) -> bool:
    try:
        blocks = zip_read.blocks(data, member, options.max_chunk)
        crc32 = crc32_of(counted(blocks, options.progress if member.stored else None))
    except FormatError as error:
        findings.refuse(error, member)
        return False
    if options.progress is not None and not member.stored:
        options.progress(member.end - member.start)
    if has_crc32 and crc32 != member.crc32:
        message = f"crc32 is {crc32:08x}, the central directory has {member.crc32:08x}"
        findings.error(message, "crc32", member.start, member, kind="crc32")
        return False
    return True


def _check_entry(data: ByteView, member: ZipMember, findings: Findings) -> None:
    """Refuse what readers interpret differently, or not at all."""
    at = member.entry
    entry = unpack_at(ENTRY, data, at)
    version = entry[VERSION]
    if version > LAST_VERSION:
        findings.error(f"member needs version {version} of zip", "version", at, member)
    if entry[DISK]:
        findings.error("the disk number is in a zip64 field", "disk", at, member)
    if member.flags & ~KNOWN_FLAGS and not member.encrypted:
        findings.error(f"flags are {member.flags:#06x}", "flags", at, member)
    if not member.name or "\0" in member.name:
        findings.error("member's name is empty or contains a NUL", "name", at, member)
    if member.size and (entry[ATTRIBUTES] & FOLDER or member.name.endswith("/")):
        findings.error("member is a folder, but has content", "attributes", at, member)
    start = at + ENTRY.size
    extra = start + entry[NAME]
    for kind, body in zip_read.extra_fields(data[extra : extra + entry[EXTRA_LENGTH]]):
        if kind is None:
            findings.error("extra fields are cut short", "extra fields", at, member)
        elif kind == UNICODE_NAME and bytes(body[5:]) != bytes(data[start:extra]):
            findings.error("member has a second name", "extra fields", at, member)


def _check_local(data: ByteView, member: ZipMember, findings: Findings) -> None:
    """Check that a local header agrees with the directory, or leaves sizes to a descriptor."""
    at = member.header
    if at + LOCAL.size > len(data) or data[at : at + len(ZIP_MAGIC)] != ZIP_MAGIC:
        findings.error("empty member has no local header", "local header", member.entry, member)
        return
    _, version, flags, method, _, _, crc32, length, size, name_length, extra_length = unpack_at(
        LOCAL, data, at
    )
    start = at + LOCAL.size
    entry = member.entry + ENTRY.size
    entry_name = data[entry : entry + unpack_at(ENTRY, data, member.entry)[NAME]]
    after = start + name_length
    length, size = zip_read.wide_sizes(data[after : after + extra_length], length, size)
    # With the flag for a descriptor, the header may have zeros instead.
    is_told_later = bool(flags & WITH_DESCRIPTOR)
    free = (0,) if is_told_later else ()
    agreements = {
        "name": data[start : start + name_length] == entry_name,
        "version": version <= LAST_VERSION,
        "flags": flags == member.flags,
        "method": method == member.method,
        "crc32": crc32 in (member.crc32, *free),
        "compressed size": length in (member.end - member.start, *free),
        "size": size in (member.size, *free),
    }
    for field, holds in agreements.items():
        if not holds:
            message = f"{field} of the local header differs from the central directory's"
            findings.error(message, field, at, member)


def _check_gaps(data: ByteView, directory: Directory, findings: Findings) -> None:
    """Check that nothing lies between members: members of this or another archive may be hidden."""
    end = 0
    for member in sorted(directory.members, key=attrgetter("header")):
        _check_nobodys(data, end, min(member.header, directory.start), findings)
        end = max(end, member.end)
        if member.flags & WITH_DESCRIPTOR:
            descriptor = zip_read.find(data, member, directory.start)
            if descriptor is not None:
                end = max(end, descriptor[1])
    _check_nobodys(data, end, directory.start, findings)


def _check_end(data: ByteView, directory: Directory, findings: Findings) -> None:
    """Check that the end record is the last one, and that nothing follows it and its comment."""
    at = directory.end_record
    end = at + END.size
    behind = end + unpack_at(END, data, at)[-1]
    if bytes(data[end : end + zip_read.MAX_COMMENT + BLOCK]).find(END_MAGIC) >= 0:
        message = "another end of central directory follows the first"
        findings.error(message, "end of central directory", at)
    _check_nobodys(data, behind, len(data), findings)
    locator = at - ZIP64_LOCATOR.size
    if locator >= 0 and data[locator : locator + 4] == ZIP64_LOCATOR_MAGIC:
        disks = unpack_at(ZIP64_LOCATOR, data, locator)[-1]
        if disks != 1:
            findings.error(f"zip64 locator counts {disks} disks", "zip64 locator", locator)


def _check_nobodys(data: ByteView, start: int, end: int, findings: Findings) -> None:
    if start >= end:
        return
    message = f"{end - start} bytes from byte {start} are in no member"
    if is_zeros(data[start:end]):
        findings.warn(f"{message}, and are all zero", "gap", start)
    else:
        findings.error(message, "gap", start)
