"""TARIDX files: reading, checking, building, looking up. Spec: `docs/spec/taridx.md`."""

from wtxtgit.containers.format import Format, Lazy

MAGIC = b"TARIDX\0\0"

FORMAT = Format(
    name="taridx",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    # Without its padding, which is checked and reported when the file is read.
    magic=MAGIC.rstrip(b"\0"),
    endings=(".taridx",),
    rest=Lazy(f"{__name__}.read"),
    salvage=Lazy(f"{__name__}.salvage"),
    tar_index=Lazy(f"{__name__}.shards"),
)
