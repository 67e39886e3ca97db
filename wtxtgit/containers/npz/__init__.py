"""npz files: npy files in a zip. Spec: `docs/spec/npz.md`."""

from wtxtgit.containers.format import Format, Lazy, Opening
from wtxtgit.containers.signatures import NPY_SUFFIX, ZIP_MAGIC


def _claims(opening: Opening) -> bool:
    return any(name.endswith(NPY_SUFFIX) for name in opening.zip.names)


FORMAT = Format(
    name="npz",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    magic=ZIP_MAGIC,
    claims=_claims,
    endings=(".npz",),
    write=Lazy(f"{__name__}.write"),
    reseal=Lazy(f"{__name__}.reseal"),
    salvage=Lazy(f"{__name__}.salvage"),
    repack=Lazy(f"{__name__}.reseal"),
    has_hashes=True,
    derived=(("members",),),
    nested=Lazy(f"{__name__}.read"),
    parts=Lazy("wtxtgit.containers.zip_read"),
)
