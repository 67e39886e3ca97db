"""What holds for every text and every file, however it was made."""

from __future__ import annotations

from typing import Any

from wtxtgit.containers.any_format import describe, split
from wtxtgit.errors import FormatError, TextError
from wtxtgit.filter.clean import clean
from wtxtgit.filter.smudge import smudge
from wtxtgit.text.arrays import LazySnapshot, read
from wtxtgit.text.grammar import MAGIC, is_detached
from wtxtgit.text.verify import TextReport, verify
from wtxtgit.text.write import TextWriter, dumps

KINDS = frozenset(
    {
        *("syntax", "structure", "layout", "limit", "base64", "parity", "crc32c", "pending"),
        *("chunk_sha256", "array_sha256", "hmac", "root", "fastxor", "merkle", "signature"),
        *("payload", "payload-missing"),
    }
)
"""The kinds of the spec's section "Verdict of a verifier"."""


def check_text(text: bytes, **given: Any) -> TextReport:
    """Read a text in every way; only our errors are seen, and all ways agree."""
    view = memoryview(text)
    report = verify(view, **given)
    for problem in report.problems:
        assert problem.kind in KINDS
        assert "\n" not in problem.message
        assert problem.line is None or 1 <= problem.line <= text.count(b"\n") + 1
    if report.index.stop is not None:
        assert not report.ok
        assert report.sha256_all is None
    lazy = lazily(view)
    if report.ok:
        assert lazy is not None
        snapshot = read(view, **given).snapshot
        writer = TextWriter(snapshot, detached=is_detached(text))
        assert b"".join(writer.stream()) == text
    smudged = smudge(view)
    if smudged.attached is not None:
        assert is_detached(text)
        attached = b"".join(smudged.pieces())
        assert dumps(read(memoryview(attached)).snapshot) == attached
    elif smudged.layout is None:
        assert b"".join(smudged.pieces()) == text
    else:
        assert verify(view).ok
        assert len(b"".join(smudged.pieces())) == smudged.layout.size
    return report


def lazily(view: memoryview) -> LazySnapshot | None:
    """Open a text lazily and decode all of it; None where that is refused."""
    try:
        lazy = LazySnapshot(view)
        for array in lazy.values():
            array[...]
    except TextError as refusal:
        _check_kind(refusal)
        return None
    return lazy


def check_file(data: bytes) -> None:
    """Cut, describe, clean and smudge a file: it comes back, byte for byte."""
    view = memoryview(data)
    cut = split(view)
    assert (cut.reason is not None) == (cut.layout.format == "opaque")
    try:
        described = describe(view)
    except FormatError as refusal:
        _check_refusal(refusal)
        assert cut.layout.format == "opaque"
    else:
        for tensor in described.tensors:
            if tensor.offset is None:
                # The bytes do not stand in the file as they are.
                continue
            # A tensor without bytes points nowhere.
            assert tensor.offset <= len(data) or not len(tensor.data)
            assert data[tensor.offset : tensor.offset + len(tensor.data)] == tensor.data
    text = b"".join(clean(view).pieces())
    assert b"".join(smudge(memoryview(text)).pieces()) == data
    if data[: len(MAGIC)] != MAGIC:
        assert b"".join(clean(memoryview(text)).pieces()) == text


def _check_kind(refusal: TextError) -> None:
    assert refusal.kind in KINDS


def _check_refusal(refusal: FormatError) -> None:
    assert refusal.kind in ("structure", "limit")
    assert refusal.offset is None or refusal.offset >= 0
