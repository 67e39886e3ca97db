"""What torch.load would refuse of a pickle's value, so far as that is known without a call.

For the calls that torch.save writes, the arguments are known here; nothing is said about calls that
only a load without `weights_only` makes. Spec: `docs/spec/torch.md`, "Checks"; torch/_utils.py of
torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch.pickle_read import CallResult, Dict, Global, List, Pickle, Set
from wtxtgit.containers.torch.views import (
    REBUILT_METADATA,
    SIZES,
    STORAGES,
    UTILS,
    Storage,
    View,
    sizes,
)

ITEMS, LEGACY_ITEMS = 5, 6
"""Number of items in the persistent id of a storage, in zips and in legacy files."""
DEVICES = frozenset(
    {
        *("cpu", "cuda", "hip", "mps", "meta", "xpu", "hpu", "xla", "mtia", "maia", "ipu", "npu"),
        *("musa", "privateuseone", "lazy"),
    }
)
"""Kinds of devices that torch knows without another package."""
_DEVICE = re.compile(r"([a-z0-9_]+)(?::[0-9]+)?")
ARGUMENTS = {
    (UTILS, "_rebuild_tensor"): (4, 4),
    (UTILS, "_rebuild_tensor_v2"): (6, 7),
    (UTILS, "_rebuild_tensor_v3"): (7, 8),
    (UTILS, "_rebuild_qtensor"): (7, 7),
    (UTILS, "_rebuild_meta_tensor_no_storage"): (4, 4),
    (UTILS, "_rebuild_parameter"): (3, 3),
    (UTILS, "_rebuild_parameter_with_state"): (4, 4),
    (UTILS, "_rebuild_sparse_tensor"): (2, 2),
    (UTILS, "_rebuild_device_tensor_from_cpu_tensor"): (4, 4),
    ("torch._tensor", "_rebuild_from_type_v2"): (4, 4),
    ("torch", "Size"): (0, 1),
    ("torch", "device"): (1, 2),
    ("torch.serialization", "_get_layout"): (1, 1),
    ("collections", "OrderedDict"): (0, 1),
    ("_codecs", "encode"): (1, 3),
}
"""Least and most arguments of the calls that torch writes."""
REQUIRES_GRAD = {
    "_rebuild_tensor_v2": 4,
    "_rebuild_tensor_v3": 4,
    "_rebuild_qtensor": 5,
    "_rebuild_parameter": 1,
    "_rebuild_parameter_with_state": 1,
}
WITHOUT_GRADIENT = ("int", "uint", "bool", "qint", "quint", "bits")
"""Beginnings of the names of dtypes whose tensors can't have gradients."""
UNTYPED = "uint8"
"""The dtype of storages without a class for their dtype."""
ORDERED_DICT = Global("collections", "OrderedDict")
UNHASHABLE = (("collections", "OrderedDict"), ("collections", "Counter"))


def refusals(pickle: Pickle, named: Iterable[Storage], *, is_legacy: bool) -> Iterator[str]:
    """Yield what torch.load refuses or misreads of a pickle and of the storages that it names."""
    items = LEGACY_ITEMS if is_legacy else ITEMS
    dtypes: dict[str, str] = {}
    for storage in named:
        key = quoted(storage.key)
        first = dtypes.setdefault(storage.key, storage.dtype)
        if first != storage.dtype:
            yield (
                f"storage {key} is named with {quoted(first)} and with {quoted(storage.dtype)}: "
                "torch reads all of it with the first"
            )
        if storage.items != items:
            yield f"storage {key} is named by {storage.items} items, torch expects {items}"
        if storage.item is None:
            yield (
                f"storage {key} is of the class {quoted(storage.dtype)}, which torch does not have"
            )
        if is_legacy and not storage.is_typed:
            yield f"storage {key} has no dtype, which torch does not load from a legacy file"
        if not storage.device:
            yield f"storage {key} does not name its device"
    yield from refusals_of_value(pickle)


def refusals_of_value(pickle: Pickle) -> Iterator[str]:
    """Yield what torch.load refuses of a pickle's value."""
    return _LoadWalk().run(pickle.root)


def unknown_devices(named: Iterable[Storage]) -> Iterator[str]:
    """Yield devices of storages that torch only knows with another package, each once."""
    for device in dict.fromkeys(storage.device for storage in named):
        kind = _DEVICE.fullmatch(device)
        if device and (kind is None or kind[1] not in DEVICES):
            yield device


def unknown_dtypes(tensors: Iterable[tuple[str, View]]) -> Iterator[str]:
    """Yield names of tensors whose bytes can't be located because their dtype is unknown."""
    return (name for name, view in tensors if view.item == 0 and view.storage is not None)


class _LoadWalk:
    """A walk that visits each value below another one once."""

    def __init__(self) -> None:
        self.visited: set[int] = set()
        self.hashed: set[int] = set()
        self.waiting: list[object] = []

    def run(self, root: object) -> Iterator[str]:
        self.waiting.append(root)
        while self.waiting:
            value = self.waiting.pop()
            is_held = isinstance(value, CallResult | Dict | List | Set | tuple)
            if is_held and id(value) not in self.visited:
                self.visited.add(id(value))
                yield from self._look(value)

    def _look(self, value: object) -> Iterator[str]:
        if isinstance(value, tuple):
            self.waiting += value
            return
        if isinstance(value, List | Set | CallResult):
            self.waiting += value.items
        if isinstance(value, Set):
            yield from self._keys(value.items)
        if isinstance(value, Dict | CallResult):
            self.waiting += [part for pair in value.pairs for part in pair]
            yield from self._keys(key for key, _ in value.pairs)
        if isinstance(value, CallResult):
            self.waiting += [value.callee, value.args, value.kwargs, *value.states]
            yield from _of_call(value)

    def _keys(self, keys: Iterable[object]) -> Iterator[str]:
        if any(map(self._is_unhashable, keys)):
            yield "a dict or set has a key that Python can't hash"

    def _is_unhashable(self, key: object) -> bool:
        waiting = [key]
        while waiting:
            part = waiting.pop()
            if isinstance(part, tuple) and id(part) not in self.hashed:
                self.hashed.add(id(part))
                waiting += part
            elif isinstance(part, List | Dict | Set) or (
                isinstance(part, CallResult) and _path(part.callee) in UNHASHABLE
            ):
                return True
        return False


def _of_call(call: CallResult) -> Iterator[str]:
    path = _path(call.callee)
    if path is None:
        yield "the pickle calls something that is not a function"
        return
    module, name = path
    shown = quoted(f"{module}.{name}")
    if name in STORAGES or (module == "torch" and name in SIZES):
        yield f"the pickle calls {shown}, which is not a function"
    least, most = ARGUMENTS.get(path, (0, len(call.args)))
    if not least <= len(call.args) <= most or (path in ARGUMENTS and call.kwargs is not None):
        yield f"the pickle calls {shown} with {len(call.args)} arguments"
    elif not _fits(module, name, call):
        yield f"the pickle calls {shown} with wrong arguments"
    is_ordered = call.callee == ORDERED_DICT
    if is_ordered and not all(map(_is_dict, call.states)):
        yield f"the pickle gives {shown} a state that is not a dict"
    if path in ARGUMENTS and (call.items or (call.pairs and not is_ordered)):
        yield f"the pickle adds items to what {shown} gives"


def _fits(module: str, name: str, call: CallResult) -> bool:
    """Whether the arguments of a call, whose number is right, have the right types."""
    args = call.args
    if module == UTILS:
        place = REQUIRES_GRAD.get(name)
        grad = args[place] if place is not None and place < len(args) else False
        if not isinstance(grad, bool) or (grad and not _can_have_gradient(args[0])):
            return False
        metadata = REBUILT_METADATA.get(name, len(args))
        return metadata >= len(args) or args[metadata] is None or _is_dict(args[metadata])
    if (module, name) == ("torch", "Size"):
        return not args or sizes(args[0]) is not None
    if (module, name) == ("collections", "OrderedDict"):
        pairs = args[0].items if args and isinstance(args[0], List) else args
        return all(map(_is_pair, pairs))
    if (module, name) in (("torch", "device"), ("_codecs", "encode")):
        return isinstance(args[0], str)
    return True


def _can_have_gradient(first: object) -> bool:
    """Whether the items of the storage, or of the tensor's storage, can have gradients."""
    while isinstance(first, CallResult) and first.args:
        first = first.args[0]
    # A tensor that names its own dtype has an untyped storage.
    dtype = first.dtype if isinstance(first, Storage) else UNTYPED
    return dtype == UNTYPED or not dtype.startswith(WITHOUT_GRADIENT)


def _is_pair(value: object) -> bool:
    items = value.items if isinstance(value, List) else value
    return isinstance(items, list | tuple) and len(items) == 2


def _is_dict(value: object) -> bool:
    return isinstance(value, Dict) or (
        isinstance(value, CallResult) and _path(value.callee) in UNHASHABLE
    )


def _path(callee: object) -> tuple[str, str] | None:
    return (callee.module, callee.name) if isinstance(callee, Global) else None
