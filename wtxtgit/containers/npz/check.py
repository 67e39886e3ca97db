"""Checks of npz files: members, and the arrays in them.

Spec: `docs/spec/npz.md`, "Checks".
"""

from __future__ import annotations

from collections import Counter

from wtxtgit.containers import npy_header, zip_read
from wtxtgit.containers.cursor import quoted, unpack_at
from wtxtgit.containers.npz.read import Npz, array_name, decoded_header
from wtxtgit.containers.signatures import NPY_SUFFIX, ZIP_MAGIC
from wtxtgit.containers.zip_read import (
    DEFLATED,
    ENTRY,
    LOCAL,
    MAX_32,
    STORED,
    WITH_DESCRIPTOR,
    Directory,
    ZipMember,
)
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions


def check(container: Npz, options: ReadOptions) -> Findings:
    """Check everything in the file."""
    findings = Findings(label=lambda member: member.name)
    good = _check_members(container.data, container.directory, options, findings)
    for n, member in enumerate(container.directory.members):
        array = container.arrays.get(n)
        if not member.name.endswith(NPY_SUFFIX):
            findings.warn("member is no array", "name", member.start, member)
        elif array is not None:
            npy_header.check_array(*array, member.end, findings, chunk=member.name)
        elif n in good:
            _check_decoded(container.data, member, findings)
    return findings


def _check_decoded(data: ByteView, member: ZipMember, findings: Findings) -> None:
    """Check the array of a member whose bytes hold; a stored one has told nothing in `read`."""
    try:
        header = decoded_header(data, member)
        stored = header.stored(array_name(member), member.size)
    except FormatError as error:
        # Offsets in what was inflated are none of the file.
        findings.error(error.message, error.field, member.start, member, kind=error.kind)
        return
    npy_header.check_array(header, stored, member.size, findings, base=None, chunk=member.name)


def _check_members(
    data: ByteView, directory: Directory, options: ReadOptions, findings: Findings
) -> frozenset[int]:
    """Check every member's size and CRC-32, each byte of the file once; no encrypted one's.

    Deflated members are inflated a block at a time, of at most `max_chunk`
    bytes each. Returns the positions of the members whose content holds.
    """
    shared = zip_read.overlapping(directory.members, directory.start)
    good: set[int] = set()
    for n, member in enumerate(directory.members):
        _check_local(data, member, findings)
        name, at = quoted(member.name), member.entry
        if n in shared:
            # Any number of members may claim the same bytes, which are gone through once.
            findings.error(
                f"member {name} shares bytes with another one or the directory",
                "payload",
                member.start,
                member,
            )
        elif member.encrypted:
            findings.warn(f"member {name} is encrypted and not checked", "flags", at, member)
        elif member.method not in (STORED, DEFLATED):
            findings.warn(
                f"compression method {member.method} is not read, the member is not checked",
                "method",
                at,
                member,
            )
        elif _check_content(data, member, options, findings):
            good.add(n)
    last = {member.name: member for member in directory.members}
    for name, count in Counter(member.name for member in directory.members).items():
        if count > 1:
            findings.warn(
                f"{count} members are called {quoted(name)}", "name", directory.start, last[name]
            )
    return frozenset(good)


def _check_content(
    data: ByteView, member: ZipMember, options: ReadOptions, findings: Findings
) -> bool:
    try:
        crc32 = crc32_of(zip_read.blocks(data, member, options.max_chunk))
    except FormatError as error:
        findings.refuse(error, member)
        return False
    if crc32 != member.crc32:
        findings.error(
            f"crc32 is {crc32:08x}, the directory has {member.crc32:08x}",
            "crc32",
            member.start,
            member,
            kind="crc32",
        )
    return crc32 == member.crc32


def _check_local(data: ByteView, member: ZipMember, findings: Findings) -> None:
    """Warn where a local header is at odds with the directory, which alone is read."""
    if data[member.header : member.header + len(ZIP_MAGIC)] != ZIP_MAGIC or (
        member.header + LOCAL.size > len(data)
    ):
        findings.warn("empty member has no local header", "local header", member.entry, member)
        return
    _, _, flags, method, _, _, crc32, length, size, name_length, _ = unpack_at(
        LOCAL, data, member.header
    )
    start = member.header + LOCAL.size
    entry = member.entry + ENTRY.size
    entry_name_length = unpack_at(ENTRY, data, member.entry)[10]
    agreements = {
        "name": data[start : start + name_length] == data[entry : entry + entry_name_length],
        "flags": flags == member.flags,
        "method": method == member.method,
    }
    if not flags & WITH_DESCRIPTOR:
        # A zip64 header's sizes are in its extra field.
        agreements |= {
            "crc32": crc32 == member.crc32,
            "compressed size": length in (member.end - member.start, MAX_32),
            "size": size in (member.size, MAX_32),
        }
    for field, holds in agreements.items():
        if not holds:
            findings.warn(
                f"local header has another {field} than the directory", field, member.header, member
            )
