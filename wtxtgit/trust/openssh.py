"""OpenSSH's files: ed25519 keys, and lists of signers; SSH's spelling of keys and signatures.

Public keys are the single line of a `.pub` file; secret ones are unencrypted
OpenSSH private key files (PROTOCOL.key of OpenSSH). Only ed25519 is taken;
other keys and options are refused by name (`docs/keys.md`, section "What is not
taken"). Strings are those of RFC 4251, section 5, keys those of RFC 8709,
section 4. Secret material is never part of an error, a repr or a log.

Signers are lines of allowed_signers (ssh-keygen(1), "ALLOWED SIGNERS"). Of
`.wtxt/signers`, which `parse` reads, more is asked:

- a line is `principal ssh-ed25519 KEY [comment]`, parted by blanks; lines
  with options, certificates and other types of keys, also those on tokens, are
  refused by name (`why_no_key`);
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
"""Characters of a comment that we write."""

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
"""y of the 8 points of an order that divides 8, those over p too: some libraries reduce them."""
_BLANKS = re.compile(r"[ \t]+")
_TYPE_SHOWN = 64
KEY_TYPES = re.compile(
    r"(?:sk-)?(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-[a-z0-9]+)(?:-cert-v01)?(?:@openssh\.com)?"
)
"""The first word of a public key's line."""
_CERTIFICATE = re.compile(r".*-cert-v01@openssh\.com")
_SK = "sk-"
_OPTION = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?:=.*|,.*)?", re.DOTALL)
_CLOCKED = ("valid-after", "valid-before")
_WHY_NO_OPTION = {
    "cert-authority": "no certificate is read here, a signer stands in a line of their own",
    "namespaces": "a key of a signer signs what is sealed here, and nothing else is asked of it",
}
KEY_TYPE = b"ssh-ed25519"
PUBLIC_SIZE = 32
SIGNATURE_SIZE = 64
_NUMBER_SIZE = 4


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key (32 bytes) and the comment that goes with it."""

    key: bytes
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """An ed25519 secret: `seed` is 32 raw bytes and never shown."""

    seed: bytes = field(repr=False)
    public_key: bytes
    comment: str = ""


class KeyFileError(InputError):
    """A key file is not what it has to be."""


def generate(comment: str) -> SecretKey:
    """Make a key from the system's randomness; `comment` as `checked_comment` takes it."""
    return _secret(secrets.token_bytes(SEED_SIZE), checked_comment(comment))


def fingerprint(public_key: bytes) -> str:
    """`SHA256:...`, as `ssh-keygen -l` tells keys (public key of 32 bytes)."""
    return blob_fingerprint(public_blob(public_key))


def blob_fingerprint(blob: bytes) -> str:
    """The same of a key of any type, in SSH's spelling."""
    # OpenSSH leaves base64's padding out: ssh-keygen(1), -l.
    digest = sha256(blob).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def checked_comment(comment: str) -> str:
    """A comment as a line can hold it; raises KeyFileError for any other."""
    if not comment.isprintable() or len(comment) > MAX_COMMENT or comment.strip(" ") != comment:
        raise KeyFileError(
            f"a key's comment is at most {MAX_COMMENT} printable characters, without "
            "blanks around them"
        )
    return comment


def parse_public(line: str, where: str) -> PublicKey:
    """Parse `ssh-ed25519 KEY [comment]`; `where` stands in errors. Raises KeyFileError."""
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
        raise KeyFileError(
            f"{where}: a key of small order, which has no secret: anybody could sign with it"
        )
    return PublicKey(key, words[2] if len(words) > 2 else "")


def is_small_order(public_key: bytes) -> bool:
    """Whether a public key, however it is spelled, is a point whose order divides 8.

    For each of these there are signatures of many messages that nobody's
    secret made (`docs/spec/wtxt.md`, "Signature").
    """
    return int.from_bytes(public_key, "little") & _Y in _SMALL_ORDER


def format_public(key: PublicKey) -> str:
    """Spell a public key as the line of a `.pub` file, without LF."""
    # The blob is a length and the type again, then a length and the 32 bytes.
    line = f"{KEY_TYPE.decode()} {b64encode(public_blob(key.key)).decode()}"
    return f"{line} {key.comment}" if key.comment else line


def parse_public_file(content: bytes, name: str) -> PublicKey:
    """Parse the content of a `.pub` file, which is one line; raises KeyFileError."""
    if content.lstrip().startswith(b"-----BEGIN"):
        raise KeyFileError(f"{name}: a secret key, its public one is wanted", hint=f"{name}.pub")
    try:
        lines = content.decode("utf-8").rstrip("\r\n").split("\n")
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    if len(lines) != 1:
        raise KeyFileError(f"{name}: not the one line of a public key")
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
            hint="ssh-add it and use --key agent:, or take the passphrase off with ssh-keygen -p",
        )
    if outer.number() != 1:
        raise KeyFileError(f"{name}: the file does not hold exactly one key")
    outer_public = outer.string()
    inner = _strings(outer.string(), name)
    # OpenSSH writes one random number twice: they differ where a passphrase was wrong.
    if inner.number() != inner.number():
        raise KeyFileError(f"{name}: the key's check numbers differ")
    if (kind := inner.string()) != KEY_TYPE:
        shown = kind[:_TYPE_SHOWN].decode("ascii", "backslashreplace")
        known = KEY_TYPES.fullmatch(shown)
        raise KeyFileError(f"{name}: {why_no_key(shown) if known else 'not an ed25519 key'}")
    public, secret = inner.string(), inner.string()
    if len(public) != PUBLIC_SIZE or secret[SEED_SIZE:] != public:
        raise KeyFileError(f"{name}: the ed25519 key has the wrong size")
    comment = inner.string()
    padding = inner.rest()
    # Padding is 1, 2, 3 and so on up to the block: whatever else stands there is no key of ours.
    if outer.left or len(padding) >= _BLOCK or padding != _padding(len(padding)):
        raise KeyFileError(f"{name}: more follows the key")
    key = _secret(secret[:SEED_SIZE], _shown_comment(comment))
    # Who signed with a public key that is not its secret's would give the secret away.
    if key.public_key != public or outer_public != public_blob(public):
        raise KeyFileError(f"{name}: the public key is not that of the secret one")
    return key


def format_secret_key(key: SecretKey) -> bytes:
    """Spell a secret key as an unencrypted OpenSSH private key file."""
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
    """A file's comment, where a line can hold it; it decides nothing."""
    text = comment.decode("utf-8", "replace").strip(" ")
    return text if text.isprintable() and len(text) <= MAX_COMMENT else ""


def _padding(size: int) -> bytes:
    return bytes(range(1, size + 1))


def _strings(data: bytes, name: str) -> Strings:
    return Strings(data, lambda: KeyFileError(f"{name}: the key is cut short"))


def why_no_key(kind: str) -> str:
    """Why a key of this type, or a line that begins with this word, is not taken."""
    if _CERTIFICATE.fullmatch(kind):
        return (
            f"{kind} is a certificate: it holds from one time to another, and no clock decides here"
        )
    if KEY_TYPES.fullmatch(kind) is None:
        return why_no_option(kind)
    if kind.startswith(_SK):
        return (
            f"{kind} is a key on a token: it signs a hash of the message together with flags and "
            "a counter, for which a signature here has no room"
        )
    return f"{kind} is a key of another type: signatures here are of ssh-ed25519 keys"


def why_no_option(word: str) -> str:
    """Why a line is not taken in which this word stands before the type of its key."""
    match = _OPTION.fullmatch(word)
    if match is None:
        return f'"{word}" is neither ssh-ed25519 nor an option'
    option = match[1].lower()
    if option in _CLOCKED:
        return (
            f"{option} is an option that asks a clock, and no clock decides here: a signer is one "
            "until the line is removed"
        )
    if option in _WHY_NO_OPTION:
        return f"{option} is an option that is not taken: {_WHY_NO_OPTION[option]}"
    return f'"{match[1]}" is an option or another type of key, and only ssh-ed25519 is taken'


class Strings:
    """Bounded reads of numbers and strings, in order.

    `cut_short` makes the error that is raised where more is claimed than is
    there.
    """

    def __init__(self, data: bytes, cut_short: Callable[[], WtxtgitError]) -> None:
        self._data = data
        self._pos = 0
        self._cut_short = cut_short

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._data) - self._pos

    def number(self) -> int:
        return int.from_bytes(self.take(_NUMBER_SIZE), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise self._cut_short()
        taken = self._data[self._pos : self._pos + size]
        self._pos += size
        return taken

    def rest(self) -> bytes:
        return self.take(self.left)


def number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_SIZE, "big")


def string(data: bytes) -> bytes:
    return number(len(data)) + data


_PUBLIC_HEAD = string(KEY_TYPE) + number(PUBLIC_SIZE)
_SIGNATURE_HEAD = string(KEY_TYPE) + number(SIGNATURE_SIZE)


def public_blob(public_key: bytes) -> bytes:
    """Spell an ed25519 public key (32 bytes)."""
    return _PUBLIC_HEAD + public_key


def parse_public_blob(blob: bytes) -> bytes | None:
    """The 32 bytes of an ed25519 public key; None for anything else."""
    return _after(_PUBLIC_HEAD, blob, PUBLIC_SIZE)


def parse_signature_blob(blob: bytes) -> bytes | None:
    """The 64 bytes of an ed25519 signature; None for anything else."""
    return _after(_SIGNATURE_HEAD, blob, SIGNATURE_SIZE)


def _after(head: bytes, blob: bytes, size: int) -> bytes | None:
    if not blob.startswith(head) or len(blob) != len(head) + size:
        return None
    return blob[len(head) :]


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

    @property
    def public_keys(self) -> frozenset[bytes]:
        return frozenset(signer.public_key for signer in self.signers)


@dataclass(frozen=True, slots=True)
class SignersFile:
    """A file of signers as a document.

    A line that is not touched by an edit stays as it is, to the byte.
    """

    text: str
    signers: SignerList

    @property
    def lines(self) -> Iterator[tuple[str, Signer | None]]:
        """Its lines, without LF, and who stands in each: there may be very many."""
        return ((line, _parse_line(line, "")) for line in _split(self.text))

    def content(self) -> bytes:
        """The file's bytes."""
        return self.text.encode("utf-8")

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
        spelled = f"# threshold: {threshold}"
        lines = [line for line, _ in self.lines]
        at = next((n for n, line in enumerate(lines) if _is_threshold(line)), None)
        if at is None:
            lines.insert(0, spelled)
        else:
            lines[at] = spelled + ("\r" if lines[at].endswith("\r") else "")
        return parse("".join(f"{line}\n" for line in lines).encode("utf-8"), name)


def parse(content: bytes, name: str) -> SignersFile:
    """Parse the content of `.wtxt/signers`; `name` stands in errors.

    Raises KeyFileError, with the line's number, for whatever breaks a rule of
    the module's docstring.
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
            # One key for two principals would let one person count twice towards a threshold.
            first = seen.setdefault(signer.public_key, number)
            if first != number:
                raise KeyFileError(f"{where}: the key stands in line {first} already")
        elif _is_threshold(line):
            if threshold is not None:
                raise KeyFileError(f"{where}: a second threshold")
            threshold = _parse_threshold(line.removesuffix("\r"), where)
    return SignersFile(text, SignerList(tuple(signers), threshold or 1))


def without_threshold(content: bytes) -> bytes:
    """A file's content but for lines that say, or seem to say, a threshold."""
    kept = bytearray()
    for line in BytesIO(content):
        # Bytes that are no UTF-8 are replaced for the look alone: what is kept is kept to the byte.
        if not _is_threshold(line.removesuffix(b"\n").decode("utf-8", "replace")):
            kept += line
    return bytes(kept)


def parse_signers(content: bytes, name: str) -> tuple[Signer, ...]:
    """Parse lines of known keys, as `verify --signers` takes them.

    A line is `principal ssh-ed25519 KEY [comment]` or `ssh-ed25519 KEY
    [comment]`; empty lines and lines that start with `#` say nothing. Raises
    KeyFileError for everything else, for other key types and for options.
    """
    parsed = (
        _parse_line(line, f"{name}: line {number}")
        for number, line in enumerate(_split(_decoded(content, name)), 1)
    )
    return tuple(signer for signer in parsed if signer is not None)


def format_signer(signer: Signer) -> str:
    """Spell a signer's line, without LF."""
    return f"{signer.principal} {format_public(PublicKey(signer.public_key, signer.comment))}"


def _decoded(content: bytes, name: str) -> str:
    """The lines of a file, each with its LF."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{name}: not UTF-8 at byte {error.start}") from None
    return text if not text or text.endswith("\n") else text + "\n"


def _split(text: str) -> Iterator[str]:
    """Lines one by one, without their LF: all at once would take many times the text's memory."""
    at = 0
    while at < len(text):
        end = text.index("\n", at)
        yield text[at:end]
        at = end + 1


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
    # A terminal that lists signers must not be told what to do by one of them.
    if not signer.comment.replace("\t", " ").isprintable():
        raise KeyFileError(f"{where}: the comment holds what can't be printed")


def _is_threshold(line: str) -> bool:
    return _THRESHOLD_WORD.match(line.strip()) is not None


def _parse_threshold(line: str, where: str) -> int:
    match = _THRESHOLD.fullmatch(line)
    # Any other spelling is refused: who reads it would take a threshold for what is not obeyed.
    if match is None or int(match[1]) > MAX_THRESHOLD:
        raise KeyFileError(
            f"{where}: a threshold is spelled # threshold: N, from 1 to {MAX_THRESHOLD}"
        )
    return int(match[1])
