"""Three-way merge of container files: by entry, then by row, then by strategy.

One side's file is the skeleton; what the other one changed goes into it, and
the format's own writer makes its hashes anew. Nothing is given that was not
read again and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from wtxtgit import containers
from wtxtgit.containers import Resealer
from wtxtgit.errors import FormatError
from wtxtgit.model import Buffer
from wtxtgit.model.entries import Content, Entry, Placed
from wtxtgit.model.reading import ReadOptions, Tensor
from wtxtgit.ops.comparison import equal_bytes, logical_shape
from wtxtgit.ops.comparison import is_same as is_same_tensor
from wtxtgit.ops.merge import stored
from wtxtgit.ops.merge.policy import WHOLE, Policy
from wtxtgit.ops.merge.rows import RowMerge, mergeable
from wtxtgit.ops.merge.values import is_same, merge_values
from wtxtgit.ops.row_changes import RowChanges
from wtxtgit.ops.spool import spooled
from wtxtgit.report.merge import Conflict, Kind, Settled, Strategy

METADATA = "metadata:"
"""What stands before the JSON pointer in the name of a value."""
_MAX_DEPTH = 4
"""Files in files that are looked into."""
_BLOCK = 1024 * 1024
_SIDES = frozenset({Strategy.OURS, Strategy.THEIRS, Strategy.BASE})

_Key = tuple[str, int]
"""An entry's name, and how many of that name came before it."""


@dataclass(frozen=True, slots=True)
class Merged:
    """How a merge ended: `data` is the file, ours where there are conflicts.

    `taken` is the side that it is, None where it was put together.
    """

    format: str
    data: memoryview
    taken: str | None
    settled: tuple[Settled, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Merger:
    """Merges files by one policy."""

    policy: Policy
    options: ReadOptions = field(default_factory=ReadOptions)

    def merge(
        self,
        base: memoryview | None,
        ours: memoryview,
        theirs: memoryview,
        *,
        prefix: str = "",
        depth: int = 0,
    ) -> Merged:
        """Merge three files; `base` is None where both sides added it.

        `prefix` stands before all names. Raises nothing because of content:
        what can't be merged is a conflict.
        """
        name = containers.detect(ours)
        if equal_bytes(ours, theirs):
            return Merged(name, ours, "ours")
        if base is not None and equal_bytes(base, ours):
            return Merged(containers.detect(theirs), theirs, "theirs")
        if base is not None and equal_bytes(base, theirs):
            return Merged(name, ours, "ours")
        sides = [side for side in (base, ours, theirs) if side is not None]
        formats = {containers.detect(side) for side in sides}
        if len(formats) > 1:
            return self._whole(
                prefix, base, ours, theirs, f"the formats differ: {', '.join(sorted(formats))}"
            )
        resealer = containers.resealer(name)
        if resealer is None or depth > _MAX_DEPTH:
            what = "files of no known format" if name == "opaque" else f"{name} files"
            return self._whole(prefix, base, ours, theirs, f"{what} are not merged by tensor")
        try:
            return _ContainerMerge(
                self,
                resealer,
                prefix,
                depth,
                None if base is None else self._open(resealer, "base", base),
                self._open(resealer, "ours", ours),
                self._open(resealer, "theirs", theirs),
            ).run(name, ours)
        except FormatError as error:
            return self._whole(prefix, base, ours, theirs, error.message)

    def _open(self, resealer: Resealer, name: str, data: memoryview) -> _Side:
        """Read a side; raises FormatError for one that does not hold."""
        for problem in containers.check(data, self.options).errors:
            raise FormatError(f"{name} does not hold: {problem}")
        container = containers.read(data)
        entries = resealer.entries(container, self.options)
        return _Side(name, container, entries, dict(resealer.values(container, self.options)))

    def _whole(
        self,
        prefix: str,
        base: memoryview | None,
        ours: memoryview,
        theirs: memoryview,
        reason: str,
    ) -> Merged:
        """Settle a file that can't be looked into, by a side of the policy."""
        name = prefix.removesuffix("/") or WHOLE
        kind = Kind.PART if prefix else Kind.FILE
        choice = self.policy.choose(name)
        taken = {Strategy.OURS: ours, Strategy.THEIRS: theirs, Strategy.BASE: base}.get(choice)
        format_ = containers.detect(ours)
        if taken is None:
            return Merged(format_, ours, None, conflicts=(Conflict(name, kind, reason),))
        return Merged(format_, taken, str(choice), (Settled(name, kind, str(choice)),))


@dataclass(slots=True, eq=False)
class _Side:
    """A file that is open: its entries by key, its metadata."""

    name: str
    container: containers.Container
    entries: Sequence[Entry]
    values: dict[str, object]
    numbers: dict[_Key, int] = field(init=False)

    def __post_init__(self) -> None:
        seen: Counter[str] = Counter()
        self.numbers = {}
        for number, entry in enumerate(self.entries):
            self.numbers[entry.name, seen[entry.name]] = number
            seen[entry.name] += 1

    def entry(self, key: _Key) -> Entry | None:
        number = self.numbers.get(key)
        return None if number is None else self.entries[number]

    def placed(self, key: _Key, content: Content | None = None) -> Placed:
        return Placed(self.container, self.numbers[key], content)

    def is_built_as(self, other: _Side) -> bool:
        """Whether two files differ in the bytes of their entries alone."""
        forms = [
            [(key, side.entries[n].form, _kind(side.entries[n])) for key, n in side.numbers.items()]
            for side in (self, other)
        ]
        return forms[0] == forms[1] and is_same(self.values, other.values)


@dataclass(slots=True, eq=False)
class _ContainerMerge:
    """One merge under way."""

    merger: Merger
    resealer: Resealer
    prefix: str
    depth: int
    base: _Side | None
    ours: _Side
    theirs: _Side
    settled: list[Settled] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, name: str, ours: memoryview) -> Merged:
        """Merge all; raises FormatError for what can't be put together."""
        skeleton, other = self.ours, self.theirs
        if self.base is not None and self.ours.is_built_as(self.base):
            # What only theirs did to the structure comes with their file.
            skeleton, other = self.theirs, self.ours
        found = {
            key: one
            for key in _in_order(skeleton.numbers, other.numbers)
            if (one := self._decide(key, skeleton)) is not None
        }
        values = self._values()
        if self.conflicts:
            return self._merged(name, ours)
        changed = None if is_same(values, skeleton.values) else values
        placed = list(found.values())
        pieces = self.resealer.reseal(skeleton.container, placed, changed, self.merger.options)
        data = spooled(pieces)
        self._prove(data, list(found.items()), values)
        broken = getattr(self.resealer, "broken", None)
        if broken is not None:
            self.notes += [
                f"{field} is kept, and signs what was before"
                for field in broken(skeleton.container)
            ]
        return self._merged(name, data)

    def _merged(self, name: str, data: memoryview) -> Merged:
        return Merged(
            name,
            data,
            None,
            tuple(self.settled),
            tuple(self.conflicts),
            tuple(self.notes),
        )

    def _values(self) -> dict[str, object]:
        before = None if self.base is None else self.base.values
        merged = merge_values(
            before,
            self.ours.values,
            self.theirs.values,
            lambda pointer: self.merger.policy.choose(self._value_name(pointer)),
        )
        self.settled += [
            Settled(self._value_name(pointer), Kind.METADATA, how)
            for pointer, how in merged.settled
        ]
        self.conflicts += [
            Conflict(self._value_name(pointer), Kind.METADATA, "both sides changed it")
            for pointer in merged.open
        ]
        return merged.value

    def _value_name(self, pointer: str) -> str:
        return f"{self.prefix}{METADATA}{pointer}"

    def _decide(self, key: _Key, skeleton: _Side) -> Placed | None:
        """What becomes of an entry, None where it is left out; notes what was decided."""
        b = None if self.base is None else self.base.entry(key)
        o, t = self.ours.entry(key), self.theirs.entry(key)
        if o is None or t is None:
            return self._one_sided(key, b, o, t)
        if self._is_same(o, t):
            if b is None or not self._is_same(b, o):
                self._settle(key, o, "equal")
            return self._equal_content(key, b, o, t, skeleton)
        if b is not None and self._is_same(b, o):
            self._settle(key, t, "theirs")
            return self._changed_by(self.theirs, key, b, skeleton)
        if b is not None and self._is_same(b, t):
            self._settle(key, o, "ours")
            return self._changed_by(self.ours, key, b, skeleton)
        if o.tensor is not None and t.tensor is not None:
            return self._rows(key, b, o.tensor, t.tensor, skeleton)
        return self._file(key, b, o, t, skeleton)

    def _one_sided(
        self, key: _Key, b: Entry | None, o: Entry | None, t: Entry | None
    ) -> Placed | None:
        side, held = (self.ours, o) if o is not None else (self.theirs, t)
        if held is None:
            # Both sides took it out.
            return None
        if b is None:
            self._settle(key, held, side.name)
            return side.placed(key)
        gone = "theirs" if o is not None else "ours"
        if self._is_same(b, held):
            self._settle(key, held, gone)
            return None
        choice = self.merger.policy.choose(self._name(key))
        if choice in _SIDES:
            self._settle(key, held, str(choice))
            if choice is Strategy.BASE and self.base is not None:
                return self.base.placed(key)
            return None if choice == gone else side.placed(key)
        self._conflict(key, held, f"{gone} removed it, {side.name} changed it")
        return side.placed(key)

    def _equal_content(
        self, key: _Key, b: Entry | None, o: Entry, t: Entry, skeleton: _Side
    ) -> Placed:
        """An entry that holds the same on both sides, in the form that a side gave it."""
        if o.form == t.form:
            return skeleton.placed(key)
        is_theirs = b is not None and b.form == o.form
        return (self.theirs if is_theirs else self.ours).placed(key)

    def _changed_by(self, side: _Side, key: _Key, b: Entry, skeleton: _Side) -> Placed:
        """An entry whose content one side alone changed."""
        entry, mine = side.entries[side.numbers[key]], skeleton.entry(key)
        if side is skeleton or mine is None:
            return side.placed(key)
        if entry.tensor is not None and mine.tensor is not None:
            if entry.form == mine.form and _fits(entry.tensor, mine.tensor):
                return skeleton.placed(key, stored.unchanged(entry.tensor))
            return side.placed(key)
        # What one side compressed and the other one changed is changed and compressed.
        if entry.form == b.form and mine.form != b.form and entry.unread is None:
            return skeleton.placed(key, _of_file(_opened(entry)))
        return side.placed(key)

    def _rows(
        self, key: _Key, b: Entry | None, o: Tensor, t: Tensor, skeleton: _Side
    ) -> Placed | None:
        """A tensor that both sides changed."""
        name = self._name(key)
        choice = self.merger.policy.choose(name)
        if choice is Strategy.BASE:
            return self._from_base(key)
        entry = self.ours.entries[self.ours.numbers[key]]
        ours, theirs = mergeable(o), mergeable(t)
        if _label(o) != _label(t) or logical_shape(o) != logical_shape(t):
            return self._by_side(key, entry, f"{_described(o)} in ours, {_described(t)} in theirs")
        if ours is None or theirs is None:
            return self._by_side(key, entry, "both sides changed it, and its items are no numbers")
        before = None if b is None or b.tensor is None else mergeable(b.tensor)
        if before is not None and (
            _label(before) != _label(o) or logical_shape(before) != logical_shape(o)
        ):
            before = None
        rows = RowMerge(before, ours, theirs, choice)
        outcome = rows.outcome()
        if outcome.open.changed:
            self._row_conflict(name, choice, outcome.open)
            return self.ours.placed(key)
        self.settled.append(Settled(name, Kind.TENSOR, outcome.how or str(choice)))
        like = self._form_of(key, b)
        if skeleton.entries[skeleton.numbers[key]].form == like.entries[like.numbers[key]].form:
            like = skeleton
        made = o if like is self.ours else t
        return like.placed(key, stored.as_stored(made, rows.nbytes, rows.blocks))

    def _row_conflict(self, name: str, choice: Strategy, rows: RowChanges) -> None:
        reason = "both sides changed the same rows"
        if choice is not Strategy.FAIL:
            reason += f", and {choice} gives nothing that the dtype can hold"
        self.conflicts.append(
            Conflict(name, Kind.TENSOR, reason, rows.changed, rows.ranges, rows.exact)
        )

    def _form_of(self, key: _Key, b: Entry | None) -> _Side:
        """The side whose form an entry that both changed takes."""
        ours = self.ours.entries[self.ours.numbers[key]]
        return self.theirs if b is not None and b.form == ours.form else self.ours

    def _file(
        self, key: _Key, b: Entry | None, o: Entry, t: Entry, skeleton: _Side
    ) -> Placed | None:
        """A file in a chunk or member that both sides changed."""
        if self.merger.policy.choose(self._name(key)) is Strategy.BASE:
            return self._from_base(key)
        if o.unread is not None or t.unread is not None:
            return self._by_side(key, o, f"both sides changed it: {o.unread or t.unread}")
        before = None if b is None or b.unread is not None else _opened(b)
        ours, theirs = _opened(o), _opened(t)
        if before is not None and containers.detect(before) != containers.detect(ours):
            before = None
        merged = self.merger.merge(
            before, ours, theirs, prefix=f"{self._name(key)}/", depth=self.depth + 1
        )
        self.settled += merged.settled
        self.conflicts += merged.conflicts
        self.notes += merged.notes
        if merged.taken in {"ours", "theirs"}:
            return (self.ours if merged.taken == "ours" else self.theirs).placed(key)
        like = self._form_of(key, b)
        if skeleton.entries[skeleton.numbers[key]].form == like.entries[like.numbers[key]].form:
            like = skeleton
        return like.placed(key, _of_file(merged.data))

    def _from_base(self, key: _Key) -> Placed | None:
        self.settled.append(Settled(self._name(key), Kind.TENSOR, "base"))
        if self.base is None or key not in self.base.numbers:
            return None
        return self.base.placed(key)

    def _by_side(self, key: _Key, entry: Entry, reason: str) -> Placed:
        """Settle what only a side can settle."""
        choice = self.merger.policy.choose(self._name(key))
        if choice in {Strategy.OURS, Strategy.THEIRS}:
            self._settle(key, entry, str(choice))
            return (self.ours if choice is Strategy.OURS else self.theirs).placed(key)
        self._conflict(key, entry, reason)
        return self.ours.placed(key)

    def _name(self, key: _Key) -> str:
        name, number = key
        return f"{self.prefix}{name}" + (f"#{number + 1}" if number else "")

    def _settle(self, key: _Key, entry: Entry, how: str) -> None:
        self.settled.append(Settled(self._name(key), _kind_of(entry), how))

    def _conflict(self, key: _Key, entry: Entry, reason: str) -> None:
        self.conflicts.append(Conflict(self._name(key), _kind_of(entry), reason))

    def _is_same(self, a: Entry, b: Entry) -> bool:
        """Whether two entries hold the same, whatever form it has."""
        if a.stored is not None and b.stored is not None and a.form == b.form:
            if _kind(a) != _kind(b):
                return False
            if equal_bytes(a.stored, b.stored):
                return True
            if a.tensor is not None and _is_plain(a.tensor):
                return False
        if a.tensor is not None and b.tensor is not None:
            return _same_tensors(a.tensor, b.tensor)
        if a.unread is not None or b.unread is not None:
            return False
        return (a.tensor is None) == (b.tensor is None) and equal_bytes(_opened(a), _opened(b))

    def _prove(
        self,
        data: memoryview,
        placed: Sequence[tuple[_Key, Placed]],
        values: Mapping[str, object],
    ) -> None:
        """Read again what was written; raises FormatError unless it is what it has to be."""
        for problem in containers.check(data, self.merger.options).errors:
            raise FormatError(f"what was merged does not hold: {problem}")
        container = containers.read(data)
        written = self.resealer.entries(container, self.merger.options)
        if [entry.name for entry in written] != [key[0] for key, _ in placed]:
            raise FormatError("what was merged does not hold what it should", field="entries")
        sources = {id(side.container): side for side in (self.base, self.ours, self.theirs) if side}
        for entry, (key, one) in zip(written, placed, strict=True):
            wanted = sources[id(one.source)].entries[one.number]
            if not _holds(entry, wanted, one.content):
                raise FormatError(
                    f"{self._name(key)!a} would not be what was merged", field="entries"
                )
        if not is_same(self.resealer.values(container, self.merger.options), values):
            raise FormatError("the metadata would not be what was merged", field="metadata")


def _in_order(mine: Mapping[_Key, int], other: Mapping[_Key, int]) -> Iterator[_Key]:
    """The keys of one file in its order, each followed by what the other one has behind it."""
    behind: dict[_Key | None, list[_Key]] = {}
    last: _Key | None = None
    for key in other:
        if key in mine:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    yield from behind.get(None, ())
    for key in mine:
        yield key
        yield from behind.get(key, ())


def _kind(entry: Entry) -> object:
    """What tensors have to share for their items to be exchanged."""
    tensor = entry.tensor
    return None if tensor is None else (_label(tensor), logical_shape(tensor))


def _kind_of(entry: Entry) -> Kind:
    return Kind.PART if entry.tensor is None else Kind.TENSOR


def _label(tensor: Tensor) -> str:
    return tensor.element or tensor.dtype


def _described(tensor: Tensor) -> str:
    shape = " x ".join(map(str, logical_shape(tensor))) or "scalar"
    return f"{_label(tensor)} {shape}"


def _is_plain(tensor: Tensor) -> bool:
    """Whether equal items are stored as equal bytes, and no others."""
    return tensor.strides is None


def _fits(a: Tensor, b: Tensor) -> bool:
    """Whether the stored bytes of one can stand in the other's place."""
    return (a.nbytes, a.shape, a.order, a.byteorder, a.strides) == (
        b.nbytes,
        b.shape,
        b.order,
        b.byteorder,
        b.strides,
    )


def _same_tensors(a: Tensor, b: Tensor) -> bool:
    if _label(a) != _label(b) or logical_shape(a) != logical_shape(b):
        return False
    if a.absent is not None or b.absent is not None:
        return (a.absent is None) == (b.absent is None)
    x, y = mergeable(a), mergeable(b)
    return is_same_tensor(x or a, y or b, lambda _count: None)


def _opened(entry: Entry) -> memoryview:
    """The content of a file; raises FormatError where it can't be decoded."""
    if entry.file is None:
        raise FormatError(f"{entry.name!a} can't be opened", field="payload")
    return entry.file if isinstance(entry.file, memoryview) else entry.file.open()


def _of_file(data: memoryview) -> Content:
    return Content(len(data), partial(_pieces, data))


def _pieces(data: memoryview) -> Iterator[Buffer]:
    for start in range(0, len(data), _BLOCK):
        yield data[start : start + _BLOCK]


def _holds(entry: Entry, wanted: Entry, content: Content | None) -> bool:
    """Whether an entry that was written holds what was wanted of it."""
    if _kind(entry) != _kind(wanted):
        return False
    if content is None:
        if entry.unread is not None:
            return (
                entry.stored is not None
                and wanted.stored is not None
                and equal_bytes(entry.stored, wanted.stored)
            )
        if entry.tensor is not None and wanted.tensor is not None:
            return _same_tensors(entry.tensor, wanted.tensor)
        return wanted.unread is None and equal_bytes(_opened(entry), _opened(wanted))
    held = _opened(entry) if entry.tensor is None else entry.tensor.data
    return _is_made_of(held, content.blocks)


def _is_made_of(data: memoryview, blocks: Callable[[], Iterator[Buffer]]) -> bool:
    at = 0
    for block in blocks():
        piece = memoryview(block).cast("B")
        if not equal_bytes(data[at : at + len(piece)], piece):
            return False
        at += len(piece)
    return at == len(data)
