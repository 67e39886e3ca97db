"""Emission: writes the arrays of a generation to a file of the ring, a text or a delta.

Texts form a chain: the merkle_prev of each is the merkle_this of the one before. With several ranks
each has a chain of its own parts. A delta is based on the last whole text, and only written if it
is smaller than the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from wtxtgit.checkpoint.wsum import ENDING
from wtxtgit.errors import UsageError
from wtxtgit.io.files import replace_file, view_file
from wtxtgit.io.view import Buffer, hashed, pieces, write_all
from wtxtgit.model.array import Meta
from wtxtgit.stream.ranks import PartName
from wtxtgit.stream.ring import NEW, Ring
from wtxtgit.stream.state import Delivery, Generation
from wtxtgit.text.arrays import NumpyArray, snapshot_of_raw
from wtxtgit.text.delta import patch
from wtxtgit.text.delta.sides import DeltaSide, digests_of, side_of_writer
from wtxtgit.text.digest import signer
from wtxtgit.text.write import TextWriter
from wtxtgit.trust.age.recipients import Recipient, encrypt
from wtxtgit.trust.signing import SigningKey

TEXT, DELTA = "text", "delta"


@dataclass(frozen=True, slots=True)
class EmissionOptions:
    """How generations are emitted.

    At least every `full_every`-th one is a whole text; 1 means all. With `wsum` texts have a
    pending root, and a WSUM beside each. `threads` defaults to the number of cores. With
    `recipients` all files are age files for them, and no plaintext is written.
    """

    build: str = "none"
    full_every: int = 1
    wsum: bool = False
    rows_per_chunk: int | None = None
    hmac_key: bytes | None = field(default=None, repr=False)
    key: SigningKey | None = None
    threads: int | None = None
    recipients: tuple[Recipient, ...] = ()

    def __post_init__(self) -> None:
        if self.full_every < 1:
            raise UsageError(f"full_every is {self.full_every}, but must be at least 1")
        if self.wsum and self.full_every > 1:
            raise UsageError("wsum needs whole texts: full_every must be 1")
        if self.wsum and self.recipients:
            raise UsageError(
                "an encrypted text contains its root, so wsum and recipients can't be combined"
            )


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A snapshot that the training requested; `audit` is the text of the audit line."""

    gen: int
    ts: str
    audit: str | None = None
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class _Base:
    """The last whole text: its lines and digests, without its arrays."""

    gen: int
    side: DeltaSide
    deltas: int = 0


class Emitter:
    """Emits generations into a ring, one after the other; for one thread."""

    def __init__(self, ring: Ring, options: EmissionOptions, targets: Sequence[str]) -> None:
        self._ring = ring
        self._options = options
        self._targets = targets
        self._base: _Base | None = None

    def emit(self, request: SnapshotRequest, arrays: Sequence[NumpyArray]) -> Generation:
        """Write a generation's files under temporary names; returns its facts.

        `arrays` are not needed afterwards. Raises WtxtgitError if it can't be written.
        """
        options, state = self._options, self._ring.state
        snapshot = snapshot_of_raw(
            arrays,
            Meta(
                gen=request.gen,
                ts=max(request.ts, state.last_ts),
                build=self._ring.world.build(options.build, self._ring.rank),
            ),
            state.head,
            request.audit,
            options.rows_per_chunk,
            options.wsum,
        )
        key = options.key
        sign = None if key is None else signer(key.sign, key.public_key)
        writer = TextWriter(snapshot, threads=options.threads, hmac_key=options.hmac_key, sign=sign)
        return self._write_generation(request, writer)

    def _write_generation(self, request: SnapshotRequest, writer: TextWriter) -> Generation:
        options = self._options
        kind, base, wsum = TEXT, None, None
        side = side_of_writer(writer) if options.full_every > 1 else None
        delta = None if side is None else self._delta(side, writer.raw_size)
        if delta is not None and self._base is not None:
            kind, base = DELTA, self._base.gen
            self._base = replace(self._base, deltas=self._base.deltas + 1)
        name = str(PartName(request.gen, self._ring.rank, base, bool(options.recipients)))
        blocks = writer.stream() if delta is None else delta.pieces(threads=options.threads)
        if options.recipients:
            self._write(name, partial(_encrypted, blocks, options.recipients))
        elif delta is None:
            # Written out of order and hashed at the same time: one pass less than streaming.
            self._write(name, writer.write_file)
        else:
            self._write(name, lambda descriptor: write_all(descriptor, blocks))
        if options.wsum:
            wsum = name + ENDING
            self._write(wsum, lambda descriptor: write_all(descriptor, (writer.wsum(),)))
        if side is not None and delta is None:
            self._base = _Base(request.gen, digests_of(side))
        file = view_file(self._ring.path(name + NEW))
        return Generation(
            request.gen,
            writer.meta.ts,
            kind,
            name,
            len(file),
            hashed(sha256(), pieces(file)).digest(),
            writer.root.sha256_all,
            writer.root.merkle_prev,
            writer.root.merkle_this,
            base,
            self._ring.state.head_gen,
            wsum,
            request.is_pinned,
            tuple(Delivery(target) for target in self._targets),
        )

    def _delta(self, side: DeltaSide, nbytes: int) -> patch.Making | None:
        """Return the delta from the last whole text; None if a whole text is due, or not larger."""
        base = self._base
        if base is None or base.deltas + 1 >= self._options.full_every:
            return None
        # The ring may have been pruned by hand meanwhile.
        if base.gen not in self._ring.state.generations_by_number:
            return None
        delta = patch.make(base.side, side)
        return delta if delta.carried < nbytes else None

    def _write(self, name: str, write: Callable[[int], None]) -> None:
        replace_file(Path(self._ring.path(name + NEW)), write)


def _encrypted(blocks: Iterable[Buffer], whom: tuple[Recipient, ...], descriptor: int) -> None:
    encrypt(blocks, whom, lambda piece: write_all(descriptor, (piece,)))


def joined_audit(words: Iterable[tuple[str, str]]) -> str | None:
    """Return the text of an audit line from keys and words; None if there are none."""
    return " ".join(f"{key}={word}" for key, word in words) or None
