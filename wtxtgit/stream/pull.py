"""Pull: a generation is fetched from a target, proved, and written as a checkpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.checkpoint.restore import TEXT_ENDING, restore_verified
from wtxtgit.checkpoint.wsum import ENDING
from wtxtgit.errors import CheckError, InputError, TextError, UsageError
from wtxtgit.io.files import shown, write_output
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, pieces, write_all
from wtxtgit.model.ledger import AGE_ENDING
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.target import Target
from wtxtgit.text.delta import patch
from wtxtgit.text.delta.sides import text_pieces
from wtxtgit.text.digest import SignatureState
from wtxtgit.text.grammar import format_gen
from wtxtgit.text.verify import TextReport, raise_first, verify
from wtxtgit.trust.age.identities import AgeIdentity, opened

_FILE = re.compile(
    rf"gen-([0-9]{{6,}})(?:\.from-([0-9]{{6,}}))?(\.wtxt|\.wtxtdelta)(?:{re.escape(AGE_ENDING)})?"
)


@dataclass(frozen=True, slots=True)
class Pulled(JsonObject):
    """A generation that was fetched and holds.

    `follows` is the generation before it that the target has, whose merkle_this is its
    merkle_prev; None where there is none.
    """

    KEYS = "gen output ts sha256_all:hex merkle_this:hex follows? signature keyid?"

    gen: int
    output: str
    ts: str
    sha256_all: bytes
    merkle_this: bytes
    follows: int | None
    signature: SignatureState
    keyid: str | None


@dataclass(frozen=True, slots=True)
class _GenerationFiles:
    """What a target has of a generation: the text, or a delta and what it is to be put on."""

    name: str
    base: int | None = None
    wsum: str | None = None


def pull(
    target: Target,
    gen: int | None,
    out: Path | None,
    *,
    public_keys: Sequence[bytes] = (),
    require_signed: bool = False,
    identities: Sequence[AgeIdentity] = (),
    threads: int | None = None,
) -> Pulled:
    """Fetch generation `gen`, the newest for None, and write it to `out`.

    The ending of `out` says as what: `.wtxt` for the text, else as `restore` does; None is the
    text, in the current folder. `identities` open what is encrypted. Raises AgeError where none
    does, InputError where there is no such generation, and CheckError
    where it does not hold, does not follow the one before that is there, or, with
    `require_signed`, is not signed by one of `public_keys`.
    """
    there = _listed(target)
    if not there:
        raise InputError(f"{target.label}: no generation is there")
    number = max(there) if gen is None else gen
    if number not in there:
        raise InputError(f"{target.label}: there is no generation {number}")
    output = out or Path(f"gen-{format_gen(number)}{TEXT_ENDING}")
    if out is None and os.path.lexists(output):
        raise UsageError(
            f"{shown(output)} is there already", hint=f"-o {shown(output)} replaces it"
        )
    fetch = _Fetch(target, there, public_keys, identities, threads)
    text, report = fetch.text(number)
    _check_signature(target, number, report, require_signed)
    follows = _predecessor(fetch, there, number, report)
    if output.suffix == TEXT_ENDING:
        write_output(output, lambda descriptor: write_all(descriptor, pieces(text)))
    else:
        restore_verified(text, report, Path(there[number].name), output, threads=threads)
    if report.sha256_all is None or report.merkle_this is None:
        raise CheckError(f"{target.label}: generation {number} has no root")
    return Pulled(
        number,
        shown(output),
        report.index.meta.ts,
        report.sha256_all,
        report.merkle_this,
        follows,
        report.signature,
        report.keyid,
    )


def _listed(target: Target) -> dict[int, _GenerationFiles]:
    """The generations that a target has, by what its files are called."""
    there: dict[int, _GenerationFiles] = {}
    names = {file.name for file in target.list("gen-")}
    for name in sorted(names):
        match = _FILE.fullmatch(name)
        if match is None:
            continue
        base = None if match[2] is None else int(match[2])
        wsum = name + ENDING if base is None and name + ENDING in names else None
        if (match[3] == ".wtxt") == (base is None):
            there[int(match[1])] = _GenerationFiles(name, base, wsum)
    return there


class _Fetch:
    """Fetches generations of one target as verified texts."""

    def __init__(
        self,
        target: Target,
        there: dict[int, _GenerationFiles],
        public_keys: Sequence[bytes],
        identities: Sequence[AgeIdentity],
        threads: int | None,
    ) -> None:
        self._target = target
        self._there = there
        self._public_keys = public_keys
        self._identities = identities
        self._threads = threads

    def text(self, gen: int) -> tuple[ByteView, TextReport]:
        """The text of a generation, with what was found: all of it holds."""
        files = self._there[gen]
        name = f"{self._target.label}: {files.name}"
        content = self._target.get(files.name)
        if files.name.endswith(AGE_ENDING):
            content = opened(content, self._identities, name)
        try:
            wsum = None if files.wsum is None else bytes(self._target.get(files.wsum))
            if files.base is not None:
                content = self._applied(files.base, content)
            report = verify(
                content, wsum=wsum, public_keys=self._public_keys, threads=self._threads
            )
            raise_first(report.problems)
        except TextError as error:
            raise CheckError(f"{name}: {error}") from error
        if report.index.meta.gen != gen:
            raise CheckError(f"{name}: it is generation {report.index.meta.gen}")
        return content, report

    def _applied(self, base: int, delta: ByteView) -> ByteView:
        """The text that a delta makes, in a temporary file."""
        if base not in self._there or self._there[base].base is not None:
            raise InputError(
                f"{self._target.label}: generation {base}, a delta's base, is not there"
            )
        text, report = self.text(base)
        side = patch.side_of_delta(text, report.index, delta, threads=self._threads)
        return spooled(text_pieces(side, threads=self._threads))


def _check_signature(target: Target, gen: int, report: TextReport, require_signed: bool) -> None:
    if require_signed and report.signature is not SignatureState.VALID:
        raise CheckError(
            f"{target.label}: generation {gen}: its signature is {report.signature.value}, "
            "one by a known signer is wanted"
        )


def _predecessor(fetch: _Fetch, there: Iterable[int], gen: int, report: TextReport) -> int | None:
    """The generation before one, where the target has that; raises CheckError for another chain."""
    root = report.index.root
    before = max((number for number in there if number < gen), default=None)
    if before is None or root is None:
        return None
    _, earlier = fetch.text(before)
    if root.merkle_prev == earlier.merkle_this:
        return before
    # Those between may never have been delivered: but none follows what another one follows.
    earlier_root = earlier.index.root
    if root.merkle_prev == bytes(32) or (
        earlier_root is not None and root.merkle_prev == earlier_root.merkle_prev
    ):
        raise CheckError(f"generation {gen} does not follow generation {before}, which is there")
    return None
