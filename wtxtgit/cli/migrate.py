"""`wtxtgit migrate`: a history into texts, and out of them again."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import boundary, environment
from wtxtgit.cli.boundary import complain
from wtxtgit.cli.options import completed, discover
from wtxtgit.cli.output import is_printed, print_line, print_table, progress
from wtxtgit.errors import CheckError, EnvironmentFailure, UsageError, counted
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wtxtgit.git.repository import Repository
    from wtxtgit.report.migrate import Migrated, PatternFiles
    from wtxtgit.rewrite.blobs import Form
    from wtxtgit.rewrite.migrate import MigrationOptions
    from wtxtgit.rewrite.walk import Migration

_json = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
_everything = click.option("--everything", is_flag=True, help="All branches and tags.")
_dry_run = click.option(
    "-n", "--dry-run", is_flag=True, help="Change nothing; show what would change."
)
_refs = click.argument("refs", nargs=-1, metavar="[REF...]", shell_complete=completed("revisions"))
_SHOWN = 5
_SEAL = (
    "wtxtgit seal --staged, then git commit if it sealed any, then wtxtgit audit --trust-root HEAD"
)


@click.group()
def migrate() -> None:
    """Convert a history from plain git or git-lfs to texts, and back.

    \b
    wtxtgit migrate info --everything
    wtxtgit migrate import --include '*.safetensors' --everything
    wtxtgit migrate export --everything
    """


@migrate.command()
@_refs
@_everything
@_json
def info(refs: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Show the checkpoints in a history, and the size of their texts.

    Groups all versions on the branches and tags REF, or on the current branch, by file
    ending. Shows their size, the size of their texts, and the size that git would hold
    if the texts were detached. Texts over 100 MiB, or the config wtxtgit.maxBlob, are
    counted as too large, because forges refuse such blobs. Git cannot make small deltas
    of compressed files; wtxtgit repack stores them uncompressed. Nothing is changed.

    \b
    wtxtgit migrate info
    wtxtgit migrate info --everything --json
    """
    _refuse_both(refs, everything)
    from wtxtgit.rewrite.info import history_files

    repo = discover()
    with progress("reading", None, waits=True) as advance:
        history = history_files(repo, refs, everything=everything, progress=advance)
    if is_printed(history, as_json):
        return
    if not history.patterns:
        print_line(f"{counted(history.commits, 'commit')}: no checkpoint in a known format")
        return
    columns = ("pattern", "files", "versions", "size", "of texts", "detached", "too large", "notes")
    rows = [
        (
            pattern.pattern,
            str(pattern.files),
            str(pattern.versions),
            size(pattern.size),
            size(pattern.text),
            size(pattern.detached),
            str(pattern.over_limit),
            ", ".join((*pattern.formats, *_notes(pattern))),
        )
        for pattern in history.patterns
    ]
    print_table(columns, rows, right=columns[1:-1])
    print_line()
    print_line(
        f"{counted(history.commits, 'commit')}; a text has all bytes of its file, as base64; those "
        f"over {size(history.limit)} are too large for forges; detached texts keep their data in "
        "the store, outside git's history"
    )


def _notes(pattern: PatternFiles) -> Iterator[str]:
    if pattern.pointers:
        yield f"{counted(pattern.pointers, 'pointer')} of git-lfs"
    if pattern.compressed:
        yield f"{pattern.compressed} compressed, so no small deltas"


@migrate.command("import")
@_refs
@click.option(
    "--include", "patterns", multiple=True, metavar="PATTERN",
    help="Convert files that match PATTERN, as in .gitattributes.",
)  # fmt: skip
@_everything
@click.option(
    "--detached", is_flag=True, help="Keep their data in the store, outside git's history."
)
@click.option("--from-lfs", is_flag=True, help="Convert the files that git-lfs pointers stand for.")
@_dry_run
@_json
def import_history(
    refs: tuple[str, ...],
    patterns: tuple[str, ...],
    everything: bool,
    detached: bool,
    from_lfs: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Rewrite history so that its checkpoints are texts.

    Covers all commits of the branches and tags REF, or of the current branch. Each file
    is restored from its new text and compared before any ref moves. Commits keep their
    authors, dates, messages and notes, but get new ids, and their signatures are
    dropped. The old refs stay under refs/wtxt/before. With --from-lfs and no --include,
    all git-lfs files are converted.

    \b
    wtxtgit migrate import --include '*.safetensors' --everything
    wtxtgit migrate import --from-lfs --detached --everything
    """
    if not patterns and not from_lfs:
        raise UsageError(
            "no files selected",
            hint="--include PATTERN selects files, --from-lfs all files of git-lfs",
        )
    from wtxtgit.git.attributes import check_pattern
    from wtxtgit.rewrite.blobs import ToTexts
    from wtxtgit.rewrite.lines import ImportLines
    from wtxtgit.rewrite.migrations import ImportMigration

    chosen = tuple(dict.fromkeys(map(os.fsencode, patterns)))
    for pattern in chosen:
        check_pattern(pattern)
    repo = discover()
    how = ImportLines(chosen, detached, from_lfs)
    form = ToTexts(repo, threads=environment.threads())
    options = _options(refs, everything, dry_run, "import", reads_pointers=from_lfs)
    return _migrated(repo, ImportMigration(how), form, options, as_json=as_json)


@migrate.command("export")
@_refs
@_everything
@click.option("--to-lfs", is_flag=True, help="Turn the files into git-lfs pointers.")
@_dry_run
@_json
def export_history(
    refs: tuple[str, ...], everything: bool, to_lfs: bool, dry_run: bool, as_json: bool
) -> int:
    """Rewrite history so that its texts are plain files again.

    Covers all commits of the branches and tags REF, or of the current branch, and every
    file that their .gitattributes keep as text. With --to-lfs, files become pointers
    and git-lfs gets their content here, ready for git lfs push. Exporting an import
    restores the original trees, and the original ids of commits that had no signature.

    \b
    wtxtgit migrate export --everything
    wtxtgit migrate export --to-lfs --everything
    """
    from wtxtgit.rewrite.blobs import FromTexts
    from wtxtgit.rewrite.migrations import ExportMigration

    repo = discover()
    form = FromTexts(repo, threads=environment.threads())
    options = _options(refs, everything, dry_run, "export")
    return _migrated(repo, ExportMigration(to_lfs=to_lfs), form, options, as_json=as_json)


def _refuse_both(refs: tuple[str, ...], everything: bool) -> None:
    if refs and everything:
        raise UsageError("--everything and REF cannot be combined")


def _options(
    refs: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    what: str,
    *,
    reads_pointers: bool = False,
) -> MigrationOptions:
    _refuse_both(refs, everything)
    from wtxtgit.rewrite.migrate import MigrationOptions

    return MigrationOptions(refs, everything, reads_pointers, dry_run, f"wtxtgit migrate {what}")


def _migrated(
    repo: Repository,
    migration: Migration,
    form: Form,
    options: MigrationOptions,
    *,
    as_json: bool,
) -> int:
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.rewrite.migrate import migrate as migrate_history

    with progress("migrating", None, noun="version", waits=True) as advance:
        done = migrate_history(
            repo, migration, form, options, settings(repo), boundary.warn, progress=advance
        )
    if not is_printed(done, as_json):
        _print(done, makes_texts=migration.makes_texts)
    _complain_of(done)
    if (done.lacking and not done.dry_run) or done.unwritten:
        return EnvironmentFailure.exit_code
    is_undone = done.blobs.left and not migration.makes_texts
    return CheckError.exit_code if is_undone else 0


def _print(done: Migrated, *, makes_texts: bool) -> None:
    if not done.rewritten:
        print_line(f"{counted(done.commits, 'commit')}: nothing to migrate")
        _print_left(done, makes_texts=makes_texts)
        return
    if done.dry_run or done.lacking:
        print_line(
            f"{done.rewritten} of {counted(done.commits, 'commit')} would be rewritten: "
            f"{counted(done.blobs.made, 'version')} of {counted(len(done.files), 'file')}"
        )
        if done.signatures:
            print_line(
                f"would be dropped: {counted(done.signatures, 'signature')} of commits and tags"
            )
        return
    blobs = done.blobs
    print_line(
        f"{done.rewritten} of {counted(done.commits, 'commit')} rewritten: "
        f"{counted(blobs.made, 'version')} of {counted(len(done.files), 'file')}, "
        f"{size(blobs.before)} in git before, {size(blobs.after)} now, all proved equal"
    )
    _print_left(done, makes_texts=makes_texts)
    if done.signatures:
        print_line(f"dropped: {counted(done.signatures, 'signature')} of commits and tags")
    stashed = f" and {done.stashes} of the stash" if done.stashes else ""
    refs = counted(len(done.refs), "ref")
    print_line(f"moved: {refs}{stashed}; their old values are under {done.backup}/")
    print_line(f"old and new commit ids: {done.map}")


def _print_left(done: Migrated, *, makes_texts: bool) -> None:
    if done.blobs.left:
        what = "texts already" if makes_texts else "texts that do not stand for a file"
        print_line(f"left alone: {counted(len(done.blobs.left), 'version')}, {what}")


def _hint_of_refs(others: Sequence[str]) -> str | None:
    """Return a hint with commands that move the refs that were not moved."""
    if any(name.startswith(("refs/heads/", "refs/tags/")) for name in others):
        return "--everything rewrites all branches and tags"
    remotes = {name.split("/")[2] for name in others if name.startswith("refs/remotes/")}
    if not remotes:
        return None
    return f"git push --force-with-lease --all -- {shlex.quote(min(remotes))} moves its branches"


def _complain_of(done: Migrated) -> None:
    if done.lacking and done.dry_run:
        count = counted(len(done.lacking), "object")
        whole = size(sum(lack.size for lack in done.lacking))
        boundary.warn(f"{count} would be fetched from git-lfs, {whole}")
    for lack in () if done.dry_run else done.lacking[:_SHOWN]:
        complain(
            f"{os.fsdecode(lack.path)}: object {lack.object[:12]}, {size(lack.size)}: not "
            f"found here"
        )
    if done.lacking and not done.dry_run:
        if len(done.lacking) > _SHOWN:
            complain(f"and {len(done.lacking) - _SHOWN} more; --json lists them")
        if done.why_lacking is not None:
            complain(done.why_lacking)
        count = counted(len(done.lacking), "object")
        complain(f"{count} of git-lfs missing; nothing was changed", "git lfs fetch --all")
    for path in done.unwritten[:_SHOWN]:
        complain(f"{os.fsdecode(path)}: git status shows it as changed")
    if done.passed_over:
        names = ", ".join(map(os.fsdecode, done.passed_over[:_SHOWN]))
        boundary.warn(
            f"{counted(len(done.passed_over), 'file')} skipped because of other lines in "
            f".gitattributes: {names}"
        )
    if done.dry_run or not done.refs:
        return
    if done.others:
        names = ", ".join(done.others[:_SHOWN])
        boundary.warn(
            f"{counted(len(done.others), 'ref')} still at old commits: {names}",
            _hint_of_refs(done.others),
        )
    if done.sealed:
        count = counted(len(done.sealed), "sealed file")
        message = f"{count} stored in another form; files sealed as stored need a new seal"
        boundary.warn(message, _SEAL)
    if done.unsealed:
        count = counted(len(done.unsealed), "file")
        boundary.warn(f"{count} without a seal, which audits now require", _SEAL)
    if done.trust_root:
        seals = done.sealed or done.unsealed
        commit = "$(git rev-parse HEAD)  # once everything is sealed" if seals else done.trust_root
        boundary.warn(
            f"wtxtgit.trustRoot names an old commit, whose new id is {done.trust_root}",
            f"git config wtxtgit.trustRoot {commit}",
        )
