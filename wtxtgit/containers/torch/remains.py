"""What a torch file holds beside tensors and values: both come from one of the files.

Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from wtxtgit.containers import zip_directory, zip_rest
from wtxtgit.containers.torch.contents import shown
from wtxtgit.containers.torch.read import Torch
from wtxtgit.containers.zip_directory import Member
from wtxtgit.errors import FormatError
from wtxtgit.io.view import pieces

DEVICES, COMPRESSED = "devices", "compressed"
COMMENTS, REPEATED, FOLDERS = "comments of members", "repeated members", "folders"


def rest(container: Torch) -> dict[str, object]:
    """What the zip has beside its members, and what `values` does not tell of these.

    Where storages are: one word where they are all on one device, else each
    device with how many of them follow one another there. Names of compressed
    members, their comments, and hashes of members that are not told by their
    names: folders, and all but the last of one name. The folder that all are
    in is none of that: it is called as the file was when it was saved. Raises
    FormatError where members share bytes.
    """
    data, members = container.data, container.directory.members
    if zip_directory.overlapping(members, container.directory.start):
        raise FormatError("members share bytes", field="payload")
    counts = Counter(member.name for member in members)
    folders: list[Member] = []
    repeated: list[Member] = []
    for member in members:
        counts[member.name] -= 1
        if counts[member.name]:
            repeated.append(member)
        elif member.name.endswith("/") and member.name != container.folder:
            folders.append(member)
    comments = {
        shown(container, member): held
        for member in members
        if (held := zip_rest.member_comment(data, member))
    }
    told: dict[str, object] = {
        DEVICES: _devices(container),
        COMPRESSED: sorted(shown(container, member) for member in members if not member.stored),
        COMMENTS: comments,
        REPEATED: _hashes(container, repeated),
        FOLDERS: _hashes(container, folders),
    }
    found = {name: value for name, value in told.items() if value}
    return {**zip_rest.rest(data, container.directory), **found}


def _devices(container: Torch) -> object:
    runs = [
        [device, len(list(group))]
        for device, group in groupby(storage.device for storage in container.named)
    ]
    return runs[0][0] if len(runs) == 1 else runs


def _hashes(container: Torch, members: Iterable[Member]) -> list[tuple[str, bytes]]:
    """Names of members, with the SHA-256 of their payloads as they are stored."""
    found: list[tuple[str, bytes]] = []
    for member in members:
        hashed = hashlib.sha256()
        for piece in pieces(container.data[member.start : member.end]):
            hashed.update(piece)
        found.append((shown(container, member), hashed.digest()))
    return found
