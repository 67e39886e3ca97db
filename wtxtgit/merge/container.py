"""Three-way merge of container files.

One side's file is the skeleton; what the other one changed goes into it, and
the format's own writer makes its hashes anew. Nothing is given that was not
read again and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wtxtgit import containers
from wtxtgit.containers import Resealer
from wtxtgit.containers.decoded import most_decoded
from wtxtgit.errors import FormatError
from wtxtgit.io.files import same_bytes
from wtxtgit.io.view import ByteView, mapped
from wtxtgit.merge.policy import WHOLE, Policy
from wtxtgit.merge.side import Side
from wtxtgit.model.entries import Entry
from wtxtgit.model.reading import Packed, ReadOptions
from wtxtgit.report.merge import Conflict, Kind, Settled, Strategy

_MAX_DEPTH = 4
"""Files in files that are looked into."""
_PASSES = 4
"""Times that all that a file may decode to is looked at."""


@dataclass(frozen=True, slots=True)
class Merged:
    """How a merge ended: `data` is the file, ours where there are conflicts.

    `taken` is the side that it is, None where it was put together.
    """

    format: str
    data: ByteView
    taken: str | None
    settled: tuple[Settled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Merger:
    """Merges one file by one policy, and the files in it.

    `left` is how many bytes of files in it may still be decoded: they may be
    nested, each far larger than what is stored of it.
    """

    policy: Policy
    options: ReadOptions = field(default_factory=ReadOptions)
    left: int = field(init=False, default=0)

    def merge(self, base: ByteView | None, ours: ByteView, theirs: ByteView) -> Merged:
        """Merge three files; `base` is None where both sides added it.

        Raises nothing because of content: what can't be merged is a conflict.
        """
        sizes = [len(side) for side in (base, ours, theirs) if side is not None]
        self.left = _PASSES * sum(most_decoded(size, self.options) for size in sizes)
        return self.merge_part(base, ours, theirs, "", 0)

    def merge_part(
        self,
        base: ByteView | None,
        ours: ByteView,
        theirs: ByteView,
        prefix: str,
        depth: int,
    ) -> Merged:
        """Merge files that stand `depth` files deep; `prefix` stands before all names."""
        name = containers.detect(ours)
        if same_bytes(ours, theirs):
            return Merged(name, ours, "ours")
        if base is not None and same_bytes(base, ours):
            return Merged(containers.detect(theirs), theirs, "theirs")
        if base is not None and same_bytes(base, theirs):
            return Merged(name, ours, "ours")
        formats = {containers.detect(side) for side in (base, ours, theirs) if side is not None}
        if len(formats) > 1:
            reason = f"the formats differ: {', '.join(sorted(formats))}"
            return self.by_side(base, ours, theirs, reason, prefix)
        known = containers.detected(ours)
        if known is None or known.reseal is None or depth > _MAX_DEPTH:
            what = "files of no known format" if known is None else f"{name} files"
            reason = f"{what} are not merged by tensor"
            return self.by_side(base, ours, theirs, reason, prefix)
        from wtxtgit.merge.entries import EntryMerge

        resealer = known.reseal()
        try:
            return EntryMerge(
                self,
                resealer,
                prefix,
                depth,
                None if base is None else self._open(resealer, "base", base),
                self._open(resealer, "ours", ours),
                self._open(resealer, "theirs", theirs),
            ).run(name, ours)
        except FormatError as error:
            return self.by_side(base, ours, theirs, error.message, prefix)

    def by_side(
        self,
        base: ByteView | None,
        ours: ByteView,
        theirs: ByteView,
        reason: str,
        prefix: str = "",
    ) -> Merged:
        """Settle a file that can't be looked into, by a side of the policy."""
        name = prefix.removesuffix("/") or WHOLE
        kind = Kind.PART if prefix else Kind.FILE
        choice = self.policy.choose(name)
        taken = {Strategy.OURS: ours, Strategy.THEIRS: theirs, Strategy.BASE: base}.get(choice)
        format_ = containers.detect(ours)
        if taken is None:
            return Merged(format_, ours, None, conflicts=(Conflict(name, kind, reason),))
        how = str(choice)
        return Merged(format_, taken, how, (Settled(name, kind, how, choice),))

    def spend(self, nbytes: int) -> None:
        """Count bytes that are decoded; raises FormatError (limit) for too many."""
        self.left -= nbytes
        if self.left < 0:
            raise FormatError("the files in it decode to more than is merged", kind="limit")

    def opened(self, entry: Entry) -> memoryview:
        """The content of a file in a file; raises FormatError where it can't be decoded."""
        if entry.file is None:
            raise FormatError(f"{entry.name!a} can't be opened", field="payload")
        if not isinstance(entry.file, Packed):
            return mapped(entry.file)
        self.spend(entry.file.nbytes)
        return mapped(entry.file.open())

    def _open(self, resealer: Resealer, name: str, data: ByteView) -> Side:
        """Read a side; raises FormatError for one that does not hold."""
        self.spend(len(data))
        for problem in containers.check(data, self.options).errors:
            raise FormatError(f"{name} does not hold: {problem}")
        container = containers.read(data)
        return Side(
            name,
            container,
            resealer.entries(container, self.options),
            resealer.values(container, self.options),
            resealer.rest(container, self.options),
        )
