"""What a branch changes in checkpoints, as data: the contract of `review --json`.

Flags and their thresholds: `docs/review.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from wtxtgit.model.plain import JsonObject
from wtxtgit.report.diff import DiffReport, TensorDiff, TensorStatus


class Fate(StrEnum):
    """What became of a checkpoint between base and head."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"


class Risk(StrEnum):
    """What a reviewer has to look at."""

    NEW_NAN = "new-nan"
    NEW_INF = "new-inf"
    DEAD = "dead-layer"
    ZERO = "all-zero"
    CONSTANT = "constant"
    NEGATED = "negated"
    MOVED = "other-tensor"
    REORDERED = "reordered"
    COLLAPSED = "collapsed-rows"
    SATURATED = "saturated"
    NORM = "outlier-norm"
    DTYPE = "dtype-changed"
    SHAPE = "shape-changed"
    REMOVED = "tensor-removed"
    SINGLE = "single-layer"
    UNUSUAL = "unusual-change"
    CODE = "runs-code"
    REPEATED = "repeated-name"
    NAME = "misleading-name"
    HIDDEN = "hidden-bytes"
    PART = "part-changed"
    METADATA = "metadata-changed"
    UNREAD = "not-compared"
    UNSEALED = "unsealed"
    SIGNER = "unknown-signer"
    CHAIN = "broken-chain"
    OPAQUE = "opaque"
    DAMAGED = "damaged"
    POINTER = "lfs-pointer"
    RAW = "raw-binary"
    LARGE = "large-blob"


@dataclass(frozen=True, slots=True)
class Flag(JsonObject):
    """A risk, and the reason; `tensor` is the one concerned, None for the whole file."""

    risk: Risk
    message: str
    tensor: str | None = None


@dataclass(frozen=True, slots=True)
class Histogram(JsonObject):
    """Counts in bins of equal width between `low` and `high`, and counts below and above them.

    Values that are not numbers are not counted.
    """

    low: float
    high: float
    counts: tuple[int, ...]
    below: int = 0
    above: int = 0


@dataclass(frozen=True, slots=True)
class Distributions(JsonObject):
    """A changed tensor's values before and after, in the same bins, and their change.

    `change` covers only the items that changed (after - before).
    """

    before: Histogram
    after: Histogram
    change: Histogram


@dataclass(frozen=True, slots=True)
class LayerGroup(JsonObject):
    """Tensors whose names agree up to a number: `model.layers.3`, `lm_head`.

    `elements` counts those of all its tensors; `l2` and `relative_l2` cover the changed ones, as in
    a diff's summary. `added` and `removed` count tensors.
    """

    KEYS = "name tensors changed added removed elements changed_elements l2 relative_l2"

    name: str
    tensors: int
    changed: int
    elements: int
    changed_elements: int
    l2: float
    relative_l2: float | None
    added: int = 0
    removed: int = 0

    @property
    def is_touched(self) -> bool:
        """Whether anything in it was changed, added or removed."""
        return bool(self.changed or self.added or self.removed)

    @property
    def is_measured(self) -> bool:
        """Whether its change is a number, which it is not if all of it was added or removed.

        Nor is it a number if what changed was compared as bytes.
        """
        if self.changed:
            return self.changed_elements > 0 or self.relative_l2 is not None
        return not self.is_touched


class Sealing(StrEnum):
    """What the chain says of a checkpoint at the head."""

    SEALED = "sealed"
    """The last record seals the present content, and somebody trusted signed it."""
    UNTRUSTED = "untrusted"
    """Sealed, but by nobody who is trusted, or the chain does not hold."""
    STALE = "stale"
    """There is a ledger, but its last record seals other content."""
    UNSEALED = "unsealed"


@dataclass(frozen=True, slots=True)
class ReviewedGeneration(JsonObject):
    """A record of the ledger that the branch adds, and the commit that brought it."""

    gen: int
    ts: str
    commit: str | None
    signers: tuple[str, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class SealVerdict(JsonObject):
    """The verdict of the chain: `state`, its explanation, and the generations of this branch."""

    state: Sealing
    message: str
    generations: tuple[ReviewedGeneration, ...] = ()


class DeltaState(StrEnum):
    """What is known of a delta."""

    APPLIED = "applied"
    """Applied to its base, it gives the content that it states."""
    VERIFIED = "verified"
    """It is valid by itself; its base is not in the repository."""
    DAMAGED = "damaged"
    """It is not valid, by itself or on its base."""


@dataclass(frozen=True, slots=True)
class ReviewedDelta(JsonObject):
    """A delta that the branch brings: its base, by the hash of its content, and where that is.

    `base` is REV:PATH, None if the repository has no such content; `message` explains the state.
    """

    KEYS = "state message base base_sha256_all"

    state: DeltaState
    message: str
    base: str | None = None
    base_sha256_all: str | None = None


@dataclass(frozen=True, slots=True)
class Sizes(JsonObject):
    """Bytes of the file, and of the text that git stores, before and after; None where absent.

    `limit` is the largest blob that the forge accepts, None if it is not known.
    """

    file_before: int | None
    file_after: int | None
    text_before: int | None
    text_after: int | None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReviewedCommit(JsonObject):
    """A commit of the branch that changes the checkpoint: its id, subject, author and date.

    `date` is the author's, as in RFC 3339. Author and date are unproved: anybody may write anything
    into a commit.
    """

    KEYS = "commit=oid subject author date"

    oid: str
    subject: str
    author: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Reviewed(JsonObject):
    """A checkpoint that the branch changes.

    `diff` is None if the two versions can't be compared; then `reason` says why. An added or
    removed checkpoint is compared with nothing, and its tensors are listed as added or removed.
    `groups` are sorted by relative change, largest first. `distributions` are by tensor name, for
    the tensors that changed most. `delta` is set for a delta, whose `diff` is the change that it
    makes to its base.
    """

    KEYS = (
        "path change=fate base_path flags seal sizes commits reason groups diff distributions "
        "delta?"
    )

    path: bytes
    fate: Fate
    base_path: bytes | None
    diff: DiffReport | None
    reason: str | None
    groups: tuple[LayerGroup, ...]
    flags: tuple[Flag, ...]
    seal: SealVerdict
    sizes: Sizes
    commits: tuple[ReviewedCommit, ...]
    distributions: dict[str, Distributions] = field(default_factory=dict)
    delta: ReviewedDelta | None = None

    @property
    def changed(self) -> list[TensorDiff]:
        """The changed tensors, largest change first."""
        return [] if self.diff is None else self.diff.by_change()

    @property
    def others(self) -> list[TensorDiff]:
        """The tensors that were removed, added or renamed, in this order."""
        statuses = (TensorStatus.REMOVED, TensorStatus.ADDED, TensorStatus.RENAMED)
        return [] if self.diff is None else [t for status in statuses for t in self.diff.of(status)]

    @property
    def layers(self) -> list[LayerGroup]:
        """The layers in which anything was changed, added or removed."""
        return [group for group in self.groups if group.is_touched]


@dataclass(frozen=True, slots=True)
class Review(JsonObject):
    """All checkpoints that a branch changes, those with the most severe risks first.

    `base` and `head` are spelled as in the request, but the name of a generation as its commit;
    before the first push `base` is `nothing`, and `base_commit` all zeros. `base_commit` is the
    commit compared with the head (the merge base for `BASE...HEAD`), `head_commit` the head's.
    `commits` counts those of the branch.
    """

    KEYS = "base head base_commit head_commit commits artifacts notes summary"

    base: str
    head: str
    base_commit: str
    head_commit: str
    commits: int
    artifacts: tuple[Reviewed, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def flags(self) -> int:
        return sum(len(artifact.flags) for artifact in self.artifacts)

    @property
    def summary(self) -> dict[str, int]:
        diffs = [artifact.diff.summary for artifact in self.artifacts if artifact.diff is not None]
        return {
            "artifacts": len(self.artifacts),
            "flags": self.flags,
            "tensors_changed": sum(diff.counts[TensorStatus.CHANGED] for diff in diffs),
            "parameters_changed": sum(diff.changed_elements for diff in diffs),
        }


LABELS = {
    Risk.NEW_NAN: "New NaN",
    Risk.NEW_INF: "New Inf",
    Risk.DEAD: "Dead layer",
    Risk.ZERO: "All zero",
    Risk.CONSTANT: "Constant",
    Risk.NEGATED: "Negated",
    Risk.MOVED: "Values of another tensor",
    Risk.REORDERED: "Reordered",
    Risk.COLLAPSED: "Collapsed rows",
    Risk.SATURATED: "Saturated",
    Risk.NORM: "Outlier norm",
    Risk.DTYPE: "Dtype changed",
    Risk.SHAPE: "Shape changed",
    Risk.REMOVED: "Tensor removed",
    Risk.SINGLE: "Single layer",
    Risk.UNUSUAL: "Unusual change",
    Risk.CODE: "Runs code",
    Risk.REPEATED: "Repeated name",
    Risk.NAME: "Misleading name",
    Risk.HIDDEN: "Hidden bytes",
    Risk.PART: "Part changed",
    Risk.METADATA: "Metadata changed",
    Risk.UNREAD: "Not compared",
    Risk.UNSEALED: "Unsealed",
    Risk.SIGNER: "Unknown signer",
    Risk.CHAIN: "Broken chain",
    Risk.OPAQUE: "Opaque",
    Risk.DAMAGED: "Damaged",
    Risk.POINTER: "Git-lfs pointer",
    Risk.RAW: "Raw binary",
    Risk.LARGE: "Large blob",
}
SEVERE = frozenset(
    {
        Risk.NEW_NAN,
        Risk.NEW_INF,
        Risk.DEAD,
        Risk.ZERO,
        Risk.CONSTANT,
        Risk.NEGATED,
        Risk.CODE,
        Risk.REPEATED,
        Risk.NAME,
        Risk.HIDDEN,
        Risk.SIGNER,
        Risk.CHAIN,
        Risk.DAMAGED,
        Risk.POINTER,
        Risk.RAW,
        Risk.LARGE,
    }
)
"""Risks for which a merge should wait; the others need a look."""


def by_severity(flags: Iterable[Flag]) -> list[Flag]:
    """Sort flags: severe ones first, then in the order of `Risk`, then as given."""
    order = list(Risk)
    return sorted(flags, key=lambda flag: (flag.risk not in SEVERE, order.index(flag.risk)))


@dataclass(frozen=True, slots=True)
class Chip:
    """A label; `tone` is a class of the style sheet, `times` counts what it stands for."""

    label: str
    tone: str
    times: int = 1


def chip(risk: Risk, times: int = 1) -> Chip:
    """Return the label of a risk."""
    return Chip(LABELS[risk], "severe" if risk in SEVERE else "look", times)


def chips(flags: Iterable[Flag]) -> tuple[Chip, ...]:
    """Return one label for each risk among the flags, severe ones first."""
    counts = Counter(flag.risk for flag in flags)
    # Sorted by severity, then in the order of the list above: the same review makes the same page.
    ranked = sorted(counts, key=lambda risk: (risk not in SEVERE, list(Risk).index(risk)))
    return tuple(chip(risk, counts[risk]) for risk in ranked)
