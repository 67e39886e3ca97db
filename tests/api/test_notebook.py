"""What a notebook shows of results, and what a session in one does."""

from __future__ import annotations

import gc
import json
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit
from tests.data import FIXTURES
from wtxtgit.errors import InputError, UsageError

HOSTILE = "</table><script>\x1b[31m"
# A name that a text keeps in an array of its own.
ARRAYS = {HOSTILE: np.arange(12, dtype="f4").reshape(3, 4), "b": np.zeros(3)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two versions of a checkpoint, a text, and a file that is cut off."""
    monkeypatch.chdir(tmp_path)
    wtxtgit.dump(ARRAYS, "a.safetensors")
    wtxtgit.dump({**ARRAYS, HOSTILE: ARRAYS[HOSTILE] * np.nan}, "b.safetensors")
    wtxtgit.dump(ARRAYS, "a.wtxt")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-5])
    lines = (tmp_path / "a.wtxt").read_bytes().replace(b"gen=000000", b"gen=000001")
    (tmp_path / "forged.wtxt").write_bytes(lines)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_results_are_a_line_and_a_table() -> None:
    wtxtgit.dump(ARRAYS, "tagged.safetensors", tags={HOSTILE: "7"})
    results: dict[str, Any] = {
        "<Tensors: safetensors, 2 arrays>": wtxtgit.load("a.safetensors"),
        "<DiffReport: 1 changed, 1 same, 0 in metadata>": wtxtgit.diff(
            "a.safetensors", "b.safetensors"
        ),
        "<Conversion b.npz: npz, 2 tensors, 1 dropped>": wtxtgit.convert(
            "tagged.safetensors", "b.npz"
        ),
        "<FileVerdict cut.safetensors: safetensors, not ok, 2 errors>": wtxtgit.verify(
            "cut.safetensors"
        ),
        "<TextReport: generation 1, 3 arrays, not ok, 1 problem>": wtxtgit.verify("forged.wtxt"),
        "<ContainerRecovery cut.safetensors: safetensors, partial, 1 unproved, 1 lost>": (
            wtxtgit.salvage("cut.safetensors")
        ),
    }
    for wanted, result in results.items():
        assert repr(result) == wanted
        shown = result._repr_html_()
        assert shown.count("<table>") == shown.count("</table>") == 1
        assert "<script>" not in shown
        # As pandas has it (display.html.use_mathjax): names are no formulas.
        assert shown.startswith("<div class='tex2jax_ignore mathjax_ignore'>")
        assert "\x1b" not in shown
    assert (
        "12 items of 12 became NaN" in wtxtgit.diff("a.safetensors", "b.safetensors")._repr_html_()
    )
    wtxtgit.dump({"w": ARRAYS[HOSTILE]}, "one.safetensors")
    assert repr(wtxtgit.load("one.safetensors")) == "<Tensors: safetensors, 1 array>"
    assert repr(wtxtgit.verify("a.wtxt")) == "<TextReport: generation 0, 3 arrays, ok>"
    made = wtxtgit.convert("tagged.safetensors", "s.safetensors", max_shard=20)
    assert (
        repr(made)
        == f"<Conversion {made.files[0]} and {len(made.files) - 1} more: safetensors, 2 tensors>"
    )
    assert "<table>" not in wtxtgit.verify("a.wtxt")._repr_html_()


@pytest.mark.usefixtures("folder")
def test_a_root_that_comes_later_is_a_line() -> None:
    wtxtgit.dump(ARRAYS, "p.wtxt", pending=True)
    assert repr(wtxtgit.finalize("p.wtxt")).startswith("<Finalized p.wtxt.root.wsum: generation 0,")


def test_completion_shows_what_there_is() -> None:
    assert dir(wtxtgit.stream) == ["Snapshots", "__doc__", "targets"]
    for name in dir(wtxtgit.errors):
        one = getattr(wtxtgit.errors, name)
        assert name == "__doc__" or issubclass(one, Exception | Warning)
    assert {"InputError", "DamageWarning", "WtxtgitError"} <= set(dir(wtxtgit.errors))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["a.safetensors", "a.wtxt"])
def test_what_is_open_has_the_size_of_an_array(name: str) -> None:
    lazy, array = wtxtgit.open(name)[HOSTILE], wtxtgit.load(name)[HOSTILE]
    assert (lazy.ndim, lazy.size, lazy.shape) == (array.ndim, array.size, array.shape)


def test_names_of_tensors_are_completed(folder: Path) -> None:
    with wtxtgit.open("a.safetensors") as opened:
        assert sorted(opened._ipython_key_completions_()) == sorted(ARRAYS)
    assert wtxtgit.load(folder / "a.wtxt")._ipython_key_completions_() == sorted(ARRAYS)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["a.safetensors", "a.wtxt"])
def test_what_is_open_needs_no_with(name: str) -> None:
    model = wtxtgit.open(name)
    assert model["b"][1:].tolist() == [0, 0]
    model.close()
    model.close()
    opened = wtxtgit.open(name)
    rows = opened[HOSTILE][1:2]
    del opened
    gc.collect()
    assert rows.tolist() == [[4, 5, 6, 7]]
    with pytest.raises(InputError):
        wtxtgit.open("none.safetensors")


def test_a_traceback_has_the_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        wtxtgit.dump(np.zeros(3), tmp_path / "x.safetensors")  # type: ignore[arg-type]
    shown = traceback.format_exception(refused.value)
    assert shown[-1] == 'hint: {"W": w} is one\n'
    assert "hint" not in str(refused.value)
    with pytest.raises(InputError) as without:
        wtxtgit.load(tmp_path / "none.safetensors")
    assert not hasattr(without.value, "__notes__")


class TestWhatIsNoMappingOfArrays:
    @pytest.mark.parametrize("given", [np.zeros(3), [1, 2], 1.0, "w", None])
    def test_it_is_refused(self, given: Any, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="have to be given by name"):
            wtxtgit.dump(given, tmp_path / "x.npz")
        with pytest.raises(UsageError, match="have to be given by name"):
            wtxtgit.dumps(given)
        assert not list(tmp_path.iterdir())

    def test_a_module_has_one(self, tmp_path: Path) -> None:
        class Module:
            def state_dict(self) -> dict[str, Any]:
                return ARRAYS

        with pytest.raises(UsageError, match="not as Module") as refused:
            wtxtgit.dump(Module(), tmp_path / "x.wtxt")  # type: ignore[arg-type]
        assert refused.value.hint == "its state_dict() is one"

    def test_nor_does_an_index_of_tars_hold_arrays(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="taridx files hold no arrays"):
            wtxtgit.dump(ARRAYS, tmp_path / "x.taridx")


class TestCat:
    @pytest.mark.usefixtures("folder")
    @pytest.mark.parametrize("name", ["a.safetensors", "a.wtxt"])
    def test_a_tensor(self, name: str) -> None:
        assert wtxtgit.cat(name, HOSTILE) == ARRAYS[HOSTILE].tobytes()
        with pytest.raises(UsageError, match="no part is named 'c'"):
            wtxtgit.cat(name, "c")

    def test_chunks_values_and_members(self) -> None:
        fold = FIXTURES / "fold/neuron_none_rs16_a.fold"
        assert json.loads(wtxtgit.cat(fold, "llm_manifest"))["format"] == "fold"
        assert wtxtgit.cat(fold, "model_type") == b"MPJRDNeuron"
        assert json.loads(wtxtgit.cat(fold, "expression"))["mode"] == "online"
        member = wtxtgit.cat(FIXTURES / "taridx/pair_v1/train.taridx", "a0000.json")
        assert isinstance(json.loads(member), dict)

    def test_what_is_encrypted(self) -> None:
        fold = FIXTURES / "fold/encrypted_high_a.fold"
        assert wtxtgit.cat(fold, "msg", decryption_key=bytes(range(32)))
        with pytest.raises(InputError):
            wtxtgit.cat(fold, "msg")
        with pytest.raises(InputError, match="decryption_key decrypts them"):
            wtxtgit.load(fold)
