"""Files at the edges of the spec: each is cut as `docs/spec/containers.md` says."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from tests.containers import edges
from tests.containers.samples import check_cut, joined
from tests.data import DATA, FileCase, file_cases
from wtxtgit.containers import any_format
from wtxtgit.containers.registry import detect
from wtxtgit.text.layout import format_layout, snapshot_of
from wtxtgit.text.write import dumps

CASES = pytest.mark.parametrize("case", file_cases(), ids=lambda c: c.name)
FORMATS = {"safetensors", "fold", "aero", "mlcp", "gguf", "npy", "npz", "torch", "opaque"}


def test_the_list_has_every_format() -> None:
    assert {case.format for case in file_cases()} == FORMATS
    whole = [case for case in file_cases() if case.format == "opaque"]
    known = {detect(memoryview(case.file)) for case in whole}
    assert known == FORMATS


def test_the_list_is_what_the_spec_makes() -> None:
    made = [case.record(name) for name, case in edges.made().items()]
    assert json.loads((DATA / "files.json").read_bytes())["cases"] == made


@CASES
def test_a_file_is_cut_as_the_spec_says_and_has_its_text(case: FileCase) -> None:
    cut = any_format.split(memoryview(case.file))
    check_cut(cut, case.file)
    assert joined(cut) == case.file
    assert cut.layout.format == case.format
    assert format_layout(cut.layout).decode() == case.layout
    text = dumps(snapshot_of(cut))
    assert (len(text), sha256(text).hexdigest()) == (case.bytes, case.sha256)
