"""safetensors files, and sets of them: reading, checking, writing.

Spec: `docs/spec/safetensors.md`.
"""

from wtxtgit.containers.format import Format, Lazy, Opening, every_tag
from wtxtgit.containers.signatures import (
    MAX_JSON,
    SAFETENSORS_BRACE,
    SAFETENSORS_LENGTH_SIZE,
    ZIP_MAGIC,
)


def claims(opening: Opening) -> bool:
    """Whether a file starts with a length that a header may have, then the header's brace."""
    head = opening.head
    # A zip's magic could be a length too.
    if len(head) <= SAFETENSORS_LENGTH_SIZE or head.startswith(ZIP_MAGIC):
        return False
    length = int.from_bytes(head[:SAFETENSORS_LENGTH_SIZE], "little")
    return head[SAFETENSORS_LENGTH_SIZE] == SAFETENSORS_BRACE and length <= MAX_JSON


FORMAT = Format(
    name="safetensors",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    claims=claims,
    endings=(".safetensors",),
    write=Lazy(f"{__name__}.write"),
    write_set=Lazy(f"{__name__}.write"),
    keeps_tag=every_tag,
    reseal=Lazy(f"{__name__}.reseal"),
    salvage=Lazy(f"{__name__}.salvage"),
    set_name="safetensors-index",
    read_set=Lazy(f"{__name__}.sets"),
    make_index=Lazy(f"{__name__}.numbered"),
    index_endings=(".safetensors.index.json",),
    derived_of_set=(("metadata", "total_size"),),
    nested=Lazy(f"{__name__}.read"),
    documents=Lazy(f"{__name__}.read"),
)
