"""Second readers of FOLD, AERO, AEROSET, MLCP and TARIDX, straight from the pages of their makers.

They look at what a reader needs, in the way that is nearest, and check next to nothing: what they
give for a damaged file says what somebody would have read. Anything may be raised.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgpack
import reedsolo
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Reading = object
"""What a file holds, to be compared with what another one holds."""


def fold(data: bytes, key: bytes | None = None) -> Reading:
    """The chunks by name, of equal names the last, each with type and content; all contents."""
    magic, _, offset, length = struct.unpack_from(">8sIQQ", data)
    assert magic == b"FOLDv1\0\0"
    index = json.loads(data[offset : offset + length])
    assert index["format"] == "fold"
    found = [(entry["name"], _fold_chunk(data, entry, key)) for entry in index["chunks"]]
    if "chunk_hashes" not in index["metadata"]:
        # Nothing in the oldest files says whether a name, or the order, is right.
        return {content for _, content in found}
    # Of equal names `chunk_hashes` speak for the last one: names of the others nothing confirms.
    return dict(found), {content for _, content in found}


def _fold_chunk(data: bytes, entry: dict[str, Any], key: bytes | None) -> tuple[str, bytes]:
    ctype, flags, uncomp, comp, _, ecc = struct.unpack_from(">4sIQQII", data, entry["offset"])
    start = entry["offset"] + 32
    payload, parity = data[start : start + comp], data[start + comp : start + comp + ecc]
    if ecc and sha256(payload).hexdigest() != entry["sha256"].rpartition(":")[2]:
        n = int(entry["ecc_algo"][3:-1])
        payload = _mended(payload, parity, n)
    if entry.get("encrypted"):
        assert key is not None
        nonce = bytes.fromhex(entry["nonce_hex"])
        payload = AESGCM(key).decrypt(nonce, payload, entry["aad"].encode())
    if flags == 1:
        payload = zstandard.ZstdDecompressor().decompress(payload, uncomp)
    assert len(payload) == uncomp
    return ctype.decode(), payload


def _mended(payload: bytes, parity: bytes, n: int) -> bytes:
    codec, block = reedsolo.RSCodec(n), 255 - n
    mended = b""
    for number, at in enumerate(range(0, len(payload), block)):
        word = payload[at : at + block] + parity[number * n : (number + 1) * n]
        try:
            mended += bytes(codec.decode(word)[0])
        except reedsolo.ReedSolomonError:
            # An HMAC is told apart from a damaged payload by its key alone.
            mended += payload[at : at + block]
    return mended


def aero(data: bytes) -> Reading:
    """The tensors by name, each with dtype, shape and bytes."""
    chunks, tensors = _aero(data)
    return {
        entry["name"]: _aero_tensor(chunks[b"weights.shard%d" % entry["shard_id"]], entry)
        for entry in reversed(tensors)
    }


def _aero(data: bytes) -> tuple[dict[bytes, bytes], list[dict[str, Any]]]:
    """The weight shards by name, and the entries of the first index."""
    header = struct.unpack_from("<4sHHIQQQQQ", data)
    assert header[:4] == (b"AERO", 0, 1, 96)
    toc, _, names, _, flags = header[4:]
    assert not flags
    shards: dict[bytes, bytes] = {}
    index: list[dict[str, Any]] | None = None
    for place in range(struct.unpack_from("<I", data, toc)[0]):
        entry = struct.unpack_from("<4sIQQQII", data, toc + 16 + 80 * place)
        fourcc, chunk_flags, offset, length, ulen, name_off, name_len = entry
        if fourcc not in (b"TIDX", b"WTSH"):
            continue
        content = data[offset : offset + length]
        if chunk_flags & 1:
            content = zstandard.ZstdDecompressor().decompress(content, ulen)
        assert len(content) == ulen
        name = data[names + name_off : names + name_off + name_len]
        if fourcc == b"WTSH":
            shards.setdefault(name, content)
        elif index is None:
            index = msgpack.unpackb(content)["tensors"]
    return shards, index or []


def _aero_tensor(shard: bytes, entry: dict[str, Any]) -> tuple[object, ...]:
    held = shard[entry["data_off"] : entry["data_off"] + entry["data_len"]]
    assert len(held) == entry["data_len"]
    return entry["dtype"], tuple(entry["shape"]), held


def aeroset(index: bytes, members: Mapping[str, bytes]) -> Reading:
    """The tensors of all parts, each part held against its hash and size."""
    value = json.loads(index)
    assert value["format"]["name"] == "AEROSET"
    homes: dict[int, dict[str, Any]] = {}
    for member in (*value["parts"], value["global_tidx"]):
        data = members[member["path"]]
        assert len(data) == member["size_bytes"]
        assert sha256(data).hexdigest() == member["sha256"]
        homes |= dict.fromkeys(member.get("shards", ()), member)
    _, tensors = _aero(members[value["global_tidx"]["path"]])
    found = {}
    for entry in tensors:
        part = homes[entry["shard_id"]]
        shards, _ = _aero(members[part["path"]])
        number = part["shards"].index(entry["shard_id"])
        found[entry["name"]] = _aero_tensor(shards[b"weights.shard%d" % number], entry)
    return found


def mlcp(data: bytes) -> Reading:
    """The records of each shard that the metadata list: name, dtype, shape and size."""
    assert data[:4] == b"PCLM"
    _, at = _net_string(data, 4)
    (length,) = struct.unpack_from("<i", data, at)
    metadata = json.loads(data[at + 4 : at + 4 + length].decode())
    at += 4 + length
    shards = []
    for _ in metadata["shards"] or ():
        (count,) = struct.unpack_from("<i", data, at)
        at += 4
        records = []
        for _ in range(count):
            (length,) = struct.unpack_from("<i", data, at)
            name = data[at + 4 : at + 4 + length].decode()
            dtype, at = _net_string(data, at + 4 + length)
            (rank,) = struct.unpack_from("<i", data, at)
            *shape, size = struct.unpack_from(f"<{rank}qq", data, at + 4)
            at += 4 + 8 * rank + 8
            records.append((name, dtype, shape, size))
        shards.append(records)
    return shards


def _net_string(data: bytes, at: int) -> tuple[str, int]:
    length = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return data[at : at + length].decode(), at + length


def taridx(data: bytes, tars: list[bytes]) -> Reading:
    """The members that rows lead to: crash stem, name in the tar, extension and bytes."""
    (magic, *_, n_rows, n_ext, n_crash, off_crash, off_arr, _, _) = struct.unpack_from(
        "<8sHHHHQQIIQQB7s", data
    )
    assert magic == b"TARIDX\0\0"
    extensions = data[64:off_crash].decode().split("\n") if n_ext else []
    stems = [None, *(data[off_crash:off_arr].decode().split("\n") if n_crash else [])]
    assert len(data) == off_arr + 32 * n_rows
    members = set()
    for place in range(n_rows):
        row = struct.unpack_from("<HQQHIQ", data, off_arr + 32 * place)
        fid, offset, size, extid, crashid, keyhash = row
        held = tars[fid][offset + 512 : offset + 512 + size]
        name = tars[fid][offset : offset + 100]
        assert len(held) == size
        members.add((keyhash, stems[crashid], name, extensions[extid], held))
    return members


def outcome(read: Callable[[], Reading]) -> Reading:
    """What a reader gives, or what it raises, as a text."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - of readers that check nothing anything may come
        return f"{type(error).__name__}: {error}"
