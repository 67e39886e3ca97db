"""What a file says of itself besides tensors and metadata, while a tensor changes."""

from __future__ import annotations

import io
import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.containers import gguf_files, torch_files
from tests.containers.gguf_files import ARCHITECTURE, STRING, UINT32, array, entry, string
from tests.review.repos import file
from wtxtgit.comparison.diff import diff
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import DiffReport

A, B = (np.random.default_rng(n).standard_normal((8, 32)).astype("f4") for n in range(2))
CHANGED = A * np.float32(1.01)


def compared(folder: Path, before: bytes, after: bytes) -> DiffReport:
    paths = [folder / name for name in ("before", "after")]
    for path, content in zip(paths, (before, after), strict=True):
        path.write_bytes(content)
    return diff(*map(str, paths), ReadOptions())


def told(report: DiffReport) -> dict[str, tuple[object, object]]:
    """The metadata that matter, by path: before and after."""
    assert [one.name for one in report.by_change()] == ["a"]
    return {one.path: (one.before, one.after) for one in report.metadata if one.matters}


def gguf(a: Any, *values: bytes, fill: bytes = b"\0") -> bytes:
    infos = [gguf_files.info("a", (32, 8), 0), gguf_files.info("b", (32, 8), 1024)]
    head = gguf_files.head((ARCHITECTURE, *values), infos)
    return gguf_files.padded(head, fill=fill) + a.tobytes() + B.tobytes()


def number(value: int, kind: int = UINT32) -> bytes:
    return entry("x.y", kind, struct.pack("<I", value))


def texts(*items: bytes) -> bytes:
    return entry("x.t", gguf_files.ARRAY, array(STRING, len(items), b"".join(map(string, items))))


def item(start: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [8, 32], "data_offsets": [start, start + 1024]}


def tensors(a: Any, **more: Any) -> bytes:
    header = {"a": item(0), "b": item(1024) | more}
    raw = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw)) + raw + a.tobytes() + B.tobytes()


def legacy(a: Any, tail: float | None = None, more: bytes = b"", dropped: bytes = b"") -> bytes:
    """Two tensors, of which the second may be part of a larger storage.

    The pickle has opcodes whose result is `dropped`.
    """
    rest = b"" if tail is None else np.full(20, tail, "f4").tobytes()
    count = 256 + len(rest) // 4
    content = dropped + torch_files.named(
        a=torch_files.vector("0", 256),
        b=torch_files.tensor("1", count, [256], [1]),
    )
    storages = {"0": (256, a.tobytes()), "1": (count, B.tobytes() + rest)}
    return torch_files.legacy(content, storages) + more


HASH = "a hash"
CASES: dict[str, tuple[bytes, bytes, dict[str, tuple[object, object]]]] = {
    "the type of a value.gguf": (
        gguf(A, number(5)), gguf(CHANGED, number(5, 5)),
        {"/rest/of items/types/x.y": ("uint32", "int32")},
    ),
    "the type of items.gguf": (
        gguf(A, entry("x.a", 9, array(4, 1, bytes(4)))),
        gguf(CHANGED, entry("x.a", 9, array(5, 1, bytes(4)))),
        {"/rest/of items/types/x.a": ("array of uint32", "array of int32")},
    ),
    "a key in front of its like.gguf": (
        gguf(A, number(5)), gguf(CHANGED, number(7), number(5)),
        {"/rest/repeated keys/x.y/0": (None, 7)},
    ),
    "a text that is not UTF-8.gguf": (
        gguf(A, texts(b"a", b"\xfe")), gguf(CHANGED, texts(b"a", b"\xff")),
        {"/rest/not UTF-8/x.t": (HASH, HASH)},
    ),
    "a new value.gguf": (gguf(A), gguf(CHANGED, number(5)), {}),
    "further keys of a tensor.safetensors": (
        tensors(A), tensors(CHANGED, evil={"x": [1]}),
        {"/rest/further keys/b/evil/x/0": (None, 1)},
    ),
    "a storage larger than its tensor.pt": (
        legacy(A), legacy(CHANGED, 1.0), {"/rest/data~11": (None, HASH)},
    ),
    "the rest of a storage.pt": (
        legacy(A, 1.0), legacy(CHANGED, 2.0), {"/rest/data~11": (HASH, HASH)},
    ),
    "behind the last storage.pt": (
        legacy(A), legacy(CHANGED, more=b"secret"),
        {"/rest/behind the last storage": (None, HASH)},
    ),
    "what is not part of the value.pt": (
        legacy(A), legacy(CHANGED, dropped=torch_files.text("hidden") + b"0"),
        {"/rest/data.pkl": (HASH, HASH)},
    ),
    "nothing else.pt": (legacy(A, 1.0), legacy(CHANGED, 1.0), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_is_told(tmp_path: Path, case: str) -> None:
    before, after, wanted = CASES[case]
    found = told(compared(tmp_path, before, after))
    assert found.keys() == wanted.keys()
    for path, values in wanted.items():
        for value, expected in zip(found[path], values, strict=True):
            assert value == expected or (expected == HASH and len(str(value)) == 64)


def test_padding_after_the_header_of_gguf(tmp_path: Path) -> None:
    before, after = gguf(A), gguf(CHANGED, fill=b"P")
    (part,) = compared(tmp_path, before, after).parts
    assert (part.name, part.after) == (None, -len(gguf_files.head((ARCHITECTURE,), [
        gguf_files.info("a", (32, 8), 0), gguf_files.info("b", (32, 8), 1024)
    ])) % 32)  # fmt: skip


SPLIT = "m-0000{}-of-00002.gguf"


def split(folder: Path, a: Any, *values: bytes, more: bytes = b"") -> str:
    folder.mkdir()
    for number_, held in enumerate((a, B)):
        name = "ab"[number_]
        own = [
            entry("split.no", 2, struct.pack("<H", number_)),
            entry("split.count", 2, struct.pack("<H", 2)),
            entry("split.tensors.count", 5, struct.pack("<i", 2)),
        ]
        entries = [*own, *values] if number_ else [ARCHITECTURE, *own]
        infos = [gguf_files.info(name, (32, 8), 0)]
        content = gguf_files.gguf(entries, infos, held.tobytes())
        path = folder / SPLIT.format(number_ + 1)
        path.write_bytes(content + (more if number_ else b""))
    return str(folder)


def sharded(folder: Path, a: Any, metadata: dict[str, str] | None = None, more: bytes = b"") -> str:
    folder.mkdir()
    (folder / "1.safetensors").write_bytes(file({"a": a}))
    (folder / "2.safetensors").write_bytes(file({"b": B}, metadata) + more)
    index = folder / "model.safetensors.index.json"
    weight_map = {"a": "1.safetensors", "b": "2.safetensors"}
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return str(index)


def test_files_of_a_split_model(tmp_path: Path) -> None:
    """Those that hold no tensor that changed, too."""
    before = split(tmp_path / "a", A)
    report = diff(before, split(tmp_path / "b", CHANGED, texts(b"new")), ReadOptions())
    assert told(report) == {f"/files/{SPLIT.format(2)}/metadata_kv/x.t/0": (None, "new")}
    report = diff(before, split(tmp_path / "c", CHANGED, more=b"secret"), ReadOptions())
    (part,) = report.parts
    assert part.message.startswith(f"{SPLIT.format(2)}: 6 bytes at offset ")
    assert report.as_dict()["parts"][0]["file"] == SPLIT.format(2)
    assert diff(before, split(tmp_path / "d", CHANGED), ReadOptions()).parts == ()


def test_files_of_a_sharded_model(tmp_path: Path) -> None:
    before = sharded(tmp_path / "a", A)
    report = diff(before, sharded(tmp_path / "b", CHANGED, {"x": "y"}, b"secret"), ReadOptions())
    assert "/files/2.safetensors/__metadata__/x" in told(report)
    assert [part.file for part in report.parts] == ["2.safetensors"]
    report = diff(before, sharded(tmp_path / "c", CHANGED), ReadOptions())
    assert (told(report), report.parts) == ({}, ())


class Distributed:
    """A checkpoint as torch saves it, and edits of it."""

    def __init__(self, folder: Path, w: Any, **more: Any) -> None:
        from importlib import import_module

        self.folder = folder
        torch, saver = import_module("torch"), import_module("torch.distributed.checkpoint")
        state = {"m": {"a": torch.tensor(w), "b": torch.tensor(B)}, "opt": {"lr": 0.5}, **more}
        with warnings.catch_warnings():
            # That there is one process.
            warnings.simplefilter("ignore")
            saver.save(state, checkpoint_id=str(folder), no_dist=True)

    def metadata(self, edit: Callable[[Any], object]) -> None:
        path = self.folder / ".metadata"
        held = pickle.loads(path.read_bytes())  # noqa: S301 - our own
        edit(held)
        path.write_bytes(pickle.dumps(held))

    def archive(self, name: str, edit: Callable[[bytes], bytes]) -> None:
        """Edit the archive of a tensor, and put all one after the other."""

        def placed(metadata: Any) -> None:
            path = self.folder / "__0_0.distcp"
            raw, made = path.read_bytes(), b""
            items = sorted(metadata.storage_data.items(), key=lambda pair: pair[1].offset)
            for index, place in items:
                content = raw[place.offset : place.offset + place.length]
                if index.fqn == name:
                    content = edit(content)
                place.offset, place.length = len(made), len(content)
                made += content
            path.write_bytes(made)

        self.metadata(placed)


def with_member(content: bytes) -> bytes:
    held = io.BytesIO(content)
    with zipfile.ZipFile(held, "a") as archive:
        archive.writestr("archive/evil", b"secret")
    return held.getvalue()


def as_parameter(content: bytes) -> bytes:
    from importlib import import_module

    torch: Any = import_module("torch")
    held = io.BytesIO()
    torch.save(torch.load(io.BytesIO(content)).requires_grad_(), held)
    return held.getvalue()


EDITS: dict[str, tuple[Callable[[Distributed], None], str]] = {
    "a member": (
        lambda made: made.archive("m.b", with_member),
        "/rest/of items/archives/tensor 'm.b' (chunk at [0, 0])/evil",
    ),
    "a gradient": (
        lambda made: made.archive("m.b", as_parameter),
        "/rest/of items/archives/tensor 'm.b' (chunk at [0, 0])/data.pkl",
    ),
    "a plan": (
        lambda made: made.metadata(lambda held: held.planner_data.update(evil=("x",))),
        "/rest/.metadata/planner_data/evil/0",
    ),
    "an attribute": (
        lambda made: made.metadata(lambda held: held.__dict__.update(evil="x")),
        "/rest/.metadata/evil",
    ),
    "a property": (
        lambda made: made.metadata(
            lambda held: setattr(held.state_dict_metadata["m.b"].properties, "pin_memory", True)
        ),
        "/rest/of items/properties/m.b/3",
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("edit", [None, *EDITS])
def test_distributed_checkpoints(tmp_path: Path, edit: str | None) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    Distributed(folders[0], A)
    made = Distributed(folders[1], CHANGED)
    wanted = []
    if edit is not None:
        EDITS[edit][0](made)
        wanted.append(EDITS[edit][1])
    report = diff(*map(str, folders), ReadOptions())
    assert [one.name for one in report.by_change()] == ["m.a"]
    assert [one.path for one in report.metadata if one.matters] == wanted


@pytest.mark.torch
def test_a_new_value_of_a_distributed_checkpoint(tmp_path: Path) -> None:
    """Its archive and its place in the plan are nothing of their own."""
    folders = tmp_path / "a", tmp_path / "b"
    Distributed(folders[0], A)
    Distributed(folders[1], CHANGED, step={"n": 3})
    report = diff(*map(str, folders), ReadOptions())
    assert [one.path for one in report.metadata] == ["/values/step.n"]
