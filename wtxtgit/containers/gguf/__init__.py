"""GGUF files: tensors of ggml types. Spec: `docs/spec/gguf.md`."""

from wtxtgit.containers.format import Format, Lazy

MAGIC = b"GGUF"
ALIGNMENT_KEY = "general.alignment"
MAX_KEY = 65_535


def keeps_tag(key: str) -> bool:
    """Whether a tag can be a key of ggml's: 1 to MAX_KEY ASCII characters, not ALIGNMENT_KEY."""
    return 0 < len(key) <= MAX_KEY and key.isascii() and key != ALIGNMENT_KEY


FORMAT = Format(
    name="gguf",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    magic=MAGIC,
    endings=(".gguf",),
    write=Lazy(f"{__name__}.write"),
    holds_quantised=True,
    write_set=Lazy(f"{__name__}.write"),
    keeps_tag=keeps_tag,
    reseal=Lazy(f"{__name__}.reseal"),
    set_name="gguf-split",
    read_set=Lazy(f"{__name__}.read_split"),
    make_index=Lazy(f"{__name__}.read_split"),
    derived_of_set=(("files",),),
    salvage=Lazy(f"{__name__}.salvage"),
    parts=Lazy(f"{__name__}.parts"),
)
