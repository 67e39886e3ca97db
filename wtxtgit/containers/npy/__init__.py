"""npy files: one numpy array. Spec: `docs/spec/npy.md`."""

from wtxtgit.containers.format import Format, Lazy
from wtxtgit.containers.signatures import NPY_MAGIC, NPY_SUFFIX

FORMAT = Format(
    name="npy",
    read=Lazy(f"{__name__}.file"),
    describe=Lazy(f"{__name__}.file"),
    check=Lazy(f"{__name__}.file"),
    magic=NPY_MAGIC,
    endings=(NPY_SUFFIX,),
    write=Lazy(f"{__name__}.file"),
    sole_name="data",
    reseal=Lazy(f"{__name__}.reseal"),
    salvage=Lazy(f"{__name__}.salvage"),
    nested=Lazy(f"{__name__}.file"),
)
