"""What `torch.load(weights_only=True)` reads, without what a user may add to it.

Source: torch/_weights_only_unpickler.py of torch 2.13.
"""

from __future__ import annotations

from wtxtgit.containers.torch.dtypes import SIZES, STORAGES
from wtxtgit.containers.torch.pickle_values import Global

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


def is_safe(made: Global) -> bool:
    """Whether a load with `weights_only=True` takes the global."""
    module = _PYTHON_2.get(made.module, made.module)
    if (module, made.name) in _SAFE:
        return True
    if module == "torch" and made.name in SIZES:
        return True
    kind = made.name
    if kind.endswith(_TENSOR_SUFFIX):
        kind = kind.removesuffix(_TENSOR_SUFFIX) + "Storage"
    return module in _STORAGE_MODULES and kind in STORAGES
