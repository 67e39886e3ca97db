"""Finalizing a pending text: its root, as a WSUM or as a line of the text itself.

`docs/spec/wtxt.md`, section "Pending and WSUM". No file is read or written here. Callers that
have the snapshot can get the WSUM from `TextWriter.wsum` without reading the text.
"""

from __future__ import annotations

from wtxtgit.errors import TextError
from wtxtgit.io.view import ByteView
from wtxtgit.text import digest, grammar
from wtxtgit.text.verify import TextReport, raise_first
from wtxtgit.text.write import Signer


def root_of(report: TextReport, prev: bytes) -> grammar.Root:
    """Return the root of a verified pending text whose previous generation is `prev` (32 bytes).

    Raises TextError with the first problem of the text, except that it is pending; "structure" if
    the text already has a root.
    """
    raise_first(problem for problem in report.problems if problem.kind != "pending")
    if not report.index.pending or report.sha256_all is None:
        raise TextError("structure", "the text already has its root")
    this = digest.merkle(prev, report.sha256_all, report.index.meta)
    return grammar.Root(report.sha256_all, prev, this, report.fastxor)


def final_header(
    text: ByteView, report: TextReport, root: grammar.Root, sign: Signer | None
) -> bytes:
    """Return the lines before the arrays of a text that gets its root, signed if `sign` is given.

    They replace the first `report.index.covered` bytes of the pending text.
    """
    before = bytes(text[: report.index.covered - len(grammar.PENDING_LINE)])
    covered = before + grammar.format_root(root)
    return covered if sign is None else covered + grammar.format_sign(sign(covered))
