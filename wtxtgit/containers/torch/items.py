"""What can be added to a pickle without running it: items of dicts to which nothing else refers.

A tensor is such an item if it is in a dict under a text, uses all of a storage alone, and neither
of them occurs anywhere else in the pickle. Then its opcodes can be placed after those of any dict's
last item, spelled in full: they neither read from the memo nor add to it. The versions of modules,
which torch keeps at a state dict, are such items too. Spec: `docs/spec/torch.md`, "Resealing"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from wtxtgit.containers.json_text import is_text
from wtxtgit.containers.torch import PICKLE
from wtxtgit.containers.torch.legacy import Legacy
from wtxtgit.containers.torch.listing import (
    MAX_COMPARED,
    MODULE_METADATA,
    ORDERED_DICT,
    PARAMETERS,
    calls,
    identity_of,
    word_of,
)
from wtxtgit.containers.torch.loading import ITEMS, LEGACY_ITEMS
from wtxtgit.containers.torch.pickle_read import CallResult, Dict, Global, List, Set
from wtxtgit.containers.torch.read import Torch
from wtxtgit.containers.torch.views import (
    REBUILT_METADATA,
    SIZES,
    UTILS,
    Storage,
    View,
    view,
)
from wtxtgit.containers.torch.write import STORAGE_OF, UNTYPED_DTYPE, PickleWriter, put_tensor

# The most dicts that are examined, and their depth: the path of each is kept.
MAX_DICTS = 10_000
MAX_DICT_DEPTH = 16
FRAME = 0x95
"""An opcode with the length of what follows: pickles with frames get no items."""
Mapped = Dict | CallResult
"""A dict, or an OrderedDict."""
Path = tuple[str, ...]
"""Keys that lead to a dict, as told apart by `identity_of`."""
Versions = dict[str, dict[str, int]]
"""For each module, the numbers in its metadata, by their keys."""


@dataclass(frozen=True, slots=True)
class TensorItem:
    """A tensor that is an item of one dict only: where it is, and how it is spelled.

    `as_parameter` is what a parameter says of its gradient, None for a plain tensor.
    """

    path: Path
    key: str
    view: View
    storage: Storage
    requires_grad: bool
    as_parameter: bool | None

    @property
    def form(self) -> Hashable:
        """What the pickle says of it besides its view, except the key of its storage."""
        return self.path, self.storage.device, self.requires_grad, self.as_parameter


@dataclass(slots=True)
class PickledItems:
    """The items of a pickle, by the names of their tensors; `dicts` are where more can be added.

    `left_out` are the ids of everything that is described separately from the rest of the pickle.
    """

    tensors: dict[str, TensorItem] = field(default_factory=dict)
    dicts: dict[Path, Mapped] = field(default_factory=dict)
    versions: dict[str, Versions] = field(default_factory=dict)
    versioned: dict[str, Mapped] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    _keys: dict[Path, set[str]] = field(default_factory=dict)

    @property
    def storages(self) -> set[str]:
        """The keys of the tensors' storages."""
        return {item.storage.key for item in self.tensors.values()}

    def has_key(self, path: Path, key: str) -> bool:
        """Whether a dict has anything under a key."""
        if path not in self._keys:
            self._keys[path] = {identity_of(k) for k, _ in self.dicts[path].pairs}
        return identity_of(key) in self._keys[path]


def items_of(container: Torch | Legacy, names: Mapping[str, int]) -> PickledItems:
    """Return the items of a file's pickle; `names` has how many tensors of each name have bytes."""
    met, storages = _references(container.pickle.root)
    items = PickledItems()
    left: list[tuple[Path, tuple[str, ...], Mapped]] = []
    root = container.pickle.root
    if is_plain_dict(root) and met[id(root)] == 1:
        left.append(((), (), root))
    while left and len(items.dicts) < MAX_DICTS:
        path, words, value = left.pop()
        items.dicts[path] = value
        _find_versions(items, ".".join((*words, MODULE_METADATA)), value, met)
        keys = Counter(identity_of(key) for key, _ in value.pairs)
        for key, child in value.pairs:
            # If several places referred to a dict, its items would have several names.
            if met[id(child)] != 1 or not _is_plain_key(key) or keys[identity_of(key)] > 1:
                continue
            if is_plain_dict(child):
                if len(path) < MAX_DICT_DEPTH:
                    left.append(((*path, identity_of(key)), (*words, word_of(key)), child))
                continue
            item = _tensor_item(container, path, key, child)
            if item is None or storages[item.storage.key] != 1:
                continue
            name = ".".join((*words, item.key))
            if names.get(name) == 1:
                items.tensors[name] = item
                items.left_out.add(id(child))
    return items


def _is_plain_key(key: object) -> bool:
    """Whether a key is a short text: paths and names of many dicts consist of keys."""
    if isinstance(key, str):
        return len(key) <= MAX_COMPARED
    return type(key) is int and key.bit_length() < 64


def is_plain_dict(value: object) -> TypeGuard[Mapped]:
    """Whether a value is a dict, or an OrderedDict that was created empty."""
    if isinstance(value, CallResult):
        is_made_empty = not value.args and value.kwargs is None and not value.items
        return calls(value, ORDERED_DICT) and is_made_empty
    return isinstance(value, Dict)


def _references(root: object) -> tuple[Counter[int], Counter[str]]:
    """Count the references to each object, by its id, and to each storage, by its key."""
    met: Counter[int] = Counter()
    storages: Counter[str] = Counter()
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, Storage):
            storages[value.key] += 1
        elif isinstance(value, tuple | List | Set | Dict | CallResult):
            met[id(value)] += 1
            if met[id(value)] == 1:
                left += _inside(value)
    return met, storages


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        yield from value
        return
    if isinstance(value, CallResult):
        yield from (value.callee, value.args, value.kwargs, *value.states)
    if isinstance(value, List | Set | CallResult):
        yield from value.items
    if isinstance(value, Dict | CallResult):
        for pair in value.pairs:
            yield from pair


def _tensor_item(
    container: Torch | Legacy, path: Path, key: object, value: object
) -> TensorItem | None:
    """Return the tensor under a key; None if it is not one, or is not spelled as torch does."""
    if not isinstance(key, str):
        return None
    as_parameter = None
    if calls(value, PARAMETERS[0]) and isinstance(value, CallResult):
        if not (len(value.args) == 3 and _is_bare(value) and _has_no_hooks(value.args[2])):
            return None
        value, requires_grad_stated = value.args[:2]
        if not isinstance(requires_grad_stated, bool):
            return None
        as_parameter = requires_grad_stated
    tensor_view = view(value, 0)
    if tensor_view is None or tensor_view.storage is None or not isinstance(value, CallResult):
        return None
    requires_grad = value.args[4] if len(value.args) > 5 else None
    if not (_is_bare(value) and isinstance(requires_grad, bool) and _has_no_hooks(value.args[5])):
        return None
    items = LEGACY_ITEMS if isinstance(container, Legacy) else ITEMS
    if tensor_view.storage.items != items or tensor_view.storage.part is not None:
        return None
    if not _is_spelled_by_us(tensor_view, value) or not _has_all_of_its_storage(
        container, tensor_view
    ):
        return None
    return TensorItem(path, key, tensor_view, tensor_view.storage, requires_grad, as_parameter)


def _is_bare(value: CallResult) -> bool:
    return value.kwargs is None and not (value.states or value.items or value.pairs)


def _has_no_hooks(value: object) -> bool:
    return is_plain_dict(value) and isinstance(value, CallResult) and _is_bare(value)


def _is_spelled_by_us(tensor_view: View, value: CallResult) -> bool:
    """Whether a call is the one that our writer makes for its tensor."""
    storage = tensor_view.storage
    callee = value.callee
    if storage is None or not isinstance(callee, Global):
        return False
    is_typed = tensor_view.dtype in STORAGE_OF
    name = "_rebuild_tensor_v2" if is_typed else "_rebuild_tensor_v3"
    if callee != Global(UTILS, name) or len(value.args) > REBUILT_METADATA[name]:
        return False
    is_plain = all(isinstance(sizes, tuple) for sizes in value.args[2:4])
    return is_plain and storage.dtype == (tensor_view.dtype if is_typed else UNTYPED_DTYPE)


def _has_all_of_its_storage(container: Torch | Legacy, tensor_view: View) -> bool:
    """Whether a tensor's items are exactly those of its storage, in any order."""
    storage = tensor_view.storage
    member = None if storage is None else container.storages.get(storage.key)
    if (
        storage is None
        or member is None
        or tensor_view.dtype not in SIZES
        or tensor_view.offset != 0
    ):
        return False
    nbytes = tensor_view.numel * tensor_view.item
    return tensor_view.is_dense and nbytes == member.size == storage.nbytes


def _find_versions(items: PickledItems, name: str, value: Mapped, met: Mapping[int, int]) -> None:
    """Record the versions of modules that an OrderedDict has, if they are plain."""
    state = value.states[0] if isinstance(value, CallResult) and len(value.states) == 1 else None
    if not isinstance(state, Dict) or len(state.pairs) != 1 or met[id(state)] != 1:
        return
    key, versions = state.pairs[0]
    if key != MODULE_METADATA or not isinstance(versions, Dict | CallResult):
        return
    plain = _plain_versions(versions, met)
    if plain is not None and name not in items.versions:
        items.versions[f"{PICKLE}:{name}"] = plain
        items.versioned[f"{PICKLE}:{name}"] = versions
        items.left_out.add(id(versions))


def _plain_versions(value: Mapped, met: Mapping[int, int]) -> Versions | None:
    if not is_plain_dict(value) or met[id(value)] != 1:
        return None
    if isinstance(value, CallResult) and value.states:
        return None
    versions: Versions = {}
    for module, numbers in value.pairs:
        if not isinstance(module, str) or not is_text(module) or module in versions:
            return None
        if not isinstance(numbers, Dict) or met[id(numbers)] != 1:
            return None
        words = dict(_plain_words(numbers))
        if len(words) != len(numbers.pairs):
            return None
        versions[module] = words
    return versions


def _plain_words(numbers: Dict) -> Iterator[tuple[str, int]]:
    for word, number in numbers.pairs:
        if isinstance(word, str) and is_text(word) and type(number) is int and 0 <= number < 2**31:
            yield word, number


def versions_behind(before: object, after: object) -> Versions | None:
    """Return what is added to versions of modules; None if anything else changes."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    if any(module not in after or after[module] != numbers for module, numbers in before.items()):
        return None
    return {module: numbers for module, numbers in after.items() if module not in before}


def with_items(
    content: bytes,
    start: int,
    items: PickledItems,
    tensors: Iterable[tuple[TensorItem, str]],
    versions: Mapping[str, Versions],
) -> bytes:
    """Return a pickle, whose bytes start at `start`, with more tensors, in storages of these keys.

    `versions` are added to what is said of modules, by the names of `PickledItems`.
    """
    added: dict[int, PickleWriter] = {}

    def writer(dict_: Mapped) -> PickleWriter:
        return added.setdefault(dict_.filled_at - start, PickleWriter(remembers=False))

    for item, key in tensors:
        _put_item(writer(items.dicts[item.path]), item, key)
    for name, more in versions.items():
        for module, words in more.items():
            _put_words(writer(items.versioned[name]), module, words)
    parts: list[bytes] = []
    done = 0
    for at in sorted(added):
        parts += (content[done:at], b"(", *added[at].parts, b"u")
        done = at
    return b"".join((*parts, content[done:]))


def _put_item(pickle: PickleWriter, item: TensorItem, key: str) -> None:
    pickle.put_text(item.key)
    if item.as_parameter is not None:
        pickle.put_global(PARAMETERS[0].module, PARAMETERS[0].name)
        pickle.put(b"(")
    tensor_view, storage = item.view, item.storage
    put_tensor(
        pickle,
        tensor_view.shape,
        tensor_view.strides,
        tensor_view.dtype,
        key,
        storage.numel,
        storage.device,
        requires_grad=item.requires_grad,
        is_legacy=storage.items == LEGACY_ITEMS,
    )
    if item.as_parameter is not None:
        pickle.put_bool(item.as_parameter)
        pickle.put_ordered_dict()
        pickle.put(b"tR")


def _put_words(pickle: PickleWriter, module: str, words: Mapping[str, int]) -> None:
    pickle.put_text(module)
    pickle.put(b"}(")
    for word, number in words.items():
        pickle.put_text(word)
        pickle.put_integer(number)
    pickle.put(b"u")
