"""What the rest of the program knows of a container format: a record that its package exports.

Nothing outside of a package refers to its format by name: its record says what the format can do,
how its files are named, and which of its metadata follow from its tensors. Records are made when
the program starts, so they name the modules that do the work, which are loaded on first use. Which
formats there are, and in which order they are tried, is in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from wtxtgit.containers.cursor import quoted
from wtxtgit.errors import FormatError, InputError
from wtxtgit.io.view import Buffer, ByteView

if TYPE_CHECKING:  # only for annotations: a start loads only what it needs
    from wtxtgit.containers.cursor import ListingBudget
    from wtxtgit.containers.intervals import Span
    from wtxtgit.containers.ranges import Range
    from wtxtgit.containers.tar_index import TarIndexing
    from wtxtgit.containers.zip_read import Directory
    from wtxtgit.model.findings import Findings, MemberFindings
    from wtxtgit.model.salvage import Salvage
    from wtxtgit.model.tensor import (
        Description,
        Document,
        Entry,
        NamedPart,
        PlacedEntry,
        ReadOptions,
        TensorSource,
    )

T_co = TypeVar("T_co", covariant=True)

OpenMember = Callable[[str], ByteView]
"""Opens a file by its path in a set; raises InputError.

Also if a symbolic link leads out of the set's folder, which a path does not show.
"""


@dataclass(frozen=True, slots=True)
class SetFolder:
    """Opens files of a set, and knows the name of its index: files of some sets are named after it.

    `elsewhere` opens a file that is not in the folder, given the URL of the set's folder that the
    index says and the path in it; None if nothing may be fetched.
    """

    open: OpenMember
    index: Callable[[], str]
    elsewhere: Callable[[str, str], ByteView] | None = None

    def __call__(self, path: str) -> ByteView:
        return self.open(path)


def name_of_index(open_member: OpenMember) -> str:
    """Return the name of a set's index, without its folder; "" if it has none."""
    return open_member.index() if isinstance(open_member, SetFolder) else ""


def in_same_folder(folder: OpenMember, open_member: OpenMember) -> SetFolder:
    """Return `open_member`, which wraps `folder`, with the attributes of `folder`."""
    elsewhere = folder.elsewhere if isinstance(folder, SetFolder) else None
    return SetFolder(open_member, partial(name_of_index, folder), elsewhere)


# The most files that an index may list: each is opened. Writers number them with five digits.
MAX_SET_FILES = 99_999
# An index is recognised by this many bytes at its start: files of all kinds are examined, and a
# large JSON file must not be read for that.
SET_HEAD = 1 << 16
KeyPath = tuple[str, ...]
"""Keys that lead to a value of the metadata, ANY for each item of a list."""
ANY = "*"
_ZIP_NAME_LENGTH = slice(26, 28)
_ZIP_NAME_START = 30


class Lazy(Generic[T_co]):
    """A module of a format's package, imported when it is first called."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> T_co:
        return cast(T_co, import_module(self.path))


def is_in_folder(path: str) -> bool:
    """Whether a path in a set's index stays in its folder, in its one spelling; no URL does."""
    # One spelling per path: two members of a set must not be the same file.
    return not (set(path.split("/")) & {"", ".", ".."} or set(path) & set("\\:\0"))


def opened_member(open_member: OpenMember, path: str, field: str, *, called: str = "") -> ByteView:
    """Return the bytes of a file of a set; raises FormatError at the index's `field` that names it.

    `called` is the set's word for such a file, if it has one.
    """
    try:
        return open_member(path)
    except InputError as error:
        message = f"{called}{quoted(path)} can't be opened: {error.message}"
        raise FormatError.because(message, error, field=field) from None


def unlisted(file: str, names: Collection[str]) -> Iterator[str]:
    """Yield words on tensors in a file of a set that its index does not list there, if any."""
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"the index does not list {quoted(min(names))}{more} in {quoted(file)}"


def every_tag(_key: str) -> bool:
    """The `keeps_tag` of formats that can hold any tag."""
    return True


def below(place: KeyPath, *keys: str) -> tuple[KeyPath, ...]:
    """Return the paths of keys below one place of the metadata."""
    return tuple((*place, key) for key in keys)


class MemberNames(NamedTuple):
    """Names of a zip's members; only the first one if its directory can't be read."""

    names: tuple[str, ...]
    is_whole: bool


class Opening:
    """What detection uses: the first bytes of a file, and the names in a zip."""

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
            # A truncated file is still recognised by its first member, and reported as damaged.
            length = int.from_bytes(self.head[_ZIP_NAME_LENGTH], "little")
            first = bytes(self.data[_ZIP_NAME_START : _ZIP_NAME_START + length])
            return MemberNames((first.decode("ascii", "replace"),), is_whole=False)
        return MemberNames(tuple(member.name for member in members), is_whole=True)


class Container(Protocol):
    """A file that a format's `read` has read; a base class of what the formats' `read` return.

    Only `ranges` has to be defined. The other methods tell a comparison of files (`leftovers`) what
    ranges do not say.
    """

    __slots__ = ()

    def ranges(self) -> Iterable[Range]:
        """Return the ranges of bytes that are tensors and parts."""

    def used_spans(self) -> Iterable[Span]:
        """Yield all bytes that mean something, as [start, end), where ranges are too coarse."""
        return ((one.start, one.end) for one in self.ranges())

    def is_padding(self, start: int, end: int) -> bool:
        """Whether zeros in this gap between used spans are padding; in some formats any are."""
        return True

    def unlisted_parts(self) -> Collection[str]:
        """Return roles of parts that neither the metadata nor `cat` show."""
        return ()

    def part_orders(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Yield orders of the parts besides that of their ranges, each with a word for it."""
        return ()

    def tensor_shards(self) -> Iterable[tuple[str, int]]:
        """Yield names of tensors, and in which shard of the file each is."""
        return ()

    def part_digests(self) -> Iterable[tuple[int, int, bytes]]:
        """Yield start, size and digest of parts of which only something is compared as a part."""
        return ()

    def zip_directory(self) -> Directory | None:
        """Return the members of a zip; None for a file that is none."""
        return None

    def tensor_members(self) -> Iterable[str]:
        """Yield names of a zip's members whose bytes are in tensors, besides those in ranges."""
        return ()

    def member_folder(self) -> str:
        """Return what all names of a zip's members start with, if the format prescribes that."""
        return ""


class Describer(Protocol):
    """Describes the content of files."""

    def describe(self, container: Any, options: ReadOptions) -> Description:
        """Return tensors and metadata of a file that was read; raises FormatError."""


class FileReader(Protocol):
    """Required for every format: reads its files."""

    def read(self, data: ByteView) -> Container:
        """Read a file with the format's magic; raises FormatError."""


class Checker(Protocol):
    """Required for every format: checks what reading a file does not prove."""

    def check(self, container: Any, options: ReadOptions) -> Findings:
        """Check everything that can be checked; raises nothing."""


class FileWriter(Protocol):
    """Writes tensors to a file of the format.

    `DTYPES` has the format's own name of each element of `model.dtypes` that it can hold.
    """

    DTYPES: Mapping[str, object]

    def build_model(
        self, tensors: Sequence[TensorSource], tags: Mapping[str, str]
    ) -> Iterator[Buffer]:
        """Yield the file's bytes; raises FormatError before the first of them.

        It also takes the format's `write_options`, and `inline_data` if the format `lists_only`.
        """


class SetWriter(Protocol):
    """Writes tensors to a set of files."""

    def build_set(
        self, tensors: Sequence[TensorSource], tags: Mapping[str, str], stem: str, max_shard: int
    ) -> Iterable[tuple[str, Iterator[Buffer]]]:
        """Yield names and bytes of the set's files, index last; raises FormatError before them."""


class Resealer(Protocol):
    """Takes files apart by name and puts them together again, as merging needs it."""

    def entries(self, container: Any, options: ReadOptions) -> Sequence[Entry]:
        """Return what a file holds by name, in its order; raises FormatError."""

    def values(self, container: Any, options: ReadOptions) -> dict[str, object]:
        """Return the metadata that are merged value by value; raises FormatError."""

    def rest(self, container: Any, options: ReadOptions) -> dict[str, object]:
        """Return, by name, what else somebody may have changed in it; raises FormatError."""

    def reseal(
        self,
        container: Any,
        placed: Sequence[PlacedEntry],
        values: Mapping[str, object] | None,
        options: ReadOptions,
    ) -> Iterator[Buffer]:
        """Yield the file with these entries, and other values if given.

        Raises FormatError, before the first piece, for what can't be put together.
        """


class RestReader(Protocol):
    """Reads what else somebody may have changed in a file, as resealers do."""

    def rest(self, container: Any, options: ReadOptions) -> dict[str, object]:
        """Return it by name; raises FormatError."""


class DocumentLister(Protocol):
    """Lists the documents of a file, JSON and MessagePack, whose spelling is compared."""

    def documents(self, container: Any, options: ReadOptions) -> Iterator[Document]:
        """Yield them, decoded, as far as they can be read."""


class ValueRules(Protocol):
    """Decides values that both sides of a merge changed, by rules that hold for any checkpoint."""

    def ruled(
        self, chunk: str | None, pointer: str, ours: object, theirs: object
    ) -> tuple[object, str] | None:
        """Return the value to take and a word for the reason; None if no rule applies.

        `pointer` is the JSON pointer to it in the chunk; without a chunk, in the file's metadata.
        """


class Repacker(Protocol):
    """Stores a file with another compression; `COMPRESSIONS` are those that it knows."""

    COMPRESSIONS: Sequence[str]

    def repack(self, container: Any, compression: str, options: ReadOptions) -> Iterator[Buffer]:
        """Yield the file with another compression; raises FormatError."""


class SignedFields(Protocol):
    """Knows fields that sign the rest of a file, or the way in which it is stored."""

    def broken_by_repack(self, container: Any) -> tuple[str, ...]:
        """Return fields that repacking keeps although they don't hold for the result."""

    def broken_by_reseal(self, container: Any) -> tuple[str, ...]:
        """Return fields that resealing keeps although they don't hold for the result."""


class Salvager(Protocol):
    """Recovers tensors from files that were damaged or truncated."""

    def salvage(self, data: ByteView, options: ReadOptions) -> Salvage:
        """Return which tensors are whole and what is lost; `read` may refuse the file.

        Raises FormatError if the list of tensors can't be read.
        """


class UnfinishedReader(Protocol):
    """Reads files that their writer did not finish."""

    def is_unfinalized(self, data: ByteView) -> bool:
        """Whether a file with the format's magic was not finished."""

    def describe_unfinalized(self, data: ByteView, options: ReadOptions) -> Description:
        """Describe what the file holds; raises FormatError."""


class Parity(Protocol):
    """Mends files from the redundancy that they contain."""

    def has_parity(self, container: Any) -> bool:
        """Whether a file has parity, so that reading a tensor may involve mending it."""

    def repair(
        self, data: ByteView, options: ReadOptions
    ) -> tuple[Iterator[Buffer], list[str], list[str]]:
        """Return the mended file in pieces, the mended chunks, and those that can't be mended.

        Chunks are given by name. `read` may refuse the file. Raises FormatError if it can't be told
        which chunks there are.
        """


class PartLister(Protocol):
    """Lists the named parts of a file besides its tensors."""

    def named_parts(self, container: Any, options: ReadOptions) -> Iterator[NamedPart]:
        """Yield its chunks, members or values; nothing is decoded before it is asked for."""


class ChunkValues(Protocol):
    """Reads metadata in separate chunks, besides those of the index."""

    def chunk_values(self, data: ByteView, options: ReadOptions) -> Iterator[tuple[str, object]]:
        """Yield names and values of such chunks, so far as they can be read."""


class WholeFiles(Protocol):
    """Handles files of the format that are stored whole; `REASON` says why."""

    REASON: str

    def read(self, data: ByteView) -> Any:
        """Read a file; raises FormatError."""

    def claims(self, data: ByteView) -> bool:
        """Whether the file's first bytes claim that it is one."""

    def describe(
        self, data: ByteView, options: ReadOptions, listing: ListingBudget | None = None
    ) -> Description:
        """Describe the file; raises FormatError."""

    def check(self, data: ByteView) -> Findings:
        """Check everything that can be checked; raises nothing."""


class FileSet(Protocol):
    """A set of files whose index was read."""

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of its files."""

    def describe(self, options: ReadOptions) -> Description:
        """Describe the set; raises FormatError."""

    def check(self, options: ReadOptions) -> Findings:
        """Check every file, and the index against the files; raises nothing."""
        return self.combine(self.check_members(self.members, options))

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files of the set, each by itself and against the index; raises nothing."""

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """Return the findings of the set from those of all its files, in their order."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedFiles(FileSet):
    """Files that make up a model; `open_member` opens them when they are needed."""

    files: tuple[str, ...]
    open_member: OpenMember

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of the files."""
        return self.files


class SetReader(Protocol):
    """Reads the file that lists the files of a set, a JSON file or a pickle."""

    def is_index(self, data: ByteView) -> bool:
        """Whether such a file is an index of a set of this format."""

    def read(self, data: ByteView, open_member: OpenMember) -> FileSet:
        """Read the index; raises FormatError."""


class ListedFile(NamedTuple):
    """What the index of a set says of one of its files, by its path in the set; None if unsaid."""

    path: str
    size: int | None
    sha256: bytes | None


class SetResealer(Protocol):
    """Makes the index of a set anew from its files."""

    def reseal_set(self, data: ByteView, open_member: OpenMember) -> tuple[str, bytes, bytes]:
        """Return path and bytes of the file that lists tensors, and new bytes of the list of files.

        `data` is the former list of files. Raises FormatError.
        """

    def unsealed(self, data: ByteView) -> dict[str, object]:
        """Return what the file that lists tensors, given by its bytes, says of its own: all that
        does not follow from the parts. Raises FormatError.
        """

    def listed_files(self, data: ByteView, open_member: OpenMember) -> Sequence[ListedFile]:
        """Return the files of the set that `data` lists, unopened; raises FormatError."""


class IndexMaker(Protocol):
    """Recognises a set without an index by the names of its files."""

    def make_index(self, names: Sequence[str]) -> ByteView | None:
        """Return an index of the set that a folder's file names show, None if they show none.

        Raises InputError if the names make up several sets.
        """


class NestedReader(Protocol):
    """Reads a file that stands in a chunk of another one."""

    def read(self, data: ByteView, listing: ListingBudget, /) -> Container:
        """Read the file, counting what it lists in the outer file's `listing`.

        Raises FormatError.
        """


class Format(NamedTuple):
    """A container format; each has `name`, `read`, `describe` and `check`.

    Spec: the format's page, `docs/spec/NAME.md`.
    """

    name: str
    """The format's name in layouts of texts, reports and messages."""
    read: Lazy[FileReader]
    describe: Lazy[Describer]
    check: Lazy[Checker]

    magic: bytes = b""
    """The first bytes of all its files; empty if only `claims` can recognise them."""
    claims: Callable[[Opening], bool] | None = None
    """Whether a file with this start claims to be of the format; None if `magic` decides."""
    refused: Mapping[bytes, str] | None = None
    """Magics of related files that are not read, each with the reason; such files are opaque."""
    endings: tuple[str, ...] = ()
    """Endings of the names of its files, in lower case and with the dot."""

    write: Lazy[FileWriter] | None = None
    write_options: frozenset[str] = frozenset()
    """Which of the options `ecc`, `tensor_hashes` and `page_size` `write` has; also for sets."""
    holds_quantised: bool = False
    """Whether `write` accepts tensors of ggml's quantised types (`model.ggml.QUANTISED`)."""
    write_set: Lazy[SetWriter] | None = None
    keeps_tag: Callable[[str], bool] | None = None
    """Whether a file that is written can have a tag of this name; None if it can have no tags."""
    sole_name: str | None = None
    """The name for the tensor of a file, in a format of single tensors without names."""
    wraps_tensors: bool = False
    """Whether `write` puts the tensors into a file in a chunk: then they are `chunk/tensor`."""
    lists_only: bool = False
    """Whether `write` lists tensors without their bytes unless `inline_data` is set."""

    reseal: Lazy[Resealer] | None = None
    adds_last: bool = False
    """Whether `reseal` puts added entries last, whatever their order in other files."""
    value_rules: Lazy[ValueRules] | None = None
    repack: Lazy[Repacker] | None = None
    signed: Lazy[SignedFields] | None = None
    unfinished: Lazy[UnfinishedReader] | None = None
    salvage: Lazy[Salvager] | None = None
    parity: Lazy[Parity] | None = None

    whole: Lazy[WholeFiles] | None = None
    reseal_whole: Lazy[Resealer] | None = None
    rest_whole: Lazy[RestReader] | None = None
    whole_magic: bytes = b""
    """The start that all its files that are stored whole have in common, perhaps with others."""

    set_name: str = ""
    """The name of a set of files of the format in reports."""
    read_set: Lazy[SetReader] | None = None
    reseal_set: Lazy[SetResealer] | None = None
    index_endings: tuple[str, ...] = ()
    """Endings of the names of its sets' indexes: a folder with such a file is a set."""
    make_index: Lazy[IndexMaker] | None = None
    part_endings: tuple[str, ...] = ()
    """Endings of the names of files that can only be read with the index of their set."""

    derived: tuple[KeyPath, ...] = ()
    """Metadata that follow from the tensors, which a comparison therefore leaves out."""
    derived_of_set: tuple[KeyPath, ...] = ()
    has_hashes: bool = False
    """Whether files can hold hashes of their tensors, which `check` compares with their bytes."""
    tags_apart: bool = False
    """Whether a file's tags are not part of its metadata."""
    chunk_values: Lazy[ChunkValues] | None = None
    chunks_as_tags: tuple[str, ...] = ()
    """Names of chunks that become tags in files of other formats, and chunks again from tags."""
    rest: Lazy[RestReader] | None = None
    """For a comparison, where that is more than bytes of no part; of zips these are all."""
    parts: Lazy[PartLister] | None = None
    documents: Lazy[DocumentLister] | None = None

    nested: Lazy[NestedReader] | None = None
    """Reads a file of the format inside a chunk; None if such files are not examined."""

    tar_index: Lazy[TarIndexing] | None = None
    """The functions for `wtxtgit taridx`, for a format whose files index the members of tars."""
