"""Small files of every format: of their original writers, of ours, and made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from struct import pack

from tests.containers import gguf_files, samples, torch_files, zip_files
from tests.containers.sources import source
from tests.data import DATA, FIXTURES, fixture, golden, golden_of
from tests.fuzz.container_oracle import OPTIONS, Members
from wtxtgit.containers import any_format, registry
from wtxtgit.model.tensor import TensorSource

MOST = 5200
"""Bytes of a seed, as many as most of the original writers' small files have."""
FORMATS = tuple(known.name for known in registry.FORMATS)
DISTRIBUTED = DATA / "distributed"
TAGS = {"model_name": "m\n☃", "architecture": "é", "general.architecture": "llama"}
SHAPES = ((), (3,), (0, 2), (2, 3), (1, 2, 1, 2), (5, 1), (32,), (4, 32))


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    """Seeds of a format; never an empty table."""
    found = list(dict.fromkeys([*_originals(name), *_made(name), *_ours(name)]))
    assert found
    assert all(registry.detect(memoryview(seed)) == name for seed in found)
    return tuple(found)


@cache
def sets() -> dict[str, tuple[tuple[bytes, Members], ...]]:
    """Sets: what lists the files, and the files by path."""
    aerosets = [path.parent for path in sorted(FIXTURES.glob("aero/*/model.aeroset.json"))]
    assert aerosets
    return {
        "aeroset": (*map(_folder, aerosets), _ours_in_a_set("aero")),
        "safetensors-index": (
            *map(_sharded, (1, 2)),
            _ours_in_a_set("safetensors"),
            _numbered(DISTRIBUTED / "hf"),
        ),
        "gguf-split": tuple(map(_split, (1, 3))),
        "sharded-mlcp": (_ours_in_a_set("mlcp"),),
        "torch-distributed": tuple(
            _files_in(DISTRIBUTED / name, ".metadata") for name in ("files", "ranks")
        ),
    }


def _files_in(folder: Path, index: str) -> tuple[bytes, Members]:
    members = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return members.pop(index), members


def _numbered(folder: Path) -> tuple[bytes, Members]:
    return _with_index({path.name: path.read_bytes() for path in sorted(folder.iterdir())})


def _split(count: int) -> tuple[bytes, Members]:
    """A model in so many GGUF files of a tensor each, as llama.cpp splits them."""
    members = {}
    for number in range(count):
        told = (("split.no", 2, "<H", number), ("split.count", 2, "<H", count),
                ("split.tensors.count", 5, "<i", count))  # fmt: skip
        entries = [
            *([gguf_files.ARCHITECTURE] if number == 0 else []),
            *(gguf_files.entry(key, kind, pack(form, value)) for key, kind, form, value in told),
        ]
        infos = [gguf_files.info(f"w{number}", (2, 2), 0)]
        name = f"m-{number + 1:05}-of-{count:05}.gguf"
        members[name] = gguf_files.gguf(entries, infos, bytes(16))
    return _with_index(members)


def _with_index(members: Members) -> tuple[bytes, Members]:
    made = registry.index_made(list(members))
    assert made is not None
    return bytes(made), members


@cache
def legacy() -> tuple[bytes, ...]:
    """Files of torch that are no zips."""
    vectors = torch_files.dict_of(
        (torch_files.text("a"), torch_files.vector("0", 2)),
        (torch_files.text("b"), torch_files.vector("1", 3, "HalfStorage")),
    )
    made = torch_files.legacy(vectors, {"0": (2, bytes(8)), "1": (3, bytes(6))})
    found = (fixture("plain/legacy_a.pt"), made, torch_files.legacy(b"}", {}))
    assert {any_format.identify(memoryview(seed)) for seed in found} == {"torch"}
    return found


def _originals(name: str) -> list[bytes]:
    if name in ("npy", "npz", "gguf"):
        return [fixture(path) for path in golden_of(name)]
    if name == "torch":
        return [raw for raw in _nested() if registry.detect(memoryview(raw)) == name]
    held = (fixture(path) for path in golden_of(name))
    return [raw for raw in held if len(raw) <= MOST]


def _nested() -> list[bytes]:
    """The files in chunks of FOLD files."""
    found = []
    for path, record in golden().items():
        if record["format"] == "fold" and record["bytes"] <= MOST:
            described = any_format.describe(memoryview(fixture(path)), OPTIONS)
            found += [bytes(nested.open()) for nested in described.nested]
    return found


def _ours(name: str) -> list[bytes]:
    """What our writers make of a few tensors."""
    known = registry.by_name(name)
    if known is None or known.write is None:
        return []
    writer = known.write()
    elements = sorted(writer.DTYPES)
    some = [source(e, e, SHAPES[n % len(SHAPES)]) for n, e in enumerate(elements)]
    models: list[Sequence[TensorSource]] = [some[:1], some[1:2], some, some[::2]]
    if name == "npy":
        models = [[one] for one in some]
    tags: Mapping[str, str] = TAGS if known.keeps_tag is not None else {}
    return [b"".join(bytes(b) for b in writer.build_model(model, tags)) for model in models]


def _made(name: str) -> list[bytes]:
    """Files that are not what writers make, and can be read."""
    if name == "fold":
        nested = samples.safetensors({"a": samples.tensor_item("U8", [2], 0, 2)}, b"ab")
        chunks = [samples.fold_chunk(b"STEN", nested), samples.fold_chunk(b"JSON", b"{}")]
        return [samples.fold(chunks), samples.fold([])]
    if name == "aero":
        held = samples.tidx([samples.aero_entry("a", 0, 4)], compress=True)
        return [samples.aero([(b"TIDX", b"t", held, 1), (b"WTSH", b"weights.shard0", b"abcd")])]
    if name == "mlcp":
        record = b"\1\0\0\0" + samples.mlcp_record(b"a", "Int8", [3], 3)
        listed = {"shards": [1]}
        return [samples.mlcp(listed, record + b"abc"), samples.mlcp(None, bytes(8))]
    if name == "taridx":
        return [samples.taridx("é\njpg".encode(), b"s", bytes(32)), samples.taridx(b"", b"", b"")]
    if name == "safetensors":
        return [samples.safetensors({"a": samples.tensor_item("C64", [1], 0, 8)}, b"abcdefgh")]
    if name == "npz":
        entry = zip_files.Entry
        held = [entry(b"a.npy", zip_files.npy([1.0, 2.0])), entry(b"b.npy", zip_files.npy(3), 8)]
        return [zip_files.zipped(held), zip_files.zipped([*held, entry(b"c.txt", b"text")])]
    if name == "torch":
        return _archives()
    if name == "gguf":
        array = gguf_files.array(9, 2, gguf_files.array(4, 1, bytes(4)) * 2)
        entries = [
            gguf_files.ARCHITECTURE,
            gguf_files.alignment(8),
            gguf_files.entry("a", 9, array),
        ]
        return [gguf_files.gguf(entries, [gguf_files.info("w", (2, 2), 0)], bytes(16), unit=8)]
    return []


def _archives() -> list[bytes]:
    text, vector, view = torch_files.text, torch_files.vector, torch_files.tensor
    transposed = view("1", 6, [3, 2], [1, 3], kind="LongStorage")
    value = torch_files.dict_of(
        (text("a"), vector("0", 4)), (text("b"), transposed), (text("n"), torch_files.number(5))
    )
    broadcast = torch_files.list_of(
        view("0", 4, [100, 4], [0, 1]), view("0", 4, [2], [2], offset=1)
    )
    storages = {"0": bytes(range(16)), "1": bytes(48)}
    return [
        torch_files.archive(value, storages),
        torch_files.archive(value, storages, byteorder=b"big", deflated=("data/1", "data.pkl")),
        torch_files.archive(broadcast, {"0": bytes(16)}, byteorder=None),
    ]


def _folder(path: Path) -> tuple[bytes, Members]:
    members = {file.name: file.read_bytes() for file in path.glob("*.aero")}
    return (path / "model.aeroset.json").read_bytes(), members


def _ours_in_a_set(name: str) -> tuple[bytes, Members]:
    """A model in several files of a format; the last one that is written lists the others."""
    some = [source(str(n), "f32", SHAPES[n]) for n in range(5)]
    known = registry.by_name(name)
    assert known is not None
    assert known.write_set is not None
    writer = known.write_set()
    files = {
        path: b"".join(map(bytes, pieces)) for path, pieces in writer.build_set(some, TAGS, "m", 24)
    }
    index = list(files)[-1]
    return files.pop(index), files


def _sharded(count: int) -> tuple[bytes, Members]:
    names = [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
    item = samples.tensor_item("F32", [2], 0, 8)
    members = {
        name: samples.safetensors({f"t{n}": item, "__metadata__": {"format": "pt"}}, bytes(8))
        for n, name in enumerate(names)
    }
    weight_map = ",".join(f'"t{n}":"{name}"' for n, name in enumerate(names))
    index = f'{{"metadata":{{"total_size":{8 * count}}},"weight_map":{{{weight_map}}}}}'
    return index.encode(), members
