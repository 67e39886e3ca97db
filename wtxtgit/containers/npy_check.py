"""What an npy file does not prove by being read, also where a zip holds it.

Spec: `docs/spec/npy.md`, "Checks".
"""

from __future__ import annotations

from wtxtgit.containers.npy_header import LEAST_ALIGNMENT, Header
from wtxtgit.containers.ranges import Stored
from wtxtgit.model.findings import Findings


def check_array(
    header: Header,
    stored: Stored,
    end: int,
    findings: Findings,
    *,
    base: int | None = 0,
    chunk: str | None = None,
) -> None:
    """Warn of what numpy does not write, in an npy file or member that ends at `end`.

    Offsets count from `base`; there are none where it is None.
    """

    def warn(message: str, at: int, field: str) -> None:
        offset = None if base is None else base + at
        findings.warn("structure", message, offset=offset, field=field, chunk=chunk)

    length = header.data - header.start
    if length % LEAST_ALIGNMENT:
        warn(
            f"header of {length} bytes is not aligned to {LEAST_ALIGNMENT}",
            header.start,
            "header length",
        )
    if not header.has_newline:
        warn("header does not end with a newline", header.data, "header")
    if header.has_objects:
        warn("array holds Python objects, a pickle that is never read", header.data, "descr")
    elif stored.end < end:
        warn(f"{end - stored.end} bytes stand after the array", stored.end, "data")
