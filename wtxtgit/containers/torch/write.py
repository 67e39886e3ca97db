"""Writing torch files.

Spec: `docs/spec/torch.md`, "What is written"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtxtgit.containers.cursor import quoted
from wtxtgit.containers.torch import PICKLE, pickle_write, zip_layout
from wtxtgit.containers.torch.dtypes import ELEMENTS, SIZES
from wtxtgit.containers.torch.read import ALIGNMENT, BYTEORDER, STORAGE, VERSION
from wtxtgit.containers.torch.views import MAX_RANK, MAX_SIZE
from wtxtgit.containers.torch.zip_layout import DEFAULT_ALIGNMENT, Content
from wtxtgit.errors import FormatError
from wtxtgit.io.view import Buffer
from wtxtgit.model.tensor import TensorSource

DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}
FOLDER = "archive/"
FORMAT_VERSION = (".format_version", b"1")
FILE_VERSION = b"3\n"


def build_model(
    tensors: Sequence[TensorSource],
    tags: Mapping[str, str],
) -> Iterator[Buffer]:
    """The bytes of a file that torch.load reads as an OrderedDict of the tensors.

    Each tensor has a storage of its own and is asked for its blocks once;
    `tags` have no place. Raises FormatError before the first of the bytes.
    """
    names: set[str] = set()
    for tensor in tensors:
        _check_tensor(tensor)
        if tensor.name in names:
            raise FormatError(f"two tensors are called {quoted(tensor.name)}", field="name")
        names.add(tensor.name)
    dtypes = [DTYPES[tensor.element] for tensor in tensors]
    items = [
        # Storages without a class of their own count bytes.
        tensor.nbytes // (SIZES[dtype] if dtype in pickle_write.STORAGE_OF else 1)
        for tensor, dtype in zip(tensors, dtypes, strict=True)
    ]
    pickle = pickle_write.state_dict(list(zip(tensors, dtypes, strict=True)), items)
    return zip_layout.build(
        [
            _small(PICKLE, pickle),
            _small(*FORMAT_VERSION),
            _small(ALIGNMENT, str(DEFAULT_ALIGNMENT).encode("ascii")),
            _small(BYTEORDER, b"little"),
            *(
                Content(f"{FOLDER}{STORAGE}{key}".encode("ascii"), tensor.nbytes, tensor.blocks)
                for key, tensor in enumerate(tensors)
            ),
            _small(VERSION, FILE_VERSION),
        ]
    )


def _check_tensor(tensor: TensorSource) -> None:
    name = quoted(tensor.name)
    if tensor.element not in DTYPES:
        raise FormatError(f"torch has no {tensor.element}, as tensor {name} is", field="dtype")
    try:
        tensor.name.encode()
    except UnicodeEncodeError:
        raise FormatError(f"tensor {name} has a lone surrogate", field="name") from None
    if len(tensor.shape) > MAX_RANK or any(not 0 <= dim <= MAX_SIZE for dim in tensor.shape):
        raise FormatError(f"tensor {name} has a shape that torch has not", field="shape")


def _small(name: str, content: bytes) -> Content:
    def blocks() -> Iterator[Buffer]:
        yield content

    return Content((FOLDER + name).encode("ascii"), len(content), blocks)
