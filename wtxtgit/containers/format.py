"""What the product knows of a container format: one record, which the format's package exports.

Nothing outside of a package knows its format by name: what a format can do,
how its files are called, which of its metadata follow from its tensors stands
in its record. A record is made when the product starts, so the modules that
do the work are named in it, and loaded when they are first used.
Which formats there are, and in which order they are tried, is in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from wtxtgit.containers.cursor import quoted
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.view import Buffer, ByteView

if TYPE_CHECKING:  # names in signatures: a start loads only what it needs
    from wtxtgit.containers.cursor import ListingBudget
    from wtxtgit.containers.ranges import Range
    from wtxtgit.containers.tar_index import TarIndexing
    from wtxtgit.model.findings import Findings, MemberFindings
    from wtxtgit.model.salvage import Salvage
    from wtxtgit.model.tensor import (
        Description,
        Entry,
        NamedPart,
        PlacedEntry,
        ReadOptions,
        TensorSource,
    )

T_co = TypeVar("T_co", covariant=True)

OpenMember = Callable[[str], ByteView]
"""Opens a file by its path in a set; raises InputError.

Also where a symbolic link leads out of the set's folder, which a path does not show.
"""


@dataclass(frozen=True, slots=True)
class SetFolder:
    """The same, with the name of the index: files of some sets are called after it.

    `elsewhere` opens a file that is not there, by the URL of the set's folder that the index says
    and its path; None where nothing is fetched.
    """

    open: OpenMember
    index: Callable[[], str]
    elsewhere: Callable[[str, str], ByteView] | None = None

    def __call__(self, path: str) -> ByteView:
        return self.open(path)


def name_of_index(open_member: OpenMember) -> str:
    """What the index of a set is called, without its folder; nothing where it has no name."""
    return open_member.index() if isinstance(open_member, SetFolder) else ""


def in_same_folder(folder: OpenMember, open_member: OpenMember) -> SetFolder:
    """`open_member`, which opens files as `folder` does, and does more."""
    elsewhere = folder.elsewhere if isinstance(folder, SetFolder) else None
    return SetFolder(open_member, partial(name_of_index, folder), elsewhere)


# Files that an index may list: each is opened. Writers number them with five digits.
MAX_SET_FILES = 99_999
# Bytes at the start of an index that tell that it is one: files of all kinds are asked, and a large
# JSON file is not read for that.
SET_HEAD = 1 << 16
KeyPath = tuple[str, ...]
"""Keys that lead to a value of the metadata, ANY for each item of a list."""
ANY = "*"
_ZIP_NAME_LENGTH = slice(26, 28)
_ZIP_NAME_START = 30


class Lazy(Generic[T_co]):
    """A module of a format's package, imported when it is first called for."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> T_co:
        return cast(T_co, import_module(self.path))


def is_in_folder(path: str) -> bool:
    """Whether a path of a set's index stays in its folder, in its one spelling; a URL does not."""
    # One spelling a path: two members of a set must not be the same file.
    return not (set(path.split("/")) & {"", ".", ".."} or set(path) & set("\\:\0"))


def opened_member(open_member: OpenMember, path: str, field: str, *, called: str = "") -> ByteView:
    """The bytes of a file of a set; raises FormatError at the `field` of the index that names it.

    `called` is the set's word for such a file, if it has one.
    """
    try:
        return open_member(path)
    except InputError as error:
        message = f"{called}{quoted(path)} can't be opened: {error.message}"
        raise FormatError(message, field=field) from None


def unlisted(file: str, names: Collection[str]) -> Iterator[str]:
    """Words on the tensors of a file of a set that its index has not there, if there are any."""
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"the index does not list {quoted(min(names))}{more} in {quoted(file)}"


def every_tag(_key: str) -> bool:
    """The `keeps_tag` of formats that hold tags of all names."""
    return True


def below(place: KeyPath, *keys: str) -> tuple[KeyPath, ...]:
    """The paths of keys that stand at one place of the metadata."""
    return tuple((*place, key) for key in keys)


class MemberNames(NamedTuple):
    """Names of a zip's members; where it has no directory that can be read, the first one alone."""

    names: tuple[str, ...]
    is_whole: bool


class Opening:
    """What detection looks at: the first bytes of a file, and the names in a zip."""

    def __init__(self, data: ByteView) -> None:
        self.data = data
        self.head = bytes(data[:_ZIP_NAME_START])

    @cached_property
    def zip(self) -> MemberNames:
        """The names of a zip's members, read once for all formats that ask."""
        from wtxtgit.containers import zip_read  # only zips need it

        try:
            members = zip_read.read(self.data).members
        except FormatError:
            # A file that was cut off is still known by its first member: it is told as damaged.
            length = int.from_bytes(self.head[_ZIP_NAME_LENGTH], "little")
            first = bytes(self.data[_ZIP_NAME_START : _ZIP_NAME_START + length])
            return MemberNames((first.decode("ascii", "replace"),), is_whole=False)
        return MemberNames(tuple(member.name for member in members), is_whole=True)


class Container(Protocol):
    """A file that a format's `read` has read."""

    def ranges(self) -> Iterable[Range]:
        """Which bytes are tensors and parts."""


class Describer(Protocol):
    """What a file says of itself."""

    def describe(self, container: Any, options: ReadOptions) -> Description:
        """Tensors and metadata of a file that was read; raises FormatError."""


class FileReader(Protocol):
    """What every format has: how its files are read."""

    def read(self, data: ByteView) -> Container:
        """Read a file with the format's magic; raises FormatError."""


class Checker(Protocol):
    """What every format has: what reading a file does not prove."""

    def check(self, container: Any, options: ReadOptions) -> Findings:
        """Check everything that can be checked; raises nothing."""


class FileWriter(Protocol):
    """How tensors become a file of the format.

    `DTYPES` has the format's own name of each element of `model.elements`
    that it can hold.
    """

    DTYPES: Mapping[str, object]

    def build_model(
        self, tensors: Sequence[TensorSource], tags: Mapping[str, str]
    ) -> Iterator[Buffer]:
        """The file's bytes; raises FormatError before the first of them.

        Of a format that `lists_only` it takes `inline_data`, too, and its `write_options`.
        """


class SetWriter(Protocol):
    """How tensors become a set of files."""

    def build_set(
        self, tensors: Sequence[TensorSource], tags: Mapping[str, str], stem: str, max_shard: int
    ) -> Iterable[tuple[str, Iterator[Buffer]]]:
        """Names and bytes of the set's files, its index last; raises FormatError before them."""


class Resealer(Protocol):
    """How files are taken apart by name and put together again: what merging needs."""

    def entries(self, container: Any, options: ReadOptions) -> Sequence[Entry]:
        """What a file holds by name, in its order; raises FormatError."""

    def values(self, container: Any, options: ReadOptions) -> dict[str, object]:
        """Its metadata as far as they are merged value by value; raises FormatError."""

    def rest(self, container: Any, options: ReadOptions) -> dict[str, object]:
        """What else somebody may have changed in it, by name; raises FormatError."""

    def reseal(
        self,
        container: Any,
        placed: Sequence[PlacedEntry],
        values: Mapping[str, object] | None,
        options: ReadOptions,
    ) -> Iterator[Buffer]:
        """The file with these entries, and other values where they are given.

        Raises FormatError, before the first piece, for what can't be put together.
        """


class ValueRules(Protocol):
    """What becomes of values that both sides of a merge changed, whatever the checkpoint is."""

    def ruled(
        self, chunk: str | None, pointer: str, ours: object, theirs: object
    ) -> tuple[object, str] | None:
        """The value that is taken, and a word for why; None where no rule speaks of it.

        `pointer` is the JSON pointer to it in the chunk, or of the file's metadata in none.
        """


class Repacker(Protocol):
    """How a file is stored with another compression, `COMPRESSIONS` are those that there are."""

    COMPRESSIONS: Sequence[str]

    def repack(self, container: Any, compression: str, options: ReadOptions) -> Iterator[Buffer]:
        """The file with another compression; raises FormatError."""


class SignedFields(Protocol):
    """Files with fields that sign the rest, or how it is stored."""

    def broken_by_repack(self, container: Any) -> tuple[str, ...]:
        """Fields that repacking keeps, and that do not hold for what it gives."""

    def broken_by_reseal(self, container: Any) -> tuple[str, ...]:
        """Fields that resealing keeps, and that do not hold for what it gives."""


class Salvager(Protocol):
    """What is left of files that were damaged, or cut off."""

    def salvage(self, data: ByteView, options: ReadOptions) -> Salvage:
        """Which tensors are whole, and what is lost; the file need not be one that `read` takes.

        Raises FormatError where what says which tensors there are can't be read.
        """


class UnfinishedReader(Protocol):
    """What there is of files that their writer did not finish."""

    def is_unfinalized(self, data: ByteView) -> bool:
        """Whether a file with the format's magic was not finished."""

    def describe_unfinalized(self, data: ByteView, options: ReadOptions) -> Description:
        """What it holds; raises FormatError."""


class Parity(Protocol):
    """Files that are mended from what they hold beside their content."""

    def has_parity(self, container: Any) -> bool:
        """Whether a file holds parity: then reading a tensor may have to mend it."""

    def repair(
        self, data: ByteView, options: ReadOptions
    ) -> tuple[Iterator[Buffer], list[str], list[str]]:
        """The file mended, in pieces; names of chunks mended, and of those that can't be.

        The file need not be one that `read` takes. Raises FormatError for what can't be mended.
        """


class PartLister(Protocol):
    """What of a file has a name beside its tensors."""

    def named_parts(self, container: Any, options: ReadOptions) -> Iterator[NamedPart]:
        """Its chunks, members or values; nothing is decoded before it is asked for."""


class ChunkValues(Protocol):
    """Metadata in chunks of their own, beside those of the index."""

    def chunk_values(self, data: ByteView, options: ReadOptions) -> Iterator[tuple[str, object]]:
        """Names of such chunks and their values, those that can be read."""


class WholeFiles(Protocol):
    """Files of the format that are stored whole, `REASON` says why."""

    REASON: str

    def claims(self, data: ByteView) -> bool:
        """Whether the file's first bytes say that it is one."""

    def describe(
        self, data: ByteView, options: ReadOptions, listing: ListingBudget | None = None
    ) -> Description:
        """What the file says of itself; raises FormatError."""

    def check(self, data: ByteView) -> Findings:
        """Check everything that can be checked; raises nothing."""


class FileSet(Protocol):
    """A set of files whose index was read."""

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of its files."""

    def describe(self, options: ReadOptions) -> Description:
        """What the set says of itself; raises FormatError."""

    def check(self, options: ReadOptions) -> Findings:
        """Check every file, and the index against them; raises nothing."""
        return self.combine(self.check_members(self.members, options))

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files of the set, each by itself and against the index; raises nothing."""

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """What a check of all files, in their order, says of the set."""


class SetReader(Protocol):
    """How the file that lists the files of a set is read, JSON or a pickle."""

    def is_index(self, data: ByteView) -> bool:
        """Whether such a file is an index of such a set."""

    def read(self, data: ByteView, open_member: OpenMember) -> FileSet:
        """Read the index; raises FormatError."""


class ListedFile(NamedTuple):
    """What the index of a set says of a file of it, by its path in the set; None is not said."""

    path: str
    size: int | None
    sha256: bytes | None


class SetResealer(Protocol):
    """How the index of a set follows from its files."""

    def reseal_set(self, data: ByteView, open_member: OpenMember) -> tuple[str, bytes, bytes]:
        """Path and bytes of a file that lists tensors, and the bytes of what lists the files.

        `data` is that one as it was. Raises FormatError.
        """

    def listed_files(self, data: ByteView, open_member: OpenMember) -> Sequence[ListedFile]:
        """The files of the set that `data` lists; none of them is opened. Raises FormatError."""


class IndexMaker(Protocol):
    """What names of files tell of a set without an index."""

    def make_index(self, names: Sequence[str]) -> ByteView | None:
        """An index of the set that the names of a folder's files tell; None where they tell none.

        Raises InputError where they tell several.
        """


class NestedReader(Protocol):
    """How a file that stands in a chunk of another one is read."""

    def read(self, data: ByteView, listing: ListingBudget, /) -> Container:
        """Read the file: what it lists counts in the outer one's `listing`; raises FormatError."""


class ArrayWriter(Protocol):
    """How numpy's arrays, of any dtypes that the format has, become a file."""

    def can_hold(self, name: str) -> bool:
        """Whether the file can hold an array of this name."""

    def write_arrays(self, file: IO[bytes], arrays: Mapping[str, Any]) -> None:
        """Write the file; raises UsageError for a dtype that it has not."""


class Format(NamedTuple):
    """A container format. `name`, `read`, `describe` and `check` are there for each.

    Spec: the format's page, `docs/spec/NAME.md`.
    """

    name: str
    """What layouts of texts, reports and messages call it."""
    read: Lazy[FileReader]
    describe: Lazy[Describer]
    check: Lazy[Checker]

    magic: bytes = b""
    """The first bytes of all its files, empty where only `claims` can tell."""
    claims: Callable[[Opening], bool] | None = None
    """Whether a file that starts so means to be of the format; None where its magic says that."""
    refused: Mapping[bytes, str] | None = None
    """Magics of other files of its makers, and what to say of these; they are opaque."""
    endings: tuple[str, ...] = ()
    """Endings of its files' names, in lower case with their dot."""

    write: Lazy[FileWriter] | None = None
    write_options: frozenset[str] = frozenset()
    """Which of `ecc`, `tensor_hashes` and `page_size` `write` takes as well, of sets too."""
    holds_quantised: bool = False
    """Whether `write` takes tensors of ggml's quantised types (`model.ggml.QUANTISED`)."""
    write_set: Lazy[SetWriter] | None = None
    write_arrays: Lazy[ArrayWriter] | None = None
    keeps_tag: Callable[[str], bool] | None = None
    """Whether a file that is written can hold a tag of this name; None where it holds none."""
    sole_name: str | None = None
    """What the one tensor of a file is called where the format has one and no name for it."""
    wraps_tensors: bool = False
    """Whether `write` puts a file into a chunk: its tensors are called `chunk/tensor`."""
    lists_only: bool = False
    """Whether `write` leaves the bytes of tensors out unless it is told `inline_data`."""

    reseal: Lazy[Resealer] | None = None
    adds_last: bool = False
    """Whether what comes to a file stands behind what it has, whatever the order elsewhere."""
    value_rules: Lazy[ValueRules] | None = None
    repack: Lazy[Repacker] | None = None
    signed: Lazy[SignedFields] | None = None
    unfinished: Lazy[UnfinishedReader] | None = None
    salvage: Lazy[Salvager] | None = None
    parity: Lazy[Parity] | None = None

    whole: Lazy[WholeFiles] | None = None
    whole_magic: bytes = b""
    """First bytes that all its files which are stored whole share, with others."""

    set_name: str = ""
    """What a set of files of the format is called in reports."""
    read_set: Lazy[SetReader] | None = None
    reseal_set: Lazy[SetResealer] | None = None
    index_endings: tuple[str, ...] = ()
    """Endings of the names of its sets' indexes: a folder with such a file is a set."""
    make_index: Lazy[IndexMaker] | None = None
    part_endings: tuple[str, ...] = ()
    """Endings of the names of files that only the index of their set tells how to read."""

    derived: tuple[KeyPath, ...] = ()
    """Metadata that follow from the tensors: a comparison leaves them out."""
    derived_of_set: tuple[KeyPath, ...] = ()
    tags_apart: bool = False
    """Whether the tags that a file describes are not in its metadata."""
    chunk_values: Lazy[ChunkValues] | None = None
    chunks_as_tags: tuple[str, ...] = ()
    """Such chunks that files of other formats keep as tags, and that come of such tags again."""
    parts: Lazy[PartLister] | None = None

    nested: Lazy[NestedReader] | None = None
    """What reads such a file in a chunk of another one; None where it is not looked into."""

    tar_index: Lazy[TarIndexing] | None = None
    """What `wtxtgit taridx` works with: a format whose files index the members of tars."""
