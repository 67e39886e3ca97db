"""Release: signs a manifest of all checkpoints of a commit, after auditing it.

`docs/spec/release.md`, "The claim" and "What is named".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from wtxtgit.chain.audit import AuditRequest, audit
from wtxtgit.chain.reader import ChainReader, Facts, artifacts
from wtxtgit.chain.walk import root_commit
from wtxtgit.checkpoint.bundle import Manifest, Resource, check_file_name, in_order, signed_bundle
from wtxtgit.checkpoint.released_files import FilesOfCommit
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, TrustError, UsageError
from wtxtgit.filter.content import with_wsum
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.commit_files import CommitFiles, CommitFilesReader
from wtxtgit.git.history import resolve_commit
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.files import shown, shown_path
from wtxtgit.io.progress import Progress
from wtxtgit.model.ledger import SIGNERS_PATH
from wtxtgit.remotes.lfs_pointer import read_pointer
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.release import ReleaseReport, SignedFile
from wtxtgit.text.grammar import WSUM_SUFFIX
from wtxtgit.trust.openssh import MAX_SIGNERS_FILE, parse_signers
from wtxtgit.trust.pem_keys import EcSecretKey, ed25519_hint
from wtxtgit.trust.signing import SigningKey

_MOST_POINTER = 1024


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """What is released: a tag, audited from a trust root; all its files, or only checkpoints."""

    tag: str
    trust_root: str
    all_files: bool = False


def release(
    repo: Repository,
    options: ReleaseOptions,
    facts: Facts,
    key: Callable[[], SigningKey | EcSecretKey] | None,
    *,
    progress: Progress | None = None,
) -> tuple[AuditReport, ReleaseReport | None, bytes]:
    """Audit a tag's commit, and sign a manifest of its files with the key that `key` returns.

    Returns the report of the audit, what was signed, and the bundle; None and no bytes if the audit
    failed. If `key` is None the bundle is empty. Raises UsageError if the tag does not exist,
    TrustError if the key is not trusted at the tag, and CheckError for files that can't be named or
    restored.
    """
    commit = tagged_commit(repo, options.tag)
    request = AuditRequest(commit, trust_root=options.trust_root, require_signed=True)
    audited = audit(repo, request, facts, progress=progress)
    if not audited.ok:
        return audited, None, b""
    with BlobReader(repo) as blobs, CommitFilesReader(repo) as reader:
        snapshot, listing = reader.files(commit), reader.listing(commit)
        # Checked before reading files: otherwise a wrong key would only be noticed after an hour.
        signer = None if key is None else key()
        if signer is not None and not isinstance(signer, EcSecretKey):
            _refuse_untrusted(signer, blobs.read(listing[SIGNERS_PATH].oid, MAX_SIGNERS_FILE))
        chain = ChainReader(blobs)
        sealed = artifacts(snapshot) - {SIGNERS_PATH}
        sealed |= {*_wsums(snapshot, listing, sealed, facts, chain)}
        chosen = list(_checked_paths(sealed, listing, options, blobs))
        generations = {path: _generation(chain, snapshot, path) for path in chosen}
    files = FilesOfCommit(
        repo, {path: listing[path].oid for path in chosen}, snapshot.filtered & {*chosen}
    )
    resources = in_order(
        Resource(name, files.sha256(name, None)) for name in map(os.fsdecode, chosen)
    )
    root = _root_id(repo, options.trust_root)
    origin = {"tag": options.tag, "commit": commit, "trust_root": root}
    manifest = Manifest(options.tag, resources, origin)
    report = ReleaseReport(
        options.tag,
        commit,
        root,
        manifest.digest,
        tuple(
            SignedFile(one.name, one.sha256, generations[os.fsencode(one.name)])
            for one in resources
        ),
    )
    if signer is None:
        return audited, report, b""
    hint = signer.hint if isinstance(signer, EcSecretKey) else ed25519_hint(signer.public_key)
    return audited, replace(report, key=signer.name), signed_bundle(manifest, signer.sign, hint)


def tagged_commit(repo: Repository, tag: str) -> str:
    """Return the commit of a tag; raises UsageError for a branch or anything else."""
    name = f"refs/tags/{tag}"
    if not tag or repo.call("show-ref", "--verify", "--quiet", "--", name, ok=(0, 1, 128)).code:
        raise UsageError(f"{shown(tag)!r} is not a tag", hint="git tag -s TAG makes one of HEAD")
    return resolve_commit(repo, name)


def _root_id(repo: Repository, trust_root: str) -> str:
    try:
        return root_commit(repo, trust_root)
    except EnvironmentFailure:
        # The trust root is a file of signers, which has no object id. Its path is not published.
        return "signers file"


def _refuse_untrusted(key: SigningKey, content: bytes) -> None:
    """Raise TrustError if an OpenSSH key is not in the signers file."""
    signers = parse_signers(content, SIGNERS_PATH.decode())
    if key.public_key not in {one.public_key for one in signers}:
        raise TrustError(
            f"{key.name}: this key is not trusted at the tag",
            hint="--key takes a key from wtxtgit signers list, or the file of an EC key",
        )


def _wsums(
    snapshot: CommitFiles,
    listing: dict[bytes, TreeEntry],
    sealed: set[bytes],
    facts: Facts,
    chain: ChainReader,
) -> Iterator[bytes]:
    """Yield the WSUMs that are sealed together with their texts.

    Others are not sealed by anybody.
    """
    texts = {
        path: listing[path].oid
        for path in sealed
        if path in listing
        and (entry := listing.get(path + WSUM_SUFFIX)) is not None
        and entry.is_file
        and chain.wsum(entry.oid) is not None
    }
    facts_by_oid = facts.of(texts.values())
    for path, oid in texts.items():
        wsum = chain.wsum(listing[path + WSUM_SUFFIX].oid) or b""
        if with_wsum(facts_by_oid[oid], wsum, is_filtered=path in snapshot.filtered).has_wsum:
            yield path + WSUM_SUFFIX


def _checked_paths(
    sealed: set[bytes],
    listing: dict[bytes, TreeEntry],
    options: ReleaseOptions,
    blobs: BlobReader,
) -> Iterator[bytes]:
    """Yield the paths that the manifest names."""
    chosen = [
        path
        for path, entry in listing.items()
        if options.all_files or (path in sealed and entry.is_file)
    ]
    if not chosen:
        raise CheckError(f"{shown(options.tag)} has no checkpoint", hint="wtxtgit track '*.ENDING'")
    for path in chosen:
        check_released_name(path)
        entry = listing[path]
        if not entry.is_file:
            raise CheckError(
                f"{shown_path(path)}: a link or a submodule, which a release cannot list"
            )
        if path not in sealed and _is_pointer(blobs, entry.oid):
            raise CheckError(f"{shown_path(path)}: a git-lfs pointer, which a release cannot list")
        yield path


def check_released_name(path: bytes) -> None:
    """Raise CheckError for a path that a bundle can't name."""
    try:
        check_file_name(os.fsdecode(path))
    except InputError:
        raise CheckError(f"{shown_path(path)}: the name is not UTF-8, as a bundle needs") from None


def _is_pointer(blobs: BlobReader, oid: str) -> bool:
    return (
        blobs.size(oid) <= _MOST_POINTER
        and read_pointer(blobs.read(oid, _MOST_POINTER)) is not None
    )


def _generation(reader: ChainReader, snapshot: CommitFiles, path: bytes) -> int | None:
    report = reader.ledger_in(snapshot, path)
    return None if report is None or report.ledger is None else report.ledger.records[-1].meta.gen
