"""Rebuilding a damaged text, and proving the result.

Arrays come first: their chunks prove their bytes. Then candidates for the lines that describe them
(`lines.py`) are tried until the text's hash_all is that of its `root` line, or one that the caller
knows (from a ledger). A text returned from here is accepted by `verify` and has the hash that was
claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice, pairwise, product
from operator import itemgetter

from wtxtgit.errors import TextError
from wtxtgit.io.progress import Progress
from wtxtgit.io.view import Buffer, ByteView, hashed, pieces
from wtxtgit.model.array import LAYOUT_ARRAY, Array, Layout, Meta, Snapshot
from wtxtgit.text import grammar
from wtxtgit.text.layout import parse_layout, schema_of
from wtxtgit.text.recovery import lines
from wtxtgit.text.recovery.chunk import is_near
from wtxtgit.text.recovery.chunks import FoundElsewhere, OtherCopies, settle
from wtxtgit.text.recovery.found import FoundText
from wtxtgit.text.recovery.pieces import ArrayPieces, SlotTable, healed_array, pieces_of
from wtxtgit.text.recovery.reading import distance, read
from wtxtgit.text.recovery.transport import undone
from wtxtgit.text.write import TextWriter

_MOST_HASHED = 4 * 1024**3
"""How many bytes are hashed, over all tries, in the search for the original lines."""
_LINE_COST = 8192
"""What a line adds to the bytes of a try: formatting it takes as long as hashing that many."""
_MOST_OPTIONS = 256
"""The most candidates for one line that are tried if other lines are in doubt, too."""
_MOST_TRIES = 100_000
_MOST_VERSIONS_TRIED = 64
"""The most sets of versions tried for arrays of which no line is left."""
_MOST_COMPARED = 1 << 18
"""The most pairs of names compared in the search for the name that a wrong one was."""
_FIRST = bytes(32)
"""The merkle_prev of a first generation."""


@dataclass(slots=True)
class PartialText:
    """What is left of a text.

    `names` are those of the arrays, so far as they are known. `undone` says what a transport did to
    the text, `notes` what no hash covers and could not be kept. `snapshot` is set if all of it
    exists and is proved.
    """

    arrays: list[ArrayPieces]
    names: list[str]
    layout: Layout | None = None
    undone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Arrays that the layout needs, and of which no line is left."""
    snapshot: Snapshot | None = None


def recover(
    text: ByteView, heal: OtherCopies | None = None, known: Collection[bytes] = ()
) -> PartialText:
    """Recover as much as possible of a text of any content.

    `heal` provides bytes by their SHA-256; `known` are trusted values of hash_all (32 bytes).
    Raises TextError "syntax" if nothing of a text exists.
    """
    return recover_plain(*undone(text), heal, known)


def recover_plain(
    plain: ByteView,
    changes: tuple[str, ...],
    heal: OtherCopies | None = None,
    known: Collection[bytes] = (),
    progress: Progress | None = None,
) -> PartialText:
    """Do the same for a text that `transport.undone` returned, with the list of what that undid.

    `progress` gets counts of the text's bytes that were decoded.
    """
    found = read(plain)
    if not found.arrays and found.root is None:
        raise TextError("syntax", "nothing that looks like a WTXT text was found")
    table = SlotTable(plain)
    arrays = [pieces_of(array, table) for array in found.arrays]
    settle(arrays, table, heal, progress)
    search = _Search(found, arrays, known)
    missing = search.missing()
    if missing and heal is not None:
        heal.want((), missing)
        named = list(zip(search.names(), arrays, strict=True))
        arrays, search = _with_missing(found, named, missing, known, heal)
        missing = search.missing()
    snapshot = search.snapshot()
    names, notes = search.names(), tuple(search.notes)
    return PartialText(arrays, names, search.layout, changes, notes, missing, snapshot)


def _with_missing(
    found: FoundText,
    named: Sequence[tuple[str, ArrayPieces]],
    missing: Sequence[str],
    known: Collection[bytes],
    heal: OtherCopies,
) -> tuple[list[ArrayPieces], _Search]:
    """Return the arrays with those that other places have of the missing ones, ordered by name.

    Only the root shows whether they are the ones that were lost: the versions found are tried in
    turn. Also returns the search with the first version that is proved, else with the nearest.
    """
    nearest = None
    tries = 1
    for version in _versions(missing, heal):
        added = [(name, healed_array(*one)) for name, one in version.items()]
        arrays = [array for _, array in sorted([*named, *added], key=itemgetter(0))]
        search = _Search(found, arrays, known)
        if nearest is None:
            nearest = arrays, search
            size = sum((array.nbytes or 0) + _LINE_COST for array in arrays)
            tries = min(_MOST_VERSIONS_TRIED, max(1, _MOST_HASHED // size))
        # If something else is lost, nothing can be proved.
        if search.missing() or not all(array.is_whole for array in arrays):
            return nearest
        if search.snapshot(1) is not None:
            return arrays, search
        tries -= 1
        if tries == 0:
            break
    if nearest is None:
        arrays = [array for _, array in named]
        return arrays, _Search(found, arrays, known)
    nearest[1].notes.append(_NOT_FOUND)
    return nearest


_NOT_FOUND = (
    "no version that was tried proves the arrays whose lines are lost: "
    "--from COMMIT names another version"
)


def _versions(missing: Sequence[str], heal: OtherCopies) -> Iterator[dict[str, FoundElsewhere]]:
    """Yield sets of the missing arrays: the nearest, those of each place, then all others.

    What is found nowhere is left out.
    """
    first = {name: one for name in missing if (one := next(heal.arrays(name), None)) is not None}
    if not first:
        return
    yield first
    copies = [list(heal.arrays(name)) for name in first]
    for source in dict.fromkeys(copy[3] for chosen in copies for copy in chosen):
        yield first | {
            copy[0].name: copy for chosen in copies for copy in chosen if copy[3] == source
        }
    for chosen in product(*copies):
        yield dict(zip(first, chosen, strict=True))


class _Search:
    """The search for the lines of a text whose arrays are known."""

    def __init__(
        self, found: FoundText, arrays: Sequence[ArrayPieces], known: Collection[bytes]
    ) -> None:
        self._found = found
        self._arrays = arrays
        self._known = frozenset(known)
        self._root = lines.root_fields(found.root)
        self.notes: list[str] = []
        self._own_names = [_name_in_line(array) for array in arrays]
        self._layout_at, self.layout = self._find_layout()
        self._compared = 0
        self._nearest: dict[str, list[tuple[int, str]]] = {}
        self._likely: list[grammar.ArrayLine] = []
        """The likeliest `arr` line of each array."""

    def snapshot(self, most: int | None = None) -> Snapshot | None:
        """Return the snapshot that matches the text's hashes, None if there is none.

        `most` limits the tries.
        """
        if self.missing() or not all(array.is_whole for array in self._arrays):
            return None
        likely = [next(self._lines_of(n), None) for n in range(len(self._arrays))]
        self._likely = [line for line in likely if line is not None]
        if len(self._likely) < len(likely):
            return None
        data = [array.data() for array in self._arrays]
        for chosen in islice(self._choices(), most):
            whole = sha256()
            for line, raw in zip(chosen, data, strict=True):
                whole.update(grammar.format_array(line)[:-1])
                hashed(whole, pieces(raw))
            header = self._header(whole.digest())
            if header is not None:
                return self._put_together(chosen, data, *header)
        return None

    def missing(self) -> tuple[str, ...]:
        """Return arrays that the layout needs but that do not exist."""
        return tuple(sorted(self._layout_names.difference(self.names())))

    def names(self) -> list[str]:
        """Return the names of the arrays, so far as they are known."""
        if len(self._likely) == len(self._arrays):
            return [line.name for line in self._likely]
        return list(self._likely_names)

    @cached_property
    def _layout_names(self) -> frozenset[str]:
        """The names of the layout's arrays."""
        if self.layout is None:
            return frozenset()
        return frozenset(extent.array for extent in self.layout.extents if extent.array is not None)

    @cached_property
    def _names_in_text(self) -> list[str]:
        """The names as they stand, with that of the layout corrected."""
        names = list(self._own_names)
        if self._layout_at is not None:
            names[self._layout_at] = LAYOUT_ARRAY
        return names

    @cached_property
    def _free(self) -> list[str]:
        """The names of the layout's arrays that no array has, in order."""
        return sorted(self._layout_names.difference(self._names_in_text))

    @cached_property
    def _likely_names(self) -> list[str]:
        names = list(self._names_in_text)
        unnamed = [number for number, name in enumerate(names) if not name]
        if unnamed and len(unnamed) == len(self._free):
            # Arrays are ordered by name.
            for number, name in zip(unnamed, self._free, strict=True):
                names[number] = name
            return names
        for number, name in enumerate(names):
            if self._free and name != LAYOUT_ARRAY and name not in self._layout_names:
                near = self._near(name)
                # Only if no other is as near: names of layers differ in one digit.
                if near and (len(near) == 1 or near[0][0] < near[1][0]):
                    names[number] = near[0][1]
        return names

    def _near(self, name: str) -> list[tuple[int, str]]:
        """Return unused names that a wrong one may have been, the nearest first.

        With very many pairs of names not all are compared: then nothing is returned.
        """
        known = self._nearest.get(name)
        if known is not None:
            return known
        self._compared += len(self._free)
        near = []
        if self._compared <= _MOST_COMPARED:
            spelled = name.encode("latin-1")
            near = [
                (distance(spelled, free_name.encode()), free_name)
                for free_name in self._free
                if is_near(free_name, name)
            ]
        self._nearest[name] = sorted(near)
        return self._nearest[name]

    def _find_layout(self) -> tuple[int | None, Layout | None]:
        """Return the number of the array that is the layout, and the layout; None if there is none.

        An array counts whose `arr` line is missing, or whose name is `_layout` but for a few wrong
        characters.
        """
        for number, array in enumerate(self._arrays):
            name = self._own_names[number]
            is_likely = len(name) == len(LAYOUT_ARRAY) and is_near(LAYOUT_ARRAY, name)
            if (is_likely or array.found.line is None) and array.is_whole:
                try:
                    return number, parse_layout(bytes(array.data()))
                except TextError:
                    continue
        return None, None

    def _lines_of(self, number: int) -> Iterator[grammar.ArrayLine]:
        """Yield what the `arr` line of an array may have been."""
        array = self._arrays[number]
        line, digest, nbytes = array.found.line, array.sha256, array.nbytes
        if digest is None or nbytes is None:
            return
        claim = array.claim
        if line is None:
            if name := self._likely_names[number]:
                yield from lines.lost_lines(name, array.rows, digest, nbytes)
            return
        is_layout = number == self._layout_at
        is_wanted = not self._layout_names or (
            claim is not None
            and (claim.name == LAYOUT_ARRAY if is_layout else claim.name in self._layout_names)
        )
        if claim is not None and claim.nbytes == nbytes and is_wanted:
            hmac, salt = lines.near_zeros(claim.hmac), lines.near_zeros(claim.salt)
            likely = replace(claim, sha256=digest, hmac=hmac, salt=salt)
            # Mostly equal: use one object for both.
            yield claim if claim == likely else likely
        yield from lines.array_lines(line, digest, nbytes, self._names_of(number))

    def _names_of(self, number: int) -> list[str] | None:
        """Return possible names of an array, None if there is no layout that tells them."""
        if number == self._layout_at:
            return [LAYOUT_ARRAY]
        if self.layout is None:
            return None
        name = self._own_names[number]
        return [name] * (name in self._layout_names) + [one for _, one in self._near(name)]

    def _choices(self) -> Iterator[tuple[grammar.ArrayLine, ...]]:
        """Yield one line for each array: the likeliest, then others, one or more at a time."""
        size = sum((array.nbytes or 0) + _LINE_COST for array in self._arrays)
        most = min(_MOST_TRIES, max(64, _MOST_HASHED // max(size, 1)))
        # Failed attempts count as well: they take time.
        return (choice for choice in islice(self._all_choices(most), most) if choice is not None)

    def _all_choices(self, most: int) -> Iterator[tuple[grammar.ArrayLine, ...] | None]:
        """Yield lines in the order in which they are tried; None for combinations to be skipped."""
        first = self._likely
        yield tuple(first)
        doubtful = [
            number for number, array in enumerate(self._arrays) if first[number] != array.claim
        ]
        # Lines that can't be read as they stand, in all combinations of their candidates.
        for chosen in product(*self._options(doubtful, most)) if doubtful else ():
            yield _with(first, dict(zip(doubtful, chosen, strict=True)))
        # A line that can be read may still be wrong.
        for number in range(len(first)):
            yield None
            for line in islice(self._lines_of(number), 1, None):
                yield _with(first, {number: line})

    def _options(self, numbers: Sequence[int], most: int) -> list[list[grammar.ArrayLine]]:
        """Return candidates for lines; `most` combinations are tried, the last line's first."""
        options: list[list[grammar.ArrayLine]] = []
        count = 1
        for number in reversed(numbers):
            # For earlier lines only the likeliest candidate gets its turn.
            candidates = list(islice(self._lines_of(number), _MOST_OPTIONS if count < most else 1))
            options.append(candidates)
            count *= len(candidates)
        return options[::-1]

    def _header(self, sha256_all: bytes) -> tuple[Meta, bytes] | None:
        """Return `meta` and merkle_prev that belong to a hash_all, None if nothing proves them."""
        schema = None if self.layout is None else schema_of(self.layout.format)
        claimed, prev, this = self._root or ("", "0" * 64, "")
        parsed = grammar.parse_meta((self._found.meta or b"") + b"\n", 0)
        as_it_stands = None if parsed is None else (parsed[0], next(lines.previous(prev), _FIRST))
        if self._found.is_pending and self._root is None and as_it_stands is not None:
            # A pending text has no root: each `arr` line has to prove its array, and be unchanged.
            exact = all(p.claim is not None and p.fits_line() for p in self._arrays)
            return as_it_stands if exact or sha256_all in self._known else None
        is_proved = sha256_all in self._known or is_near(sha256_all.hex(), claimed)
        headers = lines.headers(self._found.meta, prev, this, sha256_all, schema)
        # If sha256_all is unreadable, merkle_this proves it together with the header as it stands.
        header = next(headers if is_proved else islice(headers, 1), None)
        if header is not None or not is_proved:
            return header
        if as_it_stands is not None:
            self.notes.append("merkle_this does not match meta and merkle_prev: it was recomputed")
        return as_it_stands

    def _put_together(
        self,
        chosen: Sequence[grammar.ArrayLine],
        data: Sequence[ByteView],
        meta: Meta,
        prev: bytes,
    ) -> Snapshot:
        arrays = tuple(
            Array(
                line.name,
                line.dtype,
                line.shape,
                raw,
                lines.rows_of(
                    array.found.rows_line,
                    line.dtype,
                    line.shape,
                    array.chunk_size,
                    line.nbytes,
                    is_due=self.layout is not None,
                ),
                line.hmac if any(line.hmac) else None,
                line.salt if any(line.salt) else None,
            )
            for line, raw, array in zip(chosen, data, self._arrays, strict=True)
        )
        found = self._found
        signature = audit = None
        if found.sign is not None:
            parsed_sign = grammar.parse_sign(found.sign + b"\n", 0)
            signature = None if parsed_sign is None else parsed_sign[0]
            if signature is None:
                self.notes.append("the signature can't be read")
        if found.audit is not None:
            parsed_audit = grammar.parse_audit(found.audit + b"\n", 0)
            audit = None if parsed_audit is None else parsed_audit[0]
            if audit is None:
                self.notes.append("the audit line can't be read")
        return Snapshot(
            meta,
            arrays,
            lines.caps(found.cap, self.layout is not None),
            prev,
            found.is_pending and self._root is None,
            signature,
            audit,
            self.layout,
        )


def _with(
    lines: Sequence[grammar.ArrayLine], others: Mapping[int, grammar.ArrayLine]
) -> tuple[grammar.ArrayLine, ...] | None:
    """Return the lines with some replaced, None if their names are then out of order."""
    chosen = tuple(others.get(number, line) for number, line in enumerate(lines))
    return chosen if all(a.name < b.name for a, b in pairwise(chosen)) else None


def _name_in_line(array: ArrayPieces) -> str:
    if array.claim is not None:
        return array.claim.name
    values = None if array.found.line is None else lines.fields(array.found.line, lines.KEYS)
    return "" if values is None else values[0].decode("latin-1")


def text_of(snapshot: Snapshot) -> Iterator[Buffer]:
    """Yield the text of a recovered snapshot."""
    yield from TextWriter(snapshot).stream()
