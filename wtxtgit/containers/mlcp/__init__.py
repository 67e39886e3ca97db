"""MLCP files (.checkpoint), and sets of shards: reading, checking, writing.

Spec: `docs/spec/mlcp.md`.
"""

from wtxtgit.containers.format import ANY, Format, Lazy, below, every_tag

MAGIC = b"PCLM"
SHARD_MAGIC = b"RAHS"
SHARD_ENDING = ".shard"
INDEX_ENDING = ".metadata.json"

FORMAT = Format(
    name="mlcp",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    magic=MAGIC,
    refused={
        SHARD_MAGIC: (
            "file is a .shard file (magic RAHS): the .metadata.json of its MLCP checkpoint tells "
            "how to read it"
        )
    },
    endings=(".checkpoint",),
    write=Lazy(f"{__name__}.write"),
    write_set=Lazy(f"{__name__}.write_shards"),
    keeps_tag=every_tag,
    lists_only=True,
    reseal=Lazy(f"{__name__}.reseal"),
    rest=Lazy(f"{__name__}.reseal"),
    documents=Lazy(f"{__name__}.metadata"),
    salvage=Lazy(f"{__name__}.salvage"),
    set_name="sharded-mlcp",
    read_set=Lazy(f"{__name__}.shards"),
    index_endings=(INDEX_ENDING,),
    part_endings=(SHARD_ENDING,),
    derived=(
        *below(("metadata", "shards", ANY), "tensors", "fileSize"),
        ("metadata", "tensorInfos"),
    ),
    derived_of_set=(
        *below(("metadata", "shards", ANY), "tensors", "filePath", "fileSize", "checksum"),
        ("metadata", "tensorInfos"),
        ("files",),
    ),
)
