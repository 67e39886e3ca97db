"""Checks of npz files: members, and the arrays in them.

Spec: `docs/spec/npz.md`, "Checks".
"""

from __future__ import annotations

import zlib
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
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions


def check(container: Npz, options: ReadOptions) -> Findings:
    """Check everything in the file."""
    findings = Findings()
    good = check_members(container.data, container.directory, options, findings)
    for n, member in enumerate(container.directory.members):
        if not member.name.endswith(NPY_SUFFIX):
            findings.warn(
                "structure",
                "member is no array",
                offset=member.start,
                field="name",
                chunk=member.name,
            )
            continue
        array = container.arrays.get(n)
        if array is not None:
            npy_header.check_array(
                array.header, array.stored, member.end, findings, chunk=member.name
            )
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
        findings.error(
            error.kind,
            error.message,
            offset=member.start,
            field=error.field,
            chunk=member.name,
        )
        return
    npy_header.check_array(header, stored, member.size, findings, base=None, chunk=member.name)


def check_members(
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
        if n in shared:
            findings.error(
                "structure",
                f"member {quoted(member.name)} shares bytes with another one or the directory",
                offset=member.start,
                field="payload",
                chunk=member.name,
            )
        elif member.encrypted:
            findings.warn(
                "structure",
                f"member {quoted(member.name)} is encrypted and not checked",
                offset=member.entry,
                field="flags",
                chunk=member.name,
            )
        elif member.method not in (STORED, DEFLATED):
            findings.warn(
                "structure",
                f"compression method {member.method} is not read, the member is not checked",
                offset=member.entry,
                field="method",
                chunk=member.name,
            )
        elif _check_content(data, member, options, findings):
            good.add(n)
    for name, count in Counter(member.name for member in directory.members).items():
        if count > 1:
            findings.warn(
                "structure",
                f"{count} members are called {quoted(name)}",
                offset=directory.start,
                field="name",
                chunk=name,
            )
    return frozenset(good)


def _check_content(
    data: ByteView, member: ZipMember, options: ReadOptions, findings: Findings
) -> bool:
    found = 0
    try:
        for block in zip_read.blocks(data, member, options.max_chunk):
            found = zlib.crc32(block, found)
    except FormatError as error:
        findings.refuse(error, chunk=member.name)
        return False
    if found != member.crc32:
        findings.error(
            "crc32",
            f"crc32 is {found:08x}, the directory has {member.crc32:08x}",
            offset=member.start,
            field="crc32",
            chunk=member.name,
        )
    return found == member.crc32


def _check_local(data: ByteView, member: ZipMember, findings: Findings) -> None:
    """Warn where a local header is at odds with the directory, which alone is read."""
    if data[member.header : member.header + len(ZIP_MAGIC)] != ZIP_MAGIC or (
        member.header + LOCAL.size > len(data)
    ):
        findings.warn(
            "structure",
            "empty member has no local header",
            offset=member.entry,
            field="local header",
            chunk=member.name,
        )
        return
    _, _, flags, method, _, _, crc32, length, size, name_length, _ = unpack_at(
        LOCAL, data, member.header
    )
    start = member.header + LOCAL.size
    entry = member.entry + ENTRY.size
    entry_name_length = unpack_at(ENTRY, data, member.entry)[10]
    name = data[start : start + name_length]
    wrong = []
    if name != data[entry : entry + entry_name_length]:
        wrong.append("name")
    if flags != member.flags:
        wrong.append("flags")
    if method != member.method:
        wrong.append("method")
    if not flags & WITH_DESCRIPTOR:
        # A zip64 header's sizes are in its extra field.
        if crc32 != member.crc32:
            wrong.append("crc32")
        if length not in (member.end - member.start, MAX_32):
            wrong.append("compressed size")
        if size not in (member.size, MAX_32):
            wrong.append("size")
    for field in wrong:
        findings.warn(
            "structure",
            f"local header has another {field} than the directory",
            offset=member.header,
            field=field,
            chunk=member.name,
        )
