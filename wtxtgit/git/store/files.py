"""The files of an object store: its folder, the folders it borrows from, and pack indexes.

gitrepository-layout(5): the objects folder, and others that `info/alternates` names, which may name
more in turn.

gitformat-pack(5), "Version 2 pack-*.idx files": an eight-byte header; 256 counts of ids, each for a
first byte up to that number; the sorted ids; a CRC-32 of each packed object; offsets of 31 bits;
63-bit offsets, which the former may point to; and two hashes, of the pack and of the index.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.held import held, is_stale
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import make_folder, opened_regular

PACKS = "pack"
"""The folder of packs in the objects folder."""
_KEEP = ".keep"
_MOST_BORROWED = 64
_MOST_ALTERNATES = 1024 * 1024
_READ_ONLY = 0o444
_WRITING = 0o222
_GROUP, _ALL = 0o660, 0o664
_SHARED = {
    "umask": 0, "false": 0, "no": 0, "0": 0,
    "group": _GROUP, "true": _GROUP, "yes": _GROUP, "1": _GROUP,
    "all": _ALL, "world": _ALL, "everybody": _ALL, "2": _ALL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Places:
    """Where a repository's objects are: new ones go to `folder`, `borrowed` are read as well.

    `algorithm`, sha1 or sha256, makes object ids. `shared` are permission bits that files get
    beyond the user's umask (core.sharedRepository).
    """

    folder: Path
    borrowed: tuple[Path, ...]
    algorithm: str
    shared: int

    @classmethod
    def of(cls, repo: Repository) -> Places:
        """Ask git where a repository's objects are; raises EnvironmentFailure."""
        algorithm = repo.object_format
        if algorithm not in ("sha1", "sha256"):
            raise EnvironmentFailure(
                f"this repository uses the object format {algorithm}, which is not supported"
            )
        folder = repo.git_path("objects")
        shared = _shared(repo.config.get("core.sharedRepository") or "")
        return cls(folder, tuple(_borrowed(folder)), algorithm, shared)

    @property
    def digest_size(self) -> int:
        """The size of an object id in bytes."""
        return hashlib.new(self.algorithm, usedforsecurity=False).digest_size

    @property
    def all(self) -> tuple[Path, ...]:
        return (self.folder, *self.borrowed)

    def new_hash(self) -> hashlib._Hash:
        # This makes git's object ids; texts are verified by their own SHA-256.
        return hashlib.new(self.algorithm, usedforsecurity=False)

    def make_folder(self, name: str) -> Path:
        """Return a folder below the objects folder, created if missing."""
        folder = self.folder / name
        with write_failures(folder):
            make_folder(folder, self.shared)
        return folder

    @contextlib.contextmanager
    def temporary(self, folder: Path, prefix: str) -> Iterator[tuple[int, Path]]:
        """Open an empty file for reading and writing.

        It is removed at the end unless it was moved.
        """
        # Imported here: most readers of objects never write one.
        import tempfile

        with write_failures(folder):
            descriptor, name = tempfile.mkstemp(prefix=prefix, dir=folder)
        path = Path(name)
        try:
            yield descriptor, path
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)

    def put(self, temporary: Path, path: Path) -> None:
        """Move a complete file to its name, read-only.

        An existing file has the same content and stays.
        """
        with write_failures(path):
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(_READ_ONLY & ~mask | self.shared & ~_WRITING)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
            except OSError:
                # For file systems without hard links.
                temporary.rename(path)
            else:
                temporary.unlink()


@contextlib.contextmanager
def kept(pack: Path) -> Iterator[None]:
    """Keep git from removing a pack, given without ending, whose objects nothing reaches yet.

    git-repack(1): a pack with a `.keep` file stays as it is. Enter the block before the pack has
    its name, and leave it when the index or refs name the objects.
    """
    with contextlib.ExitStack() as closing:
        with write_failures(pack), contextlib.suppress(FileExistsError):
            closing.enter_context(held(pack.with_suffix(_KEEP)))
        yield


def stale_keeps(repo: Repository) -> list[Path]:
    """List the `.keep` files that killed processes of ours left."""
    return [*filter(is_stale, (repo.git_path("objects") / PACKS).glob(f"*{_KEEP}"))]


def _shared(value: str) -> int:
    """Return the permission bits that a value of core.sharedRepository means, git-config(1)."""
    bits = _SHARED.get(value.lower())
    # git-config(1), core.sharedRepository: a word, or permissions as an octal number.
    if bits is not None:
        return bits
    with contextlib.suppress(ValueError):
        return int(value, 8) & 0o666
    return 0


def _borrowed(folder: Path) -> Iterator[Path]:
    """Yield alternates, each once, nearest first."""
    seen = {folder}
    waiting = [folder]
    variable = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    first = [Path(name).absolute() for name in variable.split(os.pathsep) if name]
    # Alternates may refer to each other in a circle.
    while waiting and len(seen) < _MOST_BORROWED:
        folder_read = waiting.pop(0)
        listed = [folder_read / line for line in _lines(folder_read / "info" / "alternates")]
        for path in (*first, *listed):
            place = Path(os.path.normpath(path))
            # gitrepository-layout(5): relative paths start from the objects folder that names them.
            if place not in seen:
                seen.add(place)
                waiting.append(place)
                yield place
        first = []


def _lines(path: Path) -> list[str]:
    try:
        with opened_regular(path, follow_links=True) as (descriptor, _):
            content = os.read(descriptor, _MOST_ALTERNATES)
    except OSError:
        return []
    lines = content.split(b"\n")
    return [os.fsdecode(line) for line in lines if line and not line.startswith((b"#", b'"'))]


@contextlib.contextmanager
def write_failures(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise EnvironmentFailure(f"{path}: can't be written: {reason}") from error


_HEAD = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = 256
_TABLE = len(_HEAD) + 4 * _FANOUT
_FAR = 1 << 31
_SMALL = 256 * 1024


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object in a pack: its offset, and the CRC-32 of its bytes there."""

    oid: bytes
    offset: int
    crc32: int


def format_index(objects: Sequence[PackedObject], pack_hash: bytes, places: Places) -> bytes:
    """Build the index of a pack that ends with `pack_hash`; `objects` has no id twice."""
    ordered = sorted(objects, key=lambda packed: packed.oid)
    counts = [0] * _FANOUT
    for packed in ordered:
        counts[packed.oid[0]] += 1
    fanout = struct.pack(f">{_FANOUT}I", *accumulate(counts))
    near: list[int] = []
    far: list[int] = []
    # Offsets from 2 GiB on are in a second table; the highest bit marks an index into it.
    for packed in ordered:
        if packed.offset < _FAR:
            near.append(packed.offset)
        else:
            near.append(_FAR | len(far))
            far.append(packed.offset)
    content = b"".join(
        (
            _HEAD,
            fanout,
            *(packed.oid for packed in ordered),
            struct.pack(f">{len(ordered)}I", *(packed.crc32 for packed in ordered)),
            struct.pack(f">{len(ordered)}I", *near),
            struct.pack(f">{len(far)}Q", *far),
            pack_hash,
        )
    )
    digest = places.new_hash()
    digest.update(content)
    return content + digest.digest()


class PackIndex:
    """A pack's index, for lookups. A malformed index yields no objects."""

    def __init__(self, path: Path, digest_size: int) -> None:
        self.pack = path.with_suffix(".pack")
        self._size = digest_size
        self._count = 0
        self._data: bytes | mmap.mmap
        with opened_regular(path, follow_links=True) as (descriptor, status):
            if status.st_size > _SMALL:
                self._data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            else:
                # A mapping keeps its descriptor open, and there may be very many packs.
                self._data = os.read(descriptor, _SMALL)
        if self._data[: len(_HEAD)] == _HEAD and len(self._data) >= _TABLE:
            (count,) = struct.unpack_from(">I", self._data, _TABLE - 4)
            # The file has to hold all ids, checksums and offsets before any of them is looked up.
            if _TABLE + count * (digest_size + 8) + 2 * digest_size <= len(self._data):
                self._count = count

    def offset(self, oid: bytes) -> int | None:
        """Return an object's offset in the pack; None if it is not there."""
        if not self._count:
            return None
        first = oid[0]
        low = self._number(len(_HEAD) + 4 * (first - 1)) if first else 0
        high = min(self._number(len(_HEAD) + 4 * first), self._count)
        number = bisect_left(range(high), oid, lo=min(low, high), key=self._oid)
        if number >= high or self._oid(number) != oid:
            return None
        offsets = _TABLE + self._count * (self._size + 4)
        # If the highest bit is set, this is a position in the table of long offsets.
        near = self._number(offsets + 4 * number)
        if near < _FAR:
            return near
        place = offsets + 4 * self._count + 8 * (near - _FAR)
        if place + 8 > len(self._data) - 2 * self._size:
            return None
        return int.from_bytes(self._data[place : place + 8], "big")

    def _oid(self, number: int) -> bytes:
        start = _TABLE + number * self._size
        return self._data[start : start + self._size]

    def _number(self, place: int) -> int:
        return int.from_bytes(self._data[place : place + 4], "big")
