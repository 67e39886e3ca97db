"""docs/spec/torch.md: its tables of storages, dtypes and calls are those of the code."""

from __future__ import annotations

from tests.data import file_cases
from tests.docs.pages import spans, tables
from wtxtgit.containers.torch.views import ELEMENTS, SIZES, STORAGES

PAGE = "docs/spec/torch.md"


def words(cell: str) -> list[str]:
    return [word for span in spans(cell) for word in span.split()]


def test_the_classes_of_storages() -> None:
    (_, classes, _) = tables(PAGE, "Storages")
    told = [pair for row in classes for pair in zip(*map(words, row), strict=True)]
    assert dict(told) == STORAGES
    assert len(told) == len(STORAGES)


def test_the_dtypes() -> None:
    (_, _, dtypes) = tables(PAGE, "Storages")
    numbers = {word: int(row[0]) for row in dtypes for word in words(row[1])}
    assert numbers.keys() == ELEMENTS.keys()
    others = {word: int(row[0]) for row in dtypes for word in words(row[2])}
    # `int1` to `int7` stand for those between them, too.
    for kind in ("int", "uint"):
        assert {f"{kind}1", f"{kind}7"} <= others.keys()
        others |= {f"{kind}{bits}": 1 for bits in range(1, 8)}
    assert numbers | others == SIZES


def test_every_call_has_a_vector() -> None:
    (calls,) = tables(PAGE, "Calls")
    named = {word.rpartition(".")[2] for row in calls for word in words(row[0])}
    assert len(named) == 10
    files = [case.file for case in file_cases() if case.name.startswith("torch_")]
    for name in named:
        assert any(f"\n{name}\n".encode() in file for file in files), name
