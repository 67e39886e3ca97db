"""Prune: replaces a branch's history by a shorter one, with a new trust root sealed by its signers.

`docs/spec/pruned.md` says what is kept, what is sealed and what is proved before any ref moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from wtxtgit.chain.audit import AuditRequest, audit
from wtxtgit.chain.pruned import (
    MAX_RECORD,
    PATHS,
    PRUNED,
    PRUNED_BUILD,
    PRUNED_LEDGER,
    PruningRecord,
    first_parents,
    forgotten,
    format_pruning,
    identity,
    parse_pruning,
    prove_audited,
)
from wtxtgit.chain.reader import ChainReader, Facts
from wtxtgit.chain.walk import commit_of
from wtxtgit.errors import CheckError, EnvironmentFailure, TrustError, UsageError, counted
from wtxtgit.filter.content import opaque_hash
from wtxtgit.git import history, index, run, staging
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFilesReader
from wtxtgit.git.fast_stream import Change, ScratchRepository, StreamedCommit, scratch
from wtxtgit.git.history import Commit, CommitReader
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import MODE_FILE, TreeEntry, TreeReader
from wtxtgit.git.turn import turn
from wtxtgit.git.work_tree import file_is_blob
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import NO_REPO, SIGNERS_LEDGER, SIGNERS_PATH, Ledger, LedgerHead
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.prune import PrunedCommit, PruneReport
from wtxtgit.rewrite import work_tree
from wtxtgit.rewrite.refs import (
    ChosenRef,
    TagWriter,
    chosen_refs,
    leading_to,
    list_refs,
    move_refs,
    next_backup,
    notes_refs,
    refuse_partial,
)
from wtxtgit.text import digest
from wtxtgit.text.ledger import covered, format_ledger, next_record, with_signature
from wtxtgit.trust.signing import SigningKey

_HEADS, _TAGS, _REMOTES = "refs/heads/", "refs/tags/", "refs/remotes/"
_SCHEMA = "opaque/v1"
_REASON = "wtxtgit prune"
_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """Which commits are kept: the last ones, tagged ones, one for every so many seconds.

    `branch` defaults to the one that is checked out. `confirmed` are the remotes for which the user
    accepts that the removed commits are lost there. `ts` is the time of the seal.
    """

    trust_root: str
    ts: str
    branch: str | None = None
    last: int = 0
    tagged: bool = False
    every: int | None = None
    confirmed: tuple[str, ...] = ()


def prune(
    repo: Repository,
    options: PruneOptions,
    facts: Facts,
    keys: Callable[[], Sequence[SigningKey]] | None,
    progress: Progress | None = None,
) -> AuditReport | PruneReport:
    """Prune a branch, sealed with the keys that `keys` returns; if it is None only report the plan.

    `progress` gets counts of bytes of blobs that audits read. Returns the audit if it failed, else
    what was done or would be done. Whenever this raises no ref has moved: CheckError for what can't
    be proved, TrustError for too few keys, EnvironmentFailure and UsageError for a repository that
    is not in a state to be pruned.
    """
    history.refuse_altered(repo)
    ref = _branch(repo, options)
    refuse_partial(repo, [ref.commit])
    follows = False
    if keys is not None:
        _unstage_leftover(repo, ref.commit)
        follows = work_tree.check(repo, [ref.name])
    request = AuditRequest(ref.commit, trust_root=options.trust_root, require_signed=True)
    audited = audit(repo, request, facts, progress=progress)
    if not audited.ok:
        return audited
    whole_line = first_parents(repo, ref.commit)
    line = _from_root(repo, whole_line, options.trust_root)
    tags = _tags(repo)
    report = _planned(repo, options, ref, whole_line, line, tags)
    if keys is None or len(report.kept) == len(whole_line):
        return report
    _refuse_unconfirmed(repo, options, report)
    kept = [commit for commit, one in zip(line, report.commits, strict=True) if one.why]
    content = format_pruning(PruningRecord(ref.commit, tuple(commit.oid for commit in kept)))
    ledger = _seal(repo, ref.commit, content, options.ts, keys())
    if follows:
        _refuse_in_the_way(repo, ref.commit)
    with scratch(repo) as streams:
        files = {PRUNED: content, PRUNED_LEDGER: ledger}
        new, blobs = _write_commits(repo, streams, kept, files)
        ids = {commit.oid: oid for commit, oid in zip(kept, new, strict=True)}
        proof = prove_audited(repo, ref.commit, new[-1], facts, progress)
        if isinstance(proof, AuditReport):
            return proof
        moves = [(ref.name, ref.oid, new[-1]), *_moved_tags(repo, tags, ids)]
        with turn(repo):
            if follows:
                work_tree.check(repo, [ref.name])
            backup = next_backup(repo)
            if follows:
                # Before the branch moves: an interruption then leaves just two staged files.
                _stage(repo, blobs)
            move_refs(repo, moves, backup, _REASON)
    commits = tuple(replace(one, new=ids.get(one.oid)) for one in report.commits)
    others = _others(repo, whole_line, new[0], [name for name, *_ in moves])
    return replace(report, commits=commits, others=others, root=new[0], backup=backup)


def _unstage_leftover(repo: Repository, tip: str) -> None:
    """Unstage the record that an earlier pruning of this tip left when it was killed."""
    staged = {entry.path: entry for entry in index.entries(repo) if entry.path in PATHS}
    with CommitFilesReader(repo) as files, BlobReader(repo) as blobs:
        committed = files.at(tip, PATHS)
        if PRUNED not in staged or staged[PRUNED] == committed.get(PRUNED):
            return
        try:
            record = parse_pruning(blobs.read(staged[PRUNED].oid, MAX_RECORD))
        except CheckError:
            return
    if record.old != tip:
        return
    for path, entry in staged.items():
        if path not in committed and file_is_blob(repo.file(path), entry.oid):
            repo.file(path).unlink()
    staging.stage(
        repo, committed.values(), removed=[path for path in PATHS if path not in committed]
    )
    staging.checkout(repo, committed)


def _branch(repo: Repository, options: PruneOptions) -> ChosenRef:
    names = () if options.branch is None else (options.branch,)
    (ref,) = chosen_refs(repo, names, everything=False)
    if not ref.name.startswith(_HEADS):
        raise UsageError(f"{ref.name} is not a branch")
    return ref


def _from_root(repo: Repository, line: list[Commit], trust_root: str) -> list[Commit]:
    """Return the commits from the trust root on; earlier ones were never audited."""
    root = commit_of(repo, trust_root)
    for n, commit in enumerate(line):
        if commit.oid == root:
            return line[n:]
    # A merge brought the root in; it is not known whether the commits before that merge follow from
    # it.
    raise UsageError(
        "the trust root is not on the branch's first-parent line",
        hint="git log --first-parent lists commits to choose from for --trust-root",
    )


def _planned(
    repo: Repository,
    options: PruneOptions,
    ref: ChosenRef,
    whole_line: list[Commit],
    line: list[Commit],
    tags: list[ChosenRef],
) -> PruneReport:
    with CommitReader(repo) as commits, TreeReader(repo) as trees:
        times = [_committed(commits.content(commit.oid)[0]) for commit in line]
        why = _reasons(options, line, times, {tag.commit for tag in tags})
        oldest = min(n for n, reasons in enumerate(why) if reasons)
        for n in range(oldest + 1, len(line)):
            before, after = line[n - 1].tree, line[n].tree
            signers = (SIGNERS_PATH, SIGNERS_LEDGER)
            if trees.at(before, signers) != trees.at(after, signers):
                why[n].append("signers")
        commit_reports = tuple(
            PrunedCommit(
                commit.oid,
                commits.author(commit.oid)[1],
                commits.subject(commit.oid),
                tuple(reasons),
            )
            for commit, reasons in zip(line, why, strict=True)
        )
    kept = dict.fromkeys(one.oid for one in commit_reports if one.why)
    is_shorter = len(kept) < len(whole_line)
    moving = [ref.name, *(tag.name for tag in tags if tag.commit in kept)]
    refs = _others(repo, whole_line, next(iter(kept)), moving) if is_shorter else ()
    places = _tracking(repo)
    remotes = [name for name in places if any(_tracks(ref, places[name]) for ref in refs)]
    others = tuple(name for name in refs if not name.startswith(_REMOTES))
    before_line = len(whole_line) - len(line)
    report = PruneReport(ref.name, ref.commit, before_line, commit_reports, tuple(remotes), others)
    if not is_shorter:
        return report
    moved = [tag for tag in tags if tag.commit in kept and tag.is_tag_object]
    writer = TagWriter(repo, {tag.commit: "" for tag in moved})
    signed = tuple(tag.name for tag in moved if writer.signed(tag.oid))
    lost = forgotten(repo, options.trust_root, [commit.oid for commit in line], list(kept))
    return replace(report, signed_tags=signed, forgotten=lost)


def _reasons(
    options: PruneOptions, line: list[Commit], times: list[int], tagged: set[str]
) -> list[list[str]]:
    """Return, for each commit, the options by which it is kept; empty if it is not."""
    why: list[list[str]] = [[] for _ in line]
    why[-1].append("tip")
    for reasons in why[len(line) - options.last :] if options.last else ():
        reasons.append("last")
    if options.tagged:
        for commit, reasons in zip(line, why, strict=True):
            if commit.oid in tagged:
                reasons.append("tag")
    if options.every is not None:
        newer: int | None = None
        for time, reasons in zip(reversed(times), reversed(why), strict=True):
            if newer is None or newer - time >= options.every:
                newer = time
                reasons.append("every")
    return why


def _committed(head: bytes) -> int:
    """Return the commit time in Unix seconds; 0 if there is none."""
    for line in head.split(b"\n"):
        if line.startswith(b"committer "):
            word = line.rsplit(b" ", 2)[-2]
            return int(word) if word.isdigit() and len(word) <= _MOST_DIGITS else 0
    return 0


def _tags(repo: Repository) -> list[ChosenRef]:
    refs = chosen_refs(repo, (), everything=True) if list_refs(repo, _TAGS) else []
    return [ref for ref in refs if ref.name.startswith(_TAGS)]


def _moved_tags(
    repo: Repository, tags: list[ChosenRef], ids: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the tags of kept commits, which move along: name, old id and new id."""
    writer = TagWriter(repo, ids)
    for ref in tags:
        if ref.commit in ids:
            new = writer.tag(ref.oid) if ref.is_tag_object else ids[ref.commit]
            yield ref.name, ref.oid, new


def _others(
    repo: Repository, whole_line: list[Commit], kept: str, moved: list[str]
) -> tuple[str, ...]:
    """Return the refs, except those that moved, that still reach removed commits.

    `kept` is the oldest commit that is kept.
    """
    # A ref that reaches a removed commit also reaches the first commit, unless that one is kept.
    oldest = next((commit.oid for commit in whole_line if commit.oid != kept), kept)
    notes = _noting(repo, {commit.oid for commit in whole_line})
    return tuple(sorted([*leading_to(repo, [oldest], moved), *notes]))


def _noting(repo: Repository, line: set[str]) -> Iterator[str]:
    """Yield the refs of notes about commits of the line.

    Notes about kept commits keep the old id too.
    """
    with CommitReader(repo) as commits, TreeReader(repo) as trees:
        for ref in notes_refs(repo):
            # git-notes(1): the path of a note is the object id, split into folders.
            paths = trees.listing(commits.commit(ref.commit).tree)
            if not line.isdisjoint(path.replace(b"/", b"").decode("latin-1") for path in paths):
                yield ref.name


def _tracking(repo: Repository) -> dict[str, list[tuple[str, str]]]:
    """Return, for each remote, pairs of ref prefixes or names: there, and where they are tracked
    here.
    """
    names = repo.git("remote").decode("utf-8", "surrogateescape").split()
    places = {name: [(_HEADS, f"{_REMOTES}{name}/")] for name in names}
    query = ("config", "--null", "--get-regexp", r"^remote\..*\.fetch$")
    for record in run.records(repo.call(*query, ok=(0, 1)).stdout):
        key, _, spec = record.decode("utf-8", "surrogateescape").partition("\n")
        source, _, target = spec.removeprefix("+").partition(":")
        name = key.removeprefix("remote.").removesuffix(".fetch")
        if target and name in places:
            places[name].append((source.partition("*")[0], target.partition("*")[0]))
    return places


def _tracks(ref: str, tracked: list[tuple[str, str]]) -> bool:
    """Tell whether a local ref tracks one of the remote's refs."""
    return any(ref.startswith(prefix) for _, prefix in tracked)


def _refuse_unconfirmed(repo: Repository, options: PruneOptions, report: PruneReport) -> None:
    """Raise if a remote has commits that are not here, or would lose commits without
    confirmation.
    """
    branch = report.branch.removeprefix(_HEADS)
    places = _tracking(repo)
    for remote in report.remotes:
        for remote_prefix, local_prefix in places[remote]:
            if not report.branch.startswith(remote_prefix):
                continue
            ref = local_prefix + report.branch.removeprefix(remote_prefix)
            if list_refs(repo, ref) == [ref] and not history.is_ancestor(repo, ref, report.tip):
                raise EnvironmentFailure(
                    f"{remote} has commits of {branch} that are not here, and would lose them",
                    hint="run git pull first",
                )
    lost = [remote for remote in report.remotes if remote not in options.confirmed]
    if lost:
        dropped = len(report.commits) - len(report.kept) + report.before
        raise UsageError(
            f"{', '.join(lost)} would lose {counted(dropped, 'commit')} once this is pushed",
            hint=" ".join(f"--confirm {remote}" for remote in lost) + " confirms that",
        )


def _seal(repo: Repository, tip: str, content: bytes, ts: str, keys: Sequence[SigningKey]) -> bytes:
    """Return the ledger for the record of a pruning.

    Raises TrustError if the keys are not enough.
    """
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as files:
        snapshot, reader = files.files(tip), ChainReader(blobs)
        trusted, fault = reader.signers(snapshot.entries[SIGNERS_PATH].oid)
        signers_report = reader.ledger_in(snapshot, SIGNERS_PATH)
        before = reader.ledger_in(snapshot, PRUNED)
        if before is None and PRUNED in files.at(tip, [PRUNED]):
            raise CheckError(f"{PRUNED.decode()} exists, but is not sealed")
    if trusted is None:
        raise CheckError(f"{SIGNERS_PATH.decode()}: {fault}")
    public = frozenset(key.public_key for key in keys)
    for key in keys:
        if key.public_key not in trusted.keys:
            raise TrustError(f"{key.name}: this key is not trusted at the tip")
    if trusted.count(public) < trusted.threshold:
        raise TrustError(
            f"{counted(trusted.threshold, 'signer')} have to seal a new trust root, but only "
            f"keys of {trusted.count(public)} are given",
            hint="--key KEY --key KEY",
        )
    chain = signers_report.ledger if signers_report is not None else None
    previous = before.ledger if before is not None else None
    head = LedgerHead(NO_REPO if chain is None else chain.records[0].merkle_this, PRUNED)
    if previous is not None:
        head = previous.head
    sha256_all = opaque_hash(memoryview(content))
    record = next_record(previous, sha256_all=sha256_all, ts=ts, build=PRUNED_BUILD, schema=_SCHEMA)
    message = covered(head, record)
    for key in keys:
        record = with_signature(record, digest.signer(key.sign, key.public_key)(message))
    return format_ledger(Ledger(head, (*(() if previous is None else previous.records), record)))


def _refuse_in_the_way(repo: Repository, tip: str) -> None:
    """Raise EnvironmentFailure if the user has a file where the record will be written."""
    with CommitFilesReader(repo) as files:
        committed = files.at(tip, PATHS)
    for path in PATHS:
        file = repo.file(path)
        if path not in committed and (file.is_symlink() or file.exists()):
            raise EnvironmentFailure(f"{path.decode()} exists, but is not committed")


def _write_commits(
    repo: Repository, streams: ScratchRepository, kept: list[Commit], files: dict[bytes, bytes]
) -> tuple[list[str], dict[bytes, str]]:
    """Write the commits of the shorter history; `files` are added to all of them.

    Returns the ids of the commits, oldest first, and those of the files by path.
    """
    with (
        CommitReader(repo) as commits,
        TreeReader(repo) as trees,
        streams.importing() as writer,
    ):
        # Written to the same stream: an interruption leaves nothing but what git cleans up.
        blobs = {path: writer.blob(content, like=kept[0].oid) for path, content in files.items()}
        sealed = [Change(path, MODE_FILE, oid) for path, oid in blobs.items()]
        before: str | None = None
        for mark, commit in enumerate(kept, 1):
            head, message = commits.content(commit.oid)
            changes = [
                Change(change.path)
                if change.after is None
                else Change(change.path, change.after.mode, change.after.oid)
                for change in trees.between(before, commit.tree)
                if change.path not in PATHS
            ]
            streamed = StreamedCommit(mark, commit.oid, _fast_import_header(head), message, (), ())
            parents = [mark - 1] if before is not None else []
            writer.commit(streamed, parents, [*changes, *(sealed if before is None else ())])
            before = commit.tree
    return [writer.written[mark] for mark in range(1, len(kept) + 1)], blobs


def _fast_import_header(head: bytes) -> bytes:
    """Return the lines of a commit's header that git fast-import accepts.

    If another line is lost, the proof fails.
    """
    words = (b"author ", b"committer ", b"encoding ")
    lines = identity(head).splitlines(keepends=True)
    return b"".join(line for line in lines if line.startswith(words))


def _stage(repo: Repository, blobs: dict[bytes, str]) -> None:
    staging.stage(repo, [TreeEntry(path, MODE_FILE, oid) for path, oid in blobs.items()])
    staging.checkout(repo, blobs)
