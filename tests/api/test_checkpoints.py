"""Checkpoints of every format through the Python interface."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit
from tests.containers.fold_files import built
from tests.containers.samples import FIXTURES, manifest_entries, safetensors, tensor_item
from tests.containers.torch_files import archive, named, number
from tests.kit import Repo, text_of
from wtxtgit.containers.registry import FORMATS
from wtxtgit.errors import CheckError, DamageWarning, InputError, TextError, UsageError
from wtxtgit.text import file as text_file

VALUES = np.arange(4096 * 8, dtype="f4").reshape(4096, 8)
# Encrypted; hashes that their writer made wrongly; files that list tensors without their bytes.
UNREAD = {"fold": 1, "aero": 4, "mlcp": 13}


def entries() -> list[dict[str, Any]]:
    return [e for e in manifest_entries() if e["valid"] and e.get("tensors")]


def is_as_written(entry: dict[str, Any]) -> bool:
    """Whether a file of its own writer can be loaded; it has the values that were written then."""
    path = FIXTURES / entry["file"]
    try:
        loaded = wtxtgit.load(path)
    except (InputError, CheckError):
        return False
    with wtxtgit.open(path) as opened:
        assert list(opened) == list(loaded)
        for name, values in loaded.items():
            lazy = opened[name]
            assert (lazy.dtype, lazy.shape) == (values.dtype, values.shape)
            assert np.asarray(lazy).tobytes() == values.tobytes()
            if values.ndim and len(values) > 1:
                assert lazy[1:].tobytes() == values[1:].tobytes()
                assert np.asarray(lazy[-1]).tobytes() == values[-1].tobytes()
    found = {sha256(values.tobytes()).hexdigest() for values in loaded.values()}
    wanted = {tensor["sha256"] for tensor in entry["tensors"] if tensor.get("sha256")}
    # Of tensors from GGUF the manifest counts padding in.
    assert wanted <= found or "from_gguf" in entry["file"]
    return True


def test_files_of_their_own_writers_have_the_values_that_were_written() -> None:
    unread = Counter(e["file"].partition("/")[0] for e in entries() if not is_as_written(e))
    assert unread == UNREAD


def model() -> bytes:
    """A file with a tensor of 32 rows a chunk, and one of a dtype that numpy lacks."""
    header = {
        "w": tensor_item("F32", [4096, 8], 0, VALUES.nbytes),
        "half": tensor_item("BF16", [2], VALUES.nbytes, VALUES.nbytes + 4),
        "__metadata__": {"step": "7"},
    }
    return safetensors(header, VALUES.tobytes() + b"\x80\x3f\x00\xc0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    path.write_bytes(model())
    return path


def test_a_file_and_its_text_give_the_same(path: Path) -> None:
    text = path.with_suffix(".wtxt")
    text.write_bytes(text_of(model()))
    for one in (path, text):
        loaded = wtxtgit.load(one)
        assert list(loaded) == ["w", "half"]
        assert np.array_equal(loaded["w"], VALUES)
        assert loaded["half"].tolist() == [0x3F80, 0xC000]
        assert not loaded["w"].flags.writeable
        assert loaded.format == "safetensors"
        assert loaded.tags == {"step": "7"}
        with wtxtgit.open(one) as opened:
            assert np.array_equal(opened["w"][100:130:7], VALUES[100:130:7])
            assert np.array_equal(opened["w"][-1], VALUES[-1])
            assert np.array_equal(opened["w"][[3, 5]], VALUES[[3, 5]])
            assert opened["half"].shape == (2,)
    assert list(wtxtgit.loads(model())) == list(wtxtgit.loads(text.read_bytes())) == ["w", "half"]


def test_of_a_text_the_chunks_of_the_rows_are_decoded_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(text_of(model()))
    decoded = []
    real = text_file.checked_bytes

    def watched(text: Any, blocks: Any) -> Any:
        blocks = list(blocks)
        decoded.extend((block.array.name, block.nbytes) for block in blocks)
        return real(text, blocks)

    with wtxtgit.open(path) as opened:
        monkeypatch.setattr(text_file, "checked_bytes", watched)
        assert np.array_equal(opened["w"][10:20], VALUES[10:20])
        assert np.array_equal(opened["w"][10:20], VALUES[10:20])
    assert decoded
    assert sum(nbytes for _, nbytes in decoded) < VALUES.nbytes


def test_a_revision_a_folder_and_a_detached_text(repo: Repo) -> None:
    repo.wtxtgit("install")
    repo.wtxtgit("track", "--detached", "*.safetensors")
    repo.write("sub/m.safetensors", model())
    repo.write("n.safetensors", b"junk")
    repo.add()
    repo.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repo.path)
        for name in (
            "HEAD:sub/m.safetensors",
            "HEAD:./sub/m.safetensors",
            Path("sub/m.safetensors"),
        ):
            assert np.array_equal(wtxtgit.load(name)["w"], VALUES)
            assert wtxtgit.verify(name).ok
            with wtxtgit.open(name) as opened:
                assert np.array_equal(opened["w"][5:9], VALUES[5:9])
        assert not wtxtgit.verify("n.safetensors").ok
        with pytest.raises(InputError):
            wtxtgit.load("HEAD:n.safetensors")


def test_a_tensor_keeps_open_what_it_is_read_from(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor of a text that is restored to a temporary file: nothing else refers to that."""
    monkeypatch.setattr(text_file, "_IN_MEMORY", 0)
    path.write_bytes(text_of(model()))
    lazy = wtxtgit.open(path)["w"]
    gc.collect()
    assert np.array_equal(lazy[5:9], VALUES[5:9])
    assert np.array_equal(wtxtgit.open(path)["w"][5:9], VALUES[5:9])


def test_what_can_not_be_read_can_not_be_read_a_second_time_either(path: Path) -> None:
    """As in a notebook, whose cell is run again."""
    text = text_of(model())
    lines = text.splitlines(keepends=True)
    # A line of the tensor's first chunk: still a line, of other bytes.
    at = next(n for n, line in enumerate(lines) if line.startswith(b"arr name=w ")) + 3
    assert len(lines[at]) > 60
    lines[at] = lines[at][:20] + lines[at][20:40].swapcase() + lines[at][40:]
    path.write_bytes(b"".join(lines))
    with warnings.catch_warnings(action="ignore"), wtxtgit.open(path) as opened:
        for _ in range(3):
            with pytest.raises((CheckError, TextError)):
                opened["w"][0:2]
        assert np.array_equal(opened["w"][4000:4010], VALUES[4000:4010])


def test_what_is_written_is_what_was_given(tmp_path: Path) -> None:
    given = {
        "model": {"layer": {0: {"w": VALUES}}, "bias": [1, 2]},
        "step": np.float32(3),
        "big": np.arange(4, dtype=">i4"),
    }
    endings = [one.endings[0] for one in FORMATS if one.write and not one.sole_name]
    for ending in [".wtxt", *endings]:
        out = tmp_path / f"out{ending}"
        wtxtgit.dump(given, out)
        found = wtxtgit.load(out)
        # Formats that wrap tensors have them in a chunk.
        values = {name.partition("/")[2] or name: array for name, array in found.items()}
        assert set(values) == {"model.layer.0.w", "model.bias", "step", "big"}, ending
        assert np.array_equal(values["model.layer.0.w"], VALUES)
        assert values["model.bias"].tolist() == [1, 2]
        assert values["big"].tolist() == [0, 1, 2, 3]
        assert values["big"].dtype == np.dtype("<i4")


def test_tags_are_kept_or_refused(tmp_path: Path) -> None:
    wtxtgit.dump({"w": VALUES}, tmp_path / "t.safetensors", tags={"step": "7"})
    loaded = wtxtgit.load(tmp_path / "t.safetensors")
    assert loaded.tags == {"step": "7"}
    wtxtgit.dump(loaded, tmp_path / "u.safetensors", tags=loaded.tags)
    same = [(tmp_path / name).read_bytes() for name in ("t.safetensors", "u.safetensors")]
    assert same[0] == same[1]
    # Of what was loaded they go along by themselves, where there is a place for them.
    wtxtgit.dump(loaded, tmp_path / "u.safetensors")
    assert (tmp_path / "u.safetensors").read_bytes() == same[0]
    with wtxtgit.open(tmp_path / "t.safetensors") as opened:
        wtxtgit.dump(opened, tmp_path / "u.aero")
    assert wtxtgit.load(tmp_path / "u.aero").tags == {"step": "7"}
    wtxtgit.dump(loaded, tmp_path / "u.npz")
    wtxtgit.dump(loaded, tmp_path / "u.safetensors", tags={})
    assert wtxtgit.load(tmp_path / "u.safetensors").tags == {}
    for out, more in {
        "t.wtxt": {"tags": {"step": "7"}},
        "t.npz": {"tags": {"step": "7"}},
        "v.safetensors": {"pending": True},
    }.items():
        with pytest.raises(UsageError):
            wtxtgit.dump({"w": VALUES}, tmp_path / out, **more)
        assert not (tmp_path / out).exists()


def test_what_a_format_lacks_is_refused_by_name(tmp_path: Path) -> None:
    out = tmp_path / "x.safetensors"
    with pytest.raises(InputError, match="names"):
        wtxtgit.dump({"names": np.array(["a"])}, out)
    with pytest.raises(UsageError, match=r'two arrays are named "a\.b"'):
        wtxtgit.dump({"a": {"b": VALUES}, "a.b": VALUES}, out)
    assert not out.exists()


DTYPES_THAT_NUMPY_LACKS = {"half": ("BF16", 2), "tiny": ("F8_E4M3", 1), "scale": ("F8_E8M0", 1)}


def test_dtypes_that_numpy_lacks_are_written_as_they_were_read(tmp_path: Path) -> None:
    """By a program that has no ml_dtypes; it sees integers."""
    header, data = {}, b""
    for name, (dtype, size) in DTYPES_THAT_NUMPY_LACKS.items():
        header[name] = tensor_item(dtype, [2, 2], len(data), len(data) + 4 * size)
        data += bytes(range(4 * size))
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors(header, data))
    loaded = wtxtgit.load(path)
    assert {str(values.dtype) for values in loaded.values()} <= {"uint8", "uint16"}
    opened = wtxtgit.open(path)
    wtxtgit.dump(loaded, tmp_path / "t.wtxt")
    for given in (
        loaded,
        opened,
        wtxtgit.load(tmp_path / "t.wtxt"),
        wtxtgit.open(tmp_path / "t.wtxt"),
        {**loaded, "more": VALUES},
        {name: values.copy().T[::-1].T[:, ::-1] for name, values in loaded.items()},
        {name: lazy[0:1] for name, lazy in opened.items()},
        {name: values.astype(values.dtype.newbyteorder(">")) for name, values in loaded.items()},
    ):
        wtxtgit.dump(given, tmp_path / "again.safetensors")
        with wtxtgit.open(tmp_path / "again.safetensors") as again:
            stored = {name: again[name].stored_dtype for name in DTYPES_THAT_NUMPY_LACKS}
        assert stored == {name: dtype for name, (dtype, _) in DTYPES_THAT_NUMPY_LACKS.items()}
    wtxtgit.dump(loaded, tmp_path / "again.safetensors")
    assert wtxtgit.diff(path, tmp_path / "again.safetensors").summary.counts["same"] == 3
    # What says that it is of integers is.
    wtxtgit.dump({"half": loaded["half"].view("u2")}, tmp_path / "again.safetensors")
    with wtxtgit.open(tmp_path / "again.safetensors") as again:
        assert again["half"].stored_dtype == "U16"


def test_two_are_compared_and_one_is_converted(path: Path, tmp_path: Path) -> None:
    done = wtxtgit.convert(path, tmp_path / "m.aero")
    assert (done.format, done.tensors) == ("aero", 2)
    report = wtxtgit.diff(path, tmp_path / "m.aero")
    assert report.summary.counts["same"] == 2


def test_what_is_damaged_is_not_loaded(path: Path) -> None:
    path.write_bytes(model()[:-1])
    assert not wtxtgit.verify(path).ok
    with pytest.raises(CheckError):
        wtxtgit.load(path)
    lines = text_of(model()).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-6]))
    with pytest.warns(DamageWarning, match="is damaged"), wtxtgit.open(path) as opened:
        assert opened.is_damaged


def test_the_module_shows_what_there_is() -> None:
    assert set(dir(wtxtgit)) == {*wtxtgit.__all__, "errors", "stream", "__doc__"}
    code = "import wtxtgit; wtxtgit.stream.Snapshots, wtxtgit.errors.TextError"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for name in set(wtxtgit.__all__) - {"__version__"}:
        assert getattr(wtxtgit, name).__doc__, name


def test_representations_are_short_and_tables_escape_names(path: Path) -> None:
    hostile = "<b>\x1b[31m"
    text = wtxtgit.dumps({hostile: VALUES, "w": VALUES})
    for shown in (wtxtgit.load(path), wtxtgit.loads(text)):
        assert len(repr(shown)) < 100
        table = shown._repr_html_()
        assert "<td>w</td>" in table
        assert "4096" in table
        assert hostile not in table
        assert "\x1b" not in table
    with wtxtgit.open(path) as opened:
        assert "<td>w</td>" in opened._repr_html_()
        assert len(repr(opened["w"])) < 100
    assert len(repr(wtxtgit.diff(path, path))) < 200
    assert len(repr(wtxtgit.verify(path))) < 400


@pytest.mark.parametrize(
    ("ending", "index"),
    [
        ("safetensors", "m.safetensors.index.json"),
        ("aero", "m.aeroset.json"),
        ("checkpoint", "m.metadata.json"),
    ],
)
def test_arrays_go_to_several_files(ending: str, index: str, tmp_path: Path) -> None:
    arrays = {f"w{n}": np.full((16, 4), n, "f4") for n in range(5)}
    wtxtgit.dump({"deep": arrays}, tmp_path / f"m.{ending}", max_shard=600)
    assert not (tmp_path / f"m.{ending}").exists()
    assert len(list(tmp_path.glob(f"m[-_]*{'shard' if ending == 'checkpoint' else ending}"))) >= 3
    found = wtxtgit.load(tmp_path / index)
    assert found.keys() == {f"deep.{name}" for name in arrays}
    assert all((found[f"deep.{name}"] == values).all() for name, values in arrays.items())
    assert wtxtgit.verify(tmp_path / index).ok


HOLD_NONE = ("safetensors", "gguf", "pt", "fold", "aero", "checkpoint", "wtxt")


@pytest.mark.parametrize("ending", HOLD_NONE)
def test_no_arrays_are_written_and_read(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{ending}"
    wtxtgit.dump({}, path)
    assert wtxtgit.verify(path).ok
    assert dict(wtxtgit.load(path)) == {}
    with wtxtgit.open(path) as opened:
        assert list(opened) == []
    if ending == "wtxt":
        return
    (tmp_path / "text.wtxt").write_bytes(text_of(path.read_bytes()))
    assert dict(wtxtgit.load(tmp_path / "text.wtxt")) == {}
    for other in HOLD_NONE[:-1]:
        wtxtgit.convert(path, tmp_path / f"n.{other}", inline_data=other == "checkpoint")
        assert dict(wtxtgit.load(tmp_path / f"n.{other}")) == {}
    for other, why in (("npz", "at least one array"), ("npy", "one array, not 0")):
        with pytest.raises(InputError, match=why):
            wtxtgit.convert(path, tmp_path / f"n.{other}")
        with pytest.raises(InputError, match=why):
            wtxtgit.dump({}, tmp_path / f"n.{other}")


def test_content_that_is_not_listed_as_tensors_is_no_empty_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "values.pt").write_bytes(archive(named(step=number(5))))
    pictures = FIXTURES / "taridx/pair_v1/train.taridx"
    chunks = tmp_path / "chunks.fold"
    chunks.write_bytes(built(("notes", b"JSON", b"{}")))
    for path in (tmp_path / "values.pt", pictures, chunks):
        with pytest.raises(InputError, match="without tensors"):
            wtxtgit.load(path)
        with pytest.raises(InputError, match="without tensors"):
            wtxtgit.convert(path, tmp_path / "x.safetensors")


def test_a_chunk_that_is_too_long_to_be_read_is_not_written(tmp_path: Path) -> None:
    # No byte of it is read: a gibibyte of one value would become memory.
    with (tmp_path / "values").open("wb") as file:
        file.truncate(1024**3)
    large = {"large": np.memmap(tmp_path / "values", "f4", "r")}
    told = r"m\.fold: chunk 'torch_state' would have 107374\d{4} bytes, and could not be read "
    with pytest.raises(InputError, match=told):
        wtxtgit.dump(large, tmp_path / "m.fold")
    np.lib.format.open_memmap(tmp_path / "m.npy", "w+", "f4", (1024**3 // 4,))
    with pytest.raises(InputError, match=told):
        wtxtgit.convert(tmp_path / "m.npy", tmp_path / "m.fold")
    assert {one.name for one in tmp_path.iterdir()} == {"values", "m.npy"}
    assert sum(one.stat().st_blocks for one in tmp_path.iterdir()) < 1000


def test_sets_are_for_formats_that_have_them(tmp_path: Path) -> None:
    arrays = {"w": np.zeros(3)}
    with pytest.raises(UsageError, match="--max-shard can't write"):
        wtxtgit.dump(arrays, tmp_path / "m.fold", max_shard=10)
    with pytest.raises(UsageError, match="a text has no tags"):
        wtxtgit.dump(arrays, tmp_path / "m.wtxt", max_shard=10)
