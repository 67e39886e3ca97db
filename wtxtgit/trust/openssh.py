"""OpenSSH's files: ed25519 keys and lists of signers; SSH's encoding of keys and signatures.

Public keys are the single line of a `.pub` file; secret keys are unencrypted OpenSSH private key
files (PROTOCOL.key of OpenSSH). Only ed25519 is supported; other keys and options are refused by
name (`docs/keys.md`, section "Keys and options that are refused"). Strings are those of RFC 4251,
section 5, keys those of RFC 8709, section 4. Secret material is never part of an error, a repr or a
log.

Signers are lines of allowed_signers (ssh-keygen(1), "ALLOWED SIGNERS"). `.wtxt/signers`, which
`parse` reads, has stricter rules:

- a line is `principal ssh-ed25519 KEY [comment]`, separated by blanks; lines
  with options, certificates and other types of keys, also those on tokens, are
  refused by name (`why_no_key`);
- a principal is a single name: no pattern, no list, no quotes;
- no key is listed twice; a principal may have several keys;
- `# threshold: N` says how many principals have to seal a change of the
  file, 1 to 8 and 1 if it is missing: a record has no room for more
  signatures, and several keys of a principal count once. There is at most
  one such line, and a comment that begins with the word in any other spelling
  is refused, since it would be mistaken for a threshold;
- other lines that begin with `#` and empty lines are ignored, and kept.

`parse_signers` reads what people give to `verify --signers`: there a line may lack the principal,
as in a `.pub` file, and a principal may be a pattern.
"""

from __future__ import annotations

import binascii
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO

from wtxtgit.errors import InputError, WtxtgitError

SEED_SIZE = 32
MAX_KEY_FILE = 64 * 1024
MAX_COMMENT = 200
"""Most characters of a comment that we write."""

_BEGIN = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_END = b"-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_LINE = 70
_BLOCK = 8
_NONE = b"none"
_P = 2**255 - 19
_Y = 2**255 - 1
"""The bits of a public key that hold y; the highest one is the sign of x."""
_ORDER_8 = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8, _P, _P + 1})
"""y of the 8 points whose order divides 8, also if not below p: some libraries reduce it."""
_BLANKS = re.compile(r"[ \t]+")
_TYPE_SHOWN = 64
KEY_TYPES = re.compile(
    r"(?:sk-)?(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-[a-z0-9]+)(?:-cert-v01)?(?:@openssh\.com)?"
)
"""The first word of a public key's line."""
_CERTIFICATE = re.compile(r".*-cert-v01@openssh\.com")
_SK = "sk-"
_OPTION = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?:=.*|,.*)?", re.DOTALL)
_TIME_OPTIONS = ("valid-after", "valid-before")
_WHY_NO_OPTION = {
    "cert-authority": "certificates are not used, and each signer has their own line",
    "namespaces": "a signer's key is used only to seal",
}
KEY_TYPE = b"ssh-ed25519"
PUBLIC_SIZE = 32
SIGNATURE_SIZE = 64
_NUMBER_SIZE = 4


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key (32 bytes) and its comment."""

    key: bytes
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """An ed25519 secret key: `seed` is 32 raw bytes and never shown."""

    seed: bytes = field(repr=False)
    public_key: bytes
    comment: str = ""


class KeyFileError(InputError):
    """A key file is invalid."""


def generate(comment: str) -> SecretKey:
    """Generate a key from the system's randomness; raises KeyFileError for an invalid comment."""
    return _secret(secrets.token_bytes(SEED_SIZE), checked_comment(comment))


def fingerprint(public_key: bytes) -> str:
    """Return the fingerprint of a public key (32 bytes) as `ssh-keygen -l` shows it:
    `SHA256:...`.
    """
    return blob_fingerprint(public_blob(public_key))


def blob_fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a public key of any type, given in SSH's encoding."""
    # OpenSSH omits the base64 padding: ssh-keygen(1), -l.
    digest = sha256(blob).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def checked_comment(comment: str) -> str:
    """Return a comment unchanged; raises KeyFileError if a line can't hold it."""
    if not comment.isprintable() or len(comment) > MAX_COMMENT or comment.strip(" ") != comment:
        raise KeyFileError(
            f"a key's comment is at most {MAX_COMMENT} printable characters, without "
            "spaces around them"
        )
    return comment


def parse_public(line: str, where: str) -> PublicKey:
    """Parse `ssh-ed25519 KEY [comment]`; `where` begins error messages. Raises KeyFileError."""
    words = _BLANKS.split(line.strip(" \t"), maxsplit=2)
    if words[0] != KEY_TYPE.decode():
        raise KeyFileError(f"{where}: {why_no_key(words[0][:_TYPE_SHOWN])}")
    if len(words) < 2:
        raise KeyFileError(f"{where}: not of the form ssh-ed25519 KEY [comment]")
    try:
        blob = binascii.a2b_base64(words[1], strict_mode=True)
    except (binascii.Error, ValueError):
        raise KeyFileError(f"{where}: the key's base64 is damaged") from None
    key = parse_public_blob(blob)
    if key is None:
        raise KeyFileError(f"{where}: not an ed25519 public key")
    if is_small_order(key):
        raise KeyFileError(f"{where}: a key of small order: anybody could sign with it")
    return PublicKey(key, words[2] if len(words) > 2 else "")


def is_small_order(public_key: bytes) -> bool:
    """Tell whether a public key, canonical or not, is a point whose order divides 8.

    Such a key accepts signatures of many messages that were made without any secret
    (`docs/spec/wtxt.md`, "Signature").
    """
    return int.from_bytes(public_key, "little") & _Y in _SMALL_ORDER


def format_public(key: PublicKey) -> str:
    """Return the line of a `.pub` file, without LF."""
    # The blob repeats the type, each part preceded by its length.
    line = f"{KEY_TYPE.decode()} {b64encode(public_blob(key.key)).decode()}"
    return f"{line} {key.comment}" if key.comment else line


def parse_public_file(content: bytes, name: str) -> PublicKey:
    """Parse a `.pub` file, which has one line; raises KeyFileError."""
    if content.lstrip().startswith(b"-----BEGIN"):
        raise KeyFileError(f"{name}: a secret key, not its public key", hint=f"{name}.pub")
    try:
        lines = content.decode("utf-8").rstrip("\r\n").split("\n")
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    if len(lines) != 1:
        raise KeyFileError(f"{name}: not a single line with a public key")
    return parse_public(lines[0], name)


def parse_secret_key(content: bytes, name: str) -> SecretKey:
    """Parse an unencrypted OpenSSH ed25519 private key; raises KeyFileError."""
    armor = content.strip()
    # PROTOCOL.key of OpenSSH: armor, magic, cipher, kdf, options, count, public part, secret part.
    if not armor.startswith(_BEGIN) or not armor.endswith(_END):
        raise KeyFileError(
            f"{name}: not an OpenSSH private key", hint="wtxtgit key new makes a key"
        )
    try:
        body = b"".join(armor[len(_BEGIN) : -len(_END)].split())
        blob = binascii.a2b_base64(body, strict_mode=True)
    except binascii.Error:
        raise KeyFileError(f"{name}: the key's base64 is damaged") from None
    if not blob.startswith(_MAGIC):
        raise KeyFileError(f"{name}: not an openssh-key-v1 key")
    outer = _strings(blob[len(_MAGIC) :], name)
    cipher, kdf, _options = outer.string(), outer.string(), outer.string()
    if cipher != _NONE or kdf != _NONE:
        raise KeyFileError(
            f"{name}: the key is protected by a passphrase of OpenSSH's own",
            hint="ssh-add it and use --key agent:, or remove the passphrase with ssh-keygen -p",
        )
    if outer.number() != 1:
        raise KeyFileError(f"{name}: the file does not hold exactly one key")
    outer_public = outer.string()
    inner = _strings(outer.string(), name)
    # OpenSSH writes a random number twice: they differ if a passphrase was wrong.
    if inner.number() != inner.number():
        raise KeyFileError(f"{name}: the key's check numbers differ")
    if (kind := inner.string()) != KEY_TYPE:
        shown = kind[:_TYPE_SHOWN].decode("ascii", "backslashreplace")
        is_key_type = KEY_TYPES.fullmatch(shown)
        raise KeyFileError(f"{name}: {why_no_key(shown) if is_key_type else 'not an ed25519 key'}")
    public, secret = inner.string(), inner.string()
    if len(public) != PUBLIC_SIZE or secret[SEED_SIZE:] != public:
        raise KeyFileError(f"{name}: the ed25519 key has the wrong size")
    comment = inner.string()
    padding = inner.rest()
    # Padding is 1, 2, 3 and so on up to the block size; anything else is refused.
    if outer.left or len(padding) >= _BLOCK or padding != _padding(len(padding)):
        raise KeyFileError(f"{name}: extra data follows the key")
    key = _secret(secret[:SEED_SIZE], _shown_comment(comment))
    # Signing with a public key that does not belong to the secret would reveal the secret.
    if key.public_key != public or outer_public != public_blob(public):
        raise KeyFileError(f"{name}: the public key does not belong to the secret key")
    return key


def format_secret_key(key: SecretKey) -> bytes:
    """Return the unencrypted OpenSSH private key file of a key."""
    check = secrets.token_bytes(4)
    inner = check + check + string(KEY_TYPE) + string(key.public_key)
    inner += string(key.seed + key.public_key) + string(key.comment.encode())
    inner += _padding(-len(inner) % _BLOCK)
    outer = _MAGIC + string(_NONE) + string(_NONE) + string(b"") + number(1)
    body = b64encode(outer + string(public_blob(key.public_key)) + string(inner))
    lines = [body[start : start + _LINE] for start in range(0, len(body), _LINE)]
    return b"\n".join([_BEGIN, *lines, _END, b""])


def _secret(seed: bytes, comment: str) -> SecretKey:
    from nacl.signing import SigningKey

    return SecretKey(seed, bytes(SigningKey(seed).verify_key), comment)


def _shown_comment(comment: bytes) -> str:
    """Return a file's comment; empty if a line can't hold it, since it has no meaning."""
    text = comment.decode("utf-8", "replace").strip(" ")
    return text if text.isprintable() and len(text) <= MAX_COMMENT else ""


def _padding(size: int) -> bytes:
    return bytes(range(1, size + 1))


def _strings(data: bytes, name: str) -> Strings:
    return Strings(data, lambda: KeyFileError(f"{name}: the key is cut short"))


def why_no_key(kind: str) -> str:
    """Return why a key of this type, or a line beginning with this word, is refused."""
    if _CERTIFICATE.fullmatch(kind):
        return (
            f"{kind} is a certificate: its validity depends on the time, which is never "
            "consulted here"
        )
    if KEY_TYPES.fullmatch(kind) is None:
        return why_no_option(kind)
    if kind.startswith(_SK):
        return (
            f"{kind} is a key on a token: it signs a hash of the message together with flags and "
            "a counter, which signatures here can't store"
        )
    return f"{kind} is another type of key: only ssh-ed25519 keys can sign here"


def why_no_option(word: str) -> str:
    """Return why a line is refused in which this word precedes the key's type."""
    match = _OPTION.fullmatch(word)
    if match is None:
        return f'"{word}" is neither ssh-ed25519 nor an option'
    option = match[1].lower()
    if option in _TIME_OPTIONS:
        return (
            f"{option} is an option that depends on the time, which is never consulted here: "
            "a signer stays one until the line is removed"
        )
    if option in _WHY_NO_OPTION:
        return f"{option} is an option that is not supported: {_WHY_NO_OPTION[option]}"
    return (
        f'"{match[1]}" is an option or another type of key, but only ssh-ed25519 keys are supported'
    )


class Strings:
    """Reads numbers and strings in order, within bounds.

    `cut_short` makes the error that is raised if a length exceeds the data.
    """

    def __init__(self, data: bytes, cut_short: Callable[[], WtxtgitError]) -> None:
        self._data = data
        self._pos = 0
        self._cut_short = cut_short

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._data) - self._pos

    def number(self) -> int:
        return int.from_bytes(self.take(_NUMBER_SIZE), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise self._cut_short()
        data = self._data[self._pos : self._pos + size]
        self._pos += size
        return data

    def rest(self) -> bytes:
        return self.take(self.left)


def number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_SIZE, "big")


def string(data: bytes) -> bytes:
    return number(len(data)) + data


_PUBLIC_HEAD = string(KEY_TYPE) + number(PUBLIC_SIZE)
_SIGNATURE_HEAD = string(KEY_TYPE) + number(SIGNATURE_SIZE)


def public_blob(public_key: bytes) -> bytes:
    """Encode an ed25519 public key (32 bytes) as SSH does."""
    return _PUBLIC_HEAD + public_key


def parse_public_blob(blob: bytes) -> bytes | None:
    """Return the 32 bytes of an encoded ed25519 public key; None for anything else."""
    return _without_head(_PUBLIC_HEAD, blob, PUBLIC_SIZE)


def parse_signature_blob(blob: bytes) -> bytes | None:
    """Return the 64 bytes of an encoded ed25519 signature; None for anything else."""
    return _without_head(_SIGNATURE_HEAD, blob, SIGNATURE_SIZE)


def _without_head(head: bytes, blob: bytes, size: int) -> bytes | None:
    if not blob.startswith(head) or len(blob) != len(head) + size:
        return None
    return blob[len(head) :]


MAX_SIGNERS_FILE = 4 * 1024 * 1024
MAX_THRESHOLD = 8
"""As many as a record has signatures (`docs/spec/ledger.md`, "Signatures")."""
MAX_PRINCIPAL = 255

HEADER = (
    "# Who may seal here: principal, ssh-ed25519, key, comment.\n"
    "# A change of this file counts once it is sealed by as many of the previous\n"
    "# signers as their threshold says.\n"
    "# threshold: 1\n"
)
"""The first lines of a new file."""

_LOOSE_PRINCIPAL = re.compile(r"[^\s\"=]+")
# `,` separates a list, `*`, `?` and `!` make a pattern, `"` quotes, `#` begins a comment, and `=`
# belongs to options.
_PRINCIPAL = re.compile(r"[^\s\",*?!=#\\]+")
_THRESHOLD_WORD = re.compile(r"#[\s#]*threshold", re.IGNORECASE)
_THRESHOLD = re.compile(r"# threshold: ([1-9])[ \t]*")


@dataclass(frozen=True, slots=True)
class Signer:
    """A person who may sign, and one of their keys: `public_key` is 32 raw bytes."""

    principal: str
    public_key: bytes
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SignerList:
    """The signers in the file's order, and how many principals have to seal a change of them."""

    signers: tuple[Signer, ...] = ()
    threshold: int = 1

    @property
    def principals(self) -> frozenset[str]:
        return frozenset(signer.principal for signer in self.signers)

    @property
    def public_keys(self) -> frozenset[bytes]:
        return frozenset(signer.public_key for signer in self.signers)


@dataclass(frozen=True, slots=True)
class SignersFile:
    """A file of signers as a document.

    Lines that an edit does not touch are kept byte for byte.
    """

    text: str
    signers: SignerList

    @property
    def lines(self) -> Iterator[tuple[str, Signer | None]]:
        """Its lines, without LF, and the signer in each; lazily, since there may be very many."""
        return ((line, _parse_line(line, "")) for line in _split(self.text))

    def content(self) -> bytes:
        """Return the file's bytes."""
        return self.text.encode("utf-8")

    def with_signer(self, signer: Signer, name: str) -> SignersFile:
        """Return the file with a signer appended; raises KeyFileError as `parse` does."""
        _check(signer, name)
        return parse(self.content() + format_signer(signer).encode("utf-8") + b"\n", name)

    def without(self, public_keys: Collection[bytes], name: str) -> SignersFile:
        """Return the file without the lines of these keys."""
        kept = (
            f"{line}\n"
            for line, signer in self.lines
            if signer is None or signer.public_key not in public_keys
        )
        return parse("".join(kept).encode("utf-8"), name)

    def with_threshold(self, threshold: int, name: str) -> SignersFile:
        """Return the file with this threshold, in place of the present one or else at the start.

        Raises KeyFileError for a number that no file can have.
        """
        new_line = f"# threshold: {threshold}"
        lines = [line for line, _ in self.lines]
        at = next((n for n, line in enumerate(lines) if _is_threshold(line)), None)
        if at is None:
            lines.insert(0, new_line)
        else:
            lines[at] = new_line + ("\r" if lines[at].endswith("\r") else "")
        return parse("".join(f"{line}\n" for line in lines).encode("utf-8"), name)


def parse(content: bytes, name: str) -> SignersFile:
    """Parse the content of `.wtxt/signers`; `name` begins error messages.

    Raises KeyFileError, with the line's number, if a rule in the module's docstring is broken.
    """
    signers: list[Signer] = []
    seen: dict[bytes, int] = {}
    threshold: int | None = None
    text = _decoded(content, name)
    for number, line in enumerate(_split(text), 1):
        where = f"{name}: line {number}"
        signer = _parse_line(line, where)
        if signer is not None:
            signers.append(signer)
            _check(signer, where)
            # If two principals could share a key, one person could count twice towards a threshold.
            first = seen.setdefault(signer.public_key, number)
            if first != number:
                raise KeyFileError(f"{where}: the key is already in line {first}")
        elif _is_threshold(line):
            if threshold is not None:
                raise KeyFileError(f"{where}: a second threshold")
            threshold = _parse_threshold(line.removesuffix("\r"), where)
    return SignersFile(text, SignerList(tuple(signers), threshold or 1))


def without_threshold(content: bytes) -> bytes:
    """Return a file's content without lines that state, or seem to state, a threshold."""
    kept = bytearray()
    for line in BytesIO(content):
        # Invalid UTF-8 is replaced only to examine the line; the bytes themselves are kept.
        if not _is_threshold(line.removesuffix(b"\n").decode("utf-8", "replace")):
            kept += line
    return bytes(kept)


def parse_signers(content: bytes, name: str) -> tuple[Signer, ...]:
    """Parse lines of known keys, as `verify --signers` takes them.

    A line is `principal ssh-ed25519 KEY [comment]` or `ssh-ed25519 KEY [comment]`; empty lines and
    lines that start with `#` are ignored. Raises KeyFileError for everything else, including other
    types of keys and options.
    """
    parsed = (
        _parse_line(line, f"{name}: line {number}")
        for number, line in enumerate(_split(_decoded(content, name)), 1)
    )
    return tuple(signer for signer in parsed if signer is not None)


def format_signer(signer: Signer) -> str:
    """Return a signer's line, without LF."""
    return f"{signer.principal} {format_public(PublicKey(signer.public_key, signer.comment))}"


def _decoded(content: bytes, name: str) -> str:
    """Decode a file; the text ends with LF unless it is empty. Raises KeyFileError."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    return text if not text or text.endswith("\n") else text + "\n"


def _split(text: str) -> Iterator[str]:
    """Yield lines without LF, lazily: a list would take many times the text's memory."""
    at = 0
    while at < len(text):
        end = text.index("\n", at)
        yield text[at:end]
        at = end + 1


def _parse_line(line: str, where: str) -> Signer | None:
    """Return the signer in a line; None for an empty line or a comment."""
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
    """Check the rules that only apply to `.wtxt/signers`."""
    principal = signer.principal
    if not principal:
        raise KeyFileError(f"{where}: not of the form principal {KEY_TYPE.decode()} KEY [comment]")
    single = (
        _PRINCIPAL.fullmatch(principal) is not None
        and principal.isprintable()
        and KEY_TYPES.fullmatch(principal) is None
    )
    if not single or len(principal) > MAX_PRINCIPAL:
        raise KeyFileError(f'{where}: "{principal[:MAX_PRINCIPAL]}" is not a single principal')
    # Unprintable characters could control the terminal on which signers are listed.
    if not signer.comment.replace("\t", " ").isprintable():
        raise KeyFileError(f"{where}: the comment has unprintable characters")


def _is_threshold(line: str) -> bool:
    return _THRESHOLD_WORD.match(line.strip()) is not None


def _parse_threshold(line: str, where: str) -> int:
    match = _THRESHOLD.fullmatch(line)
    # Any other notation is refused: its reader would expect a threshold that has no effect.
    if match is None or int(match[1]) > MAX_THRESHOLD:
        raise KeyFileError(
            f"{where}: a threshold is written # threshold: N, with N from 1 to {MAX_THRESHOLD}"
        )
    return int(match[1])
