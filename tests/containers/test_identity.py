"""What a file is, in a user's words: of foreign formats, damaged, cut, converted, misnamed."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.samples import safetensors, tensor_item
from tests.data import GOLDEN, fixture
from wtxtgit.containers import any_format
from wtxtgit.containers.identity import FileIdentity, identity, told, wrong_under

VALUES = np.random.default_rng(0).standard_normal((512, 96)).astype("<f4").tobytes()
HALF = len(VALUES) // 2
MODEL = safetensors(
    {
        "a": tensor_item("F32", [256, 96], 0, HALF),
        "b": tensor_item("F32", [256, 96], HALF, 2 * HALF),
    },
    VALUES,
)


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.frombuffer(VALUES, "<f4"))
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.frombuffer(VALUES, "<f4"))
    return file.getvalue()


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return file.getvalue()


def of(data: bytes, *, is_read: bool = False) -> FileIdentity:
    return identity(memoryview(data), is_read=is_read)


def wrong(data: bytes, name: str = "m.safetensors") -> str | None:
    return wrong_under(name, of(data))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (bytes(100_000), "all zeros"),
        (b"<!DOCTYPE html><title>x", "an HTML page"),
        (b"\xef\xbb\xbf\n<HTML lang=en>", "an HTML page"),
        (b"<!-- a --><?xml version='1.0'?>\n<!doctype html>", "an HTML page"),
        (
            b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
            "an XML error (AccessDenied)",
        ),
        (b'<?xml version="1.0"?><a/>', "an XML document"),
        (b'{"error":"Repository not found"}', "a JSON error: 'Repository not found'"),
        (b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n", "a text with conflict markers of git"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a git-lfs pointer"),
        (b"\x89HDF\n\x1a\n" + bytes(9), "HDF5 whose line ends were converted"),
    ],
)
def test_what_is_wrong_under_any_checkpoint_s_name(data: bytes, words: str) -> None:
    for name in ("m.safetensors", "pytorch_model.bin", "m.gguf"):
        assert wrong(data, name) == words


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(9), "HDF5"),
        (zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras archive"),
        (zipped("m/archive_format", "m/models/model.json"), "a torch.export archive"),
        (zipped("data", "policy.pth"), "a Stable-Baselines3 archive"),
        (
            zipped("a/model.safetensors"),
            "a zip archive with 'a/model.safetensors': unpack it first",
        ),
        (gzip.compress(MODEL), "compressed with gzip: unpack it first"),
        (b"x".ljust(257, b"\0") + b"ustar\0", "a tar archive"),
        (pickle.dumps({"a": 1}), "a Python pickle"),
        (pickle.dumps([1], 2), "a Python pickle"),
        (pickle.dumps({"a": 1}, 0), "a Python pickle"),
        (b"\x1c\0\0\0TFL3" + bytes(20), "a TensorFlow Lite model"),
        (b"\x08\x07\x12\x07pytorch\x1a\x051.9.0", "an ONNX model"),
        (b"\x81\xa6params\x81\xa1a", "MessagePack, as Flax writes it"),
        (b"Entry not found\n", "a text that starts with 'Entry not found'"),
        (b'{"a": 1}', "a JSON file"),
        (npz(), "an npz file"),
        (bytes(range(255, 1, -1)), "of no known format"),
    ],
)
def test_what_is_wrong_under_the_name_of_a_format(data: bytes, words: str) -> None:
    assert wrong(data) == f"not safetensors as its name says, but {words}"
    assert wrong(data, "model.bin") is None


def test_names_that_claim_nothing_or_the_truth() -> None:
    assert wrong(MODEL) is None
    assert wrong(MODEL, "M.SAFETENSORS") is None
    assert wrong((GOLDEN / "torch/legacy.pt").read_bytes(), "m.pth") is None
    assert wrong(b"<!doctype html>", "index.html") is None
    assert wrong(b"", "models/__init__.py") is None
    assert wrong(b'{"error": 1}', "models/config.json") is None
    assert wrong(b"\x89HDF\r\n\x1a\n", "weights.h5") is None
    assert wrong(MODEL, "m.safetensors.part") == "an unfinished download, as its name says"
    index = json.dumps({"metadata": {}, "weight_map": {"a": "m-1.safetensors"}}).encode()
    assert wrong(index, "model.safetensors.index.json") is None


@pytest.mark.parametrize("share", [0.9, 0.5, 0.02])
def test_a_cut_file_says_how_much_is_there(share: float) -> None:
    for data in (MODEL, npy()):
        end = int(len(data) * share)
        words = f"cut at {end:,} of {len(data):,} bytes: download it again"
        assert of(data[:end])[1:] == (words, True)
    for data in (npz(), (GOLDEN / "torch/state_dict.pt").read_bytes()):
        end = int(len(data) * share)
        words = f"cut at {end:,} bytes, before the list of its members: download it again"
        assert of(data[:end])[1:] == (words, True)
    header = 8 + int.from_bytes(MODEL[:8], "little")
    assert of(MODEL[:100]).what == f"cut at 100 of at least {header:,} bytes: download it again"


def test_converted_line_ends_are_named() -> None:
    for data in (MODEL, npy(), npz(), fixture("aero/multishard_a.aero") + VALUES):
        found = of(data.replace(b"\n", b"\r\n"))
        assert found.what is not None
        assert "from LF to CRLF" in found.what
        assert of(data.replace(b"\n", b"\r\n"), is_read=True).what == found.what
    values = VALUES * 6
    many = safetensors({"a": tensor_item("U8", [len(values)], 0, len(values))}, values)
    for data, words in ((many, "its line ends were conv"), (MODEL, "cut at "), (npz(), "damaged")):
        said = of(data.replace(b"\r\n", b"\n")).what or ""
        assert said.startswith(words)
        assert "LF" in said
    # The same sizes without a conversion: the file is only cut.
    assert "CRLF" not in (of(MODEL[: len(MODEL) // 2]).what or "")


def test_text_within_a_checkpoint_is_no_conversion() -> None:
    header = {
        "__metadata__": {"chat_template": "a\r\nb\r\n" * 50},
        "a": tensor_item("U8", [4], 0, 4),
    }
    raw = json.dumps(header, indent=1).replace("\n", "\r\n").encode()
    data = len(raw).to_bytes(8, "little") + raw + bytes(4)
    assert of(data, is_read=True) == FileIdentity("safetensors")


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"error": "\x1b[31m" + "x" * 1000}).encode(),
        zipped("\x1b[31m.safetensors"),
        b"a\x0c" + "\u202e\x9b1m".encode(),
        b'{"a":' * 100_000,
        b'{"error": ' + b"9" * 10_000 + b"}",
    ],
)
def test_words_are_short_and_harmless(data: bytes) -> None:
    words = wrong(data)
    assert words is not None
    assert words.isprintable()
    assert len(words) < 200


@pytest.mark.parametrize(
    "data",
    [
        b"<!---->" * 500 + b"x",
        b"<!--" * 1000,
        b"<?xml " * 600,
        b"<<<<<<< a\n" * 200 + b"=======\n" * 200,
        b"\x08\x07:" + b"a" * 4000,
        b"c" + b"a." * 2000,
        b"\x80\x04" + b"job" * 1300,
        b" \n" * 2000 + b"x",
    ],
)
def test_hostile_repetition_ends(data: bytes) -> None:
    """Patterns that try combinations would not come back within the time of a test run."""
    assert not of(data).kind.startswith("html")


@given(st.binary(max_size=300), st.sampled_from(["a.pt", "a.npz", "a.safetensors", "a"]))
def test_nothing_raises(data: bytes, name: str) -> None:
    found = of(data)
    wrong_under(name, found)
    told(found)
    assert of(data, is_read=True).kind == found.kind or found.is_fault


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*")), ids=lambda path: path.name)
def test_golden_files_have_no_fault_that_clean_does_not_see(path: object) -> None:
    data = memoryview(path.read_bytes())  # type: ignore[attr-defined]
    cut = any_format.split(data)
    if cut.layout.format != "opaque":
        assert identity(data) == identity(data, is_read=True) == FileIdentity(cut.layout.format)
