"""torch.save files: a zip of a pickle and storages. Nothing is unpickled.

Spec: `docs/spec/torch.md`.
"""

from wtxtgit.containers.format import Format, Lazy, Opening
from wtxtgit.containers.signatures import ZIP_MAGIC

PICKLE = "data.pkl"
"""The member, in the archive's folder or in none, that makes a zip a torch file."""
FIRST_MEMBERS = (PICKLE, ".format_version", "byteorder", "version")
"""Members, in the archive's folder, with which a torch file may start."""
PICKLE_MAGIC = b"\x80"
"""How pickles of protocol 2 and later start, and so torch files that are not zips."""


def _claims(opening: Opening) -> bool:
    zipped = opening.zip
    if not zipped.is_whole:
        return zipped.names[0].partition("/")[2] in FIRST_MEMBERS
    return any(name.removeprefix(f"{name.partition('/')[0]}/") == PICKLE for name in zipped.names)


FORMAT = Format(
    name="torch",
    read=Lazy(f"{__name__}.read"),
    describe=Lazy(f"{__name__}.read"),
    check=Lazy(f"{__name__}.check"),
    magic=ZIP_MAGIC,
    claims=_claims,
    endings=(".pt", ".pth"),
    write=Lazy(f"{__name__}.write"),
    reseal=Lazy(f"{__name__}.reseal"),
    adds_last=True,
    salvage=Lazy(f"{__name__}.salvage"),
    repack=Lazy(f"{__name__}.zip_layout"),
    whole=Lazy(f"{__name__}.legacy"),
    reseal_whole=Lazy(f"{__name__}.legacy_reseal"),
    rest_whole=Lazy(f"{__name__}.legacy_rest"),
    whole_magic=PICKLE_MAGIC,
    set_name="torch-distributed",
    read_set=Lazy(f"{__name__}.distributed"),
    derived_of_set=(("files",),),
    index_endings=(".metadata",),
    part_endings=(".distcp",),
    has_hashes=True,
    derived=(("members",),),
    tags_apart=True,
    nested=Lazy(f"{__name__}.read"),
    parts=Lazy("wtxtgit.containers.zip_read"),
)
