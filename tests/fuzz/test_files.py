"""Mutated container files: cut or stored whole, described or refused, never lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import fixture, golden, seeded
from tests.fuzz.mutations import bytes_mutant, text_mutant
from tests.fuzz.oracle import check_file
from tests.kit.changes import share
from wtxtgit.containers.registry import FORMATS, detect

pytestmark = pytest.mark.slow

SMALL = 5200
MUTANTS_OF_A_FILE = 40
FILES = [path for path in golden() if path and len(fixture(path)) <= SMALL]
MAGICS = sorted({fixture(path)[:8] for path in FILES})


def test_every_format_is_mutated() -> None:
    assert {golden()[path]["format"] for path in FILES} == {*(f.name for f in FORMATS), "opaque"}
    assert len(FILES) * MUTANTS_OF_A_FILE >= 5000


@pytest.mark.parametrize("path", FILES)
def test_a_mutated_file_comes_back_byte_for_byte(path: str) -> None:
    data = fixture(path)
    rng = seeded(path)
    for _ in range(share(golden()[path]["format"], MUTANTS_OF_A_FILE)):
        check_file(bytes_mutant(data, rng))


@given(data=st.data())
def test_a_file_that_ends_early_comes_back(data: st.DataObject) -> None:
    content = fixture(data.draw(st.sampled_from(FILES)))
    check_file(content[: data.draw(st.integers(0, len(content)))])


@given(data=st.data(), new=st.integers(0, 255))
def test_a_file_with_any_byte_changed_comes_back(data: st.DataObject, new: int) -> None:
    content = fixture(data.draw(st.sampled_from(FILES)))
    at = data.draw(st.integers(0, len(content) - 1))
    check_file(content[:at] + bytes([new]) + content[at + 1 :])


@given(st.sampled_from(MAGICS), st.binary(max_size=400))
def test_a_magic_before_any_bytes_comes_back(magic: bytes, rest: bytes) -> None:
    check_file(magic + rest)


@given(st.binary(max_size=400))
def test_any_bytes_come_back(content: bytes) -> None:
    check_file(content)
    detect(memoryview(content))


@given(st.sampled_from(FILES), st.integers(0, 2**32))
def test_a_file_with_lines_and_numbers_changed_comes_back(path: str, seed: int) -> None:
    check_file(text_mutant(fixture(path), seeded(seed)))
