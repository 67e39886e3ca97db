"""What an AERO file says of itself: its tensors and its metadata chunks.

Nothing is judged here: a metadata chunk that can't be read is left out. Spec: `docs/spec/aero.md`,
"Tensors and metadata".
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import islice

from wtxtgit.containers import json_text, msgpack_limits
from wtxtgit.containers.aero.content import MAX_NAMES, NAMES_A_BYTE, content
from wtxtgit.containers.aero.read import (
    FLAGS_KEY,
    HASH_KEY,
    JSON,
    MANIFEST,
    METADATA,
    PACKED,
    PAGES,
    SHARD,
    VERSION,
    Aero,
    AeroChunk,
    IndexEntry,
)
from wtxtgit.containers.budget import DecodedParts
from wtxtgit.containers.cursor import check_inside, fail, quoted
from wtxtgit.containers.json_text import is_text
from wtxtgit.containers.spelling import within_limit
from wtxtgit.errors import FormatError, NotRead
from wtxtgit.io.view import Buffer, ByteView, pieces
from wtxtgit.model import ggml
from wtxtgit.model.tensor import (
    Description,
    Document,
    NamedPart,
    PackedBytes,
    PartNote,
    ReadOptions,
    Tensor,
)

# The largest metadata chunk that is listed with its content: a report holds all of it at once.
# Larger ones are named, not shown.
MAX_SHOWN = 2**22
# Number of tensors whose additional index keys are listed.
MOST_EXTRA = 1000
# Longest tag in characters: other formats hold short texts.
MAX_TAG = 1000

OTHER_FILE = "its shard is in another file"
NAME_TAG, ARCHITECTURE_TAG = "model_name", "architecture"
SOURCE_KEY = "source_format"
"""Says in which order the dimensions of this file's shapes are, so it is not a tag."""
GGUF = "gguf"
CODECS_KEY = "quant_descriptors"
CODEC_KEY, PARAMS_KEY = "quant_id", "quant_params"
"""Keys of an index entry for its codec: the number of a descriptor, or the parameters."""
GGML_CODEC, TYPE_KEY = "ggml", "ggml_type"
MANIFEST_KEYS = frozenset({"format", "model", "chunks", "shards"})


class TensorReader:
    """The tensors of a file's index; compressed shards are decoded when they are read."""

    def __init__(self, aero: Aero, options: ReadOptions, decoded: DecodedParts) -> None:
        self._aero = aero
        self._most = options.max_chunk
        self._decoded = decoded
        json = mjsn(aero)
        self.order = shape_order(json)
        self._codecs = _codecs(json)

    def tensor(self, entry: IndexEntry, shard_id: int) -> Tensor:
        """Return the tensor that `entry` describes, in the shard of that number."""
        absent = None
        offset = None
        content: ByteView | PackedBytes = self._aero.data[:0]
        shard = self._aero.shard(shard_id)
        if shard is None:
            absent = OTHER_FILE
        elif shard.is_compressed and shard.ulen > self._most:
            absent = NotRead.over(
                f"its shard is {shard.ulen} bytes when decoded, over {self._most}"
            )
        else:
            size = shard.ulen if shard.is_compressed else shard.length
            try:
                check_inside(entry.data_off, entry.data_len, size, "tensor")
            except FormatError as error:
                absent = NotRead.because(error)
            else:
                if not shard.is_compressed:
                    offset = shard.offset + entry.data_off
                if entry.data_len:
                    opened = PackedBytes(shard.ulen, partial(self.content, shard))
                    part = opened.part(entry.data_off, entry.data_len)
                    content = part if shard.is_compressed else part.open()
        return Tensor(
            entry.name,
            entry.dtype_name,
            entry.shape,
            content,
            offset,
            entry.element,
            self.order,
            absent=absent,
            packing=packing_of(entry, self._codecs),
        )

    def content(self, shard: AeroChunk) -> ByteView:
        """Return the content of a shard; raises FormatError if it can't be decoded."""
        if not shard.is_compressed:
            return self._aero.stored(shard)
        # The files of a set share one cache of decoded parts.
        key = (self._aero, shard)
        return self._decoded.open(key, shard.ulen, partial(self._decode, shard))

    def _decode(self, shard: AeroChunk) -> ByteView:
        try:
            return content(self._aero, shard, self._most)
        except FormatError as error:
            raise FormatError(
                f"its shard can't be decoded: {error.message}",
                kind=error.kind,
                offset=error.offset,
                field=error.field,
            ) from None


def _codecs(json: dict[str, object]) -> dict[int, dict[str, object]]:
    """Return what an MJSN says of codecs, by the number that entries of the index use for them."""
    listed = json.get(CODECS_KEY)
    codecs = (
        (codec for codec in listed if isinstance(codec, dict)) if isinstance(listed, list) else ()
    )
    return {codec["id"]: codec for codec in codecs if type(codec.get("id")) is int}


def packing_of(entry: IndexEntry, codecs: dict[int, dict[str, object]]) -> str | None:
    """Return the ggml type of a packed tensor; None if nothing says it."""
    if entry.dtype != PACKED:
        return None
    number = entry.extra.get(CODEC_KEY)
    codec = codecs.get(number) if type(number) is int else None
    params = entry.extra.get(PARAMS_KEY) if codec is None else codec.get("params")
    if codec is not None and codec.get("codec") != GGML_CODEC:
        return None
    ggml_type = params.get(TYPE_KEY) if isinstance(params, dict) else None
    known = ggml.TYPES.get(ggml_type) if type(ggml_type) is int else None
    return None if known is None else ggml.element_of(known)


def refuse_long_names(aero: Aero) -> None:
    """Raise FormatError (limit) if chunk names are too long to be listed."""
    # Entries may share bytes of the string table, so a small file can claim long names.
    if aero.names_length > min(MAX_NAMES, NAMES_A_BYTE * len(aero.data)):
        fail("chunk names are too long", offset=0, field="name_len", kind="limit")


def describe(aero: Aero, options: ReadOptions) -> Description:
    """List tensors and metadata; raises FormatError if chunk names are too long."""
    refuse_long_names(aero)
    reader = TensorReader(aero, options, DecodedParts(options).of_file(len(aero.data)))
    metadata: dict[str, object] = {
        "version": ".".join(map(str, VERSION)),
        "uuid": aero.header.uuid.hex(),
        "file_flags": aero.header.flags,
        "chunks": [_chunk_as_dict(aero, chunk) for chunk in aero.chunks],
    }
    documents = {"mjsn": mjsn(aero), "mmsg": mmsg(aero), "tidx": _extras(aero)}
    metadata.update((key, value) for key, value in documents.items() if value)
    tags, untold = _tags(aero, documents["mjsn"], documents["mmsg"])
    return Description(
        "aero",
        tuple(reader.tensor(entry, entry.shard_id) for entry in aero.entries),
        metadata,
        tags=tags,
        untold=untold,
        parts=tuple(_part(aero, chunk) for chunk in aero.chunks if not chunk.is_raw_shard),
    )


def named_parts(aero: Aero, options: ReadOptions) -> Iterator[NamedPart]:
    """Yield the chunks, including weight shards."""
    listed_chunks = {aero.first(fourcc) for fourcc in METADATA}
    listed_chunks |= {aero.shard(entry.shard_id) for entry in aero.entries}
    for chunk in aero.chunks:
        name = aero.name(chunk).decode("utf-8", "backslashreplace")
        nbytes = chunk.end - chunk.offset if chunk.length else 0
        content = partial(_content, aero, chunk, options)
        is_untold = chunk.fourcc != PAGES and chunk not in listed_chunks
        yield NamedPart(name, chunk.offset, nbytes, content, is_untold)


def documents(aero: Aero, options: ReadOptions) -> Iterator[Document]:
    """Yield the metadata chunks, of those of which one counts the first."""
    read = [chunk for chunk in aero.chunks if chunk.fourcc in METADATA and _counts(aero, chunk)]
    for chunk in within_limit((max(chunk.ulen, chunk.length), chunk) for chunk in read):
        try:
            raw = bytes(content(aero, chunk, options.max_chunk))
        except FormatError:
            continue
        is_json = chunk.fourcc == JSON
        yield Document(aero.label(chunk), raw, aero.stored(chunk), is_json=is_json)


def _counts(aero: Aero, chunk: AeroChunk) -> bool:
    return chunk.fourcc == PAGES or aero.first(chunk.fourcc) is chunk


def _content(aero: Aero, chunk: AeroChunk, options: ReadOptions) -> Iterator[Buffer]:
    # The size of an uncompressed chunk is its stored size.
    most = options.max_chunk if chunk.is_compressed else chunk.length
    yield from pieces(content(aero, chunk, most))


def _part(aero: Aero, chunk: AeroChunk) -> PartNote:
    words = aero.label(chunk)
    if chunk.is_compressed:
        words += f", zstd, {chunk.ulen} bytes decoded"
    # Metadata are small; but in a compressed shard any change affects the whole shard.
    return PartNote(chunk.offset, words, chunk.is_compressed and chunk.fourcc == SHARD)


def mjsn(aero: Aero) -> dict[str, object]:
    """Return the object in the first MJSN chunk; empty if there is none or it can't be read."""
    try:
        return json_object(_shown(aero, JSON))
    except FormatError:
        return {}


def json_object(raw: ByteView) -> dict[str, object]:
    """Return the object in the content of an MJSN; empty if it can't be read."""
    try:
        value = json_text.parse(raw[: MAX_SHOWN + 1], "mjsn")
    except FormatError:
        return {}
    return value if isinstance(value, dict) and len(raw) <= MAX_SHOWN else {}


def shape_order(json: dict[str, object]) -> str:
    """Return the order of dimensions in shapes, in a file with this object in its MJSN."""
    return "reversed" if json.get(SOURCE_KEY) == GGUF else "C"


def mmsg(aero: Aero) -> dict[str, object]:
    """Return the map in the first MMSG chunk, bytes as hex; empty if there is none to be read."""
    try:
        value = _hexed(msgpack_limits.parse(bytes(_shown(aero, MANIFEST)), "mmsg"))
    except FormatError:
        return {}
    return value if isinstance(value, dict) else {}


def is_tag(value: object) -> bool:
    """Whether a value is a short text that UTF-8 can hold."""
    return isinstance(value, str) and len(value) <= MAX_TAG and is_text(value)


def model_tags(aero: Aero) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return texts that a file of another format can hold, and what it would lack."""
    return _tags(aero, mjsn(aero), mmsg(aero))


def _tags(
    aero: Aero, json: dict[str, object], manifest: dict[str, object]
) -> tuple[dict[str, str], tuple[str, ...]]:
    tags: dict[str, str] = {}
    untold: list[str] = []
    model = manifest.get("model")
    named = model if isinstance(model, dict) else {}
    apart, known_keys = {SOURCE_KEY}, {HASH_KEY, FLAGS_KEY}
    codecs = _codecs(json)
    packed = [entry for entry in aero.entries if entry.dtype == PACKED]
    # What these say is carried by the tensors.
    if packed and all(packing_of(entry, codecs) is not None for entry in packed):
        apart.add(CODECS_KEY)
        known_keys |= {CODEC_KEY, PARAMS_KEY}
    texts = {
        NAME_TAG: named.get("name") or None,
        ARCHITECTURE_TAG: named.get("architecture") or None,
        **{key: value for key, value in json.items() if key not in apart},
    }
    for key, value in texts.items():
        # Later ones win: for the model the MJSN takes precedence over the manifest.
        if is_tag(key) and is_tag(value):
            tags[key] = str(value)
        elif value is not None:
            untold.append(f"mjsn {quoted(key)}")
    for fourcc, metadata in ((JSON, json), (MANIFEST, manifest)):
        if aero.first(fourcc) is not None and not metadata:
            untold.append(f"chunk {fourcc.decode()}, which is empty or too large to be examined")
    untold += [f"mmsg {quoted(key)}" for key in manifest if key not in MANIFEST_KEYS]
    keys = {key for entry in aero.entries for key in entry.extra} - known_keys
    untold += [f"tidx {quoted(key)}" for key in sorted(keys)]
    others = [chunk for chunk in aero.chunks if chunk.fourcc not in METADATA | {SHARD}]
    untold += [f"chunk {quoted(aero.label(chunk))}" for chunk in others]
    return tags, tuple(untold[:MOST_EXTRA])


def _shown(aero: Aero, fourcc: bytes) -> ByteView:
    chunk = aero.first(fourcc)
    if chunk is None:
        raise FormatError("no such chunk")
    return content(aero, chunk, MAX_SHOWN)


def _extras(aero: Aero) -> dict[str, object]:
    """Return what the index says of tensors besides their place, without hashes."""
    further = ((entry, _further(entry)) for entry in aero.entries)
    return {
        entry.name: extra for entry, extra in islice(filter(lambda t: t[1], further), MOST_EXTRA)
    }


def _further(entry: IndexEntry) -> dict[str, object]:
    return {
        key: _hexed(deepcopy(value))
        for key, value in entry.extra.items()
        if key != HASH_KEY and (key, value) != (FLAGS_KEY, 0)
    }


def _hexed(value: object) -> object:
    """Convert MessagePack's values to JSON's, in place: a copy may take much memory."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        value[:] = map(_hexed, value)
    elif isinstance(value, dict):
        value.update((key, _hexed(item)) for key, item in value.items())
    return value


def _chunk_as_dict(aero: Aero, chunk: AeroChunk) -> dict[str, object]:
    return {
        "name": aero.name(chunk).decode("utf-8", "backslashreplace"),
        "fourcc": chunk.fourcc.decode("ascii", "backslashreplace"),
        "flags": chunk.flags,
        "offset": chunk.offset,
        "length": chunk.length,
        "ulen": chunk.ulen,
    }
