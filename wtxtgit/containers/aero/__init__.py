"""AERO files and AEROSET folders: reading, checking, writing. Spec: `docs/spec/aero.md`."""

from wtxtgit.containers.format import ANY, Format, Lazy, below, every_tag

MAGIC = b"AERO"

FORMAT = Format(
    name="aero",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.describe"),
    check=Lazy(f"{__name__}.check"),
    magic=MAGIC,
    endings=(".aero",),
    write=Lazy(f"{__name__}.write"),
    write_options=frozenset({"tensor_hashes", "page_size"}),
    holds_quantised=True,
    write_set=Lazy(f"{__name__}.write"),
    keeps_tag=every_tag,
    reseal=Lazy(f"{__name__}.reseal"),
    rest=Lazy(f"{__name__}.extras"),
    salvage=Lazy(f"{__name__}.salvage"),
    repack=Lazy(f"{__name__}.repack"),
    set_name="aeroset",
    read_set=Lazy(f"{__name__}.aeroset"),
    reseal_set=Lazy(f"{__name__}.reseal_set"),
    index_endings=(".aeroset.json",),
    has_hashes=True,
    derived=(
        *below(("chunks", ANY), "offset", "length", "ulen"),
        ("mmsg", "shards", ANY, "size_bytes"),
    ),
    parts=Lazy(f"{__name__}.describe"),
    documents=Lazy(f"{__name__}.describe"),
)
