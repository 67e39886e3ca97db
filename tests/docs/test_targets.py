"""What docs/targets.md says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.stream import targets

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_its_examples_run(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo.path)
    repo.git("remote", "add", "origin", "git@example.com:o/r.git")
    pytest.importorskip("s3fs", reason="s3fs is not installed: make remotes-deps")
    run("\n".join(EXAMPLES), tmp_path)


def test_its_last_example_gives_what_was_put(tmp_path: Path) -> None:
    names = run("from wtxtgit.stream import targets\n" + EXAMPLES[-1], tmp_path)
    assert bytes(names["target"].get("notes.txt")) == b"text"
    assert [stored.name for stored in names["target"].list()] == ["notes.txt"]


def run(code: str, folder: Path) -> dict[str, targets.Folder]:
    names: dict[str, targets.Folder] = {}
    exec(code.replace("/backup", str(folder)), names)  # noqa: S102 - the page's own
    return names


def test_each_spelling_is_of_the_class_that_stands_beside_it(repo: Repo) -> None:
    words = {
        "PATH": "exp1",
        "s3://BUCKET": "memory://bucket",
        "REMOTE": "git@example.com:o/r.git",
        "BRANCH": "b",
        "FOLDER": "f",
        "OWNER/NAME": "o/r",
        "HOST/NAME": "example.com/r",
        "TAG": "t",
    }
    rows = re.findall(r"^\| (`.*?) \| .* \| `(\w+)\(.*?\)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for written, kind in rows:
        for spelled in re.findall(r"`(.*?)`", written):
            for word, value in words.items():
                spelled = spelled.replace(word, value)
            assert type(targets.parse_target(spelled, repo.path)) is getattr(targets, kind)
