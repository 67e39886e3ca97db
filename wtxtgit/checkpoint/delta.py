"""Delta: the difference between two checkpoints as a text, and applying it to the first one.

Either side is a file or a blob as REV:PATH. A container is treated as the text that git stores for
it, which is not written to disk; a blob that is the text of a container counts as the container, as
in a checkout.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from wtxtgit.checkpoint.key_file import key_bytes
from wtxtgit.checkpoint.open import described, is_blob, is_file, read, read_attached
from wtxtgit.containers import any_format
from wtxtgit.errors import CheckError, InputError, TextError, UsageError
from wtxtgit.io.files import shown
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model.findings import Problem
from wtxtgit.text import grammar
from wtxtgit.text.delta import sides
from wtxtgit.text.delta.index import DeltaReport, check
from wtxtgit.text.delta.patch import Making, Regeneration
from wtxtgit.text.delta.patch import apply as apply_to
from wtxtgit.text.delta.patch import make as make_of
from wtxtgit.text.delta.sides import DeltaSide, side_of_text, side_of_writer
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.verify import verify
from wtxtgit.text.write import TextWriter

ENDING = ".wtxtdelta"


@dataclass(frozen=True, slots=True)
class TargetGeneration:
    """What the user states about the target of a plain delta; `hmac_key` is a key file."""

    ts: str | None = None
    build: str | None = None
    hmac_key: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSide:
    """A side; `is_file` means that it stands for a file that is no text."""

    side: DeltaSide
    is_file: bool


def make(
    base: str,
    target: str,
    *,
    plain: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Making, Iterable[Buffer]]:
    """Make the delta from `base` to `target`; also returns the pieces of its text.

    Raises CheckError for a text that does not verify, and UsageError for what a delta can't
    express, or if the base is a text and the target is not.
    """
    before, after = (
        opened_side(name, read_attached(name, threads=threads), threads=threads, progress=progress)
        for name in (base, target)
    )
    if after.is_file and not before.is_file:
        # Applied to a text, the delta would give a text.
        raise UsageError(
            f"{base} is a text and {target} is not, but both must be texts",
            hint=f"wtxtgit emit -o TEXT -- {shlex.quote(target)}, then make the delta to TEXT",
        )
    try:
        making = make_of(before.side, after.side, plain=plain)
    except TextError as error:
        hint = "leave out --plain" if plain else None
        raise UsageError(error.message, hint=hint) from error
    return making, making.pieces(threads=threads)


def apply(
    base: str,
    delta: str,
    generation: TargetGeneration,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> Iterable[Buffer]:
    """Apply a delta to its base.

    Returns the pieces of the target, which is verified before the first. `note` is called with what
    is known of the target only from the delta. Raises InputError if `delta` is no delta, CheckError
    if delta or base are not valid, or don't belong together.
    """
    text = read(delta)
    if not grammar.is_delta(text):
        raise InputError(f"{delta}: not a WTXT delta{described(text)}")
    # The delta first: if it is invalid, the large base need not be read.
    report = checked(delta, text)
    data = read_attached(base, threads=threads)
    opened = opened_side(base, data, threads=threads, progress=progress)
    given = _given(generation, opened.side, plain=report.index.head is None)
    try:
        target = apply_to(
            opened.side, text, report.index, given, threads=threads, progress=progress
        )
    except TextError as error:
        raise CheckError(f"{delta} on {base}: {error}") from error
    layout = target.layout
    if target.uncovered:
        note(f"no hash covers {', '.join(target.uncovered)}: it is known only from the delta")
    # The result is a file if the base was one, and a text if it was a text, so that users need not
    # know what git stores.
    if opened.is_file and layout is not None and layout.is_container:
        return sides.file_pieces(target.side, layout, threads=threads)
    return sides.text_pieces(target.side, threads=threads)


def checked(name: str, delta: ByteView) -> DeltaReport:
    """Return what a delta contains; raises CheckError if it is invalid by itself."""
    report = check(delta)
    if not report.ok:
        raise _refusal(name, report.problems[0])
    return report


def opened_side(
    name: str, data: ByteView, *, threads: int | None = None, progress: Progress | None = None
) -> OpenedSide:
    """Return a file, or an attached text after verifying it, as a side; messages call it `name`.

    Raises CheckError for a text that does not verify, InputError for a pending one.
    """
    if not grammar.is_text(data):
        snapshot = snapshot_of(any_format.split(data))
        writer = TextWriter(snapshot, threads=threads, progress=progress)
        return OpenedSide(side_of_writer(writer), True)
    report = verify(data, threads=threads, progress=progress)
    # Before the verdict: a pending text may be valid otherwise.
    if report.is_pending:
        raise InputError(
            f"{name}: a pending text has no root, so no delta can be made from it or to it",
            hint=f"wtxtgit finalize --inline -- {shlex.quote(name)}" if is_file(name) else None,
        )
    if not report.ok:
        raise _refusal(name, report.problems[0])
    return OpenedSide(side_of_text(data, report.index), is_blob(name) and report.is_container)


def _given(generation: TargetGeneration, base: DeltaSide, *, plain: bool) -> Regeneration:
    if not plain and (generation.ts is not None or generation.build is not None):
        raise UsageError("--ts and --build are for plain deltas: this one already states them")
    given = Regeneration(generation.ts, generation.build, key_bytes(generation.hmac_key))
    if plain:
        try:
            grammar.format_meta(given.meta_after(base.meta))
        except TextError as error:
            # Reaching the last possible generation is the base's fault; a wrong time or build is
            # the caller's.
            raised = CheckError if error.kind == "limit" else UsageError
            raise raised(error.message) from error
    return given


def _refusal(name: str, problem: Problem) -> CheckError:
    hint = f"wtxtgit verify -- {shlex.quote(shown(Path(name)))} lists all problems"
    return CheckError(f"{name}: {problem}", hint=hint)
