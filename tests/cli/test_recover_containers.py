"""`wtxtgit recover` of checkpoints: which tensors are whole, what is lost, and what is written."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Command
from tests.containers.samples import safetensors, tensor_item
from tests.data import GOLDEN, fixture
from wtxtgit.containers import zip_read

FIRST, SECOND = np.arange(100, dtype="<f4"), np.arange(50, dtype="<f4")
HEADER = {
    "__metadata__": {"author": "a"},
    "first": tensor_item("F32", [100], 0, 400),
    "second": tensor_item("F32", [5, 10], 400, 600),
}
WHOLE = safetensors(HEADER, FIRST.tobytes() + SECOND.tobytes())
CUT = WHOLE[:-90]
TORCH = "torch/state_dict.pt"


def put(wtxtgit: Command, name: str, content: bytes) -> None:
    wtxtgit.folder.joinpath(name).write_bytes(content)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


def told(wtxtgit: Command, *arguments: str) -> dict[str, Any]:
    done = wtxtgit("recover", *arguments, "--json")
    assert done.err == ""
    report: dict[str, Any] = json.loads(done.out)
    assert done.code == (0 if report["state"] in ("intact", "whole") else 1)
    return report


def listed(wtxtgit: Command, name: str) -> dict[str, str]:
    """The tensors of a file that holds, and their SHA-256."""
    assert wtxtgit("verify", name).code == 0
    report = json.loads(wtxtgit("inspect", name, "--json").out)
    return {tensor["name"]: tensor["sha256"] for tensor in report["tensors"]}


def test_a_download_that_stopped(wtxtgit: Command) -> None:
    put(wtxtgit, "m.safetensors", CUT)
    done = wtxtgit("recover", "m.safetensors")
    assert (done.code, done.err) == (1, "")
    assert done.out.decode().splitlines() == [
        "lost    dtype  shape   bytes    why",
        "second  f32    5 x 10  110-200  the file ends before it does",
        "m.safetensors: not all of it could be recovered: 1 tensor unproved, 1 tensor lost",
    ]
    report = told(wtxtgit, "m.safetensors")
    first, second = report["tensors"]
    assert first == {
        "name": "first",
        "dtype": "f32",
        "shape": [100],
        "state": "unproved",
        "lost": [],
    }
    assert second["lost"] == [[110, 200]]
    assert report["missing"] == []
    assert wtxtgit.names() == ["m.safetensors"]


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".npy", ".pt", ".gguf", ".checkpoint"])
def test_what_is_whole_is_written_in_the_format_of_the_ending(
    wtxtgit: Command, ending: str
) -> None:
    put(wtxtgit, "m.safetensors", CUT)
    done = wtxtgit("recover", "m.safetensors", "-o", f"left{ending}")
    assert (done.code, done.err) == (1, "")
    assert done.out.endswith(f"left{ending}: written\n".encode())
    put(wtxtgit, "whole.safetensors", WHOLE)
    wanted = listed(wtxtgit, "whole.safetensors")["first"]
    assert list(listed(wtxtgit, f"left{ending}").values()) == [wanted]
    assert (b"dropped: tag 'author'" in done.out) is (
        ending not in (".safetensors", ".gguf", ".checkpoint")
    )
    assert wtxtgit.folder.joinpath("m.safetensors").read_bytes() == CUT


def test_a_file_that_holds(wtxtgit: Command) -> None:
    put(wtxtgit, "m.safetensors", WHOLE)
    done = wtxtgit("recover", "m.safetensors")
    assert (done.code, done.out) == (0, b"m.safetensors: nothing is damaged: 2 tensors unproved\n")
    # Nothing of a tensor is behind its bytes, but no reader takes the file.
    put(wtxtgit, "m.safetensors", WHOLE + b"xx")
    report = told(wtxtgit, "m.safetensors")
    assert report["state"] == "whole"
    assert len(report["notes"]) == 1


def test_nothing_is_written_where_nothing_is_whole(wtxtgit: Command) -> None:
    put(wtxtgit, "m.safetensors", WHOLE[:-550])
    done = wtxtgit("recover", "m.safetensors", "-o", "left.safetensors")
    assert done.code == 1
    assert b"note: no tensor is intact, so nothing was written\n" in done.out
    assert done.out.endswith(b"m.safetensors: nothing could be recovered: 2 tensors lost\n")
    put(wtxtgit, "m.safetensors", WHOLE[:20])
    report = told(wtxtgit, "m.safetensors", "-o", "left.safetensors")
    assert (report["state"], report["tensors"]) == ("lost", [])
    assert report["missing"] == ["header is cut short at byte 8"]
    assert wtxtgit.names() == ["m.safetensors"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "m.safetensors"),
        ("-o", "left.unknown"),
        ("-o", "left.taridx"),
        ("--partial", "-o", "left.safetensors"),
        ("--from", "m.safetensors"),
    ],
)
def test_what_makes_no_sense(wtxtgit: Command, arguments: tuple[str, ...]) -> None:
    put(wtxtgit, "m.safetensors", CUT)
    assert wtxtgit("recover", "m.safetensors", *arguments).code == 2
    assert wtxtgit.names() == ["m.safetensors"]
    assert wtxtgit.folder.joinpath("m.safetensors").read_bytes() == CUT


def test_a_dtype_that_the_other_format_lacks(wtxtgit: Command) -> None:
    put(wtxtgit, "m.safetensors", safetensors({"b": tensor_item("BF16", [2], 0, 4)}, bytes(4)))
    done = wtxtgit("recover", "m.safetensors", "-o", "left.npz")
    assert done.code == 3
    assert "bf16" in done.complaint()
    assert wtxtgit.names() == ["m.safetensors"]


def test_a_torch_file_without_its_directory(wtxtgit: Command) -> None:
    whole = (GOLDEN / TORCH).read_bytes()
    put(wtxtgit, "whole.pt", whole)
    wanted = listed(wtxtgit, "whole.pt")
    put(wtxtgit, "m.pt", whole[: whole.index(b"PK\x01\x02")])
    done = wtxtgit("recover", "m.pt", "-o", "left.safetensors")
    assert (done.code, done.err) == (0, "")
    assert b"only one copy of its name is left" in done.out
    assert listed(wtxtgit, "left.safetensors") == wanted


def test_quantised_tensors_stay_in_their_format(wtxtgit: Command) -> None:
    whole = (GOLDEN / "gguf/quantised.gguf").read_bytes()
    put(wtxtgit, "m.gguf", whole[:1200])
    states = {t["name"]: t["state"] for t in told(wtxtgit, "m.gguf", "-o", "left.gguf")["tensors"]}
    given = {name for name, state in states.items() if state == "unproved"}
    assert 1 < len(given) < len(states)
    put(wtxtgit, "whole.gguf", whole)
    assert wtxtgit("verify", "left.gguf").code == 0
    left, before = (
        {
            t["name"]: t["dtype"]
            for t in json.loads(wtxtgit("inspect", name, "--json").out)["tensors"]
        }
        for name in ("left.gguf", "whole.gguf")
    )
    assert left == {name: before[name] for name in given}
    done = wtxtgit("recover", "m.gguf", "-o", "left.npz")
    assert done.code == 3
    assert "no other format can hold" in done.complaint()


def test_an_index_of_tars_keeps_its_rows(wtxtgit: Command) -> None:
    whole = fixture("taridx/three_shards_a/train.taridx")
    put(wtxtgit, "m.taridx", whole[:-40])
    report = told(wtxtgit, "m.taridx", "-o", "left.taridx")
    assert len(report["missing"]) == 1
    assert wtxtgit("verify", "left.taridx").code == 0
    assert whole.startswith(wtxtgit.folder.joinpath("left.taridx").read_bytes()[64:][:32], 64)


def test_a_storage_with_a_wrong_byte_is_lost_by_its_crc32(wtxtgit: Command) -> None:
    data = (GOLDEN / TORCH).read_bytes()
    members = zip_read.read(memoryview(data)).members
    storages = [one for one in members if "/data/" in one.name and one.size]
    assert storages
    for one in storages:
        put(wtxtgit, "bad.pt", flipped(data, one.start))
        report = told(wtxtgit, "bad.pt")
        lost = [tensor for tensor in report["tensors"] if tensor["state"] == "lost"]
        assert lost
        name = one.name.partition("/")[2]
        assert {tensor["why"] for tensor in lost} == {f"member {name}: its CRC-32 does not match"}


def test_a_deflated_array_that_is_lost_has_its_dtype_and_shape(wtxtgit: Command) -> None:
    file = BytesIO()
    values = np.random.default_rng(0).standard_normal((100, 30))
    np.savez_compressed(file, a=values, b=np.arange(9))
    data = flipped(file.getvalue(), 9000)
    put(wtxtgit, "bad.npz", data)
    assert wtxtgit("recover", "bad.npz").out.decode().splitlines()[:2] == [
        "lost  dtype  shape     bytes  why",
        "a     f64    100 x 30         its CRC-32 does not match",
    ]
    # Where even the header is damaged, nothing is told of the shape.
    start = zip_read.read(memoryview(data)).members[0].start
    put(wtxtgit, "bad.npz", flipped(data, start + 1))
    assert wtxtgit("recover", "bad.npz").out.decode().splitlines()[1].split()[:2] == ["a", "its"]
