"""Checks of a TARIDX file that do not need its shards.

Errors are what makes rows wrong or ambiguous, and what no writer produces. Leftovers in a filtered
index are warnings, as are names that the format's own writer accepts but its reader does not: no
row is lost. Spec: `docs/spec/taridx.md`, "Checks".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.tar_index import Rows
from wtxtgit.containers.taridx.read import (
    CONTIGUOUS,
    HEADER,
    KEY_BITS,
    MINOR,
    ROW_SIZE,
    Taridx,
    count_lines,
    field_offset,
    headers,
    key_bits,
    members,
    repeated,
    run_starts,
    slices,
)
from wtxtgit.containers.taridx.tar import BLOCK, keyhash
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView, is_zeros
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

# Repeated rows are searched among at most this many: 8 bytes of memory each, 2 GiB in total.
MAX_ROWS = 1 << 28
# The largest tar in bytes: file offsets are signed.
MAX_FILE = (1 << 63) - 1
MAX_LISTED = 5
"""The most names or numbers that a message lists."""

Mask = npt.NDArray[np.bool_]


def check(container: Taridx, options: ReadOptions) -> Findings:
    """Check header, tables, every row, and the relations between rows."""
    findings = Findings()
    rows = container.rows()
    _check_header(container, findings)
    extensions = table(container.extensions, findings)
    stems = table(container.crash_stems, findings)
    _check_count("n_ext", container.header.n_ext, container.extension_block, findings)
    _check_count("n_crash", container.header.n_crash, container.crash_block, findings)
    _check_names("extension", "n_ext", extensions, findings)
    raised = [name for name in extensions if name != name.lower()]
    if raised:
        findings.error(
            f"extension {_listed(raised)} is not in lowercase", "n_ext", field_offset("n_ext")
        )
    _check_names("crash stem", "n_crash", stems, findings)
    _check_rows(container, rows, findings)
    _check_use(container, rows, extensions, findings)
    _check_crash_keys(container, rows, stems, findings)
    _check_groups(container, rows, findings)
    return findings


def row_offset(container: Taridx, place: int) -> int:
    """Return where a row is in the file."""
    return container.header.off_arr + ROW_SIZE * place


def _check_header(container: Taridx, findings: Findings) -> None:
    header = container.header
    if header.minor > MINOR:
        findings.warn(
            f"minor version is {header.minor}, the newest known one is {MINOR}",
            "minor",
            field_offset("minor"),
        )
    if header.flags & ~CONTIGUOUS:
        findings.warn(
            f"flags are 0x{header.flags:02x}: reserved bits are set",
            "flags",
            field_offset("flags"),
        )
    at = field_offset("reserved")
    if not is_zeros(container.data[at : HEADER.size]):
        findings.warn("reserved bytes are not 0", "reserved", at)


def table(lines: Callable[[], list[str]], findings: Findings) -> list[str]:
    """Return a table of the index; one that is over its limit is reported and treated as empty."""
    try:
        return lines()
    except FormatError as error:
        findings.refuse(error)
        return []


def _check_count(field: str, claimed: int, block: ByteView, findings: Findings) -> None:
    lines = count_lines(block, claimed)
    if lines != claimed:
        findings.error(
            f"{field} is {claimed}, but the block has {lines} lines", field, field_offset(field)
        )


def _check_names(what: str, field: str, names: list[str], findings: Findings) -> None:
    """Check names; warn of those that the format's own reader misreads, as it splits at any space.

    Its writer lets these pass, but no other invalid names.
    """
    spaced = [name for name in names if name.split() != [name]]
    if spaced:
        findings.warn(
            f"{what} {_listed(spaced)} is empty or has spaces: the original reader fails",
            field,
            field_offset(field),
        )
    if len(set(names)) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        findings.error(
            f"{what} {_listed(twice)} appears more than once", field, field_offset(field)
        )


def _check_rows(container: Taridx, rows: Rows, findings: Findings) -> None:
    """Check the fields of each row that have their own limits."""
    n_ext, n_crash = container.header.n_ext, container.header.n_crash
    rules: list[tuple[str, str, Callable[[Rows], Mask]]] = [
        ("extid", f"an extid that is not below n_ext ({n_ext})", lambda r: r["extid"] >= n_ext),
        ("crashid", f"a crashid above n_crash ({n_crash})", lambda r: r["crashid"] > n_crash),
        (
            "offset",
            f"an offset that is not a multiple of {BLOCK}",
            lambda r: r["offset"] % BLOCK > 0,
        ),
        ("size", "bytes past the largest size of a file", _reaches_out),
    ]
    for field, what, is_bad in rules:
        count, first = 0, 0
        for start, part in slices(rows):
            bad = is_bad(part)
            if bad.any():
                first = first if count else start + int(bad.argmax())
                count += int(np.count_nonzero(bad))
        if count:
            findings.error(
                f"{_rows(count)} with {what}, the first is row {first}",
                field,
                row_offset(container, first),
            )


def _reaches_out(part: Rows) -> Mask:
    most = np.uint64(MAX_FILE - BLOCK)
    offset = part["offset"].astype(np.uint64)
    mask: Mask = (offset > most) | (part["size"] > most - np.minimum(offset, most))
    return mask


def _check_use(container: Taridx, rows: Rows, extensions: list[str], findings: Findings) -> None:
    """Warn of shards and extensions that no row uses, up to the largest that is used."""
    fids, extids = np.zeros(1 << 16, bool), np.zeros(1 << 16, bool)
    for _, part in slices(rows):
        fids[part["fid"]] = True
        extids[part["extid"]] = True
    # fids count shards from 0: a missing one between others had no members.
    if fids.any():
        gaps = np.flatnonzero(~fids[: int(np.flatnonzero(fids)[-1])])
        if len(gaps):
            findings.warn(
                f"no row has fid {_listed(gaps.tolist())}: an empty shard, or a filtered index",
                "fid",
                container.header.off_arr,
            )
    used = extids[: len(extensions)].tolist()
    unused = [name for name, is_used in zip(extensions, used, strict=False) if not is_used]
    if unused:
        findings.warn(
            f"no row has extension {_listed(unused)}: a filtered index",
            "n_ext",
            field_offset("n_ext"),
        )


def _check_crash_keys(container: Taridx, rows: Rows, stems: list[str], findings: Findings) -> None:
    """Check keyhashes of rows against their crash stems; warn of stems without rows."""
    bits = key_bits(rows)
    if bits < KEY_BITS:
        findings.warn(
            f"keyhash holds only {bits} bits of xxh64", "keyhash", container.header.off_arr
        )
    if not stems:
        return
    keys = np.array([keyhash(stem) for stem in stems], np.uint64) & np.uint64((1 << bits) - 1)
    used = np.zeros(len(stems), bool)
    count, first = 0, 0
    for start, part in slices(rows):
        places = np.flatnonzero((part["crashid"] > 0) & (part["crashid"] <= len(stems)))
        ids = part["crashid"][places] - 1
        used[ids] = True
        bad = places[keys[ids] != part["keyhash"][places]]
        if len(bad):
            first = first if count else start + int(bad[0])
            count += len(bad)
    if count:
        findings.error(
            f"{_rows(count)} with a keyhash that is not the xxh64 of their crash stem, "
            f"the first is row {first}",
            "keyhash",
            row_offset(container, first),
        )
    if not used.all():
        unused = [stem for stem, is_used in zip(stems, used.tolist(), strict=True) if not is_used]
        findings.warn(
            f"no row has crash stem {_listed(unused)}: a filtered index",
            "n_crash",
            field_offset("n_crash"),
        )


def _check_groups(container: Taridx, rows: Rows, findings: Findings) -> None:
    """Check how rows are grouped (flags bit 0, n_stems); warn of members listed twice."""
    header = container.header
    if len(rows) > MAX_ROWS:
        findings.warn(
            f"{len(rows)} rows: groups are checked only up to {MAX_ROWS} rows",
            "n_rows",
            field_offset("n_rows"),
            kind="limit",
        )
        return
    runs = sum(len(places) for places, _, _ in run_starts(rows))
    again = repeated(lambda: run_starts(rows), runs)
    if header.flags & CONTIGUOUS and len(again):
        findings.error(
            f"flags say that the rows of each stem are adjacent, but {len(again)} times they are "
            f"not, first at row {again[0]}",
            "flags",
            row_offset(container, int(again[0])),
        )
    # Each header has one row: if one row was overwritten by another, a member is out of reach.
    same = repeated(lambda: headers(rows), len(rows))
    if len(same):
        findings.error(
            f"{_rows(len(same))} for the same tar header as an earlier row, the first is row "
            f"{same[0]}",
            "offset",
            row_offset(container, int(same[0])),
        )
    stems = runs - len(again)
    if stems != header.n_stems:
        findings.warn(
            f"n_stems is {header.n_stems}, but the rows have {stems} stems: a filtered index",
            "n_stems",
            field_offset("n_stems"),
        )
    twice = repeated(lambda: members(rows), len(rows))
    if len(twice):
        findings.warn(
            f"{_rows(len(twice))} for the same stem and extension as an earlier row, "
            f"the first is row {twice[0]}",
            "keyhash",
            row_offset(container, int(twice[0])),
        )


def _rows(count: int) -> str:
    return f"{count} rows" if count > 1 else "a row"


def _listed(items: list[str] | list[int]) -> str:
    words = [quoted(item) if isinstance(item, str) else str(item) for item in items[:MAX_LISTED]]
    more = len(items) - MAX_LISTED
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")
