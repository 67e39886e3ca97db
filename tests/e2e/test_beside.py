"""Files that stand beside checkpoints are never made texts, whatever pattern matches them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.sealed import ROOT, Sealed, assert_holds
from tests.kit import Repo, safetensors
from wtxtgit.filter.clean import clean, clean_detached, text_of
from wtxtgit.text.grammar import is_text

MODEL = "models/m.safetensors"
LEDGER = f"{MODEL}.wsum"
OLD = "models/** filter=wtxt diff=wtxt merge=wtxt -text\n"
DOCUMENTS = ("README.md", "config.json", ".gitattributes", ".gitignore")


@pytest.fixture
def repo(repo: Repo, driver: None, keys: None) -> Sealed:
    """A repository with a signer."""
    sealed = Sealed(repo.path)
    sealed.call("signers", "add", "alice@example.com", "alice")
    return sealed


def by_track(repo: Sealed) -> None:
    repo.call("track", "models/**")


def by_track_of_one_level(repo: Sealed) -> None:
    repo.call("track", "models/*")


def by_track_of_a_beginning(repo: Sealed) -> None:
    repo.call("track", "m*")


def by_track_from_below(repo: Sealed) -> None:
    (repo.path / "models").mkdir()
    repo.call("track", "m*", folder="models")


def by_track_before_another(repo: Sealed) -> None:
    repo.call("track", "*.safetensors")
    repo.call("track", "models/**")
    repo.call("track", "*.npz")


def by_an_old_line(repo: Sealed) -> None:
    repo.write(".gitattributes", OLD)


def by_an_old_line_below(repo: Sealed) -> None:
    repo.write("models/.gitattributes", OLD.removeprefix("models/"))


def by_a_macro(repo: Sealed) -> None:
    repo.write(".gitattributes", "[attr]ckpt filter=wtxt diff=wtxt merge=wtxt -text\n* ckpt\n")
    with (repo.path / ".gitattributes").open("a") as file:
        file.write(".gitattributes !filter\n.wtxt/* !filter\n")


WAYS: list[Callable[[Sealed], None]] = [
    by_track, by_track_of_one_level, by_track_of_a_beginning, by_track_from_below,
    by_track_before_another, by_an_old_line, by_a_macro,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_ledger_is_kept_as_it_is(repo: Sealed, way: Callable[[Sealed], None]) -> None:
    way(repo)
    for value in (1.0, 2.0, 3.0):
        repo.write(MODEL, safetensors(value))
        repo.git("add", "-A")
        repo.call("seal", "--staged", "--key", "alice")
        repo.commit(f"{value}")
        assert repo.status() == b""
        if value == 1.0:
            repo.git("tag", ROOT)
    assert is_text(repo.blob(MODEL))
    assert repo.blob(LEDGER) == (repo.path / LEDGER).read_bytes()
    assert_holds(repo)
    clone = Repo(repo.path).clone("clone")
    assert (clone.path / LEDGER).read_bytes() == repo.blob(LEDGER)


def test_a_merge_takes_the_longer_ledger_under_an_old_line(repo: Sealed) -> None:
    by_an_old_line(repo)
    repo.write(MODEL, safetensors(1.0))
    repo.git("add", "-A")
    repo.call("seal", "--staged", "--key", "alice")
    repo.commit()
    repo.git("branch", "-M", "main")
    repo.branch("topic")
    for branch, value in (("topic", 2.0), ("main", None)):
        repo.switch(branch)
        if value is not None:
            repo.write(MODEL, safetensors(value))
        else:
            repo.write("other.txt", "x")
        repo.git("add", "-A")
        repo.call("seal", "--staged", "--key", "alice")
        repo.commit()
    repo.merge("topic")
    assert repo.blob(LEDGER) == repo.blob(LEDGER, "topic")


@pytest.mark.parametrize("way", [by_track, by_an_old_line_below])
def test_documents_stay_what_they_are(repo: Sealed, way: Callable[[Sealed], None]) -> None:
    way(repo)
    repo.write(MODEL, safetensors(1.0))
    for name in DOCUMENTS:
        if not (repo.path / "models" / name).exists():
            repo.write(f"models/{name}", "# what it is\n")
    repo.git("add", "-A")
    if way is not by_track:
        repo.call("doctor", "--fix", ok=(0, 1))
        repo.git("add", "--renormalize", "--", *(f"models/{name}" for name in DOCUMENTS))
    repo.commit()
    for name in DOCUMENTS:
        assert repo.blob(f"models/{name}") == (repo.path / "models" / name).read_bytes()
    assert is_text(repo.blob(MODEL))


def test_files_elsewhere_keep_their_attributes(repo: Sealed) -> None:
    repo.write(".gitattributes", "* text=auto\n*.py diff=python\n*.json merge=union\n")
    asked = ("check-attr", "-a", "--", "a.py", "b.json", "README.md", "docs/x.txt")
    before = repo.git(*asked)
    by_track(repo)
    assert repo.git(*asked) == before


def test_doctor_names_old_lines_and_mends_them(repo: Sealed) -> None:
    by_an_old_line(repo)
    repo.write(MODEL, safetensors(1.0))
    repo.write("models/README.md", "# what it is\n")
    repo.git("add", "-A")
    repo.call("seal", "--staged", "--key", "alice", "--", MODEL)
    repo.commit()
    assert is_text(repo.blob("models/README.md"))
    said = repo.call("doctor", ok=(0, 1)).out
    assert f"go through the filter, too: models/README.md {LEDGER}" in said
    repo.call("doctor", "--fix", ok=(0, 1))
    repo.git("add", "--renormalize", "--", "models/README.md", LEDGER)
    repo.commit()
    assert repo.blob("models/README.md") == b"# what it is\n"
    assert "go through the filter, too" not in repo.call("doctor", ok=(0, 1)).out
    repo.git("add", "-A")
    repo.commit()
    assert repo.status() == b""


def texts_of_ledgers(repo: Sealed) -> None:
    """A history as it was made when git's filter made texts of ledgers."""
    by_an_old_line(repo)
    repo.write(MODEL, safetensors(1.0))
    repo.git("add", "-A")
    repo.call("seal", "--staged", "--key", "alice")
    repo.commit()
    text = b"".join(text_of(memoryview(repo.blob(LEDGER))).pieces())
    oid = repo.git("hash-object", "-w", "--stdin", stdin=text).decode().strip()
    repo.git("update-index", "--cacheinfo", f"100644,{oid},{LEDGER}")
    repo.commit()


def test_a_ledger_that_is_in_git_as_a_text_heals(repo: Sealed) -> None:
    texts_of_ledgers(repo)
    ledger = (repo.path / LEDGER).read_bytes()
    clone = Sealed(Repo(repo.path).clone("clone").path)
    assert (clone.path / LEDGER).read_bytes() == ledger
    clone.write(MODEL, safetensors(2.0))
    clone.git("add", MODEL)
    refused = clone.call("seal", "--staged", "--key", "alice", "--", MODEL, ok=(1,)).err
    assert f"wtxtgit: hint: git add --renormalize -- {LEDGER}\n" in refused
    clone.git("add", "--renormalize", "--", LEDGER)
    clone.call("seal", "--staged", "--key", "alice")
    clone.git("tag", ROOT, clone.commit())
    assert_holds(clone)


def test_doctor_restores_a_ledger_that_stands_as_a_text(repo: Sealed) -> None:
    texts_of_ledgers(repo)
    ledger = repo.blob(LEDGER, "HEAD~1")
    repo.call("doctor", "--fix", ok=(0, 1))
    (repo.path / LEDGER).unlink()
    repo.git("checkout", "--", LEDGER)
    assert is_text((repo.path / LEDGER).read_bytes())
    said = repo.call("doctor", ok=(0, 1)).out
    assert f"stands beside checkpoints, and is text in git: {LEDGER}" in said
    hint = next(line for line in said.splitlines() if line.startswith("unfiltered: "))
    assert hint.startswith(f"unfiltered: mv -i -- {LEDGER} {LEDGER}.text && wtxtgit restore -o")
    (repo.path / LEDGER).rename(repo.path / f"{LEDGER}.text")
    repo.call("restore", "-o", LEDGER, "--", f"{LEDGER}.text")
    repo.git("add", "--renormalize", "--", LEDGER)
    assert repo.blob(LEDGER) == ledger
    assert "text in git" not in repo.call("doctor", ok=(0, 1)).out


@pytest.mark.parametrize(
    "content", [b"WLEDGER 1 repo=", b"WSUM 1 x\n", b"WTXT-DELTA 2 x\n" + bytes(200_000)]
)
def test_clean_stores_them_as_they_are(content: bytes) -> None:
    given = memoryview(content)
    for cleaned in (clean(given), clean_detached(given, None), clean(_text(content))):
        assert b"".join(cleaned.pieces()) == content
        assert cleaned.warning is None


def _text(content: bytes) -> memoryview:
    return memoryview(b"".join(text_of(memoryview(content)).pieces()))
