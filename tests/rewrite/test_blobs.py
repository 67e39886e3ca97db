"""The blobs of a migration: proved before any ref moves, and made once each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.sealed import Sealed
from tests.kit import Repo, safetensors, text_of
from wtxtgit.filter.smudge import Smudged
from wtxtgit.io.view import Buffer
from wtxtgit.rewrite import blobs

IMPORT = ("migrate", "import", "--include", "*.safetensors", "--everything")


@pytest.fixture
def history(repo: Repo, driver: None) -> Sealed:
    """One content at two paths, in three commits, and another one."""
    repo.write("a.safetensors", safetensors(1.0))
    repo.add()
    repo.commit()
    repo.write("b.safetensors", safetensors(1.0))
    repo.add()
    repo.commit()
    repo.write("a.safetensors", safetensors(2.0))
    repo.add()
    repo.commit()
    return Sealed(repo.path)


def test_each_content_becomes_a_text_once(history: Sealed) -> None:
    done = history.call(*IMPORT, "--json").report
    assert done["blobs"]["made"] == 2
    assert history.blob("a.safetensors", "HEAD~1") == text_of(safetensors(1.0))
    assert history.git("rev-parse", "HEAD:b.safetensors") == history.git(
        "rev-parse", "HEAD~2:a.safetensors"
    )


def test_a_text_that_is_not_restored_to_its_file_ends_it(
    history: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    smudge = blobs.smudge

    class Wrong(Smudged):
        def pieces(self, *, may_fork: bool = False) -> Iterator[Buffer]:
            yield from super().pieces(may_fork=may_fork)
            yield b"\0"

    def smudged(*given: object, **named: object) -> Smudged:
        made = smudge(*given, **named)  # type: ignore[arg-type]
        return Wrong(**{name: getattr(made, name) for name in made.__dataclass_fields__})

    monkeypatch.setattr(blobs, "smudge", smudged)
    before = history.git("for-each-ref"), history.status(), history.git("count-objects", "-v")
    said = history.call(*IMPORT, ok=(1,)).err
    assert "differs from what its text restores to" in said
    assert "no ref was moved" in said
    after = history.git("for-each-ref"), history.status(), history.git("count-objects", "-v")
    assert after == before
