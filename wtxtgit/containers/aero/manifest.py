"""What the MMSG chunk says of the file's chunks, against the TOC."""

from __future__ import annotations

from wtxtgit.containers.aero.description import mmsg
from wtxtgit.containers.aero.read import Aero
from wtxtgit.containers.aero.records import MANIFEST, SHARD, Chunk
from wtxtgit.model.reading import Findings


def lists_no_shards(aero: Aero) -> bool:
    """Whether the file is the index of a set: no weight shards, and none are missed."""
    return aero.first(SHARD) is None and mmsg(aero).get("shards") == []


def check(aero: Aero, found: Findings) -> None:
    """Warn where the manifest lists other chunks than the TOC."""
    chunk = aero.first(MANIFEST)
    if chunk is None:
        return
    manifest = mmsg(aero)
    for item in _maps(manifest.get("chunks")):
        listed = _listed(aero, item)
        fourcc = item.get("fourcc")
        if isinstance(fourcc, str) and (
            listed is None or listed.fourcc != fourcc.encode("latin-1", "replace")
        ):
            _warn(found, aero, chunk, "chunks", item, f"is no {fourcc!a}")
    for item in _maps(manifest.get("shards")):
        listed = _listed(aero, item)
        if listed is None or listed.fourcc != SHARD:
            _warn(found, aero, chunk, "shards", item, "is no WTSH")
        elif item.get("size_bytes") != listed.ulen:
            _warn(found, aero, chunk, "shards", item, "has another size")


def _maps(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _listed(aero: Aero, item: dict[str, object]) -> Chunk | None:
    place = item.get("toc_index")
    if type(place) is not int or not 0 <= place < len(aero.chunks):
        return None
    return aero.chunks[place]


def _warn(
    found: Findings, aero: Aero, chunk: Chunk, field: str, item: dict[str, object], problem: str
) -> None:
    found.warn(
        "structure",
        f"manifest and TOC disagree: TOC entry {ascii(item.get('toc_index'))[:20]} {problem}",
        offset=chunk.offset,
        field=field,
        chunk=aero.label(chunk),
    )
