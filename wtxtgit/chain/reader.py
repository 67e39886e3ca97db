"""What the chain reads from git: ledgers and signers of trees, and facts about blobs.

Successive versions of a ledger share their records: each reading continues where the one before
ended.

Facts say what a blob is, never whether it is trusted, so they hold for every path with that blob.
Each blob is examined once: by an earlier command, whose facts are cached, by this process, or by
several. Blobs are read through git, whatever their size, because what is judged is what a checkout
will write, and git object ids are verified.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from wtxtgit.errors import MAX_MESSAGE, WtxtgitError, clipped
from wtxtgit.filter.content import ArtifactFacts, ContentCache, examine
from wtxtgit.git.attributes import MAX_FILE
from wtxtgit.git.blobs import BlobReader, TooLarge, sizes
from wtxtgit.git.commit_files import CommitFiles
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import TreeEntry
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.io.spool import spooled
from wtxtgit.model.array import PayloadSource
from wtxtgit.model.findings import Problem
from wtxtgit.model.ledger import LEDGER_SUFFIX, SIGNERS_PATH, Ledger, LedgerHead, Record
from wtxtgit.store.place import store_of
from wtxtgit.text import ledger as text
from wtxtgit.text.grammar import MAX_WSUM, WSUM_MAGIC
from wtxtgit.text.ledger import LedgerReport, RecordSigners, signed_by
from wtxtgit.trust import openssh as signers_file
from wtxtgit.trust.openssh import MAX_SIGNERS_FILE
from wtxtgit.trust.state import SignersContent, Tree

MAX_CACHED_BYTES = 64 * 1024 * 1024
"""Most bytes of ledgers that are kept parsed."""
_POINTER = 8
"""Bytes that a ledger takes for a record that it shares with another one."""
_MEMO = 1 << 16
_TREES = 64


def artifacts(snapshot: CommitFiles) -> set[bytes]:
    """Return the filtered paths, those that have a ledger, and the signers."""
    sealed = {
        path.removesuffix(LEDGER_SUFFIX)
        for path in snapshot.entries
        if path.endswith(LEDGER_SUFFIX)
    }
    return sealed | snapshot.filtered | ({SIGNERS_PATH} & snapshot.entries.keys())


class _Readings:
    """A cache of ledgers that were read, so that no record is parsed or hashed twice.

    Nothing is taken on trust: a report is reused only for the same blob, or the same leading bytes.
    """

    def __init__(self) -> None:
        self._of_blobs: dict[str, LedgerReport] = {}
        """Reports by blob id, without the ledgers' bytes, which the blobs have."""
        self._size = 0
        self._at_paths: OrderedDict[bytes, LedgerReport] = OrderedDict()
        """The last report at each path, with its bytes: the next ledger mostly continues it."""
        self._size_at_paths = 0

    def get(self, oid: str) -> LedgerReport | None:
        return self._of_blobs.get(oid)

    def read(self, path: bytes, oid: str, data: bytes) -> LedgerReport:
        """Read the ledger in a blob, continuing the ledger that was last read at this path if
        possible.
        """
        previous = self._at_paths.pop(path, None)
        report = text.read(data, previous)
        if not report.ok:
            # Only the problems are of use, and the rest may be large.
            report = LedgerReport(None, report.problems)
        shared_bytes = 0
        if previous is not None:
            self._size_at_paths -= len(previous.source)
            shared_bytes = len(previous.source) if data.startswith(previous.source) else 0
        self._at_paths[path] = report
        self._size_at_paths += len(report.source)
        while self._size_at_paths > MAX_CACHED_BYTES // 2 and len(self._at_paths) > 1:
            self._size_at_paths -= len(self._at_paths.popitem(last=False)[1].source)
        # Records that were read before are shared objects, so all versions of a long ledger take
        # little more memory than the last one. For the same reason all are dropped at once: the
        # remaining ones would keep the shared records alive.
        records = () if report.ledger is None else report.ledger.records
        size = len(data) - shared_bytes + _POINTER * len(records)
        if self._size + size > MAX_CACHED_BYTES // 2:
            self._of_blobs.clear()
            self._size = 0
        self._size += size
        self._of_blobs[oid] = replace(report, source=b"")
        return report


class ChainReader:
    """Reads ledgers and files of signers of one repository."""

    def __init__(self, blobs: BlobReader) -> None:
        self._blobs = blobs
        self._readings = _Readings()
        self._not_ledgers: set[str] = set()
        """Blobs at the paths of ledgers that are something else."""
        self._wsums: dict[str, bytes | None] = {}
        self._signers: dict[str, tuple[SignersContent | None, str | None]] = {}
        self._trees: OrderedDict[int, tuple[CommitFiles, Tree]] = OrderedDict()
        self._recent: dict[bytes, tuple[TreeEntry, Ledger | None]] = {}
        """Ledgers of the last trees, of any size, since commits change few of them."""
        self._last_artifacts: tuple[CommitFiles | None, frozenset[bytes]] = None, frozenset()
        self.principals: dict[bytes, str] = {}
        """The principal of each public key that was read."""

    def ledger(self, path: bytes, oid: str) -> LedgerReport | None:
        """Return the ledger in a blob; None if the blob is something else.

        If the ledger is invalid the report has only its problems, and no `ledger`.
        """
        report = self._readings.get(oid)
        if report is not None:
            return report
        if oid in self._not_ledgers:
            return None
        try:
            data = self._blobs.read(oid, text.MAX_SIZE)
        except TooLarge as error:
            most = f"a ledger has at most {text.MAX_SIZE}"
            return LedgerReport(None, (Problem("limit", f"{error.size} bytes, {most}"),))
        # Other tools also write files whose names end in .wsum.
        if data[: len(text.MAGIC)] != text.MAGIC:
            self._not_ledgers.add(oid)
            return None
        return self._readings.read(path, oid, data)

    def ledger_in(self, snapshot: CommitFiles, path: bytes) -> LedgerReport | None:
        """Return the ledger of the artifact at a path of a tree; None if there is none."""
        entry = snapshot.entries.get(path + LEDGER_SUFFIX)
        if entry is None or not entry.is_file:
            return None
        return self.ledger(path + LEDGER_SUFFIX, entry.oid)

    def wsum(self, oid: str) -> bytes | None:
        """Return the WSUM in a blob, well-formed or not; None if the blob is something else."""
        if oid not in self._wsums:
            try:
                content = self._blobs.read(oid, MAX_WSUM)
            except TooLarge:
                content = b""
            self._wsums[oid] = content if content.startswith(WSUM_MAGIC) else None
        return self._wsums[oid]

    def attribute_file(self, oid: str) -> bytes:
        """Return a gitattributes file; empty if git ignores it for its size."""
        # attr.c of git: ATTR_MAX_FILE_SIZE. The lines of a larger file have no effect.
        if self._blobs.size(oid) >= MAX_FILE:
            return b""
        return self._blobs.read(oid, MAX_FILE)

    def signers(self, oid: str) -> tuple[SignersContent | None, str | None]:
        """Return the signers file in a blob, or why it is invalid."""
        if oid not in self._signers:
            self._signers[oid] = self._read_signers(oid)
        return self._signers[oid]

    def _read_signers(self, oid: str) -> tuple[SignersContent | None, str | None]:
        try:
            content = self._blobs.read(oid, MAX_SIGNERS_FILE)
        except WtxtgitError as error:
            return None, clipped(error.message, MAX_MESSAGE)
        return self.parse_signers(content)

    def parse_signers(self, content: bytes) -> tuple[SignersContent | None, str | None]:
        """Parse a signers file: returns its content, or why it is invalid."""
        name = SIGNERS_PATH.decode()
        try:
            signer_list = signers_file.parse(content, name).signers
        except WtxtgitError as error:
            return None, clipped(error.message, MAX_MESSAGE)
        # The hash that a seal of the file would have, as for any other artifact.
        sha256_all = examine(memoryview(content)).sha256_all or b""
        principals = frozenset((one.public_key, one.principal) for one in signer_list.signers)
        if signer_list.signers and signer_list.threshold > len({who for _, who in principals}):
            return None, f"its threshold is {signer_list.threshold}, but it has fewer signers"
        for signer in signer_list.signers:
            self.principals.setdefault(signer.public_key, signer.principal)
        return SignersContent(principals, signer_list.threshold, sha256_all), None

    def tree(self, snapshot: CommitFiles) -> Tree:
        """Return a commit's files in the form that the trust rules take."""
        cached = self._trees.get(id(snapshot))
        if cached is not None:
            return cached[1]
        tree = self._read_tree(snapshot)
        self._trees[id(snapshot)] = snapshot, tree
        while len(self._trees) > _TREES:
            # The snapshot was kept alive until here, so no other one could have its id.
            self._trees.popitem(last=False)
        return tree

    def _read_tree(self, snapshot: CommitFiles) -> Tree:
        ledgers: dict[bytes, Ledger] = {}
        broken = set()
        readings: dict[bytes, tuple[TreeEntry, Ledger | None]] = {}
        for path, entry in snapshot.entries.items():
            if not path.endswith(LEDGER_SUFFIX) or not entry.is_file:
                continue
            reading = self._recent.get(path)
            if reading is None or (reading[0] is not entry and reading[0] != entry):
                report = self.ledger(path, entry.oid)
                if report is None:
                    continue
                reading = entry, report.ledger
            readings[path] = reading
            if reading[1] is not None:
                ledgers[path] = reading[1]
            else:
                broken.add(path)
        self._recent = self._recent | readings if self._keeps_recent(readings) else readings
        signers, fault = None, None
        entry_of_signers = snapshot.entries.get(SIGNERS_PATH)
        if entry_of_signers is not None:
            if entry_of_signers.is_file:
                signers, fault = self.signers(entry_of_signers.oid)
            else:
                fault = "it is not a regular file"
        return Tree(ledgers, frozenset(broken), signers, fault, self._artifacts(snapshot))

    def _keeps_recent(self, current: Mapping[bytes, object]) -> bool:
        """Tell whether ledgers of earlier trees are worth keeping, since branches may alternate."""
        return len(self._recent) <= 2 * len(current)

    def _artifacts(self, snapshot: CommitFiles) -> frozenset[bytes]:
        """Return the artifacts of a tree; most trees have the same as the one before."""
        previous, paths = self._last_artifacts
        if previous is None or not (
            previous.entries.keys() == snapshot.entries.keys()
            and previous.filtered == snapshot.filtered
        ):
            paths = frozenset(artifacts(snapshot))
        self._last_artifacts = snapshot, paths
        return paths


def signed(ledger: Ledger, n: int, keys: frozenset[bytes]) -> RecordSigners:
    """Return which of `keys` signed a ledger's nth record; each record is checked once."""
    return _signed(ledger.head, ledger.records[n], keys)


@lru_cache(_MEMO)
def _signed(head: LedgerHead, record: Record, keys: frozenset[bytes]) -> RecordSigners:
    return signed_by(head, record, keys)


FEW_BYTES = 64 * 1024 * 1024
"""Up to this many bytes of blobs, starting processes costs more than it saves."""
_BATCH = 8
"""Blobs that a process gets at a time: git stores neighbours as deltas of each other."""

Wanted = tuple[str, bool]
"""The id of a blob, and whether the hash of its opaque text is wanted."""
Examiner = Callable[[list[Wanted]], Iterator[tuple[str, ArtifactFacts]]]
"""Finds the facts of blobs, in any order."""


class Facts:
    """Finds facts about blobs of a repository, with up to `processes` processes.

    Facts are cached under the secret in `key_file`; without one every blob is examined again. If
    there is an `examiner` it replaces the processes.
    """

    def __init__(
        self,
        repo: Repository,
        processes: int,
        *,
        key_file: Path | None = None,
        examiner: Examiner | None = None,
    ) -> None:
        self._repo = repo
        self._processes = processes
        self._key_file = key_file
        self._examiner = examiner

    def of(
        self,
        oids: Iterable[str],
        progress: Progress | None = None,
        *,
        opaque: Collection[str] = (),
    ) -> dict[str, ArtifactFacts]:
        """Return the facts of blobs; `progress` gets the number of bytes examined since its last
        call.

        For blobs in `opaque` the facts include the hash of the opaque text.
        """
        blob_ids = list(dict.fromkeys(oids))
        with ContentCache(self._repo, self._key_file) as cache:
            facts_by_oid = {
                oid: facts
                for oid, facts in cache.facts(blob_ids).items()
                if facts.opaque is not None or not (oid in opaque or facts.stands_for_itself)
            }
            missing = [(oid, oid in opaque) for oid in blob_ids if oid not in facts_by_oid]
            if progress is not None:
                expect(progress, self._bytes(missing), len(missing))
            for oid, facts in self._examined(missing):
                facts_by_oid[oid] = facts
                cache.put_facts({oid: facts})
                if progress is not None:
                    progress(facts.size)
                finish_file(progress)
        return facts_by_oid

    def _examined(self, blobs: list[Wanted]) -> Iterator[tuple[str, ArtifactFacts]]:
        if self._examiner is not None:
            yield from self._examiner(blobs)
            return
        # With few blobs, each can use all threads.
        if len(blobs) < self._processes or self._processes < 2 or self._bytes(blobs) <= FEW_BYTES:
            with BlobReader(self._repo) as reader:
                for blob in blobs:
                    yield read_facts(reader, blob, self._processes)
            return
        # Imported here: hooks and most audits have little to read.
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # Spawned: a forked process would share this one's git processes.
        with ProcessPoolExecutor(
            self._processes, get_context("spawn"), _Worker.start, (self._repo,)
        ) as pool:
            yield from pool.map(_Worker.examine, blobs, chunksize=_BATCH)

    def _bytes(self, blobs: list[Wanted]) -> int:
        return sum(sizes(self._repo, (oid for oid, _ in blobs)).values()) if blobs else 0


def read_facts(
    blobs: BlobReader, blob: Wanted, threads: int, payload: PayloadSource | None = None
) -> tuple[str, ArtifactFacts]:
    """Read a blob; returns its id and facts, or raises EnvironmentFailure.

    The payload of detached texts comes from the repository's store if `payload` is None.
    """
    oid, opaque = blob
    data = spooled(blobs.chunks(oid))
    find = partial(store_of, blobs.repo) if payload is None else lambda: payload
    return oid, examine(data, threads=threads, opaque=opaque, payload=find)


class _Worker:
    """A process of the pool, with one reader for all of its blobs."""

    blobs: BlobReader

    @classmethod
    def start(cls, repo: Repository) -> None:
        cls.blobs = BlobReader(repo)

    @classmethod
    def examine(cls, blob: Wanted) -> tuple[str, ArtifactFacts]:
        return read_facts(cls.blobs, blob, 1)
