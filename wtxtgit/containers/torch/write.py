"""Writing torch files: an OrderedDict of names and tensors, pickled in protocol 2.

Globals and words that are used again are put into the memo. Spec: `docs/spec/torch.md`, "What is
written"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.json_text import is_text, refuse_repeated
from wtxtgit.containers.torch import PICKLE, zip_layout
from wtxtgit.containers.torch.read import ALIGNMENT, BYTEORDER, DEFAULT_ALIGNMENT, STORAGE, VERSION
from wtxtgit.containers.torch.views import ELEMENTS, MAX_RANK, MAX_SIZE, SIZES, STORAGES
from wtxtgit.containers.torch.zip_layout import new_member
from wtxtgit.containers.zip_write import NewMember
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

PROTOCOL = 2
LOCATION = "cpu"
UNTYPED = ("torch.storage", "UntypedStorage")
UNTYPED_DTYPE = STORAGES["UntypedStorage"]
# Items that are set at a time, as by Python's own pickler.
BATCH = 1000
STORAGE_OF = {dtype: kind for kind, dtype in STORAGES.items() if not kind.endswith("pedStorage")}
"""The storage class for each dtype that has one."""
DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}
FOLDER = "archive/"
FORMAT_VERSION = (".format_version", b"1")
FILE_VERSION = b"3\n"


class PickleWriter:
    """The bytes of opcodes, and the content of their memo, if they use one (`remembers`)."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.remembers = remembers
        self.parts: list[bytes] = []
        self.memo: dict[str | tuple[str, str], int] = {}

    def put(self, *parts: bytes) -> None:
        self.parts.extend(parts)

    def put_text(self, text: str) -> None:
        raw = text.encode()
        self.put(b"X", len(raw).to_bytes(4, "little"), raw)

    def _put_once(self, key: str | tuple[str, str]) -> bool:
        """Take something from the memo if it is there; returns whether it was."""
        if key in self.memo:
            self.put(b"h", bytes([self.memo[key]]))
        return key in self.memo

    def _remember(self, key: str | tuple[str, str]) -> None:
        if not self.remembers:
            return
        self.memo[key] = len(self.memo)
        self.put(b"q", bytes([self.memo[key]]))

    def put_word(self, word: str) -> None:
        if not self._put_once(word):
            self.put_text(word)
            self._remember(word)

    def put_global(self, module: str, name: str) -> None:
        if not self._put_once((module, name)):
            self.put(f"c{module}\n{name}\n".encode("ascii"))
            self._remember((module, name))

    def put_integer(self, value: int) -> None:
        if value < 2**8:
            self.put(b"K", value.to_bytes(1, "little"))
        elif value < 2**16:
            self.put(b"M", value.to_bytes(2, "little"))
        elif value < 2**31:
            self.put(b"J", value.to_bytes(4, "little"))
        else:
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little")
            self.put(b"\x8a", bytes([len(raw)]), raw)

    def put_bool(self, value: bool) -> None:
        self.put(b"\x88" if value else b"\x89")

    def put_sizes(self, values: Sequence[int]) -> None:
        if not values:
            self.put(b")")
            return
        self.put(b"(")
        for value in values:
            self.put_integer(value)
        self.put(b"t")

    def put_ordered_dict(self) -> None:
        self.put_global("collections", "OrderedDict")
        self.put(b")R")


def state_dict(tensors: Sequence[tuple[TensorSource, str]], items: Sequence[int]) -> bytes:
    """Return the pickle of tensors with their dtypes, each of which is a whole storage.

    The storages' keys are "0", "1", ... in the same order; `items` are their numbers of items.
    """
    pickle = PickleWriter()
    pickle.put(b"\x80", bytes([PROTOCOL]))
    pickle.put_ordered_dict()
    for first in range(0, len(tensors), BATCH):
        pickle.put(b"(")
        for place in range(first, min(first + BATCH, len(tensors))):
            source, dtype = tensors[place]
            pickle.put_text(source.name)
            put_tensor(
                pickle,
                source.shape,
                contiguous_strides(source.shape),
                dtype,
                str(place),
                items[place],
            )
        pickle.put(b"u")
    pickle.put(b".")
    return b"".join(pickle.parts)


def put_tensor(
    pickle: PickleWriter,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
    key: str,
    items: int,
    location: str = LOCATION,
    *,
    requires_grad: bool = False,
    is_legacy: bool = False,
) -> None:
    """Add the call that rebuilds a tensor from all `items` items of the storage `key`."""
    is_typed = dtype in STORAGE_OF
    pickle.put_global("torch._utils", "_rebuild_tensor_v2" if is_typed else "_rebuild_tensor_v3")
    pickle.put(b"((")
    pickle.put_word("storage")
    pickle.put_global(*(("torch", STORAGE_OF[dtype]) if is_typed else UNTYPED))
    pickle.put_text(key)
    pickle.put_word(location)
    pickle.put_integer(items)
    pickle.put(b"NtQ" if is_legacy else b"tQ")
    pickle.put_integer(0)
    pickle.put_sizes(shape)
    pickle.put_sizes(strides)
    pickle.put_bool(requires_grad)
    # There are no backward hooks.
    pickle.put_ordered_dict()
    if not is_typed:
        pickle.put_global("torch", dtype)
    pickle.put(b"tR")


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in items, that torch gives a tensor in C order."""
    strides = []
    step = 1
    for dim in reversed(shape):
        strides.append(step)
        step *= max(dim, 1)
    return tuple(reversed(strides))


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
) -> Iterator[Buffer]:
    """Yield a file that torch.load reads as an OrderedDict of the tensors.

    Each tensor has its own storage, and its blocks are read once; `tags` are dropped. Raises
    FormatError before yielding anything.
    """
    for tensor in tensors:
        _check_tensor(tensor)
    refuse_repeated((tensor.name for tensor in tensors), "two tensors are named {}")
    dtypes = [DTYPES[tensor.element] for tensor in tensors]
    items = [
        # Storages of dtypes without a class of their own count bytes.
        tensor.nbytes // (SIZES[dtype] if dtype in STORAGE_OF else 1)
        for tensor, dtype in zip(tensors, dtypes, strict=True)
    ]
    pickle = state_dict(list(zip(tensors, dtypes, strict=True)), items)
    return zip_layout.build(
        [
            _small(PICKLE, pickle),
            _small(*FORMAT_VERSION),
            _small(ALIGNMENT, str(DEFAULT_ALIGNMENT).encode("ascii")),
            _small(BYTEORDER, b"little"),
            *(
                new_member(f"{FOLDER}{STORAGE}{key}".encode("ascii"), tensor.nbytes, tensor.blocks)
                for key, tensor in enumerate(tensors)
            ),
            _small(VERSION, FILE_VERSION),
        ]
    )


def _check_tensor(tensor: TensorSource) -> None:
    name = quoted(tensor.name)
    if tensor.element not in DTYPES:
        message = f"tensor {name} is {tensor.element}, which torch does not have"
        raise FormatError(message, field="dtype")
    if not is_text(tensor.name):
        raise FormatError(f"tensor {name} has a lone surrogate", field="name")
    if len(tensor.shape) > MAX_RANK or any(not 0 <= dim <= MAX_SIZE for dim in tensor.shape):
        raise FormatError(f"tensor {name} has a shape that torch does not support", field="shape")


def _small(name: str, content: bytes) -> NewMember:
    return new_member((FOLDER + name).encode("ascii"), len(content), partial(iter, (content,)))
