"""Checks of npz files: members, and the arrays in them.

Spec: `docs/spec/npz.md`, "Checks".
"""

from __future__ import annotations

from wtxtgit.containers import npy_check, zip_check
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.npz.read import Npz, array_name, decoded_header
from wtxtgit.containers.signatures import NPY_SUFFIX
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions


def check(container: Npz, options: ReadOptions) -> Findings:
    """Check everything in the file."""
    findings = Findings(label=lambda member: member.name)
    good = zip_check.check_members(container.data, container.directory, options, findings)
    names = {member.name for member in container.directory.members}
    for n, member in enumerate(container.directory.members):
        array = container.arrays.get(n)
        if not member.name.endswith(NPY_SUFFIX):
            findings.warn("member is not an array", "name", member.start, member)
            # numpy first looks for a member with exactly the requested name.
            if member.name + NPY_SUFFIX in names:
                message = (
                    f"array {quoted(member.name)} can't be reached, because this member hides it"
                )
                findings.error(message, "name", member.start, member)
        elif array is not None:
            npy_check.check_array(container.data, *array, member.end, findings, chunk=member.name)
        elif n in good:
            _check_decoded(container.data, member, findings)
    return findings


def _check_decoded(data: ByteView, member: ZipMember, findings: Findings) -> None:
    """Check the array of an intact member for which `read` has none.

    Such a member is compressed, or it is not an npy file.
    """
    try:
        header = decoded_header(data, member)
        stored = header.stored(array_name(member), member.size)
    except FormatError as error:
        # Offsets in inflated data are not offsets in the file.
        findings.error(error.message, error.field, member.start, member, kind=error.kind)
        return
    npy_check.check_array(
        None, header, stored, member.size, findings, chunk=member.name, place=member.start
    )
