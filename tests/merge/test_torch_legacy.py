"""Files of torch before its zips, merged by tensor: the result is such a file again."""

from __future__ import annotations

import io
import struct
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.containers.torch_files import (
    archive,
    legacy,
    list_of,
    name,
    named,
    number,
    pickled,
    sizes,
    storage,
    tensor,
    text,
    tuple_of,
)
from tests.containers.torch_files import call as called
from tests.kit import Repo
from wtxtgit.containers.any_format import check, describe, identify
from wtxtgit.containers.any_format import read as read_zip
from wtxtgit.containers.torch import legacy as legacy_files
from wtxtgit.containers.torch import legacy_reseal
from wtxtgit.errors import FormatError
from wtxtgit.merge.container import Merged, Merger
from wtxtgit.merge.policy import Policy
from wtxtgit.model.tensor import NewContent, PlacedEntry, ReadOptions
from wtxtgit.report.merge import Strategy

A, B = (0.0, 1.0, 2.0, 3.0), (5.0, 6.0)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def vector(key: str, count: int, *, shape: tuple[int, ...] = (), offset: int = 0) -> bytes:
    shape = shape or (count,)
    strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    held = storage("FloatStorage", key, count, b"N")
    function = name("torch._utils", "_rebuild_tensor")
    return called(function, held, number(offset), sizes(shape), sizes(strides))


def model(
    a: tuple[float, ...] = A, b: tuple[float, ...] = B, *, keys: str = "ab", **more: bytes
) -> bytes:
    """A file of a tensor with two rows, and one of two items."""
    one, two = keys
    value = named(w=vector(one, 4, shape=(2, 2)), v=vector(two, 2), **more)
    held = {one: (4, floats(*a)), two: (2, floats(*b))}
    # The bytes are in the order of the keys, whatever that of the tensors is.
    return legacy(value, dict(sorted(held.items())))


def merged(*files: bytes | None, strategy: Strategy = Strategy.FAIL) -> Merged:
    base, ours, theirs = (None if one is None else memoryview(one) for one in files)
    assert ours is not None
    assert theirs is not None
    return Merger(Policy(strategy)).merge(base, ours, theirs)


def held(done: Merged) -> dict[str, tuple[float, ...]]:
    assert not done.conflicts, done.conflicts
    assert check(done.data).errors == []
    assert identify(done.data) == "torch"
    found = describe(done.data).tensors
    return {one.name: tuple(np.frombuffer(one.data, "<f4").tolist()) for one in found}


def test_tensors_and_rows_that_each_side_changed() -> None:
    ours, theirs = model((9, 8, 2, 3), B), model((0, 1, 7, 6), (4, 4))
    for sides in ((ours, theirs), (theirs, ours)):
        done = merged(model(), *sides)
        assert held(done) == {"w": (9, 8, 7, 6), "v": (4, 4)}
        assert bytes(done.data) == model((9, 8, 7, 6), (4, 4))


def test_keys_of_storages_mean_nothing() -> None:
    """torch takes them from addresses, so they differ in every save."""
    done = merged(model(), model((9, 8, 2, 3), keys="dc"), model(b=(4, 4), keys="ef"))
    assert held(done) == {"w": (9, 8, 2, 3), "v": (4, 4)}


def test_a_value_that_one_side_changed() -> None:
    base, ours = model(step=number(1)), model(step=number(2))
    done = merged(base, ours, model(b=(4, 4), step=number(1)))
    assert held(done)["v"] == (4, 4)
    assert bytes(done.data) == model(b=(4, 4), step=number(2))
    both = merged(base, ours, model(b=(4, 4), step=number(3)))
    assert [one.name for one in both.conflicts] == ["metadata:/data.pkl"]
    assert bytes(both.data) == ours


def test_bytes_in_no_tensor_count() -> None:
    def file(rest: float, first: float) -> bytes:
        value = named(w=vector("a", 3, shape=(2,)), v=vector("b", 1))
        return legacy(value, {"a": (3, floats(first, 1, rest)), "b": (1, floats(first))})

    done = merged(file(0, 0), file(5, 0), file(0, 7))
    assert bytes(done.data) == legacy(
        named(w=vector("a", 3, shape=(2,)), v=vector("b", 1)),
        {"a": (3, floats(7, 1, 5)), "b": (1, floats(7))},
    )
    assert merged(file(0, 0), file(5, 0), file(6, 0)).conflicts


def test_devices_that_one_side_changed() -> None:
    moved = model().replace(b"cpu", b"xpu")
    for sides in ((moved, model(b=(4, 4))), (model(b=(4, 4)), moved)):
        done = merged(model(), *sides)
        assert bytes(done.data) == model(b=(4, 4)).replace(b"cpu", b"xpu")
    other = model(b=(4, 4)).replace(b"cpu", b"mps")
    assert [one.name for one in merged(model(), moved, other).conflicts] == ["file:devices"]


def test_tied_tensors_stay_tied() -> None:
    def file(*values: float) -> bytes:
        value = named(w=vector("a", 4), tied=vector("a", 4, shape=(2,), offset=2))
        return legacy(value, {"a": (4, floats(*values))})

    done = merged(file(0, 1, 2, 3), file(9, 1, 2, 3), file(0, 1, 2, 7))
    assert bytes(done.data) == file(9, 1, 2, 7)
    both = merged(file(0, 1, 2, 3), file(0, 1, 2, 5), file(0, 1, 2, 7))
    assert [one.name for one in both.conflicts] == ["w", "tied"]


def test_conflicts_are_told_by_tensor() -> None:
    ours, theirs = model(b=(4, 4)), model((9, 1, 2, 3), b=(3, 3))
    assert [one.name for one in merged(model(), ours, theirs).conflicts] == ["v"]
    assert held(merged(model(), ours, theirs, strategy=Strategy.THEIRS))["v"] == (3, 3)


def test_what_would_take_another_pickle_is_a_conflict() -> None:
    more = legacy(
        named(w=vector("a", 4, shape=(2, 2)), v=vector("b", 2), new=vector("c", 1)),
        {"a": (4, floats(*A)), "b": (2, floats(*B)), "c": (1, floats(1))},
    )
    other = legacy(
        named(w=vector("a", 4, shape=(2, 2)), v=vector("b", 2), mine=vector("c", 1)),
        {"a": (4, floats(*A)), "b": (2, floats(*B)), "c": (1, floats(1))},
    )
    done = merged(model(), more, other)
    assert done.conflicts
    assert bytes(done.data) == more
    # One side alone added something: its file takes the rows of the other.
    assert held(merged(model(), more, model(b=(4, 4)))) == {"w": A, "v": (4, 4), "new": (1,)}


def item(key: str, count: int, *, last: bytes = b"N") -> bytes:
    """A tensor that can be added to a dict, or taken from one."""
    return tensor(key, count, [count], [1], more=(last,))


def state(*, key: str = "7", before: bytes = b"", **tensors: float) -> bytes:
    """A file of tensors of two equal items each, whose storages have keys that count up."""
    keys = [str(int(key) + n) for n in range(len(tensors))]
    value = named(**{name: item(key, 2) for name, key in zip(tensors, keys, strict=True)})
    raw = [(2, floats(one, one)) for one in tensors.values()]
    return legacy(before + value, dict(zip(keys, raw, strict=True)))


def test_tensors_that_both_sides_added() -> None:
    base, ours, theirs = state(w=0), state(w=0, mine=1), state(w=5, other=2, more=3)
    done = merged(base, ours, theirs)
    assert held(done) == {"w": (5, 5), "mine": (1, 1), "other": (2, 2), "more": (3, 3)}
    # Nothing moved but to make room: what is added comes behind the rest of its kind.
    count = struct.pack("<q", 2)
    added = count + floats(2, 2) + count + floats(3, 3)
    assert bytes(done.data).endswith(count + floats(5, 5) + count + floats(1, 1) + added)
    # What gained something gains more.
    both = state(w=5, mine=1, other=2, more=3)
    again = merged(both, bytes(done.data), state(w=5, mine=1, other=2, more=3, last=4))
    assert held(again)["last"] == (4, 4)
    assert held(merged(both, state(w=5, mine=1, other=2, more=3, last=4), bytes(done.data)))


def test_new_storages_have_keys_of_no_other() -> None:
    """Also not of one that the pickle names, and that is not in the file because it is empty."""
    dropped = storage("DoubleStorage", "3", 0, b"N") + b"0"
    ours = state(key="1", before=dropped, w=0, mine=1)
    done = merged(state(key="1", before=dropped, w=0), ours, state(before=dropped, w=0, other=2))
    assert held(done) == {"w": (0, 0), "mine": (1, 1), "other": (2, 2)}
    assert legacy_files.read(done.data).storages.keys() == {"1", "2", "4"}


def test_a_list_of_keys_in_any_spelling() -> None:
    plain = state(w=0, mine=1)
    assert list_of(text("7"), text("8")) in plain
    for spelled in (
        b"]" + text("7") + b"a" + text("8") + b"a",
        b"(" + text("7") + b"q\1" + text("8") + b"l",
        b"N0](" + text("7") + text("8") + b"eq\0",
    ):
        ours = plain.replace(list_of(text("7"), text("8")), spelled)
        assert held(merged(state(w=0), ours, state(w=0, other=2))).keys() == {"w", "mine", "other"}


def framed(value: bytes) -> bytes:
    return b"\x80\x04\x95" + len(value + b".").to_bytes(8, "little") + value + b"."


@pytest.mark.parametrize(
    "new",
    [
        item("9", 2, last=tuple_of(text("part"), number(0), number(2))),
        tensor("9", 2, [1], [1], more=[b"N"]),
        tensor("9", 2, [2], [1], more=[b"N"], metadata=named(neg=b"\x88")),
        vector("9", 2),
    ],
    ids=["part", "not all of it", "negated", "other call"],
)
def test_what_is_no_item_is_not_added(new: bytes) -> None:
    ours = state(w=0, mine=1)
    value = named(w=item("7", 2), new=new)
    theirs = legacy(value, {"7": (2, floats(0, 0)), "9": (2, floats(2, 2))})
    done = merged(state(w=0), ours, theirs)
    # It is in a file to which the other side's tensor can be added.
    assert held(done).keys() == {"w", "mine", "new"}
    both = legacy(named(w=item("7", 2), mine=new), {"7": (2, floats(0, 0)), "9": (2, floats(1, 1))})
    done = merged(state(w=0), both, theirs)
    assert "metadata:/data.pkl" in [one.name for one in done.conflicts]
    assert bytes(done.data) == both


def test_nothing_is_added_to_pickles_in_frames() -> None:
    def file(**tensors: float) -> bytes:
        keys = list_of(*(text(str(7 + n)) for n in range(len(tensors))))
        value = named(**{name: item(str(7 + n), 2) for n, name in enumerate(tensors)})
        made = state(**tensors).replace(pickled(value), framed(value))
        return made.replace(pickled(keys), framed(keys))

    done = merged(file(w=0), file(w=0, mine=1), file(w=0, other=2))
    assert "in frames" in done.conflicts[0].reason
    for ours, theirs in (
        (state(w=0, mine=1), file(w=0, other=2)),
        (file(w=0, mine=1), state(w=0, other=2)),
    ):
        assert held(merged(file(w=0), ours, theirs)).keys() == {"w", "mine", "other"}


def test_what_a_file_can_not_gain() -> None:
    files = state(w=0, mine=1), state(w=0, other=2)
    ours, theirs = (legacy_files.read(memoryview(one)) for one in files)
    zipped = read_zip(memoryview(archive(named(w=vector("0", 2)), {"0": bytes(8)})))
    first = PlacedEntry(ours, 0), PlacedEntry(ours, 1)

    def short(count: int) -> NewContent:
        return NewContent(8, lambda: iter((bytes(count),)))

    for further, message in (
        (PlacedEntry(theirs, 0), "can't gain tensor 'w'"),
        (PlacedEntry(theirs, 1, short(4)), "too few bytes"),
        (PlacedEntry(theirs, 1, short(9)), "too many bytes"),
        (PlacedEntry(theirs, 1, NewContent(4, partial(iter, (bytes(4),)))), "has 8 bytes, not 4"),
        (PlacedEntry(zipped, 0), "another format"),
    ):
        with pytest.raises(FormatError, match=message) as caught:
            legacy_reseal.reseal(ours, (*first, further), None, ReadOptions())
        assert caught.value.field == "entries"


def test_hostile_files_that_both_gained_something_are_merged_or_left() -> None:
    base, ours, theirs = state(w=0), state(w=0, mine=1), state(w=0, other=2)
    random = Random(3)  # noqa: S311
    count = 0
    for _ in range(200):
        broken = bytearray(theirs)
        for _ in range(random.randint(1, 2)):
            broken[random.randrange(len(broken))] = random.randrange(256)
        done = merged(base, ours, bytes(broken))
        assert done.conflicts or not check(done.data).errors
        count += not done.conflicts
    assert 0 < count < 200


def test_a_damaged_or_another_file_is_taken_as_a_whole_or_not_at_all() -> None:
    ours = model(b=(4, 4))
    for other in (ours[:-1], ours + b"x", archive(named(w=number(1))), b"nothing"):
        for files in ((model(), ours, other), (other, ours, model())):
            assert [one.name for one in merged(*files).conflicts] == ["*"], files
    assert held(merged(None, model((9, 9, 9, 9)), model((9, 9, 9, 9)))) == {"w": (9,) * 4, "v": B}


def test_git_merges_them(repo: Repo, driver: None) -> None:
    repo.track("*.pt")
    for branch, content in (
        ("main", model()),
        ("topic", model(b=(4, 4))),
        ("main", model((9, 8, 2, 3))),
    ):
        repo.git("checkout", "-q", *(("-b",) if branch == "topic" else ()), branch, ok=(0, 1))
        repo.write("m.pt", content)
        repo.add()
        repo.commit(branch)
    repo.git("merge", "-q", "--no-edit", "topic")
    assert (repo.path / "m.pt").read_bytes() == model((9, 8, 2, 3), (4, 4))
    assert repo.status() == b""


@pytest.mark.torch
def test_torch_loads_them() -> None:
    import torch

    def saved(state: Any) -> bytes:
        file = io.BytesIO()
        torch.save(state, file, _use_new_zipfile_serialization=False)
        return file.getvalue()

    def state(first: float, second: float) -> dict[str, Any]:
        layers = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        for value in layers.state_dict().values():
            value.zero_()
        with torch.no_grad():
            layers[0].weight[0] += first
            layers[0].weight[1] += second
        return {"model": layers.state_dict(), "half": torch.full((3,), second).bfloat16()}

    done = merged(*(saved(state(*one)) for one in ((0, 0), (1, 0), (0, 2))))
    assert not done.conflicts, done.conflicts
    found = torch.load(io.BytesIO(bytes(done.data)), weights_only=True)
    assert found["model"]["0.weight"].tolist() == [[1.0] * 3, [2.0] * 3]
    assert found["half"].tolist() == [2.0] * 3
