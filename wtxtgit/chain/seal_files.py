"""The files that sealing reads and writes: artifacts, ledgers and signers.

Whether they come from the index or from the work tree is decided once, by `is_staged`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.chain.encrypted import is_encrypted
from wtxtgit.chain.seal_state import SealedContent, content_of
from wtxtgit.checkpoint.wsum import wsum_at
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, TrustError, counted
from wtxtgit.filter.content import (
    ArtifactFacts,
    detached_hash,
    examine,
    with_wsum,
)
from wtxtgit.git import history, index, staging, work_tree
from wtxtgit.git.attributes import TreeAttributes
from wtxtgit.git.blobs import BlobReader, blob_id
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import DETACHED_DRIVER, Repository
from wtxtgit.git.trees import TreeReader
from wtxtgit.io.files import failures, read_whole, replace_file, shown, shown_path, view_file
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, write_all
from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    SIGNERS_PATH,
    TEXT_SUFFIX,
    Ledger,
    extends,
    stands_beside,
)
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.lfs_pointer import POINTER
from wtxtgit.store.place import store_of
from wtxtgit.text import ledger as text
from wtxtgit.text.digest import SignatureState, check_header, check_wsum
from wtxtgit.text.grammar import MAX_WSUM, WSUM_MAGIC, WSUM_SUFFIX, is_text
from wtxtgit.trust import openssh as signers_file
from wtxtgit.trust.openssh import MAX_THRESHOLD, KeyFileError

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.checkpoint.encrypted import EncryptedTexts
    from wtxtgit.trust.age.identities import AgeIdentity

_FILE_MODE = 0o100644
_BOTH_SIDES = {2, 3}
"""The stages of ours and theirs; one is missing if that side deleted the file."""


@dataclass
class SealedFiles:
    """The files of a repository; with `is_staged` those of the index.

    `adopted` are artifacts whose ledger in the work tree continues the one in the index: a seal was
    interrupted after writing and before staging it. Without slots, for cached properties.
    """

    repo: Repository
    blobs: BlobReader
    is_staged: bool
    adopted: set[bytes] = field(default_factory=set)

    @cached_property
    def entries(self) -> dict[bytes, TreeEntry]:
        """The index without conflicts."""
        return {
            entry.path: entry
            for entry in self._all_entries
            if not entry.stage and not entry.intended
        }

    @cached_property
    def _all_entries(self) -> list[TreeEntry]:
        return index.entries(self.repo)

    @cached_property
    def conflicts(self) -> dict[bytes, set[int]]:
        """Paths in conflict, with the stages that exist."""
        stages: dict[bytes, set[int]] = {}
        for entry in self._all_entries:
            if entry.stage:
                stages.setdefault(entry.path, set()).add(entry.stage)
        return stages

    @property
    def filtered(self) -> Set[bytes]:
        """Paths to which the index's own attributes apply a filter of ours, conflicts included."""
        return self.drivers.keys()

    @cached_property
    def drivers(self) -> dict[bytes, bytes]:
        """Paths to which the index's own attributes apply a filter of ours, with the filter."""
        files = {
            path: entry.oid
            for path, entry in self.entries.items()
            if path.rpartition(b"/")[2] == b".gitattributes" and entry.is_file
        }
        paths = list(
            dict.fromkeys(
                entry.path
                for entry in self._all_entries
                if entry.is_file and not entry.intended and not stands_beside(entry.path)
            )
        )
        with TreeAttributes(self.repo) as attributes:
            return attributes.drivers(files, paths)

    @cached_property
    def signers(self) -> frozenset[bytes]:
        """Keys in the signers file of the index or work tree; empty if it is invalid."""
        return _keys(self.content(SIGNERS_PATH))

    @cached_property
    def signers_before(self) -> frozenset[bytes]:
        """Keys in HEAD's signers file, which have to seal a change of it.

        Empty if there is none.
        """
        head = history.head(self.repo)
        if head is None:
            return frozenset()
        with TreeReader(self.repo) as trees:
            entry = trees.at(head.tree, (SIGNERS_PATH,)).get(SIGNERS_PATH)
        if entry is None or not entry.is_file:
            return frozenset()
        return _keys(spooled(self.blobs.chunks(entry.oid)))

    # Choosing artifacts.

    def choose(self, paths: Sequence[str], has_ledger: Callable[[bytes], bool]) -> set[bytes]:
        """Return the artifacts at paths of the command line, or all; raises InputError.

        A deleted artifact is only chosen by its exact path, and if `has_ledger` says that it has
        one.
        """
        artifacts = self.filtered | {SIGNERS_PATH}
        artifacts |= {
            p.removesuffix(LEDGER_SUFFIX) for p in self.entries if p.endswith(LEDGER_SUFFIX)
        }
        present = {path for path in artifacts if path in self.entries or path in self.conflicts}
        if not paths:
            return present
        return set().union(*(self._at(named, present, has_ledger) for named in paths))

    def _at(
        self, named: str, present: set[bytes], has_ledger: Callable[[bytes], bool]
    ) -> set[bytes]:
        """Return the artifacts that a path of the command line means."""
        path = self._from_top(named).removesuffix(LEDGER_SUFFIX)
        below = {one for one in present if not path or one.startswith(path + b"/")}
        if (path in self.entries or path in self.conflicts) and path not in below:
            # Any tracked file can be sealed if it is named.
            return {path}
        if not below and path not in present:
            is_deleted = path not in (b"", SIGNERS_PATH) and not self._is_in_tree(path)
            if is_deleted and has_ledger(path):
                return {path}
            name = shown(Path(named))
            if not self._is_in_tree(path):
                raise InputError(f"{name}: no such file, and no ledger of one")
            if any(one.startswith(path + b"/" if path else b"") for one in self.entries):
                raise InputError(f"{name}: a folder without checkpoints")
            raise InputError(f"{name}: not a tracked file", hint=f"git add -- {shlex.quote(name)}")
        return below | ({path} & present)

    def _from_top(self, named: str) -> bytes:
        whole = self.repo.path_from_top(named)
        path = b"" if whole == b"." else whole
        if path.startswith((b"../", b"/")) or path == b"..":
            raise InputError(f"{shown(Path(named))}: outside the work tree")
        return path

    def choose_ledgers(self, paths: Sequence[str]) -> dict[bytes, Ledger]:
        """Return the staged ledgers at paths of the command line, or all.

        Those of deleted files too.
        """
        ledgers = self.ledgers
        if not paths:
            return ledgers
        chosen: dict[bytes, Ledger] = {}
        for named in paths:
            path = self._from_top(named).removesuffix(LEDGER_SUFFIX)
            matching = {
                one: ledger
                for one, ledger in ledgers.items()
                if not path or one == path or one.startswith(path + b"/")
            }
            if not matching:
                raise InputError(f"{shown(Path(named))}: no ledger is staged there")
            chosen |= matching
        return chosen

    def is_gone(self, path: bytes) -> bool:
        """Tell whether there is no longer anything at a path, in the index or the work tree."""
        if path in self.conflicts:
            return False
        return path not in self.entries if self.is_staged else not self._is_in_tree(path)

    def _is_in_tree(self, path: bytes) -> bool:
        return os.path.lexists(self.repo.file(path))

    def quoted(self, path: bytes) -> str:
        """Return a path relative to this folder, quoted for a shell."""
        return self.repo.quoted(path)

    def check_settled(self, path: bytes) -> None:
        """Raise CheckError if an artifact is in conflict: none of its sides can be sealed."""
        stages = self.conflicts.get(path)
        if stages is None:
            return
        name = self.quoted(path)
        if not stages >= _BOTH_SIDES:
            hint = (
                f"git add -- {name} keeps it, git rm --cached -- {name} does not; then seal again"
            )
        elif path in self.filtered:
            hint = f"wtxtgit resolve {name} first"
        else:
            hint = f"settle it and git add -- {name} first"
        raise CheckError(f"{shown_path(path)}: in conflict", hint=hint)

    def content(self, path: bytes) -> ByteView | None:
        """Return an artifact's content from the index or work tree; None if there is no file."""
        entry = self.entries.get(path)
        if self.is_staged:
            if entry is None:
                return None
            return spooled(self.blobs.chunks(entry.oid)) if entry.is_file else None
        file = self.repo.file(path)
        return view_file(file) if file.is_file() and not file.is_symlink() else None

    def size(self, path: bytes) -> int:
        """Return the size of an artifact's content in bytes; 0 if there is no file."""
        if not self.is_staged:
            return work_tree.file_size(self.repo.file(path)) or 0
        entry = self.entries.get(path)
        return self.blobs.size(entry.oid) if entry is not None and entry.is_file else 0

    def wsum(self, path: bytes) -> bytes | None:
        """Return the WSUM beside an artifact, from the index or work tree; None if there is
        none.
        """
        if not self.is_staged:
            return wsum_at(self.repo.file(path + WSUM_SUFFIX))
        entry = self.entries.get(path + WSUM_SUFFIX)
        if entry is None or not entry.is_file or self.blobs.size(entry.oid) > MAX_WSUM:
            return None
        content = self.blobs.read(entry.oid, MAX_WSUM)
        return content if content.startswith(WSUM_MAGIC) else None

    def ledger(self, path: bytes) -> Ledger | None:
        """Return an artifact's ledger; it has to be the same in index and work tree, or be adopted.

        Raises CheckError if the two differ otherwise, or if the ledger is invalid.
        """
        ledger_path = path + LEDGER_SUFFIX
        if ledger_path in self.conflicts:
            raise CheckError(
                f"{shown_path(ledger_path)}: both sides added records",
                hint=f"wtxtgit seal --reseal -- {self.quoted(path)}",
            )
        entry = self.entries.get(ledger_path)
        file = self.repo.file(ledger_path)
        in_tree = bytes(read_whole(file)) if file.is_file() and not file.is_symlink() else None
        if not self.is_staged:
            return self._read(ledger_path, in_tree)
        in_index = None
        if entry is not None:
            in_index = self.blobs.read(entry.oid, text.MAX_SIZE)
            if is_text(in_index):
                raise CheckError(
                    f"{shown_path(ledger_path)}: is in git as a text, not as a ledger",
                    hint=f"git add --renormalize -- {self.quoted(ledger_path)}",
                )
        # Sealing one of two would lose the other. A sparse checkout has none in the work tree.
        if in_tree != in_index and not (entry is not None and (entry.skipped or in_tree is None)):
            adopted = self._continued(path, in_tree, in_index)
            if adopted is None:
                name = self.quoted(ledger_path)
                raise CheckError(
                    f"{shown_path(ledger_path)}: the work tree has another ledger than the index",
                    hint=f"mv -i -- {name} {self.quoted(ledger_path + b'.old')} sets it aside"
                    if entry is None
                    else f"git stash push --keep-index -- {name} sets it aside",
                )
            self.adopted.add(path)
            return adopted
        return self._read(ledger_path, in_index)

    def _continued(
        self, path: bytes, in_tree: bytes | None, in_index: bytes | None
    ) -> Ledger | None:
        """Return the work tree's ledger if an earlier seal may have written it after the
        index's.
        """
        report = None if in_tree is None else text.read(in_tree)
        if report is None or not report.ok or report.ledger is None:
            return None
        if in_index is None:
            return report.ledger if report.ledger.place == path else None
        staged = self._read(path + LEDGER_SUFFIX, in_index)
        return report.ledger if staged is not None and extends(report.ledger, staged) else None

    def has_ledger(self, path: bytes) -> bool:
        """Tell whether there is anything at the path of an artifact's ledger."""
        ledger_path = path + LEDGER_SUFFIX
        if ledger_path in self.conflicts:
            return True
        return not self.is_gone(ledger_path)

    @cached_property
    def ledgers(self) -> dict[bytes, Ledger]:
        """All valid ledgers, by the paths of their artifacts."""
        names = {path for path in self.entries if path.endswith(LEDGER_SUFFIX)}
        if not self.is_staged:
            names |= {path + LEDGER_SUFFIX for path in self.filtered}
        ledgers = {}
        for name in sorted(names):
            content = self._ledger_bytes(name)
            report = text.read(content) if content is not None else None
            if report is not None and report.ok and report.ledger is not None:
                ledgers[name.removesuffix(LEDGER_SUFFIX)] = report.ledger
        return ledgers

    def _ledger_bytes(self, ledger_path: bytes) -> bytes | None:
        """Return the content in a ledger's place; None if it can't be a ledger."""
        if not self.is_staged:
            file = self.repo.file(ledger_path)
            is_file = file.is_file() and not file.is_symlink()
            return bytes(read_whole(file)) if is_file else None
        entry = self.entries.get(ledger_path)
        # The size first, so that nothing too large is read.
        if entry is None or not entry.is_file or self.blobs.size(entry.oid) > text.MAX_SIZE:
            return None
        return self.blobs.read(entry.oid, text.MAX_SIZE)

    def sides(self, path: bytes) -> list[Ledger]:
        """Return the valid ledgers among the sides of a conflict."""
        ledgers = []
        for entry in self._all_entries:
            if entry.stage and entry.path == path + LEDGER_SUFFIX and entry.is_file:
                report = text.read(self.blobs.read(entry.oid, text.MAX_SIZE))
                if report.ok and report.ledger is not None:
                    ledgers.append(report.ledger)
        return ledgers

    def _read(self, ledger_path: bytes, content: bytes | None) -> Ledger | None:
        if content is None:
            return None
        if content[: len(text.MAGIC)] != text.MAGIC:
            raise CheckError(f"{shown_path(ledger_path)}: no such ledger")
        report = text.read(content)
        if report.ledger is None or not report.ok:
            raise CheckError(
                f"{shown_path(ledger_path)}: {report.problems[0]}",
                hint=f"git stash push -- {self.quoted(ledger_path)} sets it aside",
            )
        return report.ledger

    def has(self, path: bytes, ledger: Ledger) -> bool:
        """Tell whether an artifact's ledger, in index and work tree, is exactly this one."""
        ledger_path = path + LEDGER_SUFFIX
        entry, file = self.entries.get(ledger_path), self.repo.file(ledger_path)
        content = text.format_ledger(ledger)
        return (
            entry is not None
            and self.blobs.size(entry.oid) == len(content)
            and self.blobs.read(entry.oid, len(content)) == content
            and (entry.skipped or (file.is_file() and file.read_bytes() == content))
        )

    def ledger_at(self, commit: str, path: bytes) -> Ledger | None:
        """Return the ledger of an artifact in a commit; None if there is none."""
        tree = history.resolve_tree(self.repo, commit)
        entries = history.listing(self.repo, tree, path + LEDGER_SUFFIX)
        if not entries or not entries[0].is_file:
            return None
        return self._read(path + LEDGER_SUFFIX, self.blobs.read(entries[0].oid, text.MAX_SIZE))

    def write(self, contents: Mapping[bytes, bytes], removed: Iterable[bytes] = ()) -> None:
        """Write ledgers, by path, to the work tree and, if the index is sealed, to the index.

        Ledgers at `removed` are removed, because they moved elsewhere. If something fails what was
        written is undone.
        """
        # The work tree first: git replaces the index by one rename, which is the last step that can
        # fail.
        contents_before: dict[Path, bytes | None] = {}
        to_remove = [path for path in removed if path not in contents]
        try:
            for path, content in contents.items():
                file = self._saved(path, contents_before)
                with failures(file):
                    file.parent.mkdir(parents=True, exist_ok=True)
                _replace(file, content)
            for path in to_remove:
                file = self._saved(path, contents_before)
                with failures(file):
                    file.unlink(missing_ok=True)
            if self.is_staged:
                self._stage(contents, to_remove)
        except BaseException:
            # A signal may come after the index was written: then everything is done, and stays.
            if not (self.is_staged and self._are_staged(contents, to_remove)):
                for file, content_before in contents_before.items():
                    _put_back(file, content_before)
            raise

    def _saved(self, path: bytes, contents_before: dict[Path, bytes | None]) -> Path:
        """Return a ledger's file, after saving its content in `contents_before`."""
        file = self._safe_file(path)
        contents_before[file] = file.read_bytes() if file.is_file() else None
        return file

    def _are_staged(self, contents: Mapping[bytes, bytes], removed: Iterable[bytes]) -> bool:
        """Tell whether the index already has these ledgers, and no longer the removed ones."""
        try:
            oids = {entry.path: entry.oid for entry in index.entries(self.repo) if not entry.stage}
        except EnvironmentFailure:
            return False
        return oids.keys().isdisjoint(removed) and all(
            path in oids and blob_id([content], len(content), like=oids[path]) == oids[path]
            for path, content in contents.items()
        )

    def _stage(self, contents: Mapping[bytes, bytes], removed: Iterable[bytes]) -> None:
        files = [
            TreeEntry(path, _FILE_MODE, staging.write_blob(self.repo, content))
            for path, content in contents.items()
        ]
        staging.stage(self.repo, files, removed)
        staging.add(self.repo, contents, "--refresh")

    def _safe_file(self, path: bytes) -> Path:
        """Return a ledger's file.

        Raises CheckError if it is a link, or if a folder above it is one that leads out of the work
        tree or into git's own folders.
        """
        file = self.repo.file(path)
        top, folder = self.repo.worktree.resolve(), file.parent.resolve()
        # Both are checked: in a linked work tree the common folder is elsewhere.
        is_git = folder.is_relative_to(self.repo.git_dir.resolve()) or folder.is_relative_to(
            self.repo.common_dir.resolve()
        )
        if not folder.is_relative_to(top) or is_git or file.is_symlink():
            raise CheckError(f"{shown_path(path)}: a link is in the way")
        return file


@dataclass(frozen=True, slots=True)
class Doubt(JsonObject):
    """A reason why the new seal may not count, and what to do about it, if anything."""

    message: str
    hint: str | None = None


@dataclass
class ContentReader:
    """Reads what is to be sealed, checked as far as a seal requires; collects doubts."""

    files: SealedFiles
    threads: int | None
    doubts: list[Doubt] = field(default_factory=list)
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)
    progress: Progress | None = None
    """Gets counts of bytes of files that were read."""

    @cached_property
    def opener(self) -> EncryptedTexts:
        """What opens encrypted texts."""
        from wtxtgit.checkpoint.encrypted import EncryptedTexts

        return EncryptedTexts(self.identities)

    def of_all(self, paths: Collection[bytes]) -> Iterator[tuple[bytes, SealedContent | None]]:
        """Yield paths with the contents to be sealed; None if there is no file."""
        sizes = {path: self.files.size(path) for path in paths}
        expect(self.progress, sum(sizes.values()), len(sizes))
        for path in paths:
            yield path, self.of(path)
            if self.progress is not None:
                self.progress(sizes[path])
            finish_file(self.progress)

    def of(self, path: bytes) -> SealedContent | None:
        """Return the content to be sealed at a path; None if nothing is there."""
        self.files.check_settled(path)
        data = self.files.content(path)
        if data is None:
            return None
        is_filtered = path in self.files.filtered
        if is_encrypted(path) and not is_filtered:
            fault = self.opener.fault(data, shown_path(path), path)
            if fault is not None:
                raise CheckError(f"{shown_path(path)}: {fault}")
        payload = partial(store_of, self.files.repo)
        facts = examine(data, threads=self.threads, opaque=not is_filtered, payload=payload)
        if self.files.drivers.get(path) == DETACHED_DRIVER and not facts.is_text:
            # A raw file: git will store the detached text that clean makes of it.
            facts = replace(facts, detached=detached_hash(data, threads=self.threads))
        if (wsum := self.files.wsum(path)) is not None:
            facts = with_wsum(facts, wsum, is_filtered=is_filtered)
        if facts.is_pointer:
            hint = f"wtxtgit fetch fetches the file, then git add -- {self.files.quoted(path)}"
            raise CheckError(f"{shown_path(path)}: {POINTER}", hint=hint if is_filtered else None)
        if self.files.is_staged and is_filtered and facts.is_raw:
            raise CheckError(
                f"{shown_path(path)}: staged as a raw binary, not as the text that the filter "
                f"makes",
                hint=f"wtxtgit install, then git add --renormalize -- {self.files.quoted(path)}",
            )
        content = content_of(facts, is_filtered=is_filtered)
        is_taken_for_text = path.endswith(TEXT_SUFFIX) or facts.has_wsum
        is_wrong = facts.fault is not None and not (content is not None and content.is_withheld)
        if content is None or (is_wrong and is_taken_for_text):
            raise CheckError(f"{shown_path(path)}: {facts.fault}", hint=self._hint(path, facts))
        if is_filtered and not facts.is_canonical:
            raise CheckError(
                f"{shown_path(path)}: a valid text, but not the one that the filter makes",
                hint=f"wtxtgit install, then git add --renormalize -- {self.files.quoted(path)}",
            )
        self._check_sign_line(path, content)
        if path == SIGNERS_PATH:
            ledger = self.files.ledgers.get(path)
            are_replaced = ledger is not None and ledger.last.sha256_all != content.sha256_all
            _refuse_broken_signers(bytes(data), are_replaced=are_replaced)
        return content

    def check_payload(self, path: bytes, content: SealedContent) -> None:
        """Raise CheckError for a detached text that can't be verified, so that nobody signs it."""
        if content.is_withheld:
            facts = content.facts
            raise CheckError(f"{shown_path(path)}: {facts.fault}", hint=self._hint(path, facts))

    def _hint(self, path: bytes, facts: ArtifactFacts) -> str:
        """Return the hint for a text that does not verify."""
        if facts.lacks_payload:
            return "wtxtgit fetch fetches the missing data"
        if facts.pending_root is None or facts.has_wsum:
            return f"wtxtgit verify -- {self.files.quoted(path)}"
        wsum = path + WSUM_SUFFIX
        if self.files.is_staged and wsum_at(self.files.repo.file(wsum)) is not None:
            return f"git add -- {self.files.quoted(wsum)}"
        staged = f", then git add -- {self.files.quoted(wsum)}" if self.files.is_staged else ""
        return f"wtxtgit finalize -- {self.files.quoted(path)}{staged}"

    def _check_sign_line(self, path: bytes, content: SealedContent) -> None:
        """Raise TrustError if a native text's own signature is invalid: a seal does not replace
        it.
        """
        if content.facts.wsum_signed is not None and self.files.signers:
            line, signature_line = content.facts.wsum_signed
            if (
                check_wsum(signature_line, line, sorted(self.files.signers))
                is not SignatureState.VALID
            ):
                unsigned = f"{shown_path(path)}: its WSUM is not signed by any of the signers"
                self.doubts.append(Doubt(unsigned))
        if content.facts.signed is None:
            return
        message, signature = content.facts.signed
        state = check_header(signature, message, sorted(self.files.signers))
        if state is SignatureState.INVALID:
            name = self.files.quoted(path)
            raise TrustError(
                f"{shown_path(path)}: bad-signature: its sign line does not verify with key "
                f"{signature.keyid}",
                hint=f"git stash push -- {name} && git checkout HEAD^ -- {name} restores the "
                f"earlier text; or emit and sign it again",
            )
        if state is SignatureState.UNKNOWN_KEY and self.files.signers:
            reason = f"its sign line is by key {signature.keyid}, which is not one of the signers"
            self.doubts.append(Doubt(f"{shown_path(path)}: {reason}"))


def _keys(signers: ByteView | None) -> frozenset[bytes]:
    if signers is None:
        return frozenset()
    try:
        return signers_file.parse(bytes(signers), os.fsdecode(SIGNERS_PATH)).signers.public_keys
    except InputError:
        return frozenset()


def _threshold_hint(threshold: int) -> str:
    return f"wtxtgit signers threshold {threshold}, then git add -- :/{os.fsdecode(SIGNERS_PATH)}"


def _refuse_broken_signers(content: bytes, *, are_replaced: bool) -> None:
    """Raise CheckError for a signers file that a seal would not make acceptable.

    That is an invalid one, or one of nobody if others `are_replaced` by it.
    """
    name = os.fsdecode(SIGNERS_PATH)
    try:
        signers = signers_file.parse(content, name).signers
    except KeyFileError as error:
        hint = f"git stash push -- :/{name} sets it aside"
        try:
            without = signers_file.parse(signers_file.without_threshold(content), name).signers
            hint = _threshold_hint(max(1, min(MAX_THRESHOLD, len(without.principals))))
        except KeyFileError:
            pass
        raise CheckError(
            f"{error.message}: no audit will accept these signers", hint=hint
        ) from None
    count = len(signers.principals)
    if not count and are_replaced:
        raise CheckError(
            f"{name}: names no signer: no audit will accept that",
            hint=f"git stash push -- :/{name} sets it aside, wtxtgit signers add PRINCIPAL KEY "
            "adds one",
        )
    if count and signers.threshold > count:
        raise CheckError(
            f"{name}: a threshold of {signers.threshold}, and {counted(count, 'principal')}: no "
            f"audit will accept these signers",
            hint=_threshold_hint(count),
        )


def _replace(file: Path, content: bytes) -> None:
    replace_file(file, lambda descriptor: write_all(descriptor, (content,)))


def _put_back(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink(missing_ok=True)
    elif not file.is_file() or file.read_bytes() != content:
        _replace(file, content)
