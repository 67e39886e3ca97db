"""docs/settings.md has the keys and variables that the code obeys, and no others."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, spans, tables

PAGE = "docs/settings.md"
_KEY = re.compile(r'"(wtxtgit\.[a-z][A-Za-z]*)"')
_MODULES = {"wtxtgit.stream"}
_OTHERS = re.compile(r'"(XDG_[A-Z]+_(?:HOME|DIR)|SSH_AUTH_SOCK|NO_COLOR|TERM|TMPDIR)"')
_VARIABLE = re.compile(r'"_?(WTXTGIT_[A-Z_]+)"')
_ATTRIBUTE = re.compile(r"\b(wtxt-(?:merge|ledger|detached))\b")
CODE = "\n".join(file.read_text() for file in sorted((ROOT / "wtxtgit").rglob("*.py")))


def named(section: str) -> set[str]:
    return {re.split("[= ]", name)[0] for t in tables(PAGE, section) for row in t
            for name in spans(row[0])}  # fmt: skip


def test_keys() -> None:
    assert named("Git config") == set(_KEY.findall(CODE)) - _MODULES


def test_variables() -> None:
    ours = {name.lstrip("_") for name in named("Environment") if "WTXTGIT_" in name}
    assert ours == set(_VARIABLE.findall(CODE))
    others = {name for name in named("Environment") if "WTXTGIT_" not in name}
    assert others == set(_OTHERS.findall(CODE))


def test_attributes() -> None:
    words = [word for row in tables(PAGE, "Attributes")[0] for word in spans(row[0])]
    assert {re.sub(r"^[a-z]+=", "", word) for word in words if "wtxt-" in word} == {
        "wtxt-detached", "wtxt-ledger", "wtxt-merge=NAME",
    }  # fmt: skip
    assert set(_ATTRIBUTE.findall(CODE)) == {"wtxt-detached", "wtxt-ledger", "wtxt-merge"}
