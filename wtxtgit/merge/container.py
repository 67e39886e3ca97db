"""Three-way merge of container files.

One version's file is the skeleton: the changes of the other versions are put into it, and the
format's own writer computes its hashes again. A result is only returned once it has been read back
and compared.

Two things are merged for each entry: its content, and its form, which is everything else that the
file says about it. If one side changed an entry's content and the other side its form, the result
has both changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from wtxtgit.containers import any_format, registry
from wtxtgit.containers.budget import most_decoded
from wtxtgit.containers.format import Resealer, ValueRules
from wtxtgit.errors import FormatError
from wtxtgit.io.progress import Progress, expect
from wtxtgit.io.spool import spooled
from wtxtgit.io.view import ByteView, pieces
from wtxtgit.merge.policy import WHOLE, Policy, ValueMerge, in_order, side_taken
from wtxtgit.merge.version import (
    Opener,
    Version,
    described,
    fits,
    kind_of,
    overlaps,
)
from wtxtgit.model.plain import equal_values
from wtxtgit.model.tensor import Entry, Key, NewContent, PlacedEntry, ReadOptions
from wtxtgit.report.merge import Conflict, MergedKind, MergeReport, Settled, Strategy
from wtxtgit.tensors import tensor_bytes
from wtxtgit.tensors.tensor_bytes import as_numbers, content_size

if TYPE_CHECKING:
    from wtxtgit.tensors.numbers import RowChanges

_MAX_DEPTH = 4
"""How deep files may be nested to be merged."""
_PASSES = 4
"""How often everything that a file may decode to can be decoded."""


@dataclass(frozen=True, slots=True)
class Merged(MergeReport):
    """The result of a merge: `data` is the merged file, or ours if there are conflicts."""

    data: ByteView = field(default=memoryview(b""), repr=False)


@dataclass(slots=True, eq=False)
class Merger:
    """Merges one file, and the files in it, by one policy."""

    policy: Policy
    options: ReadOptions = field(default_factory=ReadOptions)
    progress: Progress | None = field(default=None, compare=False)
    """Gets counts of bytes of tensors and other entries that are decided."""
    opener: Opener = field(init=False)

    def merge(self, base: ByteView | None, ours: ByteView, theirs: ByteView) -> Merged:
        """Merge three files; `base` is None if both sides added the file.

        Never raises because of content: what can't be merged is a conflict.
        """
        # All passes over the three files, and everything decoded from them, share one budget.
        sizes = [len(version) for version in (base, ours, theirs) if version is not None]
        budget = _PASSES * sum(most_decoded(size, self.options) for size in sizes)
        self.opener = Opener(self.options, budget)
        return self.merge_part(base, ours, theirs, "", 0)

    def merge_part(
        self,
        base: ByteView | None,
        ours: ByteView,
        theirs: ByteView,
        prefix: str,
        depth: int,
    ) -> Merged:
        """Merge files that are nested `depth` deep; `prefix` is put before all names."""
        # A change by only one side needs no format, and nothing is decoded for it.
        side = side_taken(base, ours, theirs)
        if side is not None:
            taken = ours if side == "ours" else theirs
            return Merged(registry.detect(taken), side, data=taken)
        formats = {registry.detect(file) for file in (base, ours, theirs) if file is not None}
        # A checkpoint that changed its format has no entries in common with its former self.
        if len(formats) > 1:
            reason = f"the formats differ: {', '.join(sorted(formats))}"
            return self.by_side(base, ours, theirs, reason, prefix)
        # The depth is checked before anything is opened: files may be nested without end.
        format_ = registry.detected(ours) or registry.stored_whole(ours)
        resealer = any_format.resealer(ours)
        if format_ is None or resealer is None or depth > _MAX_DEPTH:
            kind = "files in unknown formats" if format_ is None else f"{format_.name} files"
            reason = f"{kind} can't be merged by tensor"
            return self.by_side(base, ours, theirs, reason, prefix)

        try:
            return EntryMerge(
                self,
                resealer,
                None if format_.value_rules is None else format_.value_rules(),
                format_.adds_last,
                prefix,
                depth,
                None if base is None else self.opener.version(resealer, "base", base),
                self.opener.version(resealer, "ours", ours),
                self.opener.version(resealer, "theirs", theirs),
            ).run(format_.name, ours)
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
        """Settle a file that can't be merged by tensor: take the side that the policy chooses."""
        name = prefix.removesuffix("/") or WHOLE
        kind = MergedKind.PART if prefix else MergedKind.FILE
        choice = self.policy.choose(name)
        taken = {Strategy.OURS: ours, Strategy.THEIRS: theirs, Strategy.BASE: base}.get(choice)
        format_ = registry.detect(ours)
        if taken is None:
            return Merged(format_, conflicts=(Conflict(name, kind, reason),), data=ours)
        settled_by = str(choice)
        return Merged(format_, settled_by, (Settled(name, kind, settled_by, choice),), data=taken)


METADATA = "metadata:"
"""Precedes the JSON pointer in the name of a value."""
OTHER_BYTES = "file:"
"""Precedes the name of bytes that are neither entry nor metadata."""
_SIDES = frozenset({Strategy.OURS, Strategy.THEIRS, Strategy.BASE})


@dataclass(slots=True, eq=False)
class EntryMerge:
    """The merge of one file in progress."""

    merger: Merger
    resealer: Resealer
    rules: ValueRules | None
    adds_last: bool
    prefix: str
    depth: int
    base: Version | None
    ours: Version
    theirs: Version
    settled: list[Settled] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skeleton: Version = field(init=False)

    def run(self, name: str, ours: ByteView) -> Merged:
        """Merge all entries; raises FormatError for what can't be put together."""
        self.skeleton = self._skeleton()
        other = self.theirs if self.skeleton is self.ours else self.ours
        sizes = {key: self._size(key) for key in in_order(self.skeleton.numbers, other.numbers)}
        # A file within a file is one of its entries.
        progress = None if self.depth else self.merger.progress
        expect(progress, sum(sizes.values()))
        placed = {}
        for key, size in sizes.items():
            if (entry := self._decide(key)) is not None:
                placed[key] = entry
            if progress is not None:
                progress(size)
        values = self._values()
        if self.conflicts:
            return self._merged(name, ours)
        changed = None if equal_values(values, self.skeleton.values) else values
        options = self.merger.options
        container = self.skeleton.container
        # Spooled, since all of it is read again before any of it is returned.
        data = spooled(self.resealer.reseal(container, list(placed.values()), changed, options))
        versions = [each for each in (self.base, self.ours, self.theirs) if each is not None]
        written = self.merger.opener.prove(
            data,
            self.resealer,
            placed,
            versions,
            values,
            adds_last=self.adds_last,
        )
        rest_written = self.resealer.rest(written, options)
        self.notes += [
            f"{self.prefix}{part}: not kept, because the layout of the file had to change"
            for part, value in self.skeleton.rest.items()
            if not equal_values(rest_written.get(part), value)
        ]
        format_ = registry.by_name(name)
        if format_ is not None and format_.signed is not None:
            self.notes += [
                f"{self.prefix}{part}: kept, but it signs the content before the merge"
                for part in format_.signed().broken_by_reseal(container)
            ]
        return self._merged(name, data)

    def _size(self, key: Key) -> int:
        """Return roughly how many bytes have to be read to compare an entry of the two sides."""
        entries = (side.entry(key) for side in (self.ours, self.theirs))
        return max(
            one.tensor.nbytes if one.tensor is not None else len(one.stored or b"")
            for one in entries
            if one is not None
        )

    def _merged(self, name: str, data: ByteView) -> Merged:
        lists = tuple(self.settled), tuple(self.conflicts), tuple(self.notes)
        return Merged(name, None, *lists, data)

    def _skeleton(self) -> Version:
        """Choose the file from which the result is made: it provides all but entries and metadata.

        If both sides changed such bytes, and the policy takes neither side, there is a conflict.
        """
        chosen: dict[str, Version] = {}
        base_rest = {} if self.base is None else self.base.rest
        for part in in_order(self.ours.rest, self.theirs.rest):
            b, o, t = (side.get(part) for side in (base_rest, self.ours.rest, self.theirs.rest))
            if equal_values(o, t):
                continue
            if self.base is not None and (equal_values(b, o) or equal_values(b, t)):
                chosen[part] = self.theirs if equal_values(b, o) else self.ours
                continue
            name = f"{self.prefix}{OTHER_BYTES}{part}"
            choice = self.merger.policy.choose(name)
            if choice is Strategy.FAIL or choice is Strategy.BASE:
                self.conflicts.append(Conflict(name, MergedKind.FILE, "both sides changed it"))
                continue
            chosen[part] = self.theirs if choice is Strategy.THEIRS else self.ours
            self.settled.append(Settled(name, MergedKind.FILE, chosen[part].name, choice))
        # Only one file can be the skeleton: unnamed bytes of two files can't be combined.
        if len({id(side) for side in chosen.values()}) > 1:
            changes = ", ".join(f"{side.name} changed {part}" for part, side in chosen.items())
            raise FormatError(f"{changes}: these changes can't be combined")
        if chosen:
            return next(iter(chosen.values()))
        # With `adds_last` a file can only gain entries: the skeleton has to be the file that lost
        # some.
        if self.adds_last and self.base is not None:
            names = self.base.numbers.keys()
            if names - self.theirs.numbers.keys() and names <= self.ours.numbers.keys():
                return self.theirs
        # If only theirs changed the structure, the change comes with their file.
        is_old = self.base is not None and self.ours.is_built_as(self.base)
        return self.theirs if is_old else self.ours

    def _values(self) -> dict[str, object]:
        base = None if self.base is None else self.base.values
        prefix = f"{self.prefix}{METADATA}"
        return self._merged_values(prefix, None, base, self.ours.values, self.theirs.values)

    def _merged_values(
        self,
        prefix: str,
        chunk: str | None,
        base: Mapping[str, object] | None,
        ours: Mapping[str, object],
        theirs: Mapping[str, object],
    ) -> dict[str, object]:
        """Merge values of the metadata, or of a `chunk`; `prefix` is put before their pointers."""

        def ruled(pointer: str, mine: object, other: object) -> tuple[object, str] | None:
            return None if self.rules is None else self.rules.ruled(chunk, pointer, mine, other)

        merge = ValueMerge(lambda pointer: self.merger.policy.choose(prefix + pointer), ruled)
        merged = merge.merge(base, ours, theirs)
        self.settled += [
            Settled(prefix + pointer, MergedKind.METADATA, how, choice)
            for pointer, how, choice in merge.settled
        ]
        self.conflicts += [
            Conflict(prefix + pointer, MergedKind.METADATA, "both sides changed it")
            for pointer in merge.open
        ]
        return merged

    def _decide(self, key: Key) -> PlacedEntry | None:
        """Decide what the result has for an entry, None if it is dropped; notes the decision."""
        b = None if self.base is None else self.base.entry(key)
        o, t = self.ours.entry(key), self.theirs.entry(key)
        # (1) Added or removed on one side.
        if o is None or t is None:
            return self._one_sided(key, b, o, t)
        # (2) Contents are compared before forms: equal content may be stored in two ways.
        is_equal = self._is_same(o, t)
        is_old = b is not None and self._is_same(b, o), b is not None and self._is_same(b, t)
        # (3) Tensors of different kinds share no rows, so only a side can be taken.
        if not (is_equal or any(is_old)) and kind_of(o) != kind_of(t):
            return self._by_side(key, o, f"{described(o)} in ours, {described(t)} in theirs")
        # (4) The form is merged separately, as a whole: it has no parts that could be exchanged.
        form_side = self._side_of_form(b, o, t)
        if form_side is None:
            return self._by_side(key, o, "both sides changed its metadata")
        if is_equal:
            if o.form != t.form:
                self._settle(key, o, form_side.name)
            elif b is None or b.form != o.form or not is_old[0]:
                self._settle(key, o, "equal")
            return self._preferred(key, form_side).placed(key)
        if any(is_old):
            content_side = self.theirs if is_old[0] else self.ours
            is_both = o.form != t.form and form_side is not content_side
            self._settle(key, o, "both" if is_both else content_side.name)
            return self._put_together(key, content_side, form_side)
        # (5) Both sides changed it: tensors row by row, files as files of their own.
        if o.tensor is not None and t.tensor is not None:
            return self._rows(key, b, o, t, form_side)
        return self._file(key, b, o, t, form_side)

    def _side_of_form(self, b: Entry | None, o: Entry, t: Entry) -> Version | None:
        """Return the side whose form the entry gets; None if both sides changed it."""
        if o.form == t.form:
            return self.skeleton
        if b is not None and b.form == o.form:
            return self.theirs
        return self.ours if b is not None and b.form == t.form else None

    def _put_together(self, key: Key, content_side: Version, form_side: Version) -> PlacedEntry:
        """Combine one side's content of an entry with the form that it has on another side."""
        form_side = self._preferred(key, form_side)
        content = content_side.entries[content_side.numbers[key]]
        form_entry = form_side.entries[form_side.numbers[key]]
        if content_side is form_side:
            return content_side.placed(key)
        if content.tensor is None or form_entry.tensor is None:
            if content.form == form_entry.form:
                # Copied as stored there: nothing is compressed again.
                return content_side.placed(key)
            if content.unread is None and form_entry.unread is None:
                return form_side.placed(key, _file_content(self.merger.opener.content(content)))
        elif fits(content.tensor, form_entry.tensor):
            return form_side.placed(key, tensor_bytes.unchanged(content.tensor))
        elif kind_of(content) == kind_of(form_entry) and form_entry.tensor.absent is None:
            numbers = as_numbers(content.tensor)
            if numbers is not None:
                blocks = partial(tensor_bytes.blocks, numbers)
                nbytes = content_size(numbers)
                return form_side.placed(
                    key, tensor_bytes.as_stored(form_entry.tensor, nbytes, blocks)
                )
        if content.form == form_entry.form:
            return content_side.placed(key)
        return self._by_side(
            key, content, f"{form_side.name} changed its metadata, {content_side.name} its bytes"
        )

    def _preferred(self, key: Key, side: Version) -> Version:
        """Return the skeleton if its entry has the same form, so that the entry keeps its place."""
        own = self.skeleton.entry(key)
        is_alike = own is not None and own.form == side.entries[side.numbers[key]].form
        return self.skeleton if is_alike else side

    def _one_sided(
        self, key: Key, b: Entry | None, o: Entry | None, t: Entry | None
    ) -> PlacedEntry | None:
        side, entry = (self.ours, o) if o is not None else (self.theirs, t)
        if entry is None:
            # Both sides removed it.
            return None
        if b is None:
            self._settle(key, entry, side.name)
            return side.placed(key)
        remover = "theirs" if o is not None else "ours"
        # One side removed it, the other did not change it: it is dropped.
        if b.form == entry.form and self._is_same(b, entry):
            self._settle(key, entry, remover)
            return None
        choice = self.merger.policy.choose(self._name(key))
        if choice in _SIDES:
            self._settle(key, entry, str(choice), choice)
            if choice is Strategy.BASE and self.base is not None:
                return self.base.placed(key)
            return None if choice == remover else side.placed(key)
        reason = f"{remover} removed it, {side.name} changed it"
        self._conflict(key, entry, reason, choice)
        return side.placed(key)

    def _rows(
        self, key: Key, b: Entry | None, o: Entry, t: Entry, form_side: Version
    ) -> PlacedEntry | None:
        """Merge a tensor that both sides changed; both versions have one dtype and shape."""
        ours = None if o.tensor is None else as_numbers(o.tensor)
        theirs = None if t.tensor is None else as_numbers(t.tensor)
        if ours is None or theirs is None or overlaps(ours) or overlaps(theirs):
            return self._by_side(
                key, o, "both sides changed it, and it has no rows of numbers to merge"
            )
        base = None
        if b is not None and b.tensor is not None and kind_of(b) == kind_of(o):
            base = as_numbers(b.tensor)
        # A base of another kind does not tell which rows a side changed.
        choice = self.merger.policy.choose(self._name(key))
        from wtxtgit.tensors.merge import RowMerge  # most merges have no such tensor

        rows = RowMerge(base, ours, theirs, choice)
        outcome = rows.outcome()
        if outcome.open.changed:
            self._row_conflict(key, choice, outcome.open)
            return self.ours.placed(key)
        self._settle(key, o, outcome.how or str(choice), choice if outcome.how is None else None)
        form_side = self._preferred(key, form_side)
        target = form_side.entries[form_side.numbers[key]].tensor
        if target is None:
            raise FormatError(
                f"{self._name(key)!a} is not a tensor in {form_side.name}", field="tensors"
            )
        return form_side.placed(key, tensor_bytes.as_stored(target, rows.nbytes, rows.blocks))

    def _row_conflict(self, key: Key, choice: Strategy, rows: RowChanges) -> None:
        reason = "both sides changed the same rows"
        if choice is Strategy.BASE:
            reason += ", and the base has no tensor of this dtype and shape"
        elif choice is not Strategy.FAIL:
            reason += f", and the result of {choice} does not fit the dtype"
        self.conflicts.append(
            Conflict(
                self._name(key), MergedKind.TENSOR, reason, rows.changed, rows.ranges, rows.exact
            )
        )

    def _file(
        self, key: Key, b: Entry | None, o: Entry, t: Entry, form_side: Version
    ) -> PlacedEntry | None:
        """Merge a file in a chunk or member that both sides changed."""
        if o.unread is not None or t.unread is not None:
            return self._by_side(key, o, f"both sides changed it: {o.unread or t.unread}")
        opener = self.merger.opener
        base = None if b is None or b.unread is not None else opener.content(b)
        ours, theirs = opener.content(o), opener.content(t)
        if o.is_json and t.is_json and side_taken(base, ours, theirs) is None:
            json_bytes = self._json(key, base, ours, theirs)
            if json_bytes is not None:
                return self._preferred(key, form_side).placed(
                    key, _file_content(memoryview(json_bytes))
                )
        merged = self.merger.merge_part(
            base,
            ours,
            theirs,
            f"{self._name(key)}/",
            self.depth + 1,
        )
        self.settled += merged.settled
        self.conflicts += merged.conflicts
        self.notes += merged.notes
        # The side's own entry is placed, so that compressed bytes are not compressed again.
        if merged.taken in {"ours", "theirs"}:
            return self._put_together(
                key, self.ours if merged.taken == "ours" else self.theirs, form_side
            )
        return self._preferred(key, form_side).placed(key, _file_content(merged.data))

    def _json(
        self, key: Key, base_text: memoryview | None, ours: memoryview, theirs: memoryview
    ) -> bytes | None:
        """Merge JSON that both sides changed, value by value; None if it can't be parsed."""
        versions = [_json_object(each) for each in (base_text, ours, theirs)]
        base, mine, other = versions
        if mine is None or other is None or (base_text is not None and base is None):
            return None
        spelling = _spelling_of(ours, mine)
        if spelling is None:
            return None
        merged = self._merged_values(f"{self._name(key)}:", key[0], base, mine, other)
        return spelling(merged)

    def _by_side(self, key: Key, entry: Entry, reason: str) -> PlacedEntry:
        """Settle an entry that can't be merged: take the side that the policy chooses, if any."""
        choice = self.merger.policy.choose(self._name(key))
        sides = {Strategy.OURS: self.ours, Strategy.THEIRS: self.theirs, Strategy.BASE: self.base}
        side = sides.get(choice)
        if side is not None and key in side.numbers:
            self._settle(key, entry, str(choice), choice)
            return side.placed(key)
        self._conflict(key, entry, reason, choice)
        return self.ours.placed(key)

    def _name(self, key: Key) -> str:
        name, number = key
        return f"{self.prefix}{name}" + (f"#{number + 1}" if number else "")

    def _settle(self, key: Key, entry: Entry, how: str, strategy: Strategy | None = None) -> None:
        kind = MergedKind.PART if entry.tensor is None else MergedKind.TENSOR
        self.settled.append(Settled(self._name(key), kind, how, strategy))

    def _conflict(
        self, key: Key, entry: Entry, reason: str, choice: Strategy = Strategy.FAIL
    ) -> None:
        """Record a conflict; a chosen strategy other than "fail" is mentioned as not applicable."""
        if choice is not Strategy.FAIL:
            reason += f", which {choice} does not settle"
        kind = MergedKind.PART if entry.tensor is None else MergedKind.TENSOR
        self.conflicts.append(Conflict(self._name(key), kind, reason))

    def _is_same(self, a: Entry, b: Entry) -> bool:
        return self.merger.opener.is_same_entry(a, b)


_SPELLINGS: tuple[tuple[str, str, int | None], ...] = (
    (",", ":", None),
    (", ", ": ", None),
    (",", ": ", 2),
    (",", ": ", 4),
)
"""Separators of items, and of keys from values; and the width of the indentation."""


def _json_object(data: memoryview | None) -> dict[str, object] | None:
    """Return the object in a JSON text if no key is repeated; None for anything else."""
    if data is None:
        return None
    from wtxtgit.containers import json_text

    try:
        value = json_text.parse(data, "chunk", unique_keys=True)
    except FormatError:
        return None
    return value if isinstance(value, dict) else None


def _spelling_of(
    data: memoryview, value: dict[str, object]
) -> Callable[[dict[str, object]], bytes] | None:
    """Return a function that spells values as `data` does; None if Python would not spell it so."""
    import json

    text = bytes(data)
    for item_separator, key_separator, indent in _SPELLINGS:
        for ensure_ascii in (False, True):
            dump = partial(
                json.dumps,
                ensure_ascii=ensure_ascii,
                separators=(item_separator, key_separator),
                indent=indent,
            )
            if dump(value).encode("utf-8", "surrogatepass") == text:
                return lambda merged, dump=dump: dump(merged).encode()  # type: ignore[misc]
    return None


def _file_content(data: ByteView) -> NewContent:
    return NewContent(len(data), partial(pieces, data))
