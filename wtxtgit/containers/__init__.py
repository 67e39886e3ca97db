"""Container formats: which one a file is, its extents, its tensors, its checks.

One package a format, loaded when a file of that format is met; none knows
another. Everything here is a pure function of the file's bytes, and nothing
in a file is executed. Of a format's package, `read` has the structure,
`check` what the structure does not prove, `write` new files.
Spec: `docs/spec/containers.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

from wtxtgit.containers import cutting, nested, opaque
from wtxtgit.containers.magic import MAX_JSON, MLCP_SHARD_MAGIC, PICKLE_MAGIC, detect
from wtxtgit.containers.ranges import MAX_TENSORS, Range
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer, ByteView
from wtxtgit.model import Cut
from wtxtgit.model.findings import Findings, MemberFindings
from wtxtgit.model.tensor import Description, Entry, Placed, ReadOptions, Tensor

__all__ = [
    "check",
    "check_members",
    "check_nested",
    "describe",
    "detect",
    "identify",
    "is_compressed",
    "is_foreign",
    "members",
    "read",
    "resealer",
    "salvage",
    "split",
    "tensors",
]

CUT_FORMATS = frozenset(
    {"fold", "aero", "mlcp", "taridx", "safetensors", "npy", "npz", "torch", "gguf"}
)
"""Formats that have a package; files of the others are stored whole."""

WITH_COMPRESSION = frozenset({"fold", "aero", "npz", "torch"})
"""Formats whose package has a `repack`: their files may be compressed or not."""

WITH_DESCRIBE = frozenset({"fold", "aero"})
"""Formats whose package has a `describe`; containers of the others describe themselves."""

RESEALED = CUT_FORMATS - {"taridx"}
"""Formats whose package has a `reseal`: files are put together of entries of several of them."""

SETS = {"aeroset": "aero.aeroset", "safetensors-index": "safetensors.sharded"}
"""Modules of files that list other files; each file of a set is stored on its own."""

_HEAD = 64
"""Bytes in which the index of a set starts."""
_DEFAULTS = ReadOptions()

OpenMember = Callable[[str], ByteView]
"""Opens a file by its path in a set; raises InputError."""


class Container(Protocol):
    """A file that a format's `read` has read."""

    def ranges(self) -> Iterable[Range]:
        """Which bytes are tensors and parts."""


class _Described(Container, Protocol):
    def describe(self, options: ReadOptions) -> Description:
        """What the file says of itself; raises FormatError."""


class _Read(Protocol):
    def read(self, data: ByteView) -> Container:
        """Read a file with the format's magic; raises FormatError."""


class _Describe(Protocol):
    def describe(self, container: Container, options: ReadOptions) -> Description:
        """What the file says of itself; raises FormatError."""


class _Check(Protocol):
    def check(self, container: Container, options: ReadOptions) -> Findings:
        """Check everything that can be checked; raises nothing."""


class Resealer(Protocol):
    """What a format's `reseal` offers."""

    def entries(self, container: Container, options: ReadOptions) -> Sequence[Entry]:
        """What a file holds by name, in its order; raises FormatError."""

    def values(self, container: Container, options: ReadOptions) -> dict[str, object]:
        """Its metadata as far as they are merged value by value; raises FormatError."""

    def rest(self, container: Container, options: ReadOptions) -> dict[str, object]:
        """What else somebody may have changed in it, by name; raises FormatError."""

    def reseal(
        self,
        container: Container,
        placed: Sequence[Placed],
        values: Mapping[str, object] | None,
        options: ReadOptions,
    ) -> Iterator[Buffer]:
        """The file with these entries, and other values where they are given.

        Raises FormatError, before the first piece, for what can't be put together.
        """


class _Whole(Protocol):
    """A module that reads files which are stored whole."""

    REASON: str

    def describe(self, data: ByteView, options: ReadOptions) -> Description:
        """What the file says of itself; raises FormatError."""

    def check(self, data: ByteView) -> Findings:
        """Check everything that can be checked; raises nothing."""


class _Set(Protocol):
    """A set of files that was read."""

    @property
    def members(self) -> tuple[str, ...]:
        """The paths of its files."""

    def describe(self, options: ReadOptions) -> Description:
        """What the set says of itself; raises FormatError."""

    def check(self, options: ReadOptions) -> Findings:
        """Check everything that can be checked; raises nothing."""

    def check_members(self, paths: Iterable[str], options: ReadOptions) -> Iterator[MemberFindings]:
        """Check files of the set, each by itself and against the index; raises nothing."""

    def combine(self, members: Iterable[MemberFindings]) -> Findings:
        """What a check of all files, in their order, says of the set."""


class _SetFormat(Protocol):
    def is_index(self, data: ByteView) -> bool:
        """Whether a JSON file is an index of such a set."""

    def read(self, data: ByteView, open_member: OpenMember) -> _Set:
        """Read the index; raises FormatError."""


def split(data: ByteView) -> Cut:
    """Cut a file into extents that give its bytes when put together.

    `data` is the whole file as flat bytes; the arrays are views of it. A file
    that can't be read becomes opaque, with the reason: no content raises.
    """
    name = detect(data)
    if name not in CUT_FORMATS:
        return opaque.split(data, _why_whole(data, name))
    try:
        return cutting.cut(name, data, _read(name, data).ranges())
    except FormatError as error:
        return opaque.split(data, error.message)


def identify(data: ByteView) -> str | None:
    """What a file is, sets and what is stored whole included; None where unknown."""
    name = detect(data)
    if name == "opaque" and _legacy_torch(data) is not None:
        return "torch"
    return name if name != "opaque" else _set_of(data)


def describe(
    data: ByteView, options: ReadOptions = _DEFAULTS, open_member: OpenMember | None = None
) -> Description:
    """List a file's tensors and metadata; a file of no known format has none.

    `open_member` opens what a set lists; without it a set is not looked into.
    Raises FormatError where the file has a format's magic and can't be read.
    """
    name = detect(data)
    if name in CUT_FORMATS:
        return _describe(name, _read(name, data), options)
    index = _set_of(data) if open_member is not None else None
    if index is not None and open_member is not None:
        return _set_format(index).read(data, open_member).describe(options)
    legacy = _legacy_torch(data)
    if legacy is not None:
        return legacy.describe(data, options)
    reason = _why_whole(data, name)
    if is_foreign(data):
        raise FormatError(reason, offset=0, field="magic")
    return Description("opaque", metadata={"reason": reason})


def is_compressed(data: ByteView) -> bool:
    """Whether parts of a file are compressed, and could be stored plain; nothing is decoded."""
    if detect(data) not in WITH_COMPRESSION:
        return False
    parts = describe(data, ReadOptions(max_chunk=0)).parts
    return any(part.is_compressed for part in parts) and not any(p.is_encrypted for p in parts)


def salvage(data: ByteView, options: ReadOptions = _DEFAULTS) -> Description | None:
    """What is left of a file that its writer did not finish; None of any other."""
    if detect(data) != "fold":
        return None
    from wtxtgit.containers.fold import describe as fold

    return fold.describe_unfinalized(data, options) if fold.is_unfinalized(data) else None


def check_nested(description: Description, options: ReadOptions = _DEFAULTS) -> Findings:
    """Check the files in a container's chunks, which `check` of the container does not."""
    findings = Findings()
    for chunk in description.nested:
        try:
            data = nested.opened(chunk)
        except FormatError as error:
            findings.refuse(error, chunk=chunk.name)
            continue
        if data is None:
            continue
        for problem in check(data, options).errors:
            findings.error(problem.kind, problem.message, field=problem.field, chunk=chunk.name)
    return findings


def tensors(
    description: Description,
    options: ReadOptions = _DEFAULTS,
    untold: list[str] | None = None,
) -> Iterator[Tensor]:
    """All tensors of a file, those of files in its chunks as `chunk/tensor`.

    What is decoded for it is given up again, tensors that are kept decode
    theirs when they are read. A chunk that can't be decoded or read has none:
    `untold` is given the reason, and what else the chunks hold beside tensors.
    Raises FormatError (limit) for too many tensors or too long names.
    """
    told = [] if untold is None else untold
    yield from description.tensors
    count = characters = 0
    for chunk in description.nested:
        for tensor in nested.tensors(chunk, describe, options, told):
            count += 1
            characters += len(tensor.name)
            if count > MAX_TENSORS or characters > MAX_JSON:
                raise FormatError("chunks list too many tensors", kind="limit", field="tensors")
            yield tensor


def check(
    data: ByteView,
    options: ReadOptions = _DEFAULTS,
    open_member: OpenMember | None = None,
    checked: Iterable[MemberFindings] | None = None,
) -> Findings:
    """Check all that a file says of its own bytes: structure, limits, hashes.

    A file of no known format has an error of kind "structure". Where files of
    a set were `checked` already, in their order, they are not checked again.
    """
    name = detect(data)
    index = _set_of(data) if open_member is not None else None
    try:
        if name in CUT_FORMATS:
            checker = cast(_Check, import_module(f"{__name__}.{name}.check"))
            return checker.check(_read(name, data), options)
        if index is not None and open_member is not None:
            listed = _set_format(index).read(data, open_member)
            return listed.check(options) if checked is None else listed.combine(checked)
        legacy = _legacy_torch(data)
        if legacy is not None:
            return legacy.check(data)
        raise FormatError(_why_whole(data, name), offset=0, field="magic")
    except FormatError as error:
        findings = Findings()
        findings.refuse(error)
        return findings


def members(data: ByteView, open_member: OpenMember) -> tuple[str, ...]:
    """The paths of a set's files; none of any other file, or where the index can't be read."""
    index = _set_of(data)
    if index is None:
        return ()
    try:
        return _set_format(index).read(data, open_member).members
    except FormatError:
        return ()


def check_members(
    data: ByteView, paths: Iterable[str], options: ReadOptions, open_member: OpenMember
) -> list[MemberFindings]:
    """Check files of the set whose index is `data`, by their paths among `members`.

    Raises FormatError where the index can't be read or lists no such file.
    """
    index = _set_of(data)
    if index is None:
        raise FormatError("no index of a set", offset=0, field="magic")
    listed = _set_format(index).read(data, open_member)
    wanted = tuple(paths)
    if not set(wanted) <= set(listed.members):
        raise FormatError("the set has other files than before", offset=0, field="path")
    return list(listed.check_members(wanted, options))


def is_foreign(data: ByteView) -> bool:
    """Whether a file has the magic of a format that is refused by its name."""
    return data[: len(MLCP_SHARD_MAGIC)] == MLCP_SHARD_MAGIC


def _set_of(data: ByteView) -> str | None:
    """Which set a JSON file is the index of."""
    if bytes(data[:_HEAD]).lstrip()[:1] != b"{" or detect(data) != "opaque":
        return None
    return next((name for name in SETS if _set_format(name).is_index(data)), None)


def _set_format(name: str) -> _SetFormat:
    return cast(_SetFormat, import_module(f"{__name__}.{SETS[name]}"))


def _legacy_torch(data: ByteView) -> _Whole | None:
    """The module that reads torch files from before its zips, where the file is one."""
    if data[: len(PICKLE_MAGIC)] != PICKLE_MAGIC:
        return None
    module = import_module(f"{__name__}.torch.legacy")
    return cast(_Whole, module) if module.is_legacy(data) else None


def resealer(name: str) -> Resealer | None:
    """What puts files of a format together, None where nothing does."""
    if name not in RESEALED:
        return None
    return cast(Resealer, import_module(f"{__name__}.{name}.reseal"))


def read(data: ByteView) -> Container:
    """Read a file of a format that has a package; raises FormatError."""
    name = detect(data)
    if name not in CUT_FORMATS:
        raise FormatError(_why_whole(data, name), offset=0, field="magic")
    return _read(name, data)


def _read(name: str, data: ByteView) -> Container:
    return cast(_Read, import_module(f"{__name__}.{name}.read")).read(data)


def _describe(name: str, container: Container, options: ReadOptions) -> Description:
    if name in WITH_DESCRIBE:
        module = cast(_Describe, import_module(f"{__name__}.{name}.describe"))
        return module.describe(container, options)
    return cast(_Described, container).describe(options)


def _why_whole(data: ByteView, name: str) -> str:
    if name != "opaque":
        return f"{name} is stored whole"
    legacy = _legacy_torch(data)
    if legacy is not None:
        return legacy.REASON
    if is_foreign(data):
        return "file is a .shard file (magic RAHS), which is not read, not an MLCP checkpoint"
    return "file has no known magic" if len(data) else "file is empty"
