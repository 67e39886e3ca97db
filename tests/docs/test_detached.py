"""docs/spec/detached.md: its example, its table of lines and its program."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

import wtxtgit
from tests.docs.pages import blocks, prose, tables
from tests.text.naive_detached import judge

PAGE, EXAMPLE = "docs/spec/detached.md", "A worked example in bytes"
W = bytes(i % 251 for i in range(5000))
ATTACHED = wtxtgit.dumps({"a": np.array([1, 2, 3, 4, 5], "u1"), "w": np.frombuffer(W, "u1")})


def printed() -> bytes:
    return next(b for b in blocks(PAGE, "", EXAMPLE) if not b.language).text.encode("ascii")


def test_the_example_is_whole_with_its_payload() -> None:
    said, text = prose(PAGE, EXAMPLE), printed()
    assert f"8,313 bytes (SHA-256 `{sha256(ATTACHED).hexdigest()}`)" in said
    assert f"the detached text 1,364 (SHA-256 `{sha256(text).hexdigest()}`)" in said
    assert (len(ATTACHED), len(text)) == (8313, 1364)
    name = sha256(W).hexdigest()
    assert f"by the name `{name}`" in said
    assert judge(text, {name: W}) == (set(), "complete")
    assert judge(text, {}) == ({"payload-missing"}, "absent")


def test_the_program_makes_it() -> None:
    (block,) = blocks(PAGE, "python", EXAMPLE)
    names: dict[str, object] = {}
    exec(compile(block.text, PAGE, "exec"), names)  # noqa: S102 - the page's own program
    assert names["detached"](ATTACHED) == printed()  # type: ignore[operator]


def test_the_table_says_where_lines_stand() -> None:
    rows = tables(PAGE, EXAMPLE)[-1]
    position, lines = 0, printed().splitlines(keepends=True)
    for numbers, start, length, _ in rows:
        first, _, last = numbers.partition("-")
        size = sum(map(len, lines[int(first) - 1 : int(last or first)]))
        assert (int(start.replace(",", "")), int(length)) == (position, size)
        position += size
    assert position == len(printed())
