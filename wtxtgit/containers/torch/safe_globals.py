"""Which names of a pickle `torch.load(weights_only=True)` imports; it refuses all others.

Spec: `docs/spec/torch.md`, "Checks"; torch/_weights_only_unpickler.py of torch 2.13.
"""

from __future__ import annotations

from wtxtgit.containers.torch.pickle_read import Global, Pickle
from wtxtgit.containers.torch.views import SIZES, STORAGES

MOST_IMPORTS = 1000
"""The most names that are listed: a pickle may have millions."""
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
"""Modules with another name in Python 3, so far as they matter here."""
_STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage", "torch.sparse", "torch.cuda.sparse")
_TENSOR_SUFFIX = "Tensor"
_SAFE = {(module, name) for module, names in _BY_MODULE.items() for name in names}


def is_safe(named: Global) -> bool:
    """Whether a load with `weights_only=True` accepts the global."""
    module = _PYTHON_2.get(named.module, named.module)
    if (module, named.name) in _SAFE:
        return True
    if module == "torch" and named.name in SIZES:
        return True
    kind = named.name
    if kind.endswith(_TENSOR_SUFFIX):
        kind = kind.removesuffix(_TENSOR_SUFFIX) + "Storage"
    return module in _STORAGE_MODULES and kind in STORAGES


def imports_of(pickle: Pickle) -> tuple[str, ...]:
    """Return the names that a load without `weights_only` would import, in the pickle's order."""
    refused = [named.path for named in pickle.globals if not is_safe(named)][:MOST_IMPORTS]
    return tuple(path.encode("utf-8", "backslashreplace").decode() for path in refused)
