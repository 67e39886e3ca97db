"""Mutations of npy files and of zips: headers, pickles, directories."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial

from tests.containers import zip_files
from tests.containers.zip_files import Entry
from tests.fuzz.mutations import bytes_mutant, text_mutant
from tests.fuzz.numbers import EXTREMES, Mutant
from tests.fuzz.pickles import pickle_mutant
from tests.fuzz.spelling import literal_mutant
from wtxtgit.containers import npy_header
from wtxtgit.errors import FormatError


def npy(data: bytes, rng: random.Random) -> bytes:
    header = npy_header.read(memoryview(data), 0, len(data))
    raw = data[: header.data].partition(b"{")[2]
    try:
        text = literal_mutant(literal_eval("{" + raw.decode("latin-1")), rng)
    except (ValueError, SyntaxError):
        text = text_mutant(b"{" + raw, rng)
    version = rng.choice(((1, 0), (1, 0), (2, 0), (3, 0), (data[6], data[7]), (4, 0)))
    text += b" " * (rng.random() < 0.5) + b"\n" * (rng.random() < 0.8)
    if len(text) >= 2**16:
        version = (2, 0)
    return zip_files.npy_text(text, data[header.data :], version)


@lru_cache(maxsize=512)
def _entries(data: bytes) -> tuple[Entry, ...]:
    """The members of a zip, to be put together again."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return tuple(
            Entry(info.filename.encode(), file.read(info), info.compress_type)
            for info in file.infolist()
        )


def zip_content(mutant: Mutant, wanted: str, data: bytes, rng: random.Random) -> bytes:
    """The content of a member whose name ends as it is `wanted`, changed."""
    entries = list(_entries(data))
    places = [n for n, e in enumerate(entries) if e.name.decode().endswith(wanted)]
    if not places:
        return zip_directory(data, rng)
    place = rng.choice(places)
    made = mutant(entries[place].content, rng)
    method = rng.choice((0, 0, 8))
    entries[place] = Entry(entries[place].name, made, method)
    if rng.random() < 0.1:
        entries[place] = replace(entries[place], size=rng.choice((0, 1, 2**20 + 1, 2**32 - 1)))
    return zip_files.zipped(entries)


def npz_npy(content: bytes, rng: random.Random) -> bytes:
    try:
        return npy(content, rng)
    except FormatError:
        return bytes_mutant(content + b"\0", rng)


def zip_directory(data: bytes, rng: random.Random) -> bytes:
    """Fields of local headers, of the directory and of its end changed."""
    entries = list(_entries(data))
    for _ in range(rng.choice((0, 1, 1, 2))):
        if entries:
            place = rng.randrange(len(entries))
            entries[place] = _other_entry(entries[place], entries, data, rng)
    if rng.random() < 0.1:
        entries.insert(0, rng.choice(entries) if entries else Entry(b"a"))
    end: dict[str, int] = {}
    if rng.random() < 0.3:
        end[rng.choice(_END_FIELDS)] = rng.choice((0, 1, 2**16 - 1, len(data) % 2**16))
    options: dict[str, bytes] = {}
    if rng.random() < 0.2:
        options["comment"] = rng.choice((b"c", b"PK\5\6" + bytes(18), b"PK\5\6"))
    if rng.random() < 0.3:
        numbers = [rng.choice((*EXTREMES, len(entries), len(data))) % 2**64 for _ in range(3)]
        field = rng.choice(("at", "disks", "record_size", "entries", "size", "offset", "disk"))
        changes = {"at": len(data) // 2, field: rng.choice((0, 1, 2**31, len(data)))}
        options["before_end"] = zip_files.zip64_end(*numbers, **changes)
    if rng.random() < 0.1:
        options["prefix"] = rng.choice((b"\0", b"PK\3\4"))
    return zip_files.zipped(entries, **options, **end)  # type: ignore[arg-type]


_END_FIELDS = ("disk", "directory_disk", "disk_entries", "entries", "size", "offset")
_SHORTS = ("method", "flags", "disk", "local_flags", "local_method")
_LONGS = ("crc32", "length", "size", "offset", "local_crc32", "local_size", "local_length")


def _other_entry(entry: Entry, entries: Sequence[Entry], data: bytes, rng: random.Random) -> Entry:
    field = rng.choice([item.name for item in fields(Entry) if item.name != "content"])
    if field in _SHORTS:
        value: object = rng.choice((0, 1, 2, 8, 12, 99, 2**11, 2**13, 2**16 - 1))
    elif field in _LONGS:
        value = rng.choice((0, 1, 2**31, 2**32 - 1, len(data), rng.randrange(len(data) + 1)))
    elif field in ("name", "local_name"):
        value = rng.choice((rng.choice(entries).name, entry.name + b"x", b"", b"\xff", b"a.npy"))
    elif field in ("extra", "local_extra"):
        wide = struct.pack("<HH3Q", 1, 24, *(rng.choice(EXTREMES) % 2**64 for _ in range(3)))
        value = rng.choice((wide, wide[:12], b"\x01\0\xff\xff", b"FB\x02\0ZZ", b"\0"))
    elif field == "payload":
        packed = zip_files.deflate(entry.content)
        value = rng.choice((packed, packed[:-1], packed + b"\0", b"", entry.content, b"\xff" * 9))
    else:
        value = rng.choice((b"PK\1\2", b"PK\3\4", b"\0\0\0\0"))
    return replace(entry, **{field: value})  # type: ignore[arg-type]


def storage(content: bytes, rng: random.Random) -> bytes:
    return rng.choice((content[:-1], content + b"\0", b"", content * 2))


def word(content: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"big", b"little", b"", b"\xff", b"4097\n", b"1", b"0", b"9" * 70, content))


NPY: tuple[Mutant, ...] = (npy,)
NPZ: tuple[Mutant, ...] = (partial(zip_content, npz_npy, ".npy"), zip_directory)
TORCH: tuple[Mutant, ...] = (
    *[partial(zip_content, pickle_mutant, "data.pkl")] * 3,
    partial(zip_content, storage, ""),
    partial(zip_content, word, "byteorder"),
    zip_directory,
)
"""What of each format is changed."""
