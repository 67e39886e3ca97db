"""What a file is, in the words of a user, and whether it is whole: judged by its content.

Files under a checkpoint's name are often something else: a server's error page, a download that
stopped, a file that a text mode converted. Clean stores them all; status, checks, hooks, `verify`,
`inspect` and `track` ask here what they are. Only a file's start and end are read, and the
structure of a file that was not cut into tensors. A file that begins with zeros is read to its
first other byte. `docs/containers.md`, section "Wrong files", has a table
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.format import Format, Opening
from wtxtgit.containers.registry import (
    by_ending,
    detected,
    listed_by,
    part_note,
    refusal,
    stored_whole,
)
from wtxtgit.containers.signatures import ZIP_MAGIC
from wtxtgit.errors import PICKLE, FormatError
from wtxtgit.io.compressed import compression
from wtxtgit.io.view import ByteView, is_zeros
from wtxtgit.model.tensor import ReadOptions

AGAIN = "download it again"
MISNAMED = "as its name says"
_DAMAGED = "damaged: "
_HEAD = 4096
_SAMPLE = 64 * 1024
"""Bytes at each end of a file in which line ends are counted."""
_DAMAGED_SAMPLE = 1 << 20
"""The same for a file that is known to be damaged."""
_LEAST_LINES = 4
_SOME_EXPECTED, _MANY_EXPECTED = 1, 8
"""Pairs of CR and LF that chance would put into a sample in which there is none."""
_MOST_JSON = 1 << 20
_LAST = ("data", "index")
"""Fields that end a file."""
_LARGEST = 1 << 50
"""A size beyond this is no file's: the number is damaged."""
_TAR_MAGIC_AT, _TAR_MAGIC = 257, b"ustar"


class FileIdentity(NamedTuple):
    """What a file is.

    `kind` is a format's name, that of a kind of files that are not read, or "" for what is not
    known. `what` says it in words, None for a file of a format that is read and has no fault. With
    `is_fault` it is no checkpoint whatever its name is.
    """

    kind: str = ""
    what: str | None = None
    is_fault: bool = False

    @property
    def says_little(self) -> bool:
        """Whether the first bytes say as much as the words."""
        return self.kind in ("", "text", "empty")

    def is_told_by(self, problem: str) -> bool:
        """Whether the words say no more than a problem that the format's reader has."""
        return self.what is not None and self.what.startswith(f"{_DAMAGED}{problem}")


class _ForeignKind(NamedTuple):
    """A kind of files that are not read, and how they start."""

    name: str
    what: str
    start: re.Pattern[bytes]
    is_fault: bool = False


def _kind(name: str, what: str, start: bytes, *, is_fault: bool = False) -> _ForeignKind:
    return _ForeignKind(name, what, re.compile(start, re.DOTALL | re.IGNORECASE), is_fault)


# Nothing is given back: a hostile row of comments would be tried in every combination.
_BLANK = rb"(?:\xef\xbb\xbf)?+\s*+(?>(?><!--.*?-->)\s*+)*+"
_TEXTS = (
    _kind("html", "an HTML page", _BLANK + rb"(?:<\?xml[^>]*>\s*)?<!doctype html", is_fault=True),
    _kind("html", "an HTML page", _BLANK + rb"<(?:html|head|body|title|script)\b", is_fault=True),
    _kind("xml", "an XML document", _BLANK + rb"(?:<\?xml\b|<error\b|<svg\b)", is_fault=True),
    _kind("git-lfs", "a git-lfs pointer", rb"version https?://[\w./-]+/spec/v\d", is_fault=True),
)
_BINARIES = (
    _kind("hdf5", "HDF5", rb"\x89HDF\r\n\x1a\n"),
    _kind("hdf5", "HDF5 whose line ends were converted", rb"\x89HDF\r?\r?\n\x1a", is_fault=True),
    _kind("tflite", "a TensorFlow Lite model", rb".{4}TFL3"),
    _kind("onnx", "an ONNX model", rb"\x08[\x01-\x14](?:\x12.[\w. /-]{2}|\x3a.*\x0a)"),
    _kind("joblib", "a joblib file", rb"\x80[\x02-\x05].{0,200}?joblib"),
    _kind("pickle", "a Python pickle", rb"\x80[\x02-\x05][\x95}\](ccKX\x8c.]"),
    _kind("pickle", "a Python pickle", rb"(?:\([dl]p\d|c[a-z_.]+\n\w+\n)"),
    _kind("msgpack", "MessagePack, as Flax writes it", rb"[\x81-\x8f][\xa1-\xbf][\w./-]"),
    _kind("msgpack", "MessagePack, as Flax writes it", rb"\xde..[\xa1-\xbf][\w./-]"),
    _kind("ggml", "a GGML file, older than GGUF", rb"(?:lmgg|fmgg|tjgg|algg)"),
    _kind("parquet", "a Parquet file", rb"PAR1"),
    _kind("arrow", "an Arrow file", rb"ARROW1"),
    _kind("sqlite", "an SQLite database", rb"SQLite format 3\x00"),
    _kind("pdf", "a PDF document", rb"%PDF-"),
    _kind("image", "an image", rb"(?:\x89PNG|\xff\xd8\xff|GIF8)"),
    _kind("program", "a program", rb"(?:\x7fELF|MZ.{58}\x00)"),
)
_ARCHIVES: tuple[tuple[str, str, Callable[[Collection[str]], bool]], ...] = (
    ("keras", "a Keras archive", lambda names: {"metadata.json", "config.json"} <= {*names}),
    (
        "pt2",
        "a torch.export archive",
        lambda names: any(
            name.endswith(("archive_format", "serialized_exported_program.json")) for name in names
        ),
    ),
    ("sb3", "a Stable-Baselines3 archive", lambda names: "policy.pth" in names),
    ("mar", "a TorchServe archive", lambda names: "MAR-INF/MANIFEST.json" in names),
    ("skops", "a skops archive", lambda names: "schema.json" in names),
)
_ERROR_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,40})</Code>")
_ERROR_KEYS = ("error", "message", "errors", "detail", "documentation_url")
_CONFLICT = tuple(
    re.compile(line, re.MULTILINE) for line in (rb"^<<<<<<< ", rb"^=======\r?$", rb"^>>>>>>> ")
)
_AT_HOME = re.compile(
    r"(?:\.(?:txt|md|rst|html?|xml|svg|jsonl?|ya?ml|toml|ini|cfg|csv|tsv|py|sh|jinja|lock))?"
)
"""Endings of names under which texts, and empty files, are at home."""
_TEXT_KINDS = frozenset({"empty", "html", "xml", "json", "text", "conflict"})
_UNFINISHED = (".part", ".partial", ".aria2", ".crdownload", ".incomplete", ".download")


def identity(data: ByteView, *, is_read: bool = False) -> FileIdentity:
    """Judge a file's bytes; nothing in them raises an error.

    `is_read` says that the file is of a format whose reader took it: then its structure is read
    only if its line ends look converted.
    """
    if not len(data):
        return FileIdentity("empty", "empty", is_fault=True)
    known = detected(data)
    if known is None:
        whole = stored_whole(data)
        if whole is not None and whole.whole is not None:
            return _judged(whole, data, whole.whole().read)
        listing = listed_by(data)
        return _foreign(data) if listing is None else FileIdentity(listing.set_name)
    if is_read and not _is_converted(data):
        return FileIdentity(known.name)
    return _judged(known, data, known.read().read)


def wrong_under(name: str, identity: FileIdentity) -> str | None:
    """Return in words what is wrong with such a file under a tracked file's name, None if nothing.

    A name claims something only if its ending is that of a format. Files that only the index of
    their set describes are not judged.
    """
    if part_note(name) is not None:
        return None
    kind, what, is_fault = identity
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 - the name may be git's
    if is_fault:
        return None if kind in _TEXT_KINDS and _AT_HOME.fullmatch(ending) else what
    if ending in _UNFINISHED:
        return f"an unfinished download, {MISNAMED}"
    claimed = by_ending(ending)
    if claimed is None or kind in (claimed.name, claimed.set_name):
        return None
    return f"not {claimed.name} {MISNAMED}, but {told(identity) or 'of no known format'}"


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" or word.startswith(("np", "mlcp")) else f"a {word}"


def _judged(known: Format, data: ByteView, read: Callable[[ByteView], object]) -> FileIdentity:
    """Judge a file of a format that is read."""
    try:
        container = read(data)
    except FormatError as error:
        if error.kind == "limit":
            return FileIdentity(known.name, f"not checked, over a limit: {error.message}")
        if error.kind == PICKLE:
            return FileIdentity(known.name)
        return FileIdentity(known.name, _damage(known, data, error), is_fault=True)
    if _is_converted(data) and known.check().check(container, ReadOptions()).errors:
        return FileIdentity(known.name, _CONVERTED, is_fault=True)
    return FileIdentity(known.name)


_CONVERTED = (
    "its line ends were converted from LF to CRLF, as git's autocrlf or FTP in text mode does: get "
    "it again as binary"
)
_CONVERTED_BACK = (
    "its line ends were converted from CRLF to LF, as git's autocrlf or FTP in text mode does: get "
    "it again as binary"
)


def _damage(known: Format, data: ByteView, error: FormatError) -> str:
    """Say what happened to a file that its format's reader refuses."""
    if _is_converted(data):
        return _CONVERTED
    size = len(data)
    total, is_exact = _whole_size(known, data, error)
    lines = _SampledLines.of(data, _DAMAGED_SAMPLE)
    missing = 0 if total is None else total - size
    # Each CR that is missing stood before one of the LFs.
    may_be_converted = missing <= lines.feeds_in(size)
    if may_be_converted and lines.lacking > _MANY_EXPECTED:
        return _CONVERTED_BACK
    if total is None:
        is_zip = bytes(data[: len(ZIP_MAGIC)]) == ZIP_MAGIC
        if is_zip and error.field == "end of central directory" and error.offset == size:
            return _cut_zip(size)
        if lines.lacking > _SOME_EXPECTED:
            return f"damaged, perhaps by a conversion of line ends to LF: {error.message}"
        return f"{_DAMAGED}{error.message}"
    message = f"cut at {size:,} of {'' if is_exact else 'at least '}{total:,} bytes"
    is_few = missing <= 2 + size // 8192
    if may_be_converted and lines.lacking > (0 if is_few else _SOME_EXPECTED):
        message += ", or its line ends were converted from CRLF to LF"
    return f"{message}: {AGAIN}"


def _whole_size(known: Format, data: ByteView, error: FormatError) -> tuple[int | None, bool]:
    """Return how many bytes the file should have, and whether it may not be more.

    None if it should have no more than it has.
    """
    ends: list[int] = []
    # Salvaging a format with hashes reads all of the file.
    if known.salvage is not None and not known.has_hashes:
        try:
            salvaged = known.salvage().salvage(data, ReadOptions()).tensors
        except FormatError:
            salvaged = ()
        ends = [
            one.tensor.offset + one.lost[-1][1]
            for one in salvaged
            if one.lost and one.tensor.offset is not None
        ]
    total = max(ends, default=error.needs or 0)
    if not len(data) < total < _LARGEST:
        return None, False
    return total, bool(ends) or error.field in _LAST


class _SampledLines(NamedTuple):
    """Counts in the bytes at both ends of a file: CR, LF, and CR before LF."""

    size: int
    returns: int
    feeds: int
    pairs: int
    is_binary: bool

    @classmethod
    def of(cls, data: ByteView, most: int = _SAMPLE) -> _SampledLines:
        ends = bytes(data[:most]), bytes(data[max(most, len(data) - most) :])
        sample = b"".join(ends)
        return cls(
            len(sample),
            sample.count(b"\r"),
            sample.count(b"\n"),
            sample.count(b"\r\n"),
            b"\0" in sample,
        )

    def feeds_in(self, size: int) -> int:
        """Estimate the number of LF in all of a file of this size."""
        return self.feeds * size // max(self.size, 1)

    @property
    def lacking(self) -> float:
        """How many pairs chance would have put into a binary, if it has almost none; else 0."""
        expected = self.returns * self.feeds / max(self.size, 1)
        # CR CR LF leaves a pair.
        return expected if self.is_binary and self.pairs <= expected / 16 else 0


def _is_converted(data: ByteView) -> bool:
    """Whether there is no LF without a CR, where a binary has many: LF was made CRLF."""
    lines = _SampledLines.of(data)
    return lines.is_binary and lines.feeds == lines.pairs >= _LEAST_LINES


def _foreign(data: ByteView) -> FileIdentity:
    """Judge a file of a format that is not read."""
    refused = refusal(data)
    if refused is not None:
        return FileIdentity("part", refused)
    head = bytes(data[:_HEAD])
    if not head.strip(b"\0"):
        if is_zeros(data):
            return FileIdentity("zeros", "all zeros", is_fault=True)
        return FileIdentity("zeros", f"zeros in its first {_HEAD:,} bytes, and no checkpoint")
    text = next((one for one in _TEXTS if one.start.match(head)), None)
    if text is not None:
        code = _ERROR_CODE.search(head)
        what = text.what if code is None else f"an XML error ({code[1].decode('ascii')})"
        return FileIdentity(text.name, what, text.is_fault)
    if head.startswith(ZIP_MAGIC):
        return _archive(data)
    if (name := compression(head)) is not None:
        return FileIdentity("compressed", f"compressed with {name}: unpack it first")
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        return FileIdentity("tar", "a tar archive")
    for one in _BINARIES:
        if one.start.match(head):
            return FileIdentity(one.name, one.what, one.is_fault)
    return FileIdentity("", _CONVERTED) if _is_converted(data) else _text(data, head)


def _cut_zip(size: int) -> str:
    return f"cut at {size:,} bytes, before the list of its members: {AGAIN}"


def _archive(data: ByteView) -> FileIdentity:
    """Judge a zip that is none of the formats that are read."""
    members = Opening(data).zip
    if not members.is_whole:
        return FileIdentity("zip", f"a zip archive, {_cut_zip(len(data))}", is_fault=True)
    names = members.names
    for kind, what, is_one in _ARCHIVES:
        if is_one(names):
            return FileIdentity(kind, what)
    inner = next((name for name in names if by_ending(os.path.splitext(name)[1])), None)  # noqa: PTH122
    about = "" if inner is None else f" with {quoted(inner)}"
    return FileIdentity("zip", f"a zip archive{about}: unpack it first")


def _text(data: ByteView, head: bytes) -> FileIdentity:
    """Judge what may be a text."""
    if _has_conflict(head):
        return FileIdentity("conflict", "a text with conflict markers of git", is_fault=True)
    # A character may be cut in two at the end.
    text = head.decode("utf-8", "replace").rstrip("\ufffd")
    if "\ufffd" in text or not all(char.isprintable() or char in "\r\n\t\f" for char in text):
        return FileIdentity()
    if text.lstrip()[:1] in ("{", "[") and len(data) <= _MOST_JSON:
        return _json(bytes(data))
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return FileIdentity("text", f"a text that starts with {quoted(line)}")


def _has_conflict(head: bytes) -> bool:
    """Whether the three marks of a conflict follow each other."""
    at = 0
    for mark in _CONFLICT:
        found = mark.search(head, at)
        if found is None:
            return False
        at = found.end()
    return True


def _json(raw: bytes) -> FileIdentity:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return FileIdentity("text", "a text that starts as JSON")
    if isinstance(value, dict):
        for key in _ERROR_KEYS:
            if key in value:
                about = value[key]
                said = f": {quoted(about)}" if isinstance(about, str) else ""
                return FileIdentity("json", f"a JSON error{said}", is_fault=True)
    return FileIdentity("json", "a JSON file")


def told(identity: FileIdentity) -> str | None:
    """Return what a file is as a noun, also one that is read; None if that is not known."""
    return identity.what or (f"{_a(identity.kind)} file" if identity.kind else None)
