"""Finalize: adds the root of a pending text, in a WSUM beside it or in a line of its own."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from wtxtgit.checkpoint.open import is_file, read, shown_name, wsum_beside
from wtxtgit.checkpoint.wsum import write_wsum, wsum_at, wsum_path
from wtxtgit.errors import CheckError, InputError, TextError, UsageError
from wtxtgit.io.files import failures, replace_file, shown, view_file
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, pieces, write_all
from wtxtgit.model.plain import JsonObject
from wtxtgit.text import digest, grammar
from wtxtgit.text.finalize import final_header, root_of
from wtxtgit.text.verify import TextReport, read_wsum, verify
from wtxtgit.text.write import HASH_SIZE, Signer, wsum_line

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Finalized(JsonObject):
    """The root of a text, and the file that states it."""

    KEYS = "path output gen sha256_all:hex merkle_prev:hex merkle_this:hex"

    path: Path
    output: Path
    gen: int
    sha256_all: bytes
    merkle_prev: bytes
    merkle_this: bytes

    def __repr__(self) -> str:
        root = self.merkle_this.hex()[:12]
        return f"<Finalized {self.output}: generation {self.gen}, root {root}...>"


def finalize(
    file: Path,
    *,
    sign: Signer | None = None,
    prev: bytes | None = None,
    inline: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Finalized:
    """Add the root of a pending text; see `wtxtgit.finalize`."""
    if prev is not None and len(prev) != HASH_SIZE:
        raise UsageError(f"prev has {len(prev)} bytes, not {HASH_SIZE}")
    text = view_file(file)
    if grammar.is_detached(text):
        raise InputError(f"{shown(file)}: a detached text, which always has a root")
    if text[: len(grammar.MAGIC)] != grammar.MAGIC:
        raise InputError(f"{shown(file)}: not a WTXT text")
    report = verify(text, threads=threads, progress=progress)
    standing = _wsum_of(file, report)
    if prev is None:
        prev = bytes(32) if standing is None else standing.merkle_prev
    has_root = report.ok and report.index.root is not None
    if report.index.root is not None and has_root and inline and standing is not None:
        # An earlier run ended before it had removed the WSUM.
        is_signed = report.index.signature is not None
        if _take_away(file, standing, report.index.root, is_signed=is_signed):
            return _finalized(file, file, report, report.index.root)
    try:
        root = root_of(report, prev)
    except TextError as error:
        if has_root:
            raise InputError(f"{shown(file)}: {error.message}") from error
        hint = f"wtxtgit verify -- {shlex.quote(shown(file))} lists all problems"
        raise CheckError(f"{shown(file)}: {error}", hint=hint) from error
    if not inline:
        if standing is None or sign is not None or standing.merkle_prev != prev:
            write_wsum(wsum_path(file), wsum_line(root, sign))
        return _finalized(file, wsum_path(file), report, root)
    header = final_header(text, report, root, sign)
    # If the file has changed since it was verified, reading the view raises an error.
    rest = pieces(text[report.index.covered :])
    content: Iterator[Buffer] = chain((header,), rest)
    replace_file(file, lambda descriptor: write_all(descriptor, content))
    _take_away(file, standing, root, is_signed=sign is not None)
    return _finalized(file, file, report, root)


def _take_away(
    text: Path, wsum: grammar.Wsum | None, root: grammar.Root, *, is_signed: bool
) -> bool:
    """Remove the WSUM beside a text that has this root, unless a signature would be lost with it.

    `wsum` is None if it is that of another text.
    """
    is_same = wsum is not None and wsum.merkle_this == root.merkle_this
    if (is_same and wsum is not None and wsum.signature is not None and not is_signed) or (
        wsum_at(wsum_path(text)) is None
    ):
        return False
    with failures(wsum_path(text)):
        wsum_path(text).unlink()
    return True


def _finalized(file: Path, output: Path, report: TextReport, root: grammar.Root) -> Finalized:
    gen = report.index.meta.gen
    return Finalized(file, output, gen, root.sha256_all, root.merkle_prev, root.merkle_this)


def prev_of(given: str, text: Path, *, threads: int | None = None) -> bytes:
    """Return the merkle_this (32 bytes) of the generation before that of `text`.

    `given` is that hash itself, a file or REV:PATH that is a text or a WSUM, or a revision in which
    the text stands at the same path. A text is verified, with the WSUM beside it. Raises CheckError
    for one that does not verify, InputError if it is neither, EnvironmentFailure if the name means
    nothing.
    """
    if _HASH.fullmatch(given):
        return bytes.fromhex(given)
    target = given
    if is_file(given) and not os.path.lexists(given):
        target = _in_revision(given, text)
    data = read(target)
    if data[: len(grammar.WSUM_MAGIC)] == grammar.WSUM_MAGIC:
        wsum = read_wsum(bytes(data[: grammar.MAX_WSUM]))
        if wsum is None:
            raise InputError(f"{shown_name(target)}: not a single valid WSUM 1 line")
        return wsum.merkle_this
    if data[: len(grammar.MAGIC)] != grammar.MAGIC:
        raise InputError(f"{shown_name(target)}: neither a WTXT text nor a WSUM")
    return _merkle_of(target, data, threads)


def _merkle_of(target: str, data: ByteView, threads: int | None) -> bytes:
    report = verify(data, wsum=wsum_beside(target), threads=threads)
    if report.problems or report.merkle_this is None:
        raise CheckError(f"{shown_name(target)}: {report.problems[0]}")
    return report.merkle_this


def _in_revision(revision: str, text: Path) -> str:
    """Return a text in a revision, as REV:PATH."""
    from wtxtgit.checkpoint.other_copies import path_in
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    path = path_in(str(text), repo)
    if path is None:
        raise UsageError(f"{shown(text)} is not in this work tree: name it as REV:PATH")
    return f"{revision}:{os.fsdecode(path)}"


def _wsum_of(text: Path, report: TextReport) -> grammar.Wsum | None:
    """Return the WSUM beside a text, if it belongs to that text."""
    content = wsum_at(wsum_path(text))
    wsum = None if content is None else read_wsum(content)
    if wsum is None or report.sha256_all is None or wsum.sha256_all != report.sha256_all:
        return None
    this = digest.merkle(wsum.merkle_prev, wsum.sha256_all, report.index.meta)
    return wsum if wsum.merkle_this == this else None
