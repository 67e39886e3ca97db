"""FOLD files (.fold, .mind): reading, checking, mending, writing. Spec: `docs/spec/fold.md`."""

from wtxtgit.containers.format import ANY, Format, Lazy, below, every_tag

MAGIC = b"FOLDv1\0\0"

FORMAT = Format(
    name="fold",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.describe"),
    check=Lazy(f"{__name__}.check"),
    magic=MAGIC,
    endings=(".fold", ".mind"),
    write=Lazy(f"{__name__}.write"),
    write_options=frozenset({"ecc"}),
    keeps_tag=every_tag,
    wraps_tensors=True,
    reseal=Lazy(f"{__name__}.reseal"),
    value_rules=Lazy(f"{__name__}.value_rules"),
    repack=Lazy(f"{__name__}.repack"),
    signed=Lazy(f"{__name__}.repack"),
    rest=Lazy(f"{__name__}.reseal"),
    salvage=Lazy(f"{__name__}.salvage"),
    unfinished=Lazy(f"{__name__}.describe"),
    parity=Lazy(f"{__name__}.repack"),
    has_hashes=True,
    derived=(
        ("metadata", "chunk_hashes"),
        ("metadata", "manifest_hash"),
        ("merkle_root",),
        *below(("chunks", ANY), "offset", "comp_len", "uncomp_len", "ecc_len", "sha256"),
    ),
    chunk_values=Lazy(f"{__name__}.describe"),
    chunks_as_tags=("llm_manifest", "metrics", "history", "telemetry"),
    parts=Lazy(f"{__name__}.describe"),
    documents=Lazy(f"{__name__}.describe"),
)
