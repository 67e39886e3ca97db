"""torch itself: it loads what is written here, and its files are read as it reads them."""

from __future__ import annotations

import io
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from tests.containers.samples import check_cut
from tests.containers.sources import content, source
from tests.containers.torch_files import items_of, saved
from wtxtgit.containers.any_format import check, describe, split
from wtxtgit.containers.torch import read, write, zip_layout
from wtxtgit.containers.torch.check import is_safe
from wtxtgit.containers.torch.pickle_read import Global
from wtxtgit.containers.torch.views import ELEMENTS, SIZES, STORAGES
from wtxtgit.model.tensor import ReadOptions, Tensor

pytestmark = pytest.mark.torch


@pytest.fixture(name="torch")
def _torch() -> Iterator[Any]:
    import torch

    torch.manual_seed(0)
    with warnings.catch_warnings():
        # Deprecations of quantised tensors, and sparse ones that are a beta.
        warnings.simplefilter("ignore")
        yield torch


def raw(torch: Any, tensor: Any) -> bytes:
    """A tensor's items in C order, as bytes."""
    held = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(held.view(torch.uint8).numpy()) if held.numel() else b""


def leaves(torch: Any, value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Names and tensors of a value of plain data."""
    if isinstance(value, torch.Tensor):
        yield ".".join(path), value
        return
    pairs: list[tuple[object, object]] = []
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = list(enumerate(value))
    elif isinstance(value, SimpleNamespace):
        pairs = list(vars(value).items())
    for key, inner in pairs:
        yield from leaves(torch, inner, (*path, str(key)))


def agree(torch: Any, value: object, data: bytes) -> dict[str, Tensor]:
    described = describe(memoryview(data))
    wanted = list(leaves(torch, value))
    found = described.tensors
    assert [tensor.name for tensor in found] == [name for name, _ in wanted]
    for tensor, (_, expected) in zip(found, wanted, strict=True):
        assert tensor.absent is None
        assert f"torch.{tensor.dtype}" == str(expected.dtype)
        assert tensor.shape == tuple(expected.shape)
        assert sha256(items_of(tensor)).digest() == sha256(raw(torch, expected)).digest()
    assert check(memoryview(data)).errors == []
    check_cut(split(memoryview(data)), data)
    return {tensor.name: tensor for tensor in found}


def value_of(torch: Any) -> dict[str, object]:
    """Views, shared tensors, parameters, modules' and optimizers' states, all dtypes."""
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(5, 6)).sum().backward()
    optimizer.step()
    base = torch.arange(24.0)
    dtypes = {dtype: torch.zeros(8, dtype=torch.uint8) for dtype in ELEMENTS}
    for number, dtype in enumerate(dtypes):
        item = SIZES[dtype]
        held = torch.arange(2 * item, dtype=torch.uint8) % 2 if dtype == "bool" else None
        held = torch.arange(2 * item, dtype=torch.uint8) + number if held is None else held
        dtypes[dtype] = held.view(getattr(torch, dtype))
    return {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "dtypes": dtypes,
        "views": [base.view(4, 6).t(), base[3:9], base[::5], base.view(2, 3, 4).permute(2, 0, 1)],
        "expanded": torch.arange(3.0).expand(4, 3),
        "tied": {"a": net[0].weight, "b": net[0].weight, 3: (base, base)},
        "parameter": torch.nn.Parameter(torch.ones(2, 2), requires_grad=False),
        "empty": torch.zeros(0, 5),
        "scalar": torch.tensor(5),
        "epoch": 7,
        "name": "x" * 300,
        "long": -(2**70),
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_of_plain_data(torch: Any, protocol: int) -> None:
    value = value_of(torch)
    agree(torch, value, saved(torch, value, pickle_protocol=protocol))


@pytest.mark.parametrize("protocol", [2, 4])
def test_legacy_files(torch: Any, protocol: int) -> None:
    value = value_of(torch)
    options = {"_use_new_zipfile_serialization": False, "pickle_protocol": protocol}
    del value["dtypes"]
    agree(torch, value, saved(torch, value, **options))


@pytest.mark.parametrize("element", sorted(write.DTYPES))
def test_each_dtype_is_cut_as_a_tensor(torch: Any, element: str) -> None:
    dtype = write.DTYPES[element]
    value = {"w": torch.zeros(3, dtype=getattr(torch, dtype))}
    data = saved(torch, value)
    agree(torch, value, data)
    (extent,) = (e for e in split(memoryview(data)).layout.extents if e.is_tensor)
    assert (extent.name, extent.dtype, extent.shape) == ("w", dtype, (3,))


def test_options_of_the_writer(torch: Any) -> None:
    value = {"w": torch.arange(5.0)}
    torch.serialization.set_crc32_options(False)
    try:
        data = saved(torch, value)
    finally:
        torch.serialization.set_crc32_options(True)
    agree(torch, value, data)
    assert [w.kind for w in check(memoryview(data)).warnings] == ["crc32"]


def test_a_tensor_alone_and_an_empty_dict(torch: Any) -> None:
    (only,) = describe(memoryview(saved(torch, torch.ones(3)))).tensors
    assert only.name == "tensor"
    agree(torch, {}, saved(torch, {}))


def test_objects_are_walked(torch: Any) -> None:
    value = SimpleNamespace(w=torch.ones(2), inner=SimpleNamespace(v=torch.zeros(3)))
    agree(torch, value, saved(torch, value))
    data = saved(torch, torch.nn.Sequential(torch.nn.Linear(2, 3)))
    found = {tensor.name for tensor in describe(memoryview(data)).tensors}
    linear = "_modules.0._parameters"
    assert found == {f"{linear}.weight", f"{linear}.bias"}
    messages = [warning.message for warning in check(memoryview(data)).warnings]
    assert any("torch.nn.modules.linear.Linear" in message for message in messages)


def test_tensors_of_other_kinds_do_no_harm(torch: Any) -> None:
    scales = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    attributed = torch.nn.Parameter(torch.ones(2))
    attributed.mark = torch.zeros(1)
    value = {
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "affine": torch.quantize_per_tensor(torch.ones(3), 0.1, 2, torch.quint8),
        "channels": torch.quantize_per_channel(torch.ones(2, 3), *scales, 0, torch.qint8),
        "packed": torch.quantize_per_channel(
            torch.ones(2, 3), scales[0], torch.zeros(2), 0, torch.quint4x2
        ),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "meta": torch.zeros(3, device="meta"),
        "storage": torch.ones(2).untyped_storage(),
        "attributed": attributed,
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    }
    data = saved(torch, value)
    check_cut(split(memoryview(data)), data)
    assert check(memoryview(data)).errors == []
    found = {tensor.name: tensor for tensor in describe(memoryview(data)).tensors}
    assert bytes(found["sparse.1.1"].data) == raw(torch, value["sparse"].coalesce().values())
    assert (found["affine"].dtype, found["affine"].element) == ("quint8", None)
    assert bytes(found["affine"].data) == bytes(value["affine"].int_repr().numpy())
    assert found["channels.4.1"].dtype == "float64"
    assert found["packed"].element is None
    assert found["conjugate"].element == "c64"
    assert bytes(found["conjugate"].data) == raw(torch, value["conjugate"].resolve_conj())
    assert found["meta"].absent is not None
    assert "storage" not in found
    assert found["attributed.mark"].shape == (1,)


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_what_is_written(torch: Any, mmap: bool, tmp_path: Any) -> None:
    shapes = {"f32": (2, 3), "i64": (), "bf16": (0, 3), "f8_e4m3": (5,), "u16": (1, 2, 3)}
    elements = {element: shapes.get(element, (3, 2)) for element in write.DTYPES}
    sources = [source(f"layer.{e}", e, s) for e, s in elements.items() if e != "bool"]
    sources.append(source("layer.bool", "bool", (3,), b"\0\1\1"))
    sources += [source(f"x{n}", "u8", (1,)) for n in range(1100)]
    file = tmp_path / "model.pt"
    file.write_bytes(b"".join(write.build_model(sources, {})))
    loaded = torch.load(file, weights_only=True, mmap=mmap)
    assert type(loaded) is OrderedDict
    assert list(loaded) == [tensor.name for tensor in sources]
    for made in sources:
        tensor = loaded[made.name]
        assert str(tensor.dtype) == f"torch.{write.DTYPES[made.element]}"
        assert tuple(tensor.shape) == made.shape
        assert tensor.is_contiguous()
        assert raw(torch, tensor) == content(made)


def test_torch_finds_the_places_of_storages_as_it_would_have_written_them(torch: Any) -> None:
    sources = [source(f"w{n}", "f32", (n % 4,)) for n in range(30)]
    data = b"".join(write.build_model(sources, {}))
    theirs = saved(torch, OrderedDict((s.name, torch.zeros(s.shape)) for s in sources))
    ours = {key: m.size for key, m in read.read(memoryview(data)).storages.items()}
    assert ours == {key: m.size for key, m in read.read(memoryview(theirs)).storages.items()}
    from torch.utils.serialization import config

    config.load.calculate_storage_offsets = True
    try:
        loaded = torch.load(io.BytesIO(data), weights_only=True)
    finally:
        config.load.calculate_storage_offsets = False
    assert [raw(torch, loaded[s.name]) for s in sources] == [content(s) for s in sources]


def test_torch_loads_repacked_files(torch: Any) -> None:
    value = value_of(torch)
    container = read.read(memoryview(saved(torch, value)))
    data = b"".join(zip_layout.repack(container, "none", ReadOptions()))
    loaded = torch.load(io.BytesIO(data), weights_only=True)
    for (name, made), (expected, tensor) in zip(
        leaves(torch, loaded), leaves(torch, value), strict=True
    ):
        assert name == expected
        assert raw(torch, made) == raw(torch, tensor)


def test_what_weights_only_reads(torch: Any) -> None:
    """The tables of globals, storages and dtypes are those of torch, whose dtypes may be newer."""
    from torch import _weights_only_unpickler, storage

    for path in _weights_only_unpickler._get_allowed_globals():
        module, _, name = path.rpartition(".")
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype or name in SIZES:
            assert is_safe(Global(module, name)), path
    classes = {
        v: str(k).removeprefix("torch.") for k, v in storage._dtype_to_storage_type_map().items()
    }
    assert classes == {k: v for k, v in STORAGES.items() if not k.endswith("UntypedStorage")}
    assert {v: k for k, v in classes.items()} == write.STORAGE_OF
    known = {d: SIZES.get(str(d).removeprefix("torch.")) for d in storage._new_dtypes()}
    assert len([size for size in known.values() if size]) >= 10
    assert all(size in (None, dtype.itemsize) for dtype, size in known.items())
