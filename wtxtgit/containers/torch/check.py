"""Checks of what `read` does not look at, and of what `torch.load(weights_only=True)` refuses.

Spec: `docs/spec/torch.md`, "Checks"; torch/_weights_only_unpickler.py of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wtxtgit.containers import zip_read
from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch import PICKLE
from wtxtgit.containers.torch.pickle_read import Global, Pickle
from wtxtgit.containers.torch.read import ALIGNMENT, CONSTANTS, STORAGE, Torch
from wtxtgit.containers.torch.views import SIZES, STORAGES, Storage, View, why_outside
from wtxtgit.containers.zip_read import ZipMember
from wtxtgit.containers.zip_write import crc32_of
from wtxtgit.errors import FormatError
from wtxtgit.io.view import ByteView
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions

OPCODES = frozenset(b"\x80.cRb(ae)]}su\x8ft\x85\x86\x87NJKMG\x88\x89XUQ\x81hjqr\x8a")
"""The opcodes of pickles that it reads."""
_BY_MODULE = {
    "collections": ("OrderedDict", "Counter"),
    "torch.nn.parameter": ("Parameter",),
    "torch.serialization": ("_get_layout",),
    "torch": (
        "Size",
        "Tensor",
        "device",
        "per_tensor_affine",
        "per_tensor_symmetric",
        "per_channel_affine",
        "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    ),
    "_codecs": ("encode",),
    "builtins": ("bytearray", "set", "complex"),
    "torch._utils": (
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
        "_rebuild_qtensor",
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_sparse_tensor",
        "_rebuild_meta_tensor_no_storage",
        "_rebuild_nested_tensor",
        "_rebuild_wrapper_subclass",
        "_rebuild_device_tensor_from_numpy",
        "_rebuild_device_tensor_from_cpu_tensor",
    ),
    "torch._tensor": ("_rebuild_from_type_v2",),
    "torch.storage": ("TypedStorage",),
}
_PYTHON_2 = {"__builtin__": "builtins"}
"""Modules that were renamed, as far as they matter here."""
_STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage", "torch.sparse", "torch.cuda.sparse")
_TENSOR_SUFFIX = "Tensor"
_SAFE = {(module, name) for module, names in _BY_MODULE.items() for name in names}


def check(container: Torch, options: ReadOptions) -> Findings:
    """Check a torch file: CRC-32 of members, storages, what loading it would call.

    Members that inflate to more than
    `options.max_chunk` bytes are an error of kind "limit". Raises nothing.
    """
    findings = Findings()
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
    end = container.pickle.end if container.pickle_member.stored else None
    if end is not None and end < container.pickle_member.end:
        findings.warn(
            f"{container.pickle_member.end - end} bytes follow the end of the pickle", PICKLE, end
        )
    return findings


def check_storages(
    findings: Findings,
    named: Iterable[Storage],
    places: Mapping[str, tuple[int, int]],
    start: int,
) -> None:
    """Check that each storage that a pickle names is there, and as long as it says.

    `places` are start and size in bytes by key, `start` is where the pickle
    stands.
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
                f"{storage.numel} items of {storage.dtype} have {storage.nbytes}",
                "numel",
                place[0],
            )


def check_views(
    findings: Findings,
    tensors: Iterable[tuple[str, View]],
    places: Mapping[str, tuple[int, int]],
) -> None:
    """Check that each tensor lies inside of its storage; `places` as above.

    A tensor of several names is told by the first one.
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
    """Warn of all in a pickle that `torch.load` refuses with weights_only=True."""
    for named in pickle.globals:
        if not is_safe(named):
            findings.warn(
                f"loading with pickle would import and may call {quoted(named.path)}",
                "global",
                start,
            )
    if pickle.opcodes - OPCODES:
        findings.warn(
            f"pickle of protocol {pickle.protocol} has opcodes that weights_only does not read",
            field,
            start,
        )


def _check_members(findings: Findings, container: Torch, options: ReadOptions) -> None:
    members = container.directory.members
    seen: set[str] = set()
    for member in members:
        if member.name in seen:
            findings.warn(f"member {quoted(member.name)} is there twice", "name", member.entry)
        seen.add(member.name)
    if members and not any(member.crc32 for member in members):
        findings.warn(
            "written without CRC-32: zip tools call it damaged",
            "crc32",
            container.directory.start,
            kind="crc32",
        )
        return
    overlapping = zip_read.overlapping(members, container.directory.start)
    for number, member in enumerate(members):
        if number in overlapping:
            findings.error(
                f"member {quoted(member.name)} shares bytes with another one",
                "payload",
                member.start,
                member.name,
            )
        else:
            _check_crc32(findings, container.data, member, options)


def _check_crc32(
    findings: Findings, data: ByteView, member: ZipMember, options: ReadOptions
) -> None:
    most = max(options.max_chunk, member.end - member.start if member.stored else 0)
    try:
        crc32 = crc32_of(zip_read.blocks(data, member, most))
    except FormatError as error:
        findings.refuse(error, chunk=member.name)
        return
    if crc32 != member.crc32:
        findings.error(
            f"crc32 is {crc32:08x}, file has {member.crc32:08x}",
            "crc32",
            member.start,
            member.name,
            kind="crc32",
        )


def _check_members_of_storages(findings: Findings, container: Torch) -> None:
    """Warn of storages that nothing refers to, and of those that start in odd places."""
    named = {storage.key for storage in container.named}
    for key, member in container.storages.items():
        if key not in named:
            findings.warn(
                f"storage {quoted(key)} belongs to no tensor", STORAGE, member.start, member.name
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


def is_safe(named: Global) -> bool:
    """Whether a load with `weights_only=True` takes the global."""
    module = _PYTHON_2.get(named.module, named.module)
    if (module, named.name) in _SAFE:
        return True
    if module == "torch" and named.name in SIZES:
        return True
    kind = named.name
    if kind.endswith(_TENSOR_SUFFIX):
        kind = kind.removesuffix(_TENSOR_SUFFIX) + "Storage"
    return module in _STORAGE_MODULES and kind in STORAGES
