"""Checkpoints of torch itself to which both sides added tensors: merged, and loaded by torch.

In zips, and in files as torch wrote them before.
"""

from __future__ import annotations

import io
import zipfile
from collections import OrderedDict
from typing import Any

import pytest

from wtxtgit.containers.any_format import check, read
from wtxtgit.containers.torch.contents import ID_DIGITS, updated_id
from wtxtgit.merge.container import Merged, Merger
from wtxtgit.merge.policy import Policy
from wtxtgit.report.merge import Strategy

ID = ".data/serialization_id"
ZIP, LEGACY = True, False
pytestmark = pytest.mark.torch


@pytest.fixture(name="torch")
def _torch() -> Any:
    import torch

    torch.manual_seed(0)
    return torch


@pytest.fixture(params=[ZIP, LEGACY], ids=["zip", "legacy"])
def kind(request: pytest.FixtureRequest) -> bool:
    """The kind of file, as torch is told it."""
    return bool(request.param)


def saved(torch: Any, kind: bool, value: object, **options: Any) -> memoryview:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=kind, **options)
    return memoryview(file.getvalue())


def merged(torch: Any, kind: bool, *values: object, **options: Any) -> Merged:
    files = (saved(torch, kind, one, **options) for one in values)
    return Merger(Policy(Strategy.FAIL)).merge(*files)


def loaded(torch: Any, kind: bool, done: Merged) -> Any:
    assert not done.conflicts, done.conflicts
    assert check(done.data).errors == []
    assert zipfile.is_zipfile(io.BytesIO(done.data)) is kind
    return torch.load(io.BytesIO(bytes(done.data)), weights_only=True)


def module(torch: Any, *further: str) -> Any:
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        OrderedDict(body=torch.nn.Linear(4, 4), norm=torch.nn.BatchNorm1d(4))
    )
    for name in further:
        layers.add_module(name, torch.nn.Linear(4, len(name)))
    return layers


def test_state_dicts_that_both_gained_a_module_have_both(torch: Any, kind: bool) -> None:
    base, ours, theirs = module(torch), module(torch, "ours"), module(torch, "theirs", "more")
    with torch.no_grad():
        theirs.body.weight[2] += 1
    states = [one.state_dict() for one in (base, ours, theirs)]
    done = merged(torch, kind, *states)
    found = loaded(torch, kind, done)
    assert found.keys() == states[1].keys() | states[2].keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, (states[1] if name.startswith("ours") else states[2])[name])
    assert found._metadata == {**states[1]._metadata, **states[2]._metadata}
    whole = module(torch, "ours", "theirs", "more")
    assert whole.load_state_dict(found)


def test_training_checkpoints_gain_tensors_deep_within(torch: Any, kind: bool) -> None:
    def checkpoint(epoch: int, **further: Any) -> dict[str, Any]:
        model = {"w": torch.arange(6.0).reshape(2, 3), **further}
        return {"epoch": epoch, "model": model, "notes": ["a", 1], "other": {0: torch.ones(2)}}

    extra = {
        "half": torch.ones(3, dtype=torch.bfloat16),
        "turned": torch.arange(6).reshape(2, 3).t().contiguous().t(),
        "none": torch.zeros(0, 3),
        "one": torch.tensor(7.0),
        "learned": torch.nn.Parameter(torch.ones(2)),
        "grows": torch.ones(2, requires_grad=True),
    }
    if kind is ZIP:
        extra["wide"] = torch.arange(4).to(torch.uint16)
    mine = {"ours": torch.full((5,), 2.0)}
    # The epoch is theirs alone to say; what each added has every dtype and form that torch saves.
    done = merged(torch, kind, checkpoint(1), checkpoint(1, **mine), checkpoint(2, **extra))
    found = loaded(torch, kind, done)
    assert (found["epoch"], found["notes"]) == (2, ["a", 1])
    assert found["model"].keys() == {"w", "ours", *extra}
    for name, tensor in {**extra, **mine}.items():
        there = found["model"][name]
        assert torch.equal(there, tensor)
        assert (there.dtype, there.stride(), type(there)) == (
            tensor.dtype,
            tensor.stride(),
            type(tensor),
        )
        assert there.requires_grad == tensor.requires_grad


def test_what_torch_does_not_load_from_a_legacy_file_is_not_brought_into_one(torch: Any) -> None:
    """Dtypes without a class of storages: torch writes such files, but can't read them."""
    for dtype in (torch.uint16, torch.float8_e4m3fn):
        wide = {"a": torch.ones(2), "wide": torch.ones(4).to(dtype)}
        file = saved(torch, LEGACY, wide)
        with pytest.raises(AttributeError):
            torch.load(io.BytesIO(bytes(file)), weights_only=True)
        assert "has no dtype" in str(check(file).errors[0])
        done = merged(torch, LEGACY, {"a": wide["a"]}, {"a": wide["a"], "b": wide["a"]}, wide)
        assert [conflict.name for conflict in done.conflicts] == ["*"]
    assert check(saved(torch, LEGACY, {"a": torch.ones(2).to(torch.uint8)})).errors == []


def test_what_one_side_removed_is_gone_where_the_other_gained_something(
    torch: Any, kind: bool
) -> None:
    a, b, c = torch.ones(2), torch.zeros(3), torch.full((4,), 5.0)
    for ours, theirs in (
        ({"a": a}, {"a": a, "b": b, "c": c}),
        ({"a": a, "b": b, "c": c}, {"a": a}),
    ):
        found = loaded(torch, kind, merged(torch, kind, {"a": a, "b": b}, ours, theirs))
        assert found.keys() == {"a", "c"}


def test_tensors_that_share_a_storage_do_not_come_alone(torch: Any, kind: bool) -> None:
    a, new = torch.ones(2), torch.zeros(4)
    tied = {"a": a, "b": new[:2], "c": new}
    # All of it is in the file of the one side, to which the other's comes.
    found = loaded(
        torch, kind, merged(torch, kind, {"a": a}, {"a": a, "mine": torch.ones(3)}, tied)
    )
    assert found.keys() == {"a", "b", "c", "mine"}
    assert found["b"].untyped_storage().data_ptr() == found["c"].untyped_storage().data_ptr()
    mine = {"a": a, "m": tied["c"], "n": tied["b"]}
    both = merged(torch, kind, {"a": a}, mine, tied)
    assert [conflict.name for conflict in both.conflicts] == ["metadata:/data.pkl"]
    # A name that both gave is one tensor, and a conflict where it is not the same.
    same = merged(torch, kind, {"a": a}, {"a": a, "n": new}, {"a": a, "n": new, "m": a + 1})
    assert loaded(torch, kind, same).keys() == {"a", "n", "m"}
    differs = merged(torch, kind, {"a": a}, {"a": a, "n": new}, {"a": a, "n": new + 1})
    assert [conflict.name for conflict in differs.conflicts] == ["n"]


def test_the_fingerprint_and_the_keys_of_storages_are_as_torch_makes_them(torch: Any) -> None:
    kind = ZIP
    states = [
        {"a": torch.ones(2), **more} for more in ({}, {"o": torch.ones(3)}, {"t": torch.ones(4)})
    ]
    done = merged(torch, kind, *states)
    again = Merger(Policy(Strategy.FAIL)).merge(
        saved(torch, kind, states[1]),
        done.data,
        saved(torch, kind, {**states[1], "z": torch.zeros(1)}),
    )
    assert loaded(torch, kind, again).keys() == {"a", "o", "t", "z"}
    # What torch makes of just these tensors has the same numbers.
    made: Any = read(done.data)
    whole: Any = read(saved(torch, kind, loaded(torch, kind, done)))
    assert made.storages.keys() == whole.storages.keys() == {"0", "1", "2"}
    crc32s = [m.crc32 for m in made.directory.members if m.size and m is not made.member(ID)]
    assert made.word(ID)[ID_DIGITS:].encode() == updated_id(b"0" * 40, [], crc32s)[ID_DIGITS:]


def test_what_lies_too_deep_or_in_too_many_dicts_is_no_item(torch: Any, kind: bool) -> None:
    def deep(levels: int, **further: Any) -> Any:
        value: Any = {"w": torch.ones(2), **further}
        for _ in range(levels):
            value = {"in": value}
        return value

    mine, other = {"mine": torch.ones(3)}, {"other": torch.zeros(3)}
    for levels, is_merged in ((16, True), (17, False)):
        done = merged(torch, kind, deep(levels), deep(levels, **mine), deep(levels, **other))
        assert (not done.conflicts) is is_merged
