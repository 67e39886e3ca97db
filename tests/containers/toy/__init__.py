"""TOY1 files, a format for tests: one named float32 tensor. Copied into the product by a test."""

from wtxtgit.containers.format import Format, Lazy

MAGIC = b"TOY1"

FORMAT = Format(
    name="toy",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.read"),
    magic=MAGIC,
    endings=(".toy",),
    write=Lazy(f"{__name__}.write"),
)
