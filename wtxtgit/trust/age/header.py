"""The header of an age file (C2SP, age.md, "header"): its recipients, which anybody can read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import pybase64

from wtxtgit.errors import AgeError
from wtxtgit.io.view import ByteView
from wtxtgit.trust.age.armor import MAGIC

MAX_HEADER = 1024 * 1024
"""Most bytes of a header: enough for some thousands of recipients."""
X25519, SSH_ED25519, SCRYPT = "X25519", "ssh-ed25519", "scrypt"

_COLUMNS = 64
_INTRO = re.compile(rb"-> ([\x21-\x7e]+(?: [\x21-\x7e]+)*)")
_MAC = re.compile(rb"--- ([A-Za-z0-9+/]{43})")
_GREASE = re.compile(r"(?:.*-)?grease")


@dataclass(frozen=True, slots=True)
class Stanza:
    """The file key wrapped for one recipient: type, arguments and bytes."""

    kind: str
    arguments: tuple[str, ...]
    body: bytes

    @property
    def is_grease(self) -> bool:
        """Whether it is for nobody.

        Writers add such stanzas so that readers ignore unknown ones.
        """
        return _GREASE.fullmatch(self.kind) is not None


@dataclass(frozen=True, slots=True)
class Header:
    """What precedes the payload; `mac` authenticates `covered`."""

    stanzas: tuple[Stanza, ...]
    covered: bytes = field(repr=False)
    mac: bytes = field(repr=False)
    nbytes: int

    @property
    def recipients(self) -> tuple[Stanza, ...]:
        """The stanzas that are for somebody."""
        return tuple(stanza for stanza in self.stanzas if not stanza.is_grease)

    @property
    def is_passphrase(self) -> bool:
        """Whether it is decrypted by a passphrase instead of a key."""
        return any(stanza.kind == SCRYPT for stanza in self.stanzas)

    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return the number of recipients of each type, sorted by type."""
        return tuple(sorted(Counter(stanza.kind for stanza in self.recipients).items()))


def parse(binary: ByteView, name: str) -> Header:
    """Parse the header of an age file without armor; raises AgeError."""
    # A part first: most headers have some hundred bytes, and all that is read has to be decoded.
    for size in (16 * 1024, MAX_HEADER):
        lines = _HeaderLines(
            bytes(binary[:size]), name, is_all=size >= min(len(binary), MAX_HEADER)
        )
        if (header := lines.header()) is not None:
            return header
    raise AgeError(f"{name}: the header has over {MAX_HEADER} bytes")


def format_stanza(stanza: Stanza) -> bytes:
    """Return the lines of a stanza."""
    body = encode(stanza.body)
    lines = [body[at : at + _COLUMNS] for at in range(0, len(body) + 1, _COLUMNS)]
    return b"".join(
        line + b"\n"
        for line in (" ".join(("->", stanza.kind, *stanza.arguments)).encode("ascii"), *lines)
    )


def encode(data: bytes) -> bytes:
    """Encode to base64 without padding, as everywhere in a header."""
    return pybase64.b64encode(data).rstrip(b"=")


def decode(text: bytes) -> bytes | None:
    """Decode unpadded base64; returns None unless `encode` would give the same text."""
    try:
        data = pybase64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
    return data if encode(data) == text else None


class _HeaderLines:
    """Reads header lines; stops without an error if the data ends and the file has more."""

    def __init__(self, data: bytes, name: str, *, is_all: bool) -> None:
        self._data, self._name, self._is_all = data, name, is_all
        self._at = 0

    def header(self) -> Header | None:
        """Return the header; None if more bytes are needed."""
        try:
            return self._header()
        except _NotAllError:
            return None

    def _header(self) -> Header:
        if self._line() != MAGIC:
            raise self._error("it does not begin as an age version 1 file does")
        stanzas = []
        while True:
            begin = self._at
            line = self._line()
            if (mac := _MAC.fullmatch(line)) is not None:
                break
            if (intro := _INTRO.fullmatch(line)) is None:
                raise self._error("a line is not a recipient")
            kind, *arguments = intro[1].decode("ascii").split(" ")
            stanzas.append(Stanza(kind, tuple(arguments), self._body()))
        digest = decode(mac[1])
        if digest is None or not stanzas:
            raise self._error("its last line or its recipients are malformed")
        covered = self._data[: begin + len(b"---")]
        return Header(tuple(stanzas), covered, digest, self._at)

    def _body(self) -> bytes:
        lines = []
        while True:
            line = self._line()
            lines.append(line)
            if len(line) > _COLUMNS:
                raise self._error("a line is too long")
            # The last line is shorter, and empty where all others are full.
            if len(line) < _COLUMNS:
                break
        body = decode(b"".join(lines))
        if body is None:
            raise self._error("a recipient's base64 is damaged")
        return body

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            if not self._is_all or len(self._data) >= MAX_HEADER:
                raise _NotAllError
            raise self._error("it is cut short")
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def _error(self, what: str) -> AgeError:
        return AgeError(f"{self._name}: the age header is damaged: {what}")


class _NotAllError(Exception):
    """The data ends within the header."""
