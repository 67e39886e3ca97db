"""Pull: fetches a generation from a target, verifies it, and writes it as a checkpoint."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wtxtgit.checkpoint.restore import TEXT_ENDING, restore_native, restore_verified
from wtxtgit.checkpoint.wsum import ENDING
from wtxtgit.errors import CheckError, InputError, TextError, UsageError
from wtxtgit.io.files import shown, write_output
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, pieces, write_all
from wtxtgit.model.ledger import AGE_ENDING
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.target import Target, missing
from wtxtgit.stream.index import MAX_SIZE as MAX_INDEX
from wtxtgit.stream.index import GenerationIndex, IndexPart
from wtxtgit.stream.ranks import ALONE, PartName, Rank, index_gen, index_name, part_of
from wtxtgit.stream.union import united
from wtxtgit.text.arrays import weights_of
from wtxtgit.text.delta import patch
from wtxtgit.text.delta.sides import text_pieces
from wtxtgit.text.digest import SignatureState
from wtxtgit.text.grammar import format_gen
from wtxtgit.text.verify import TextReport, raise_first, verify
from wtxtgit.text.write import TextWriter
from wtxtgit.trust.age.identities import AgeIdentity, opened

_Texts = Mapping[Rank, tuple[ByteView, TextReport]]
_LEAST_FIRST = (SignatureState.ABSENT, SignatureState.UNKNOWN_KEY, SignatureState.VALID)
"""Signature states, worst first: several signatures together are as good as the worst."""


@dataclass(frozen=True, slots=True)
class PulledRoot(JsonObject):
    """The root of a text."""

    KEYS = "sha256_all:hex merkle_this:hex"

    sha256_all: bytes
    merkle_this: bytes


@dataclass(frozen=True, slots=True)
class PulledPart(JsonObject):
    """The part of a rank that was fetched and is valid."""

    KEYS = "rank *root signature keyid?"

    rank: int
    root: PulledRoot
    signature: SignatureState
    keyid: str | None


@dataclass(frozen=True, slots=True)
class Pulled(JsonObject):
    """A generation that was fetched and is valid.

    `follows` is the earlier generation at the target whose merkle_this is its merkle_prev; None if
    there is none. With several ranks the `parts` have roots, and `signature` is what holds for all
    of them.
    """

    KEYS = "gen output ts *root follows? signature keyid? parts?"

    gen: int
    output: str
    ts: str
    root: PulledRoot | None
    follows: int | None
    signature: SignatureState
    keyid: str | None
    parts: tuple[PulledPart, ...] | None = None


def pull(
    target: Target,
    gen: int | None,
    out: Path | None,
    *,
    public_keys: Sequence[bytes] = (),
    require_signed: bool = False,
    identities: Sequence[AgeIdentity] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> Pulled:
    """Fetch generation `gen`, by default the newest, and write it to `out`.

    The ending of `out` decides the form: `.wtxt` for the text, else as `restore` does; None writes
    the text, in the current folder. `identities` decrypt what is encrypted. `progress` gets counts
    of bytes that were verified. Raises AgeError if none
    does, InputError if there is no such generation, and CheckError if it is invalid, does not
    follow an earlier one at the target or, with `require_signed`, is not signed by one of
    `public_keys`.
    """
    fetch = _Fetch(target, public_keys, identities, threads, progress)
    if not fetch.gens:
        raise InputError(f"{target.label}: no generations")
    number = max(fetch.gens) if gen is None else gen
    if number not in fetch.gens:
        raise InputError(f"{target.label}: no generation {number}")
    output = out or Path(f"gen-{format_gen(number)}{TEXT_ENDING}")
    if out is None and os.path.lexists(output):
        quoted = shlex.quote(shown(output))
        raise UsageError(
            f"{shown(output)} already exists",
            hint=f"mv -i -- {quoted} {quoted}.old keeps it; or name another file with -o",
        )
    ranks = fetch.ranks(number)
    expect(progress, None, len(ranks))
    texts = {}
    for rank in ranks:
        texts[rank] = fetch.text(number, rank)
        finish_file(progress)
    predecessors = []
    for rank, (_, report) in texts.items():
        _check_signature(target, number, report, require_signed)
        predecessors.append(_predecessor(fetch, number, rank, report))
    parts = tuple(_pulled_part(target, number, rank, report) for rank, (_, report) in texts.items())
    if ALONE in texts:
        text, report = texts[ALONE]
        if output.suffix == TEXT_ENDING:
            write_output(output, lambda descriptor: write_all(descriptor, pieces(text)))
        else:
            name = f"gen-{format_gen(number)}"
            restore_verified(text, report, name, output, threads=threads)
    else:
        _write_united(target, number, texts, output, threads)
    states = {part.signature for part in parts}
    keyids = {part.keyid for part in parts}
    return Pulled(
        number,
        shown(output),
        max(report.index.meta.ts for _, report in texts.values()),
        parts[0].root if ALONE in texts else None,
        predecessors[0] if len(set(predecessors)) == 1 else None,
        next(state for state in _LEAST_FIRST if state in states),
        keyids.pop() if len(keyids) == 1 else None,
        None if ALONE in texts else parts,
    )


def _pulled_part(target: Target, gen: int, rank: Rank, report: TextReport) -> PulledPart:
    if report.sha256_all is None or report.merkle_this is None:
        raise CheckError(f"{target.label}: generation {gen} has no root")
    root = PulledRoot(report.sha256_all, report.merkle_this)
    return PulledPart(rank.number, root, report.signature, report.keyid)


def _write_united(
    target: Target, gen: int, texts: _Texts, output: Path, threads: int | None
) -> None:
    """Write the arrays of all parts as one checkpoint.

    Raises CheckError if they don't belong together.
    """
    builds = (part_of(report.index.meta.build) for _, report in texts.values())
    if len({part and part[2] for part in builds}) != 1:
        raise CheckError(f"{target.label}: generation {gen} has parts of more than one ring")
    weights = {
        rank: weights_of(text, report, threads=threads) for rank, (text, report) in texts.items()
    }
    snapshot = united(weights)
    if output.suffix == TEXT_ENDING:
        write_output(output, TextWriter(snapshot, threads=threads).write_file)
        return
    name = f"{target.label}: {index_name(gen)}"
    restore_native(snapshot, name, output)


class _PartFiles(NamedTuple):
    """The files of a part at a target: a text, or a delta and its base."""

    name: str
    base: int | None = None
    wsum: str | None = None


def _files_of(part: IndexPart) -> _PartFiles:
    name = PartName.parse(part.file)
    return _PartFiles(part.file, None if name is None else name.base, part.wsum)


class _Fetch:
    """Fetches generations of one target as verified texts."""

    def __init__(
        self,
        target: Target,
        public_keys: Sequence[bytes],
        identities: Sequence[AgeIdentity],
        threads: int | None,
        progress: Progress | None,
    ) -> None:
        self._progress = progress
        self._target = target
        self._public_keys = public_keys
        self._identities = identities
        self._threads = threads
        self._names = names = {file.name for file in target.list("gen-")}
        self._files: dict[tuple[int, Rank], _PartFiles] = {}
        for name in sorted(names):
            if (part := PartName.parse(name)) is not None:
                wsum = name + ENDING if part.base is None and name + ENDING in names else None
                self._files[part.gen, part.rank] = _PartFiles(name, part.base, wsum)
        self._indexes: dict[int, GenerationIndex | None] = {
            gen: None for gen in map(index_gen, names) if gen is not None
        }
        self.gens = {gen for gen, rank in self._files if rank.is_alone} | self._indexes.keys()
        """The whole generations; with several ranks, those that have an index."""

    def ranks(self, gen: int) -> list[Rank]:
        """Return the ranks that have a part of a generation; only ALONE if it is not in parts."""
        if gen not in self._indexes:
            return [ALONE]
        if (gen, ALONE) in self._files:
            raise CheckError(
                f"{self._target.label}: generation {gen} appears both whole and in parts"
            )
        return Rank(0, self._index(gen).world).all()

    def text(self, gen: int, rank: Rank) -> tuple[ByteView, TextReport]:
        """Return the verified text of a part of a generation, with its report."""
        part = self._index(gen).parts[rank.number] if gen in self._indexes else None
        files = self._files[gen, rank] if part is None else _files_of(part)
        if not self._names.issuperset(file for file in (files.name, files.wsum) if file):
            raise missing(self._target.label, files.name)
        name = f"{self._target.label}: {files.name}"
        content = self._target.get(files.name, None if part is None else part.sha256.hex())
        if files.name.endswith(AGE_ENDING):
            content = opened(content, self._identities, name)
        try:
            wsum = None if files.wsum is None else bytes(self._target.get(files.wsum))
            if files.base is not None:
                content = self._applied(files.base, rank, content)
            report = verify(
                content,
                wsum=wsum,
                public_keys=self._public_keys,
                threads=self._threads,
                progress=self._progress,
            )
            raise_first(report.problems)
        except TextError as error:
            raise CheckError(f"{name}: {error}") from error
        if report.index.meta.gen != gen:
            raise CheckError(f"{name}: holds generation {report.index.meta.gen}")
        stated = part_of(report.index.meta.build)
        if (ALONE if stated is None else stated[1]) != rank:
            actual = "not a part" if stated is None else f"the part of rank {stated[1]}"
            raise CheckError(f"{name}: is {actual}")
        root = report.sha256_all, report.merkle_this
        if part is not None and root != (part.sha256_all, part.this):
            raise CheckError(f"{name}: its root is not the one in the index")
        return content, report

    def _index(self, gen: int) -> GenerationIndex:
        index = self._indexes[gen]
        if index is None:
            name = index_name(gen)
            label = f"{self._target.label}: {name}"
            content = self._target.get(name)
            if len(content) > MAX_INDEX:
                raise InputError(f"{label}: over {MAX_INDEX} bytes, too large for an index")
            index = self._indexes[gen] = GenerationIndex.parse(bytes(content), label)
        if index.gen != gen:
            raise CheckError(
                f"{self._target.label}: {index_name(gen)} is the index of generation {index.gen}"
            )
        return index

    def _applied(self, base: int, rank: Rank, delta: ByteView) -> ByteView:
        """Return the text that a delta makes, in a temporary file."""
        files = self._files.get((base, rank))
        if files is None or files.base is not None:
            raise InputError(
                f"{self._target.label}: generation {base}, the base of a delta, is missing"
            )
        text, report = self.text(base, rank)
        side = patch.side_of_delta(text, report.index, delta, threads=self._threads)
        return spooled(text_pieces(side, threads=self._threads))


def _check_signature(target: Target, gen: int, report: TextReport, require_signed: bool) -> None:
    if require_signed and report.signature is not SignatureState.VALID:
        raise CheckError(
            f"{target.label}: generation {gen}: its signature is {report.signature.value}, but a "
            "known signer's is required"
        )


def _predecessor(fetch: _Fetch, gen: int, rank: Rank, report: TextReport) -> int | None:
    """Return the generation before one, if the target has it.

    Raises CheckError for another chain.
    """
    root = report.index.root
    before = max((number for number in fetch.gens if number < gen), default=None)
    if before is None or root is None:
        return None
    earlier_root = None
    if rank in fetch.ranks(before):
        _, earlier = fetch.text(before, rank)
        if root.merkle_prev == earlier.merkle_this:
            return before
        earlier_root = earlier.index.root
    # Generations in between may never have been delivered, but two can't follow the same one.
    if root.merkle_prev == bytes(32) or (
        earlier_root is not None and root.merkle_prev == earlier_root.merkle_prev
    ):
        raise CheckError(
            f"generation {gen} does not follow generation {before}, which is already there"
        )
    return None
