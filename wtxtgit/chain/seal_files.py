"""The files that sealing reads and writes: artifacts, ledgers, signers, here and in commits.

Of the index, or of the work tree where that is sealed: which one is decided once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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
from wtxtgit.git import history, index, staging
from wtxtgit.git.attributes import TreeAttributes
from wtxtgit.git.blobs import BlobReader, blob_id
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import DETACHED_DRIVER, Repository
from wtxtgit.git.trees import TreeReader
from wtxtgit.io.files import failures, read_whole, replace_file, shown, shown_path, view_file
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, write_all
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, TEXT_SUFFIX, Ledger, extends
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.lfs_pointer import POINTER
from wtxtgit.store.place import store_of
from wtxtgit.text import ledger as text
from wtxtgit.text.digest import SignatureState, check_header, check_wsum
from wtxtgit.text.grammar import MAX_WSUM, WSUM_MAGIC, WSUM_SUFFIX
from wtxtgit.trust import openssh as signers_file
from wtxtgit.trust.openssh import MAX_THRESHOLD, KeyFileError

if TYPE_CHECKING:  # what opens age files takes long to load
    from wtxtgit.checkpoint.encrypted import EncryptedTexts
    from wtxtgit.trust.age.identities import AgeIdentity

_FILE_MODE = 0o100644
_BOTH_SIDES = {2, 3}
"""The stages of ours and of theirs; one is missing where that side deleted the file."""


@dataclass
class SealedFiles:
    """Files of a repository; `is_staged` says that those of the index are meant.

    `adopted` are artifacts whose ledger in the work tree goes on from the index's:
    it was written there, and nobody came to stage it.

    Without slots, for what is found out once.
    """

    repo: Repository
    blobs: BlobReader
    is_staged: bool
    adopted: set[bytes] = field(default_factory=set)

    @cached_property
    def entries(self) -> dict[bytes, TreeEntry]:
        """The index, conflicts left out."""
        return {entry.path: entry for entry in self._all if not entry.stage and not entry.intended}

    @cached_property
    def _all(self) -> list[TreeEntry]:
        return index.entries(self.repo)

    @cached_property
    def conflicts(self) -> dict[bytes, set[int]]:
        """Paths that are in a conflict, with the stages that there are."""
        stages: dict[bytes, set[int]] = {}
        for entry in self._all:
            if entry.stage:
                stages.setdefault(entry.path, set()).add(entry.stage)
        return stages

    @property
    def filtered(self) -> Set[bytes]:
        """Paths that the index's own attributes send through the filter, in conflict or not."""
        return self.drivers.keys()

    @cached_property
    def drivers(self) -> dict[bytes, bytes]:
        """The same paths, with their filters."""
        files = {
            path: entry.oid
            for path, entry in self.entries.items()
            if path.rpartition(b"/")[2] == b".gitattributes" and entry.is_file
        }
        paths = list(dict.fromkeys(e.path for e in self._all if e.is_file and not e.intended))
        with TreeAttributes(self.repo) as attributes:
            return attributes.drivers(files, paths)

    @cached_property
    def signers(self) -> frozenset[bytes]:
        """Keys of the signers file that is sealed along, none where it can't be read."""
        return _keys(self.content(SIGNERS_PATH))

    @cached_property
    def signers_before(self) -> frozenset[bytes]:
        """Keys of HEAD's signers file, who seal a change of it; none where there is none."""
        head = history.head(self.repo)
        if head is None:
            return frozenset()
        with TreeReader(self.repo) as trees:
            entry = trees.at(head.tree, (SIGNERS_PATH,)).get(SIGNERS_PATH)
        if entry is None or not entry.is_file:
            return frozenset()
        return _keys(spooled(self.blobs.chunks(entry.oid)))

    # Which artifacts.

    def choose(self, paths: Sequence[str], has_ledger: Callable[[bytes], bool]) -> set[bytes]:
        """The artifacts at paths of the command line, or all; raises InputError.

        One that is gone is meant by its own name alone, where `has_ledger` says
        that a ledger tells of it.
        """
        known = self.filtered | {SIGNERS_PATH}
        known |= {p.removesuffix(LEDGER_SUFFIX) for p in self.entries if p.endswith(LEDGER_SUFFIX)}
        present = {path for path in known if path in self.entries or path in self.conflicts}
        if not paths:
            return present
        return set().union(*(self._at(given, present, has_ledger) for given in paths))

    def _at(
        self, given: str, present: set[bytes], has_ledger: Callable[[bytes], bool]
    ) -> set[bytes]:
        """The artifacts that a path of the command line means."""
        path = self._from_top(given).removesuffix(LEDGER_SUFFIX)
        below = {one for one in present if not path or one.startswith(path + b"/")}
        if (path in self.entries or path in self.conflicts) and path not in below:
            # Any tracked file can be sealed, by its name.
            return {path}
        if not below and path not in present:
            is_deleted = path not in (b"", SIGNERS_PATH) and not self._is_in_tree(path)
            if is_deleted and has_ledger(path):
                return {path}
            raise InputError(
                f"{shown(Path(given))}: no tracked file",
                hint=f"git add -- {shlex.quote(shown(Path(given)))}",
            )
        return below | ({path} & present)

    def _from_top(self, given: str) -> bytes:
        whole = self.repo.path_from_top(given)
        path = b"" if whole == b"." else whole
        if path.startswith((b"../", b"/")) or path == b"..":
            raise InputError(f"{shown(Path(given))}: outside of the work tree")
        return path

    def choose_ledgers(self, paths: Sequence[str]) -> dict[bytes, Ledger]:
        """The staged ledgers of artifacts at paths of the command line, or all; gone ones too."""
        ledgers = self.standing
        if not paths:
            return ledgers
        chosen: dict[bytes, Ledger] = {}
        for given in paths:
            path = self._from_top(given).removesuffix(LEDGER_SUFFIX)
            some = {
                one: ledger
                for one, ledger in ledgers.items()
                if not path or one == path or one.startswith(path + b"/")
            }
            if not some:
                raise InputError(f"{shown(Path(given))}: no ledger is staged there")
            chosen |= some
        return chosen

    def is_gone(self, path: bytes) -> bool:
        """Whether nothing stands at a path any more, where sealing looks."""
        if path in self.conflicts:
            return False
        return path not in self.entries if self.is_staged else not self._is_in_tree(path)

    def _is_in_tree(self, path: bytes) -> bool:
        return os.path.lexists(self.repo.file(path))

    def quoted(self, path: bytes) -> str:
        """A path as a shell takes it where the command was given."""
        return self.repo.quoted(path)

    def check_settled(self, path: bytes) -> None:
        """Raise CheckError for an artifact in a conflict: none of its sides is what is sealed."""
        stages = self.conflicts.get(path)
        if stages is None:
            return
        name = self.quoted(path)
        if not stages >= _BOTH_SIDES:
            hint = f"git add -- {name} keeps it, git rm -- {name} does not; then seal again"
        elif path in self.filtered:
            hint = f"wtxtgit resolve {name} first"
        else:
            hint = f"settle it and git add -- {name} first"
        raise CheckError(f"{shown_path(path)}: in conflict", hint=hint)

    def content(self, path: bytes) -> ByteView | None:
        """An artifact's content, in the index or the work tree."""
        entry = self.entries.get(path)
        if self.is_staged:
            if entry is None:
                return None
            return spooled(self.blobs.chunks(entry.oid)) if entry.is_file else None
        file = self.repo.file(path)
        return view_file(file) if file.is_file() and not file.is_symlink() else None

    def wsum(self, path: bytes) -> bytes | None:
        """What stands beside an artifact as its WSUM, in the index or the work tree."""
        if not self.is_staged:
            return wsum_at(self.repo.file(path + WSUM_SUFFIX))
        entry = self.entries.get(path + WSUM_SUFFIX)
        if entry is None or not entry.is_file or self.blobs.size(entry.oid) > MAX_WSUM:
            return None
        content = self.blobs.read(entry.oid, MAX_WSUM)
        return content if content.startswith(WSUM_MAGIC) else None

    def ledger(self, path: bytes) -> Ledger | None:
        """The ledger that is there; of index and work tree the same, or one that is adopted.

        Raises CheckError where there are two, or it does not read.
        """
        ledger_path = path + LEDGER_SUFFIX
        if ledger_path in self.conflicts:
            raise CheckError(
                f"{shown_path(ledger_path)}: both sides went on",
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
        # Sealing one of two would lose the other; a sparse checkout has none in the work tree.
        if in_tree != in_index and not (entry is not None and (entry.skipped or in_tree is None)):
            adopted = self._continued(path, in_tree, in_index)
            if adopted is None:
                name = self.quoted(ledger_path)
                raise CheckError(
                    f"{shown_path(ledger_path)}: the work tree has another ledger than the index",
                    hint=f"rm -- {name} takes it away, if it is not meant"
                    if entry is None
                    else f"git restore -- {name} takes that of the index",
                )
            self.adopted.add(path)
            return adopted
        return self._read(ledger_path, in_index)

    def _continued(
        self, path: bytes, in_tree: bytes | None, in_index: bytes | None
    ) -> Ledger | None:
        """The ledger in the work tree, where sealing may have written it after the index's."""
        report = None if in_tree is None else text.read(in_tree)
        if report is None or not report.ok or report.ledger is None:
            return None
        if in_index is None:
            return report.ledger if report.ledger.place == path else None
        staged = self._read(path + LEDGER_SUFFIX, in_index)
        return report.ledger if staged is not None and extends(report.ledger, staged) else None

    def has_ledger(self, path: bytes) -> bool:
        """Whether anything stands in the place of an artifact's ledger."""
        ledger_path = path + LEDGER_SUFFIX
        if ledger_path in self.conflicts:
            return True
        return not self.is_gone(ledger_path)

    @cached_property
    def standing(self) -> dict[bytes, Ledger]:
        """All ledgers that are here and hold, by their artifacts' paths."""
        names = {path for path in self.entries if path.endswith(LEDGER_SUFFIX)}
        if not self.is_staged:
            names |= {path + LEDGER_SUFFIX for path in self.filtered}
        ledgers = {}
        for name in sorted(names):
            content = self._here(name)
            report = text.read(content) if content is not None else None
            if report is not None and report.ok and report.ledger is not None:
                ledgers[name.removesuffix(LEDGER_SUFFIX)] = report.ledger
        return ledgers

    def _here(self, ledger_path: bytes) -> bytes | None:
        """What stands in a ledger's place, None where that is no file that may be one."""
        if not self.is_staged:
            file = self.repo.file(ledger_path)
            is_file = file.is_file() and not file.is_symlink()
            return bytes(read_whole(file)) if is_file else None
        entry = self.entries.get(ledger_path)
        # The size first: a ledger that is too large is not read to find that out.
        if entry is None or not entry.is_file or self.blobs.size(entry.oid) > text.MAX_SIZE:
            return None
        return self.blobs.read(entry.oid, text.MAX_SIZE)

    def sides(self, path: bytes) -> list[Ledger]:
        """The ledgers that are in a conflict at an artifact's ledger, those that read."""
        ledgers = []
        for entry in self._all:
            if entry.stage and entry.path == path + LEDGER_SUFFIX and entry.is_file:
                report = text.read(self.blobs.read(entry.oid, text.MAX_SIZE))
                if report.ok and report.ledger is not None:
                    ledgers.append(report.ledger)
        return ledgers

    def _read(self, ledger_path: bytes, content: bytes | None) -> Ledger | None:
        if content is None:
            return None
        if content[: len(text.MAGIC)] != text.MAGIC:
            raise CheckError(f"{shown_path(ledger_path)}: no ledger stands there")
        report = text.read(content)
        if report.ledger is None or not report.ok:
            raise CheckError(
                f"{shown_path(ledger_path)}: {report.problems[0]}",
                hint=f"git restore --source=HEAD --staged --worktree -- {self.quoted(ledger_path)}",
            )
        return report.ledger

    def has(self, path: bytes, ledger: Ledger) -> bool:
        """Whether an artifact's ledger here is this one, to the byte."""
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
        """The ledger of an artifact in a commit."""
        tree = history.resolve_tree(self.repo, commit)
        listed = history.listing(self.repo, tree, path + LEDGER_SUFFIX)
        if not listed or not listed[0].is_file:
            return None
        return self._read(path + LEDGER_SUFFIX, self.blobs.read(listed[0].oid, text.MAX_SIZE))

    def write(self, contents: Mapping[bytes, bytes], removed: Iterable[bytes] = ()) -> None:
        """Write ledgers, by their paths, to the work tree, and to the index where that is sealed.

        Those at `removed` are taken away, as they went elsewhere. What fails on
        the way takes back what was written.
        """
        # The work tree first: the index is replaced by one rename of git's, the last thing to fail.
        before: dict[Path, bytes | None] = {}
        gone = [path for path in removed if path not in contents]
        try:
            for path, content in contents.items():
                file = self._kept(path, before)
                with failures(file):
                    file.parent.mkdir(parents=True, exist_ok=True)
                _replace(file, content)
            for path in gone:
                file = self._kept(path, before)
                with failures(file):
                    file.unlink(missing_ok=True)
            if self.is_staged:
                self._stage(contents, gone)
        except BaseException:
            # A signal, too, may come when the index has them already: then all is done.
            if not (self.is_staged and self._are_staged(contents, gone)):
                for file, content_before in before.items():
                    _put_back(file, content_before)
            raise

    def _kept(self, path: bytes, before: dict[Path, bytes | None]) -> Path:
        """A ledger's file, whose content is remembered."""
        file = self._safe_file(path)
        before[file] = file.read_bytes() if file.is_file() else None
        return file

    def _are_staged(self, contents: Mapping[bytes, bytes], removed: Iterable[bytes]) -> bool:
        """Whether the index has ledgers by now, and none where they were taken away."""
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
        """A ledger's file; its folder is one of the work tree, not behind a link."""
        file = self.repo.file(path)
        top, folder = self.repo.worktree.resolve(), file.parent.resolve()
        # Both: in a linked work tree the common folder is elsewhere.
        is_git = folder.is_relative_to(self.repo.git_dir.resolve()) or folder.is_relative_to(
            self.repo.common_dir.resolve()
        )
        if not folder.is_relative_to(top) or is_git or file.is_symlink():
            raise CheckError(f"{shown_path(path)}: a link stands in the way")
        return file


@dataclass(frozen=True, slots=True)
class Doubt(JsonObject):
    """What was sealed all the same, though it may not count; and what to do, if anything."""

    message: str
    hint: str | None = None


@dataclass
class ContentReader:
    """What artifacts hold, checked as far as a seal of it has to be; and what is doubtful."""

    files: SealedFiles
    threads: int | None
    doubts: list[Doubt] = field(default_factory=list)
    identities: tuple[AgeIdentity, ...] = field(default=(), repr=False)

    @cached_property
    def opener(self) -> EncryptedTexts:
        """What looks at encrypted texts."""
        from wtxtgit.checkpoint.encrypted import EncryptedTexts

        return EncryptedTexts(self.identities)

    def of(self, path: bytes) -> SealedContent | None:
        """What is to be sealed, None where nothing is there."""
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
            # A file: git will have the detached text that clean makes of it.
            facts = replace(facts, detached=detached_hash(data, threads=self.threads))
        if (wsum := self.files.wsum(path)) is not None:
            facts = with_wsum(facts, wsum, is_filtered=is_filtered)
        if facts.is_pointer:
            raise CheckError(
                f"{shown_path(path)}: {POINTER}",
                hint=f"git lfs pull brings the file, then git add -- {self.files.quoted(path)}",
            )
        if self.files.is_staged and is_filtered and facts.is_raw:
            raise CheckError(
                f"{shown_path(path)}: staged as a binary, not as the text of the filter",
                hint=f"wtxtgit install, then git add --renormalize -- {self.files.quoted(path)}",
            )
        content = content_of(facts, is_filtered=is_filtered)
        is_taken_for_text = path.endswith(TEXT_SUFFIX) or facts.has_wsum
        is_wrong = facts.fault is not None and not (content is not None and content.is_withheld)
        if content is None or (is_wrong and is_taken_for_text):
            raise CheckError(f"{shown_path(path)}: {facts.fault}", hint=self._hint(path, facts))
        if is_filtered and not facts.is_canonical:
            raise CheckError(
                f"{shown_path(path)}: a valid text, but not the one that clean gives",
                hint=f"wtxtgit install, then git add --renormalize -- {self.files.quoted(path)}",
            )
        self._check_sign_line(path, content)
        if path == SIGNERS_PATH:
            _refuse_broken_signers(bytes(data))
        return content

    def check_payload(self, path: bytes, content: SealedContent) -> None:
        """Raise CheckError for a detached text that can't be verified, so that nobody signs it."""
        if content.is_withheld:
            facts = content.facts
            raise CheckError(f"{shown_path(path)}: {facts.fault}", hint=self._hint(path, facts))

    def _hint(self, path: bytes, facts: ArtifactFacts) -> str:
        """What to do about a text that does not hold."""
        if facts.lacks_payload:
            return "wtxtgit fetch brings what is lacking"
        if facts.pending_root is None or facts.has_wsum:
            return f"wtxtgit verify -- {self.files.quoted(path)}"
        wsum = path + WSUM_SUFFIX
        if self.files.is_staged and wsum_at(self.files.repo.file(wsum)) is not None:
            return f"git add -- {self.files.quoted(wsum)}"
        staged = f", then git add -- {self.files.quoted(wsum)}" if self.files.is_staged else ""
        return f"wtxtgit finalize -- {self.files.quoted(path)}{staged}"

    def _check_sign_line(self, path: bytes, content: SealedContent) -> None:
        """Refuse a native text's own signature that does not hold: its seal replaces none."""
        if content.facts.wsum_signed is not None and self.files.signers:
            line, made = content.facts.wsum_signed
            if check_wsum(made, line, sorted(self.files.signers)) is not SignatureState.VALID:
                by_none = f"{shown_path(path)}: its WSUM is signed by none of the signers"
                self.doubts.append(Doubt(by_none))
        if content.facts.signed is None:
            return
        message, signature = content.facts.signed
        state = check_header(signature, message, sorted(self.files.signers))
        if state is SignatureState.INVALID:
            raise TrustError(
                f"{shown_path(path)}: bad-signature: its own sign line is not by key "
                f"{signature.keyid}",
                hint=f"git checkout HEAD^ -- {self.files.quoted(path)} takes the text of before "
                "back; or emit and sign it again",
            )
        if state is SignatureState.UNKNOWN_KEY and self.files.signers:
            by = f"its own sign line is by key {signature.keyid}, none of the signers"
            self.doubts.append(Doubt(f"{shown_path(path)}: {by}"))


def _keys(signers: ByteView | None) -> frozenset[bytes]:
    if signers is None:
        return frozenset()
    try:
        return signers_file.parse(bytes(signers), os.fsdecode(SIGNERS_PATH)).signers.public_keys
    except InputError:
        return frozenset()


def _threshold_hint(threshold: int) -> str:
    return f"wtxtgit signers threshold {threshold}, then git add -- :/{os.fsdecode(SIGNERS_PATH)}"


def _refuse_broken_signers(content: bytes) -> None:
    """Raise CheckError for a signers file that nobody will take: a seal would make it no better."""
    name = os.fsdecode(SIGNERS_PATH)
    try:
        signers = signers_file.parse(content, name).signers
    except KeyFileError as error:
        hint = f"git restore --source=HEAD --staged --worktree -- :/{name}"
        try:
            rest = signers_file.parse(signers_file.without_threshold(content), name).signers
            hint = _threshold_hint(max(1, min(MAX_THRESHOLD, len(rest.principals))))
        except KeyFileError:
            pass
        raise CheckError(f"{error.message}: nobody will take these signers", hint=hint) from None
    there = len(signers.principals)
    if signers.signers and signers.threshold > there:
        raise CheckError(
            f"{name}: a threshold of {signers.threshold}, and {counted(there, 'principal')}: "
            "nobody will take these signers",
            hint=_threshold_hint(there),
        )


def _replace(file: Path, content: bytes) -> None:
    replace_file(file, lambda descriptor: write_all(descriptor, (content,)))


def _put_back(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink(missing_ok=True)
    elif not file.is_file() or file.read_bytes() != content:
        _replace(file, content)
