"""What makes a branch with deliveries acceptable to `wtxtgit audit`, `log` and `verify`.

The files of a delivery become the next content of paths that stay: `gen-000500.wtxt` becomes
`snapshot.wtxt`, so the path's history is the generations, and its ledger (`docs/spec/ledger.md`)
has a record of each, signed if there is a key. The first delivery with a key adds its signer to
`.wtxt/signers`, sealed by that key: trust starts with that commit (`docs/spec/trust.md`, "The
root"). Later deliveries never change who is trusted; a key that is not trusted is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wtxtgit.errors import RemoteRefused, TextError
from wtxtgit.model.array import Meta
from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Ledger,
    LedgerHead,
    Record,
)
from wtxtgit.remotes.target import FileSeal, FileSeals, taken
from wtxtgit.text import ledger as text
from wtxtgit.text.digest import keyid, signer
from wtxtgit.trust.openssh import HEADER, KeyFileError, Signer, SignersFile, parse
from wtxtgit.trust.signing import SigningKey

SIGNERS, SIGNERS_SEAL = SIGNERS_PATH.decode("ascii"), SIGNERS_LEDGER.decode("ascii")
LEDGER = LEDGER_SUFFIX.decode("ascii")
AS_THEY_ARE = b"* -text\n"
"""gitattributes(5) by which a checkout keeps line endings, whatever core.autocrlf says."""
ATTRIBUTES = b"""\
*.wtxt -text diff=wtxt
*.wtxt.age -text diff=wtxt merge=binary
*.wtxtdelta -text
*.wtxtdelta.age -text
*.wsum -text merge=wtxt-ledger
"""
"""The same for sealed files only; `git diff` shows tensors if wtxtgit is installed."""
_SIGNERS_ATTRIBUTES = ".wtxt/.gitattributes"
_SIGNERS_SCHEMA = "opaque/v1"


@dataclass(slots=True)
class BranchLedgers:
    """Ledgers and signers of a commit, and what the next one adds to them.

    `read` returns the content of a file of the commit by path, None if there is none; `has` says
    whether anything stands at a path. `known` are ledgers by path as they were last read; reading
    continues from there. `added` are new contents by path.
    """

    label: str
    sealing: FileSeals
    read: Callable[[str], bytes | None]
    has: Callable[[str], bool]
    known: dict[str, text.LedgerReport] = field(default_factory=dict)
    added: dict[str, bytes] = field(default_factory=dict)
    _repo_id: bytes | None = None

    def place(self, folder: str, name: str) -> str:
        """Seal a file; returns the path, relative to the folder, at which it has to stand.

        That is its own name if the intended path belongs to another file, or has a later
        generation. Raises RemoteRefused if its ledger would not count, or can't continue.
        """
        seal = self.sealing.seals[name]
        for place in (seal.place, name):
            content = self._next(folder + place, seal)
            if content is not None:
                self.added[folder + place + LEDGER] = content
                return place
        raise taken(self.label, name)

    def _next(self, path: str, seal: FileSeal) -> bytes | None:
        """Return the ledger of a path with one more record; None if none can follow."""
        old = self.read(path + LEDGER)
        # Files that others keep there without a ledger are not ours to replace.
        if old is None and (self.has(path) or self.has(path + LEDGER)):
            return None
        ledger = None
        if old is not None:
            report = self.known[path] = text.read(old, self.known.get(path))
            ledger = report.ledger
            if ledger is None or report.problems or ledger.place != path.encode("ascii"):
                return None
        # First, since a ledger can't be made if the key is not a signer's.
        repo_id = self._trust(seal.meta.ts)
        head = LedgerHead(repo_id, path.encode("ascii")) if ledger is None else ledger.head
        try:
            record = self._record(head, ledger, seal.sha256_all, seal.meta)
        except TextError:
            return None  # its gen does not grow, or its ts goes back
        content = (old or text.format_head(head)) + text.format_record(record)
        return content if len(content) <= text.MAX_SIZE else None

    def _record(
        self, head: LedgerHead, ledger: Ledger | None, sha256_all: bytes, meta: Meta
    ) -> Record:
        record = text.native_record(ledger, sha256_all=sha256_all, meta=meta)
        if (key := self.sealing.key) is not None:
            signature = signer(key.sign, key.public_key)(text.covered(head, record))
            return text.with_signature(record, signature)
        return record

    def _trust(self, ts: str) -> bytes:
        """Return what new ledgers name as their repository; signers are added if there are none."""
        if self._repo_id is None:
            self._repo_id = self._found_signers() or self._new_signers(ts)
        return self._repo_id

    def _found_signers(self) -> bytes | None:
        content, key = self.read(SIGNERS), self.sealing.key
        if content is None:
            if self.has(SIGNERS):
                raise RemoteRefused(f"{self.label}: {SIGNERS} is not a regular file")
            return None
        try:
            listed = parse(content, SIGNERS).signers.public_keys
        except KeyFileError as error:
            raise RemoteRefused(f"{self.label}: {error.message}") from None
        # With a record by anybody else every audit of the branch would fail from there on.
        if listed and (key is None or key.public_key not in listed):
            whose = "no key signs" if key is None else f"{key.name} ({keyid(key.public_key)}) signs"
            raise RemoteRefused(
                f"{self.label}: {whose}, but the branch accepts only what its signers in "
                f"{SIGNERS} sign"
            )
        seal = self.read(SIGNERS_SEAL)
        ledger = None if seal is None else text.read(seal).ledger
        return NO_REPO if ledger is None else ledger.records[0].merkle_this

    def _new_signers(self, ts: str) -> bytes:
        key = self.sealing.key
        if key is None:
            return NO_REPO
        content = _signers_with(key).content()
        head = LedgerHead(NO_REPO, SIGNERS_PATH)
        meta = Meta(_SIGNERS_SCHEMA, 1, ts, "none")
        record = self._record(head, None, self.sealing.hash_of(memoryview(content)), meta)
        self.added |= {
            SIGNERS: content,
            SIGNERS_SEAL: text.format_ledger(Ledger(head, (record,))),
            _SIGNERS_ATTRIBUTES: AS_THEY_ARE,
        }
        return record.merkle_this


def _signers_with(key: SigningKey) -> SignersFile:
    """Return a file with one signer, named after the key if that is a valid principal."""
    empty = parse(HEADER.encode("ascii"), SIGNERS)
    name = key.name.rpartition("/")[2]
    try:
        return empty.with_signer(Signer(name, key.public_key), SIGNERS)
    except KeyFileError:
        return empty.with_signer(Signer(keyid(key.public_key), key.public_key), SIGNERS)
