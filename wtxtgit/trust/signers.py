"""A file of signers: allowed_signers lines (ssh-keygen(1), "ALLOWED SIGNERS").

`.wtxt/signers` is read by `parse`:

- a line is `principal ssh-ed25519 KEY [comment]`, parted by blanks; lines
  with options, certificates and other types of keys, also those on tokens, are
  refused by name (`keys.why_no_key`);
- a principal is a single name: no pattern, no list, no quotes;
- no key stands twice; a principal may have several keys;
- `# threshold: N` says how many principals have to seal a change of the
  file, 1 to 8 and 1 where it is missing: a record has no room for more
  signatures, and several keys of a principal count once. It stands once at
  most, and a comment that begins with the word in any other spelling is
  refused, since it would be taken for what it is not;
- other lines that begin with `#` and empty lines say nothing, and are kept.

`parse_signers` reads what people give to `verify --signers`: there a line may
lack the principal, as in a `.pub` file, and a principal may be a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from wtxtgit.trust.keys import (
    KEY_TYPE,
    KEY_TYPES,
    KeyFileError,
    PublicKey,
    format_public,
    parse_public,
)

MAX_SIGNERS_FILE = 4 * 1024 * 1024
MAX_THRESHOLD = 8
"""As many as a record has signatures (`docs/spec/ledger.md`, "Signatures")."""
MAX_PRINCIPAL = 255

HEADER = (
    "# Who may seal here: principal, ssh-ed25519, key, comment.\n"
    "# A change of this file counts once as many of the signers before it have\n"
    "# sealed it as their threshold says.\n"
    "# threshold: 1\n"
)
"""What a file that has just been made starts with."""

_BLANKS = re.compile(r"[ \t]+")
_LOOSE_PRINCIPAL = re.compile(r"[^\s\"=]+")
# `,` parts a list, `*`, `?` and `!` make a pattern, `"` quotes, `#` begins a comment; `=` is
# how an option looks.
_PRINCIPAL = re.compile(r"[^\s\",*?!=#\\]+")
_THRESHOLD_WORD = re.compile(r"#[\s#]*threshold", re.IGNORECASE)
_THRESHOLD = re.compile(r"# threshold: ([1-9])[ \t]*")


@dataclass(frozen=True, slots=True)
class Signer:
    """Who may sign with which key: `public_key` is 32 raw bytes."""

    principal: str
    public_key: bytes
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SignerList:
    """Who may sign, in the file's order, and how many have to seal a change of them.

    `threshold` counts principals.
    """

    signers: tuple[Signer, ...] = ()
    threshold: int = 1

    @property
    def principals(self) -> frozenset[str]:
        return frozenset(signer.principal for signer in self.signers)

    def principals_of(self, public_keys: Collection[bytes]) -> frozenset[str]:
        """Whose these keys are; of a key that is nobody's nothing."""
        return frozenset(s.principal for s in self.signers if s.public_key in public_keys)

    @property
    def public_keys(self) -> frozenset[bytes]:
        return frozenset(signer.public_key for signer in self.signers)


@dataclass(frozen=True, slots=True)
class SignersFile:
    """A file of signers as a document: `lines` are its own, without LF.

    A line that is not touched by an edit stays as it is, to the byte.
    """

    lines: tuple[tuple[str, Signer | None], ...]
    signers: SignerList

    def content(self) -> bytes:
        """The file's bytes."""
        return "".join(f"{line}\n" for line, _ in self.lines).encode("utf-8")

    def with_signer(self, signer: Signer, name: str) -> SignersFile:
        """The file with one more signer at its end; raises KeyFileError as `parse`."""
        _check(signer, name)
        return parse(self.content() + format_signer(signer).encode("utf-8") + b"\n", name)

    def without(self, public_keys: Collection[bytes], name: str) -> SignersFile:
        """The file without the lines of these keys."""
        kept = (
            f"{line}\n"
            for line, signer in self.lines
            if signer is None or signer.public_key not in public_keys
        )
        return parse("".join(kept).encode("utf-8"), name)

    def with_threshold(self, threshold: int, name: str) -> SignersFile:
        """The file with this threshold, in the line's place or at the start where there is none.

        Raises KeyFileError for a number that no file can have.
        """
        found = f"# threshold: {threshold}"
        lines = [line for line, _ in self.lines]
        at = next((n for n, line in enumerate(lines) if _is_threshold(line)), None)
        if at is None:
            lines.insert(0, found)
        else:
            lines[at] = found + ("\r" if lines[at].endswith("\r") else "")
        return parse("".join(f"{line}\n" for line in lines).encode("utf-8"), name)


def parse(content: bytes, name: str) -> SignersFile:
    """Parse the content of `.wtxt/signers`; `name` stands in errors.

    Raises KeyFileError, with the line's number, for whatever breaks a rule of
    the module's docstring.
    """
    lines: list[tuple[str, Signer | None]] = []
    seen: dict[bytes, int] = {}
    threshold: int | None = None
    for number, line in enumerate(_lines(content, name), 1):
        where = f"{name}: line {number}"
        signer = _parse_line(line, where)
        lines.append((line, signer))
        if signer is not None:
            _check(signer, where)
            first = seen.setdefault(signer.public_key, number)
            if first != number:
                raise KeyFileError(f"{where}: the key stands in line {first} already")
        elif _is_threshold(line):
            if threshold is not None:
                raise KeyFileError(f"{where}: a second threshold")
            threshold = _parse_threshold(line.removesuffix("\r"), where)
    found = tuple(signer for _, signer in lines if signer is not None)
    return SignersFile(tuple(lines), SignerList(found, threshold or 1))


def without_threshold(content: bytes) -> bytes:
    """A file's content but for lines that say, or seem to say, a threshold."""
    lines = content.split(b"\n")
    kept = [one for one in lines if not _is_threshold(one.decode("utf-8", "replace"))]
    return b"\n".join(kept)


def parse_signers(content: bytes, name: str) -> tuple[Signer, ...]:
    """Parse lines of known keys, as `verify --signers` takes them.

    A line is `principal ssh-ed25519 KEY [comment]` or `ssh-ed25519 KEY
    [comment]`; empty lines and lines that start with `#` say nothing. Raises
    KeyFileError for everything else, for other key types and for options.
    """
    parsed = (
        _parse_line(line, f"{name}: line {number}")
        for number, line in enumerate(_lines(content, name), 1)
    )
    return tuple(signer for signer in parsed if signer is not None)


def format_signer(signer: Signer) -> str:
    """Spell a signer's line, without LF."""
    return f"{signer.principal} {format_public(PublicKey(signer.public_key, signer.comment))}"


def _lines(content: bytes, name: str) -> list[str]:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    return lines if lines[-1] else lines[:-1]


def _parse_line(line: str, where: str) -> Signer | None:
    """A line's signer; None for one that says nothing."""
    stripped = line.strip(" \t\r")
    if not stripped or stripped.startswith("#"):
        return None
    words = _BLANKS.split(stripped, maxsplit=1)
    principal = words[0]
    if KEY_TYPES.fullmatch(principal):
        key = parse_public(stripped, where)
        return Signer("", key.key, key.comment)
    if len(words) < 2 or _LOOSE_PRINCIPAL.fullmatch(principal) is None:
        raise KeyFileError(f"{where}: not of the form principal ssh-ed25519 KEY [comment]")
    key = parse_public(words[1], where)
    return Signer(principal, key.key, key.comment)


def _check(signer: Signer, where: str) -> None:
    """What holds for a line of `.wtxt/signers`, but not for one of any file."""
    principal = signer.principal
    if not principal:
        raise KeyFileError(f"{where}: not of the form principal {KEY_TYPE.decode()} KEY [comment]")
    single = (
        _PRINCIPAL.fullmatch(principal) is not None
        and principal.isprintable()
        and KEY_TYPES.fullmatch(principal) is None
    )
    if not single or len(principal) > MAX_PRINCIPAL:
        raise KeyFileError(f'{where}: "{principal[:MAX_PRINCIPAL]}" is not one principal')
    if not signer.comment.replace("\t", " ").isprintable():
        raise KeyFileError(f"{where}: the comment holds what can't be printed")


def _is_threshold(line: str) -> bool:
    return _THRESHOLD_WORD.match(line.strip()) is not None


def _parse_threshold(line: str, where: str) -> int:
    match = _THRESHOLD.fullmatch(line)
    if match is None or int(match[1]) > MAX_THRESHOLD:
        raise KeyFileError(
            f"{where}: a threshold is spelled # threshold: N, from 1 to {MAX_THRESHOLD}"
        )
    return int(match[1])
