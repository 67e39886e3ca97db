"""The worked examples of the pages on formats, byte for byte."""

from __future__ import annotations

import re

from tests.containers.samples import spelled
from tests.containers.zip_files import example
from tests.docs.pages import blocks, prose, spans, tables
from wtxtgit.containers import any_format
from wtxtgit.containers.torch import pickle_read, views
from wtxtgit.containers.torch.listing import list_tensors

EXAMPLE = "A worked example in bytes"


class TestMlcp:
    PAGE = "docs/spec/mlcp.md"

    def test_the_file(self) -> None:
        cut = any_format.split(memoryview(example("mlcp.md")))
        assert spelled(cut)[0] == "_header"
        assert [extent.name for extent in cut.layout.extents if extent.dtype] == ["w"]
        (w,) = any_format.describe(memoryview(example("mlcp.md"))).tensors
        assert (w.dtype, w.shape, w.offset, w.nbytes) == ("Float32", (2,), 84, 8)

    def test_the_places_that_it_tells(self) -> None:
        data, said = example("mlcp.md"), prose(self.PAGE, EXAMPLE)
        assert "Byte 4 starts the version, 10 the metadata's length (33), 14 the metadata." in said
        assert data[4:10] == b"\x051.0.0"
        assert int.from_bytes(data[10:14], "little") == 33
        assert data[14:47] == b'{"version":"1.0.0","shards":[{}]}'
        assert (
            "The one shard is at 47: count 1; record at 51: name length 1, `w`, dtype at 56" in said
        )
        assert data[47:56] == b"\1\0\0\0\1\0\0\0w"
        assert data[56:64] == b"\x07Float32"
        assert "rank 1 at 64, dimension 2 at 68, size 8 at 76." in said
        numbers = [
            int.from_bytes(data[at:end], "little") for at, end in ((64, 68), (68, 76), (76, 84))
        ]
        assert numbers == [1, 2, 8]
        assert f"The tensor's bytes are 84 to {len(data) - 1}." in said

    def test_without_the_bytes(self) -> None:
        assert "Without them the file would be whole too, and `w` without bytes." in prose(
            self.PAGE, EXAMPLE
        )
        (w,) = any_format.describe(memoryview(example("mlcp.md")[:84])).tensors
        assert (w.name, w.nbytes) == ("w", 0)
        assert w.absent is not None


class TestNpz:
    def test_the_table_of_ranges(self) -> None:
        cut = any_format.split(memoryview(example("npz.md")))
        (table,) = tables("docs/spec/npz.md", EXAMPLE)
        held = {array.name: array.data for array in cut.arrays}
        position = 0
        for row, extent in zip(table, cut.layout.extents, strict=True):
            size = len(extent.hex or b"") or len(held[extent.array or ""])
            assert row[0] == f"{position} to {position + size}"
            position += size
            assert spans(row[2])[0] == ("hex" if extent.hex else extent.array)


class TestTorch:
    PAGE = "docs/spec/torch.md"

    def test_the_pickle(self) -> None:
        """Its bytes, the parts that are left out (`...`) put in."""
        (block,) = [b for b in blocks(self.PAGE, "", "Pickles") if "PROTO 2" in b.text]
        rows = re.findall(r"^((?:(?:[0-9a-f]{2}|\.\.\.)(?: |$))+)(.*)$", block.text, re.M)
        left_out = iter((b"_rebuild_tensor_v2", b"FloatStorage", b"ccollections\nOrderedDict\n"))
        raw = b""
        for held, _ in rows:
            head, dots, tail = held.partition("...")
            raw += bytes.fromhex(head) + (next(left_out) if dots else b"") + bytes.fromhex(tail)
        assert next(left_out, None) is None
        read = pickle_read.parse(memoryview(raw), "data.pkl", views.storage)
        assert read.end == len(raw)
        ((name, view),) = list_tensors(read, 0, "data.pkl").tensors
        assert name == "tensor"
        assert (view.shape, view.strides, view.offset, view.dtype) == ((2, 3), (3, 1), 0, "float32")
        assert view.storage is not None
        assert (view.storage.key, view.storage.numel, view.storage.device) == ("0", 6, "cpu")
