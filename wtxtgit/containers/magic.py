"""By which bytes each container format is known, and in which order they are tried.

Detection looks at magic bytes alone, and at the names of a zip's members: a
file that has a format's magic and breaks its rules is opaque, and is not
tried as another format.
Spec: `docs/spec/containers.md`, "Order of detection".
"""

from __future__ import annotations

from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView

FOLD_MAGIC = b"FOLDv1\0\0"
AERO_MAGIC = b"AERO"
MLCP_MAGIC = b"PCLM"
MLCP_SHARD_MAGIC = b"RAHS"
TARIDX_MAGIC = b"TARIDX\0\0"
TARIDX_PREFIX = TARIDX_MAGIC.rstrip(b"\0")
"""Shared by all files that mean to be TARIDX, whatever pads the magic."""
GGUF_MAGIC = b"GGUF"
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"
"""How a pickle of protocol 2 and later starts, and so the torch files that are no zip."""
SAFETENSORS_BRACE = ord("{")
SAFETENSORS_LENGTH_SIZE = 8
MAX_JSON = 100 * 1024 * 1024
"""Longest index or header, in bytes once decoded."""

PREFIXES = (
    (FOLD_MAGIC, "fold"),
    (AERO_MAGIC, "aero"),
    (MLCP_MAGIC, "mlcp"),
    (TARIDX_PREFIX, "taridx"),
    (GGUF_MAGIC, "gguf"),
    (NPY_MAGIC, "npy"),
)
"""Magics at byte 0, in order of detection."""

ZIP_NAME_LENGTH = slice(26, 28)
ZIP_NAME_START = 30
TORCH_MEMBER = "data.pkl"
"""The member, in the archive's own folder or in none, that makes a zip a torch file."""
TORCH_FIRST_MEMBERS = (TORCH_MEMBER, ".format_version", "byteorder", "version")
"""Members, in the archive's own folder, with which a torch file may start."""
NPY_SUFFIX = ".npy"


def detect(data: ByteView) -> str:
    """The format that the file's magic claims, "opaque" where none does."""
    head = bytes(data[:ZIP_NAME_START])
    for magic, name in PREFIXES:
        if head.startswith(magic):
            return name
    if head.startswith(ZIP_MAGIC):
        return _detect_zip(head, data)
    if _is_safetensors(head):
        return "safetensors"
    return "opaque"


def _detect_zip(head: bytes, data: ByteView) -> str:
    """What the members' names claim; the first one's where there is no directory."""
    from wtxtgit.containers import zip_directory  # only zips need it

    try:
        names = [member.name for member in zip_directory.read(data).members]
    except FormatError:
        return _detect_cut_zip(head, data)
    if any(name.removeprefix(f"{name.partition('/')[0]}/") == TORCH_MEMBER for name in names):
        return "torch"
    return "npz" if any(name.endswith(NPY_SUFFIX) for name in names) else "opaque"


def _detect_cut_zip(head: bytes, data: ByteView) -> str:
    length = int.from_bytes(head[ZIP_NAME_LENGTH], "little")
    member = bytes(data[ZIP_NAME_START : ZIP_NAME_START + length]).decode("ascii", "replace")
    if member.endswith(NPY_SUFFIX):
        return "npz"
    return "torch" if member.partition("/")[2] in TORCH_FIRST_MEMBERS else "opaque"


def _is_safetensors(head: bytes) -> bool:
    """A length that a header may have, then the header's brace."""
    if len(head) <= SAFETENSORS_LENGTH_SIZE:
        return False
    length = int.from_bytes(head[:SAFETENSORS_LENGTH_SIZE], "little")
    return head[SAFETENSORS_LENGTH_SIZE] == SAFETENSORS_BRACE and length <= MAX_JSON
