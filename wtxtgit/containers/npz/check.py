"""Checks of npz files: members and the arrays in them. Spec: `docs/spec/npz.md`, "Checks"."""

from __future__ import annotations

from wtxtgit.containers import npy_check, zip_check
from wtxtgit.containers.npz.read import Npz, array_name, decoded_header
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_directory import Member
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions


def check(container: Npz, options: ReadOptions) -> Findings:
    """Check everything in the file."""
    findings = Findings()
    good = zip_check.check_members(container.data, container.directory, options, findings)
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
            npy_check.check_array(
                array.header, array.stored, member.end, findings, chunk=member.name
            )
        elif n in good:
            _check_decoded(container.data, member, findings)
    return findings


def _check_decoded(data: ByteView, member: Member, findings: Findings) -> None:
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
    npy_check.check_array(header, stored, member.size, findings, base=None, chunk=member.name)
