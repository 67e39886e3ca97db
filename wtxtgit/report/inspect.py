"""What a file holds, as data: the contract of `inspect --json`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wtxtgit.errors import NotRead
from wtxtgit.model.plain import JsonObject
from wtxtgit.report.review import Histogram


@dataclass(frozen=True, slots=True)
class Statistics(JsonObject):
    """Statistics of a tensor's `count` numbers; those that are NaN or infinite are only counted.

    `min` and `max` are exact, and integers for integers. `std` is that of the population. These and
    the mean are None if no number is finite. The real and imaginary parts of complex items are
    numbers of their own, booleans are 0 and 1.
    """

    KEYS = "count min max mean std zeros zeros_share nan inf"

    count: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    zeros: int
    nan: int
    inf: int

    @property
    def zeros_share(self) -> float:
        """The share of zeros, of either sign, among all numbers."""
        return self.zeros / self.count


@dataclass(frozen=True, slots=True)
class TensorPicture:
    """What a page draws of a tensor: a histogram of its values, and where they are large.

    `cells` are the root mean squares of blocks of rows and columns, one tuple for each block of
    rows. Rows are those of the first dimension, `columns` counts the items of a row. A cell is None
    if no number in its block is finite.
    """

    histogram: Histogram
    rows: int
    columns: int
    cells: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class FilePart(JsonObject):
    """A piece of a container: its position, and the array of the text that holds it.

    `detail` is what the container says of it, `children` are the tensors of a file in the part.
    """

    KEYS = "offset size kind array? name? dtype? shape? detail? children=listed?"

    offset: int
    size: int
    kind: str
    array: str | None = None
    name: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    detail: str | None = None
    children: tuple[str, ...] = ()

    @property
    def is_gap(self) -> bool:
        """Whether the bytes are only filling between tensors and parts."""
        return self.array is None or re.fullmatch(r"_gap(__[0-9]+)?", self.array) is not None

    @property
    def listed(self) -> tuple[str, ...] | None:
        return self.children or None


@dataclass(frozen=True, slots=True)
class TensorFacts(JsonObject):
    """A tensor as its file lists it.

    `sha256` (hex) is the hash of its bytes in C order, little-endian, however they are stored.
    `array` is its name in the text, as it appears in `git log -L` and hunk headers. `absent` says
    why there are no bytes.
    """

    KEYS = "name dtype shape order=other_order? size offset? array? sha256? statistics? absent?"

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    sha256: str | None = None
    offset: int | None = None
    array: str | None = None
    order: str = "C"
    statistics: Statistics | None = None
    absent: str | None = None
    picture: TensorPicture | None = None

    @property
    def other_order(self) -> str | None:
        return None if self.order == "C" else self.order


@dataclass(frozen=True, slots=True)
class Inspection(JsonObject):
    """What a file holds. `reason` says why it is stored whole, if it is."""

    KEYS = "path format size stored_as reason? notes=listed? parts tensors metadata"

    path: str
    format: str
    size: int
    stored_as: str
    reason: str | None = None
    parts: tuple[FilePart, ...] = ()
    tensors: tuple[TensorFacts, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[str, ...] | None:
        return self.notes or None

    @property
    def exit_code(self) -> int:
        """0, or what a command ends with that could not read all of the file, or of its set."""
        reasons = (self.reason, *(tensor.absent for tensor in self.tensors))
        return max((one.exit_code for one in reasons if isinstance(one, NotRead)), default=0)
