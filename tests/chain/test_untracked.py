"""Files that look like checkpoints and are not tracked, as an audit warns of them."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import example, given
from hypothesis import strategies as st

from wtxtgit.chain.judge import untracked
from wtxtgit.git.attributes import Line

_PIECES = st.text("ab.*?[]-\\\u00e9", min_size=1, max_size=6)
_TRACKED = "its name matches a tracked pattern, but it is not tracked"


@given(st.lists(_PIECES, max_size=5), st.lists(_PIECES, max_size=5))
@example(["*.a"], ["x.a", ".a", "a"])
@example(["a*"], ["a", "ab", "ba"])
@example(["**a", "*", "**"], ["a", "ba", "b"])
def test_names_match_as_in_fnmatch(patterns: list[str], names: list[str]) -> None:
    lines = [Line(b"", pattern.encode("latin-1"), (b"filter=wtxt",)) for pattern in patterns]
    files = [b"folder/" + name.encode("latin-1") for name in names]
    found = [path for path, why in untracked(files, (), lines) if why == _TRACKED]
    plain = [pattern for pattern in patterns if pattern.strip("*")]
    assert found == [
        path
        for path, name in zip(files, names, strict=True)
        if any(fnmatchcase(name, pattern) for pattern in plain)
    ]
