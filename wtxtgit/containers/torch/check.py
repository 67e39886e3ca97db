"""Checks beyond what `read` does, and of what `torch.load(weights_only=True)` refuses.

Spec: `docs/spec/torch.md`, "Checks"; torch/_weights_only_unpickler.py of torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from wtxtgit.containers import zip_check, zip_read
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch import PICKLE
from wtxtgit.containers.torch.listing import PickledTensors
from wtxtgit.containers.torch.loading import refusals, unknown_devices, unknown_dtypes
from wtxtgit.containers.torch.pickle_read import Global, Pickle
from wtxtgit.containers.torch.read import (
    ALIGNMENT,
    BYTEORDER,
    CONSTANTS,
    MAX_WORD,
    SERIALIZATION_ID,
    STORAGE,
    VERSION,
    Torch,
)
from wtxtgit.containers.torch.safe_globals import is_safe
from wtxtgit.containers.torch.views import Storage, View, why_outside
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.errors import FormatError
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

OPCODES = frozenset(b"\x80.cRb(ae)]}su\x8ft\x85\x86\x87NJKMG\x88\x89XUQ\x81hjqr\x8a")
"""The opcodes of pickles that a load with `weights_only` accepts."""
DATA_VERSION = ".data/version"
"""The member in which torch first looks for the version."""
FORMAT_VERSION = ".format_version"
LEAST_VERSION, MOST_VERSION = 1, 10
"""Versions of archives that torch can read; it writes 3, and later ones for a few operators."""
_NUMBER = re.compile(rb"[0-9]{1,9}\n?")


def check(container: Torch, options: ReadOptions) -> Findings:
    """Check a torch file: CRC-32 of members, storages, and what loading it would call.

    Members that inflate to more than `options.max_chunk` bytes are an error of kind "limit". Raises
    nothing.
    """
    findings = Findings(label=lambda member: member.name)
    _check_members(findings, container, options)
    places = {key: (member.start, member.size) for key, member in container.storages.items()}
    start = container.pickle_member.start
    check_storages(findings, container.named, places, start)
    check_views(findings, container.listing.tensors, places)
    _check_members_of_storages(findings, container)
    if container.member(CONSTANTS) is not None:
        findings.warn("TorchScript archive: torch.jit.load runs the code in it", CONSTANTS, start)
    else:
        check_pickle(findings, container.pickle, start, PICKLE)
        check_loading(findings, container.pickle, container.named, container.listing, start, PICKLE)
    member = container.pickle_member
    behind = (member.end if member.stored else member.size) - container.pickle.end
    if behind:
        findings.error(f"{behind} bytes follow the end of the pickle", PICKLE, start)
    return findings


def check_loading(
    findings: Findings,
    pickle: Pickle,
    named: Sequence[Storage],
    listed: PickledTensors,
    start: int,
    field: str,
    *,
    is_legacy: bool = False,
) -> None:
    """Check how `torch.load` would treat a pickle at `start`, with weights_only or without."""
    for why in dict.fromkeys(refusals(pickle, named, is_legacy=is_legacy)):
        findings.error(why, field, start)
    for name in unknown_dtypes(listed.tensors):
        findings.error(f"tensor {quoted(name)} has an unknown dtype", "dtype", start)
    for device in unknown_devices(named):
        findings.warn(f"storages were on device {quoted(device)}", "location", start)


def check_storages(
    findings: Findings,
    named: Iterable[Storage],
    places: Mapping[str, tuple[int, int]],
    start: int,
) -> None:
    """Check that each storage that a pickle names exists, with the stated length.

    `places` are start and size in bytes by key, `start` is where the pickle is.
    """
    missing: set[str] = set()
    for storage in named:
        place = places.get(storage.key)
        if place is None:
            if storage.numel and storage.key not in missing:
                missing.add(storage.key)
                findings.error(f"storage {quoted(storage.key)} is missing", "storage", start)
        elif storage.nbytes is not None and place[1] != storage.nbytes:
            findings.error(
                f"storage {quoted(storage.key)} has {place[1]} bytes, "
                f"but {storage.numel} items of {storage.dtype} need {storage.nbytes}",
                "numel",
                place[0],
            )


def check_views(
    findings: Findings,
    tensors: Iterable[tuple[str, View]],
    places: Mapping[str, tuple[int, int]],
) -> None:
    """Check that each tensor lies inside its storage; `places` is as above.

    A tensor with several names is reported by its first one.
    """
    checked: set[int] = set()
    for name, view in tensors:
        place = places.get(view.storage.key) if view.storage is not None else None
        if place is None or id(view) in checked:
            continue
        checked.add(id(view))
        why = why_outside(view, place[1])
        if why is not None:
            findings.error(f"tensor {quoted(name)} {why}", "storage", place[0])


def check_pickle(findings: Findings, pickle: Pickle, start: int, field: str) -> None:
    """Warn of everything in a pickle that `torch.load` refuses by default."""
    for named in pickle.globals:
        if not _is_utf8(named):
            findings.error(f"global {quoted(named.path)} is not a text", "global", start)
        elif not is_safe(named):
            findings.warn(
                f"loading with pickle would import and may call {quoted(named.path)}",
                "global",
                start,
            )
    if pickle.opcodes - OPCODES:
        findings.warn(
            f"pickle of protocol {pickle.protocol} has opcodes that weights_only does not support",
            field,
            start,
        )
    if pickle.is_encoded:
        findings.warn(
            "a Python 2 string is not UTF-8: torch.load needs its encoding",
            field,
            start,
        )


def _is_utf8(named: Global) -> bool:
    """Whether a global's name has no lone surrogates, as no module has."""
    try:
        named.path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_members(findings: Findings, container: Torch, options: ReadOptions) -> None:
    directory = container.directory
    has_crc32 = container.has_crc32 or not directory.members
    if not has_crc32:
        findings.warn(
            "written without a CRC-32: zip tools will report it as damaged",
            "crc32",
            directory.start,
            kind="crc32",
        )
    zip_check.check_members(container.data, directory, options, findings, has_crc32=has_crc32)
    folder = container.folder
    for member in directory.members:
        # torch assumes that all members are in the folder of the first one.
        if not member.name.startswith(folder) or not folder:
            message = f"member {quoted(member.name)} is outside the archive's folder"
            findings.error(message, "name", member.entry, member)
    _check_words(findings, container)


def _check_words(findings: Findings, container: Torch) -> None:
    """Check members that contain a single word, as torch.load reads them."""
    at = container.directory.start
    field = DATA_VERSION if container.member(DATA_VERSION) is not None else VERSION
    member = container.member(field)
    version = None if member is None else _number(container, member)
    if member is None:
        findings.error(f"member {VERSION} is missing", VERSION, at)
    elif version is None or not LEAST_VERSION <= version <= MOST_VERSION:
        message = f"version is not between {LEAST_VERSION} and {MOST_VERSION}"
        findings.error(message, field, member.start, member)
    for name in (FORMAT_VERSION, ALIGNMENT):
        member = container.member(name)
        if member is not None and _number(container, member) is None:
            findings.error(f"{name} is not a number", name, member.start, member)
    if container.member(CONSTANTS) is not None:
        return
    known = {PICKLE, BYTEORDER, VERSION, DATA_VERSION, FORMAT_VERSION, ALIGNMENT, SERIALIZATION_ID}
    for member in container.directory.members:
        name = member.name.removeprefix(container.folder)
        if name not in known and not name.startswith(STORAGE):
            findings.warn("torch.load never reads this member", "name", member.start, member)


def _number(container: Torch, member: ZipMember) -> int | None:
    """Return the number in a member; None if it contains anything else."""
    try:
        raw = bytes(zip_read.content(container.data, member, MAX_WORD))
    except FormatError:
        return None
    return int(raw) if _NUMBER.fullmatch(raw) else None


def _check_members_of_storages(findings: Findings, container: Torch) -> None:
    """Report storages that nothing refers to, and warn of those at unaligned positions."""
    named = {storage.key for storage in container.named}
    for key, member in container.storages.items():
        if key not in named:
            findings.error(
                f"storage {quoted(key)} is not used by any tensor", STORAGE, member.start, member
            )

    alignment = container.alignment
    stored = [m for m in container.storages.values() if m.stored and m.size]
    off = [member for member in stored if member.start % alignment]
    if off:
        findings.warn(
            f"{len(off)} of {len(stored)} storages do not start at multiples of {alignment}",
            ALIGNMENT,
            off[0].start,
        )
