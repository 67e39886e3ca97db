"""MLCP files (.checkpoint): reading, checking, writing. Spec: `docs/spec/mlcp.md`."""

from wtxtgit.containers.format import ANY, Format, Lazy, below, every_tag

MAGIC = b"PCLM"
SHARD_MAGIC = b"RAHS"

FORMAT = Format(
    name="mlcp",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    magic=MAGIC,
    refused={
        SHARD_MAGIC: (
            "file is a .shard file (magic RAHS), not an MLCP checkpoint, and can't be read by "
            "itself"
        )
    },
    endings=(".checkpoint",),
    write=Lazy(f"{__name__}.write"),
    keeps_tag=every_tag,
    lists_only=True,
    reseal=Lazy(f"{__name__}.reseal"),
    salvage=Lazy(f"{__name__}.salvage"),
    derived=(
        *below(("metadata", "shards", ANY), "tensors", "fileSize", "checksum"),
        ("metadata", "tensorInfos"),
    ),
)
