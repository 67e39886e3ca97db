"""Emit: any supported file as WTXT.

Without options the text is the one that clean makes. Options make a generation of it: number, time,
build, chain, signature, authentication.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from wtxtgit.checkpoint.key_file import key_bytes
from wtxtgit.checkpoint.open import TargetPlace, read_attached, shown_name
from wtxtgit.containers import any_format
from wtxtgit.errors import InputError, TextError, UsageError
from wtxtgit.filter.clean import Cleaned, detached_text, text_of
from wtxtgit.io.files import write_output
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import ByteView, write_all
from wtxtgit.model.array import Keep, Meta, Signature, Snapshot, rows_for
from wtxtgit.remotes import urls
from wtxtgit.setup.keys import key_of_file
from wtxtgit.text import digest
from wtxtgit.text.arrays import read
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.write import TextWriter
from wtxtgit.trust.signing import AskPassphrase

TEXT_SUFFIX = ".wtxt"


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """What the user states about a generation; None and empty values keep what clean gives.

    `prev` is merkle_prev (32 bytes), `sign` the path of a secret key, `hmac_key` that of a file
    whose bytes are the key.
    """

    gen: int | None = None
    ts: str | None = None
    build: str | None = None
    prev: bytes | None = None
    sign: Path | None = None
    hmac_key: Path | None = None
    pending: bool = False
    rows_per_chunk: int | None = None
    audit: str | None = None

    @property
    def is_plain(self) -> bool:
        return self == NewGeneration()


def emit(
    path: Path | str,
    generation: NewGeneration,
    folder: Path | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    ask: AskPassphrase | None = None,
    keep: Keep | None = None,
) -> Cleaned:
    """Make the text of a file, a URL or REV:PATH; relative paths start from `folder`, if given.

    Raises InputError, also for a git-lfs pointer, and EnvironmentFailure. `ask` returns the
    passphrase of the signing key. With `keep` the text is detached: `keep` receives its payload,
    all of it once the writer's root is asked for.
    """
    name = str(path)
    data = read_attached(name, TargetPlace(folder), threads=threads)
    # As in clean: the result is the text that git would store.
    if generation.is_plain:
        plain = replace(text_of(data, threads=threads, progress=progress), source=data)
        if keep is None:
            return plain
        if plain.writer is None:
            return detached_text(plain, keep, needs_layout=False, threads=threads)
        return replace(plain, writer=plain.writer.detached(keep))
    if generation.pending and keep is not None:
        raise UsageError("--detached and --pending don't go together: a detached text has a root")
    snapshot, reason = _snapshot(shown_name(name), data, threads)
    key = key_bytes(generation.hmac_key)
    sign = None if generation.sign is None else signer(generation.sign, ask)
    try:
        text = TextWriter(
            _with(snapshot, generation), threads=threads, hmac_key=key, sign=sign, progress=progress
        )
    except TextError as error:
        # The file's own snapshot can be written, so the options are wrong.
        raise UsageError(error.message) from error
    return Cleaned(text if keep is None else text.detached(keep), data, reason)


def write_text(emitted: Cleaned, out: Path | str) -> None:
    """Write the result of `emit` to a file or URL, which only appears when it is complete."""

    def write(descriptor: int) -> None:
        if emitted.writer is None:
            write_all(descriptor, emitted.pieces())
        else:
            emitted.writer.write_file(descriptor)

    if urls.is_url(str(out)):
        urls.write_url(str(out), write)
    else:
        write_output(Path(out), write)


def signer(path: Path, ask: AskPassphrase | None = None) -> Callable[[bytes], Signature]:
    """Return a function that signs with the secret key in the file at `path`."""
    key = key_of_file(path, ask)
    return digest.signer(key.sign, key.public_key)


def audit_line(fields: Iterable[tuple[str, str]]) -> str | None:
    """Return the fields of the audit line, in order; values with spaces are quoted."""
    line = " ".join(
        f'{key}="{value}"' if " " in value or not value else f"{key}={value}"
        for key, value in fields
    )
    return line or None


def out_in(folder: str, path: str) -> str:
    """Return the output path for a file's text in a folder, or below a URL: NAME.wtxt."""
    name = urls.file_name(path) if urls.is_url(path) else Path(path).name
    return f"{folder.rstrip('/')}/{name}{TEXT_SUFFIX}"


def _snapshot(name: str, data: ByteView, threads: int | None) -> tuple[Snapshot, str | None]:
    if data[: len(MAGIC)] != MAGIC:
        cut = any_format.split(data)
        return snapshot_of(cut), cut.reason
    # Emitting a text gives another generation of the same arrays.
    try:
        snapshot = read(data, threads=threads).snapshot
    except TextError as error:
        # A pending text has no root that another generation could follow.
        verb = "finalize --inline" if error.kind == "pending" else "verify"
        hint = f"wtxtgit {verb} -- {shlex.quote(name)}"
        raise InputError(f"{name}: {error}", hint=hint) from error
    return replace(snapshot, signature=None), None


def _with(snapshot: Snapshot, generation: NewGeneration) -> Snapshot:
    meta = snapshot.meta
    gen = meta.gen if generation.gen is None else generation.gen
    arrays = snapshot.arrays
    if generation.rows_per_chunk is not None:
        if generation.rows_per_chunk < 1:
            raise UsageError("--rows-per-chunk must be at least 1")
        arrays = tuple(
            replace(array, rows=rows_for(array.dtype, array.shape, generation.rows_per_chunk))
            for array in arrays
        )
    if generation.hmac_key is not None:
        # Salts belong to a generation: the key gives this one its own.
        arrays = tuple(replace(array, hmac=None, salt=None) for array in arrays)
    return replace(
        snapshot,
        meta=Meta(
            meta.schema,
            gen,
            generation.ts or meta.ts,
            generation.build or meta.build,
            meta.host,
            meta.cuda,
        ),
        arrays=arrays,
        prev=snapshot.prev if generation.prev is None else generation.prev,
        pending=generation.pending,
        audit=snapshot.audit if generation.audit is None else generation.audit,
    )
