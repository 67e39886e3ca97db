"""The figures that `docs/scale.md` plans with, and what follows from them: arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.growth import VERSIONS
from bench.measure import MIB, BenchError, Row

FILES = 10**14
"""Bytes of the files of which one version is planned for."""
SHARD = 256 * MIB
COMMITS = 10**6
THREADS = 256
STORAGE = 10e9
"""Bytes a second that the storage gives all workers together."""
_TEXT = 79 / 57
_HOUR = 3600.0


@dataclass(frozen=True)
class Figures:
    """Of one run, in bytes, seconds and shares; `docs/scale.md` has the letters' meanings."""

    p: float
    d: float
    w: float
    v: float
    a: float
    c: float

    @classmethod
    def of(cls, parts: Mapping[str, Sequence[Row]], threads: int, commits: int) -> Figures:
        """Raises BenchError where a row that they follow from is not there."""

        def row(part: str, name: str) -> Row:
            found = next((row for row in parts.get(part, ()) if row.name == name), None)
            if found is None:
                raise BenchError(f"the plan wants {name!r} of the part {part!r}")
            return found

        added, verified = row("git", "wtxtgit add"), row("cluster", "verify files here")
        audited, again = row("audit", "audit --no-cache"), row("audit", "audit, again")
        grown = row("growth", "git gc, texts")
        p = _share(added)
        # Of the versions after the first one, which is stored whole.
        d = (_share(grown) * VERSIONS - p) / (VERSIONS - 1)
        return cls(
            p=p,
            d=d,
            w=_rate(added),
            v=_rate(verified) / threads,
            a=_rate(audited) / threads,
            c=again.median / commits,
        )

    def tables(self) -> dict[str, str]:
        """What `docs/scale.md` has a place for."""
        return {"figures": self.figures(), "files": self.files(), "commits": self.commits()}

    def figures(self) -> str:
        """The figures that the formulas take."""
        rows = (
            ("p", "pack for each byte of a file, floats, no deltas", f"{self.p:.2f}"),
            (
                "d",
                "pack for each byte of a file of which 1% of the rows changed, after `git gc`",
                f"{self.d:.3f}",
            ),
            ("w", "bytes of files that `wtxtgit add` takes in a second, two cores", _rated(self.w)),
            (
                "v",
                "bytes of files whose texts a thread verifies in a second",
                _rated(self.v),
            ),
            (
                "a",
                "bytes of files that a thread of an audit takes from git and verifies in a second",
                _rated(self.a),
            ),
            (
                "c",
                "time of an audit for a commit about whose blobs everything is known, one thread",
                f"{self.c * 1000:.1f} ms",
            ),
        )
        return _table(("", "what", "here"), rows)

    def files(self) -> str:
        """100 TB."""
        work, audit = FILES / (THREADS * self.v), FILES / (THREADS * self.a)
        stored = self.p * FILES / STORAGE
        rows = (
            ("on disk, one version", "p F", _size(self.p * FILES)),
            ("text that goes through filters and hashes", "t F", _size(_TEXT * FILES)),
            ("adding it once, one machine of two cores", "F / w", _time(FILES / self.w)),
            (
                f"verifying files in a store, T = {THREADS}",
                "the longer of F / (T v) and F / B",
                _longer(work, FILES / STORAGE),
            ),
            (
                f"auditing all of it, T = {THREADS}",
                "the longer of F / (T a) and p F / B",
                _longer(audit, stored),
            ),
            (
                "threads that B is enough for, in an audit",
                "B / (p a)",
                f"{STORAGE / self.p / self.a:.0f}",
            ),
            ("a full clone at 1 GB/s", "p F", _time(self.p * FILES / 1e9)),
        )
        return _table(("", "formula", ""), rows)

    def commits(self) -> str:
        """A million commits."""
        each = COMMITS * SHARD
        rows = (
            ("walking them in an audit, nothing to read", "10^6 c", _time(COMMITS * self.c)),
            (
                "blobs, each commit one shard of 256 MiB with 1% of its rows changed, after gc",
                "10^6 d 256 MiB",
                _size(each * self.d),
            ),
            ("the same before gc", "10^6 p 256 MiB", _size(each * self.p)),
            ("the same, all rows changed", "10^6 p 256 MiB", _size(each * self.p)),
            (
                f"auditing their blobs, T = {THREADS}",
                "10^6 x 256 MiB / (T a)",
                _time(each / (THREADS * self.a)),
            ),
        )
        return _table(("", "formula", ""), rows)


def _share(row: Row) -> float:
    """Bytes that were left for each byte of the files."""
    if row.stored is None or row.rate is None:
        raise BenchError(f"it is unknown how much {row.name!r} left")
    return row.stored / (_rate(row) * row.median)


def _rate(row: Row) -> float:
    if row.rate is None:
        raise BenchError(f"{row.name!r} has no rate")
    return row.rate * 1e6


def _rated(rate: float) -> str:
    return f"{rate / 1e9:.2f} GB"


def _size(count: float) -> str:
    return f"{count / 1e12:.3g} TB"


def _time(seconds: float) -> str:
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.3g} hours"
    return f"{seconds / 60:.0f} minutes"


def _longer(work: float, storage: float) -> str:
    return f"{_time(work)} of work; B = {STORAGE / 1e9:.0f} GB/s: {_time(storage)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
