"""GGUF files: tensors of ggml types. Spec: `docs/spec/gguf.md`."""

from wtxtgit.containers.format import Format, Lazy

MAGIC = b"GGUF"


def _keeps_tag(key: str) -> bool:
    from wtxtgit.containers.gguf.write import keeps_tag

    return keeps_tag(key)


FORMAT = Format(
    name="gguf",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    magic=MAGIC,
    endings=(".gguf",),
    write=Lazy(f"{__name__}.write"),
    keeps_tag=_keeps_tag,
    reseal=Lazy(f"{__name__}.reseal"),
)
