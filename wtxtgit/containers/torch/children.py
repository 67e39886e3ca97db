"""The values inside a value of a pickle, each with its part of the path.

Spec: `docs/spec/torch.md`, "Names".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wtxtgit.containers.torch.pickle_values import Dict, Global, List, LongInteger, Made, Set
from wtxtgit.containers.torch.views import UTILS

MAX_COMPARED = 256
"""Characters of a key up to which equal keys are found."""
MAX_INNER = 8
"""Items of a key that its part of a path shows."""

ORDERED_DICT = Global("collections", "OrderedDict")
PARAMETERS = (
    Global(UTILS, "_rebuild_parameter"),
    Global(UTILS, "_rebuild_parameter_with_state"),
    Global(UTILS, "_rebuild_device_tensor_from_cpu_tensor"),
)
"""Calls whose first argument is the tensor; a fourth one is attributes."""
STATE_OF_PARAMETER = 3
QUANTIZER = 4
"""Places of an attributes' dict, and of what a quantised tensor is quantised by."""
FROM_TYPE = (
    Global("torch._tensor", "_rebuild_from_type"),
    Global("torch._tensor", "_rebuild_from_type_v2"),
)
"""Calls of (function, class, arguments, state): the tensor is what the function gives."""
MODULE_METADATA = "_metadata"
"""What torch keeps at a state dict: versions of modules."""

Child = tuple[str | None, object]
"""A value and its part of the path, None where its path is that of its parent."""


def calls(value: object, *callees: Global) -> bool:
    """Whether a value is made by a call of one of these.

    What is called in a file may be a tuple of any depth, whose hash would
    never end.
    """
    return isinstance(value, Made) and isinstance(value.callee, Global) and value.callee in callees


def children_of(value: object, is_tensor: bool) -> Iterator[Child]:
    """The values inside a value, in the order in which they are written."""
    if isinstance(value, tuple):
        yield from _indexed(value)
    elif isinstance(value, List | Set):
        yield from _indexed(value.items)
    elif isinstance(value, Dict):
        yield from _keyed(value.pairs)
    elif isinstance(value, Made):
        if is_tensor:
            # How a quantised tensor is quantised; hooks are never written.
            scheme = value.args[QUANTIZER] if len(value.args) > QUANTIZER else None
            if isinstance(scheme, tuple):
                yield str(QUANTIZER), scheme
        elif calls(value, *PARAMETERS):
            yield from ((None, data) for data in value.args[:1])
            yield from (
                child
                for state in value.args[STATE_OF_PARAMETER : STATE_OF_PARAMETER + 1]
                for child in state_children(state)
            )
        elif calls(value, ORDERED_DICT):
            # Python 2 gives the pairs as a list of lists.
            yield from _keyed([*_listed_pairs(value.args), *value.pairs])
        else:
            if not isinstance(value.callee, Global):
                yield None, value.callee
            yield from _indexed(value.args)
            if value.kwargs is not None:
                yield None, value.kwargs
            yield from _indexed(value.items)
            yield from _keyed(value.pairs)
        for state in value.states:
            yield from state_children(
                state, skip=MODULE_METADATA if calls(value, ORDERED_DICT) else None
            )


def _indexed(items: Iterable[object]) -> Iterator[Child]:
    return ((str(index), item) for index, item in enumerate(items))


def _keyed(pairs: list[tuple[object, object]]) -> Iterator[Child]:
    """Each key once, where it is first, with its last value, as a dict has it."""
    last = {_identity(key): value for key, value in pairs}
    for key, _ in pairs:
        identity = _identity(key)
        if identity in last:
            yield _word(key), last.pop(identity)


def _identity(key: object) -> str:
    """The same for keys that are equal in Python, as far as they are plain and short.

    A text, because files could be made of integers with equal hashes; short,
    because a long one may be referred to any number of times.
    """
    if isinstance(key, str) and len(key) <= MAX_COMPARED:
        return "s" + key
    if isinstance(key, bytes) and len(key) <= MAX_COMPARED:
        return "b" + key.hex()
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, int):
        return f"i{int(key):x}"
    if isinstance(key, float):
        return f"f{key!r}"
    return f"o{id(key)}"


def _word(key: object) -> str:
    """A key as a part of a path."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return repr(key[:MAX_COMPARED])
    if key is None or isinstance(key, int | float):
        return str(key)
    if isinstance(key, tuple):
        inner = [
            "..." if isinstance(k, tuple) else _word(k)[:MAX_COMPARED] for k in key[:MAX_INNER]
        ]
        return f"({', '.join(inner)})"
    if isinstance(key, LongInteger):
        return "int"
    if isinstance(key, Made):
        key = key.callee
    if isinstance(key, Global):
        return key.path
    return type(key).__name__.lower()


def _listed_pairs(args: tuple[object, ...]) -> Iterator[tuple[object, object]]:
    held = args[0] if len(args) == 1 else None
    for item in held.items if isinstance(held, List) else ():
        pair = item.items if isinstance(item, List) else item
        if isinstance(pair, tuple | list) and len(pair) == 2:
            yield pair[0], pair[1]


def state_children(state: object, skip: str | None = None) -> Iterator[Child]:
    """Attributes: a dict, or a tuple of two, the second one of slots; `skip` is left out."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if all(part is None or isinstance(part, Dict) for part in parts):
        for part in parts:
            if isinstance(part, Dict):
                yield from (child for child in _keyed(part.pairs) if child[0] != skip)
    else:
        yield None, state
