"""What a user of the Python interface is told who got something wrong."""

from __future__ import annotations

import inspect
import io
import shutil
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit
from tests.kit import Repo
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, TextError, UsageError

ARRAYS = {"layers.0.weight": np.ones((2, 3), "f4"), "layers.0.bias": np.zeros(3, "f4")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("m.safetensors", "m.wtxt", "m.fold"):
        wtxtgit.dump(ARRAYS, name)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["m.safetensors", "m.wtxt", "m.fold"])
@pytest.mark.parametrize("opened", [wtxtgit.load, wtxtgit.open])
def test_a_wrong_name_of_a_tensor_has_what_was_meant(name: str, opened: Any) -> None:
    tensors = opened(name)
    with pytest.raises(KeyError) as refused:
        tensors["layers.0.weigh"]
    assert refused.value.args == ("layers.0.weigh",)
    (hint,) = refused.value.__notes__
    assert hint.startswith("hint: did you mean ")
    assert "layers.0.weight" in hint
    with pytest.raises(KeyError) as refused:
        tensors["z"]
    assert refused.value.__notes__ == ["hint: list() of it gives the names"]
    with pytest.raises(KeyError):
        tensors[0]
    assert tensors.get("z") is None
    assert "z" not in tensors


@pytest.mark.parametrize("of", ["load", "open", "verify", "cat", "diff", "convert", "salvage"])
def test_content_is_no_path(of: str, folder: Path) -> None:
    more = {"cat": ("w",), "diff": ("m.wtxt",), "convert": ("x.npz",)}.get(of, ())
    content = (folder / "m.safetensors").read_bytes()
    for given in (content, None, 3, "", io.BytesIO(content), bytearray(content)):
        with pytest.raises(UsageError, match="a path is expected") as refused:
            getattr(wtxtgit, of)(given, *more)
        if isinstance(given, bytes | bytearray):
            assert refused.value.hint == "wtxtgit.loads takes the content of a file"


@pytest.mark.parametrize("of", [wtxtgit.load, wtxtgit.open, wtxtgit.verify])
def test_a_path_that_the_system_refuses(of: Any) -> None:
    """As it also refuses one in a folder that may not be entered."""
    for name in ("a" * 300, "a/" * 3000):
        with pytest.raises((InputError, EnvironmentFailure)):
            of(name)


def test_a_path_is_no_content() -> None:
    with pytest.raises(UsageError, match="bytes are expected, not a str"):
        wtxtgit.loads("m.safetensors")  # type: ignore[arg-type]


@pytest.mark.usefixtures("folder")
def test_files_are_written_to_files() -> None:
    for url in ("s3://bucket/m.safetensors", "https://example.com/m.wtxt"):
        with pytest.raises(UsageError, match="a URL") as refused:
            wtxtgit.dump(ARRAYS, url)
        assert "bucket" in str(refused.value) or "example" in str(refused.value)
    with pytest.raises(UsageError, match="a URL"):
        wtxtgit.convert("m.safetensors", "s3://bucket/m.npz")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"tags": {"step": 100}}, "tag 'step' is 100, not a string"),
        ({"tags": {1: "a"}}, "tag 1 has a name that is not a string"),
        ({"tags": ["step"]}, "tags must be a mapping of strings"),
        ({"max_shard": 0}, "max_shard must be a positive number of bytes, not 0"),
        ({"max_shard": "1GB"}, "max_shard must be a positive number of bytes, not '1GB'"),
        ({"ecc": 255}, "ecc must be a number of bytes from 1 to 254, not 255"),
        ({"ecc": 0}, "ecc must be a number of bytes from 1 to 254, not 0"),
        ({"page_size": 0}, "page_size must be a positive number of bytes, not 0"),
        ({"page_size": True}, "page_size must be a positive number of bytes, not True"),
    ],
)
def test_arguments_that_do_not_fit(more: dict[str, Any], told: str) -> None:
    of = {"ecc": "x.fold", "page_size": "x.aero"}.get(next(iter(more)), "x.safetensors")
    with pytest.raises(UsageError) as refused:
        wtxtgit.dump(ARRAYS, of, **more)
    assert told in str(refused.value)
    if "tags" not in more:
        with pytest.raises(UsageError) as refused:
            wtxtgit.convert("m.safetensors", of, **more)
        assert told in str(refused.value)
    assert not Path(of).exists()


def that_take_threads() -> list[tuple[str, Any]]:
    calls = [(name, getattr(wtxtgit, name)) for name in wtxtgit.__all__]
    calls.append(("Snapshots", wtxtgit.stream.Snapshots))
    return [
        (name, call)
        for name, call in calls
        if callable(call) and "threads" in inspect.signature(call).parameters
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "call"), that_take_threads(), ids=[name for name, _ in that_take_threads()]
)
def test_threads_are_a_number(name: str, call: Any, folder: Path) -> None:
    given: dict[str, tuple[Any, ...]] = {
        "dump": (ARRAYS, "x.npz"),
        "dumps": (ARRAYS,),
        "loads": ((folder / "m.wtxt").read_bytes(),),
        "cat": ("m.wtxt", "layers.0.bias"),
        "diff": ("m.wtxt", "m.fold"),
        "convert": ("m.wtxt", "x.npz"),
        "encrypt": ("m.wtxt", "x.npz"),
        "Snapshots": ("x.npz",),
    }
    for threads in ("x", "2", 0, -1, 1.5, True, 1000):
        with pytest.raises(UsageError) as refused:
            call(*given.get(name, ("m.wtxt",)), threads=threads)
        assert str(refused.value) == f"threads must be a number from 1 to 999, not {threads!r}"
        assert not Path("x.npz").exists()


def test_all_functions_but_one_take_threads() -> None:
    functions = {name for name in wtxtgit.__all__ if name[0].islower()}
    assert functions - {name for name, _ in that_take_threads()} == {"salvage"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "more",
    [
        {"public_keys": bytes(32)},
        {"public_keys": ["a"]},
        {"public_keys": [bytes(31)]},
        {"hmac_key": "secret"},
        {"decryption_key": b"short"},
        {"decryption_key": "k" * 32},
    ],
)
def test_keys_that_are_none(more: dict[str, Any]) -> None:
    """They must not pass for keys that fit nothing."""
    for of in (wtxtgit.load, wtxtgit.verify):
        with pytest.raises(UsageError, match=next(iter(more))):
            of("m.wtxt", **more)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("out", ["x.safetensors", "x.wtxt"])
def test_values_that_are_no_arrays(out: str) -> None:
    for value, told in {
        "ragged": ([[1, 2], [3]], '"w" does not convert to an array'),
        "masked": (np.ma.array([1, 2], mask=[0, 1]), '"w" is a masked array'),
        "mappings": ([{"a": np.ones(3)}], 'array "w" has dtype object'),
    }.values():
        with pytest.raises(UsageError) as refused:
            wtxtgit.dump({"w": value}, out)
        assert told in str(refused.value)
    assert refused.value.hint == "of a list of mappings, make a mapping: dict(enumerate(values))"
    wtxtgit.dump({"w": dict(enumerate([{"a": np.ones(3)}]))}, out)
    assert list(wtxtgit.load(out)) == ["w.0.a"]
    # Nothing of it is masked.
    wtxtgit.dump({"w": np.ma.array([1, 2])}, out)


def test_what_lacks_its_payload_says_how_to_get_it(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo.path)
    repo.wtxtgit("install")
    repo.wtxtgit("track", "--detached", "*.npz")
    wtxtgit.dump({"w": np.arange(100_000)}, repo.path / "m.npz")
    repo.add()
    repo.commit()
    text = repo.git("show", "HEAD:m.npz")
    (tmp_path / "alone.wtxt").write_bytes(text)
    shutil.rmtree(repo.path / ".git/wtxt")
    (repo.path / "m.npz").write_bytes(text)
    for path in (tmp_path / "alone.wtxt", repo.path / "m.npz"):
        with pytest.raises(TextError) as refused:
            wtxtgit.load(path)
        assert str(refused.value).startswith(f"{path}: ")
        assert "are not available" in str(refused.value)
        assert "wtxtgit fetch" in traceback.format_exception(refused.value)[-1]
        with wtxtgit.open(path) as opened:
            for _ in range(2):
                with pytest.raises(CheckError) as seen:
                    opened["w"][1:2]
                assert "wtxtgit fetch" in traceback.format_exception(seen.value)[-1]


def test_what_is_wrong_with_a_text_is_told_with_its_name(folder: Path) -> None:
    """Whoever loads many files has to know which one."""
    text = (folder / "m.wtxt").read_bytes()
    (folder / "cut.wtxt").write_bytes(text[: len(text) // 2])
    (folder / "none.wtxt").write_bytes(text[:50])
    for of, name in ((wtxtgit.load, "cut.wtxt"), (wtxtgit.open, "none.wtxt")):
        with pytest.raises(TextError, match=f"^{folder / name}: ") as refused:
            of(folder / name)
        assert refused.value.file == str(folder / name)
    with pytest.raises(TextError, match=r"^the bytes given: "):
        wtxtgit.loads(text[:-20])


def test_a_text_is_not_salvaged(folder: Path) -> None:
    with pytest.raises(InputError, match="a text") as refused:
        wtxtgit.salvage(folder / "m.wtxt")
    assert refused.value.hint == "wtxtgit recover mends texts"
