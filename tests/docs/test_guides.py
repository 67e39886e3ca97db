"""The tutorial and the how-to pages, line for line."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.docs.pages import ROOT, blocks, lines, page_names, prose
from tests.docs.shell import Done, Step, assert_as_shown, run, steps
from tests.kit import Repo

TUTORIAL = "docs/tutorial.md"
FIRST = "The first checkpoint"


def without_pip(todo: list[Step]) -> list[Step]:
    """The page's own installation is the one that runs the tests."""
    return [step for step in todo if not step.command.startswith("pip ")]


def ran(page: str, folder: Path) -> list[Done]:
    done = run(without_pip(steps(*blocks(page, "console"))), folder)
    assert_as_shown(done)
    return done


def checkpoint(path: Path, value: float) -> Path:
    weights = {f"layers.{n}": np.full((64, 64), n, "f4") for n in range(4)}
    weights["layers.0"][5] = value
    wtxtgit.dump(weights, path)
    return path


@pytest.mark.slow
@pytest.mark.true_start
def test_the_tutorial_does_what_it_shows(tmp_path: Path, home: Path) -> None:
    assert home.is_dir()
    done = ran(TUTORIAL, tmp_path)
    assert sum(one.step.fails for one in done) == 1
    assert (tmp_path / "review.html").stat().st_size > 10_000
    colleague = Repo(tmp_path / "colleague")
    log = colleague.git("log", "--format=%s").decode().splitlines()
    assert log == ["query, layer 0", "first checkpoint", "first commit"]


def test_a_sealed_reviewed_audited_and_pushed_checkpoint_takes_eleven_commands() -> None:
    first = steps(*blocks(TUTORIAL, "console", FIRST))
    calls = [call for step in first for call in step.command.split(" && ")]
    until = next(n for n, call in enumerate(calls) if call.startswith("git push"))
    # A folder is entered and a model is trained without wtxtgit, too.
    typed = [call for call in calls[: until + 1] if not call.startswith(("cd ", "python "))]
    assert len(typed) == 11
    assert typed[0] == "pip install wtxtgit"
    assert typed[-3:-1] == ['git commit -q -m "first checkpoint"', "wtxtgit review"]
    # The hook that audits is set up among them.
    assert "wtxtgit install --local --hooks" in typed
    assert "Eleven commands" in " ".join(line.text for line in lines(TUTORIAL))


def test_large_models(tmp_path: Path, home: Path) -> None:
    assert home.is_dir()
    forge, repo = Repo(tmp_path), Repo(tmp_path / "model")
    forge.git("init", "-q", "--bare", "forge.git")
    forge.git("clone", "-q", "forge.git", "model")
    weights = np.random.default_rng(0).standard_normal((512, 128), "f4")
    file = repo.path / "model.safetensors"
    wtxtgit.dump({"w": weights}, file)
    ran("docs/large-models.md", repo.path)
    assert len(repo.blob("model.safetensors", "HEAD")) < 20_000
    shards = sorted(path.name for path in tmp_path.glob("sharded*"))
    assert shards, "a small model has one shard"
    # The push sent the data, too.
    forge.git("clone", "-q", "forge.git", "clone")
    clone = Repo(tmp_path / "clone")
    clone.wtxtgit("install", "--local")
    assert (clone.path / "model.safetensors").read_bytes() == file.read_bytes()


def test_to_a_machine_without_a_network(tmp_path: Path, home: Path) -> None:
    assert home.is_dir()
    (tmp_path / "model").mkdir()
    repo = Repo(tmp_path / "model")
    repo.git("init", "-q")
    repo.wtxtgit("install", "--local")
    repo.wtxtgit("track", "*.safetensors")
    repo.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    repo.wtxtgit("signers", "add", "alice@example.com", "alice")
    checkpoint(repo.path / "model.safetensors", 1)
    repo.add()
    repo.wtxtgit("seal", "--staged")
    repo.commit("first")
    checkpoint(tmp_path / "old.safetensors", 1)
    checkpoint(tmp_path / "next.safetensors", 2)
    ran("docs/air-gapped.md", tmp_path)


def test_the_readmes_figures_are_those_of_the_bench() -> None:
    """As they were measured last, or within a tenth: each machine has its own."""
    rows = {line.cells[0]: line.cells for line in lines("docs/performance.md") if line.cells}

    def packed(kind: str) -> list[float]:
        """Megabytes of all files, and of what is left of them."""
        found = re.search(r", (\d+) MB: (\d+) MB packed", rows[f"all layers tuned: {kind}"][-1])
        assert found
        return [float(one) for one in found.groups()]

    first_screen = {line.cells[0]: line.cells for line in lines("README.md") if line.cells}
    (total,) = (cell for cell in first_screen if cell.endswith(" MB of files"))
    names = ("as texts in git", "as hashes in git, with the data in the store", "in git-lfs")
    plain = "in plain git, which can't diff or merge weights"
    sizes = [total, *(first_screen[name][1] for name in (*names, plain))]
    merging = re.search(
        r"merging it takes ([\d.]+) s; with its data in the store, ([\d.]+) s", prose("README.md")
    )
    assert merging
    told = [*(float(cell.split(" MB")[0]) for cell in sizes), *map(float, merging.groups())]
    kinds = ("texts", "detached texts", "git-lfs", "raw git")
    merges = [float(rows[f"git merge, both sides changed it: {kind}"][2]) for kind in kinds[:2]]
    measured = [packed("texts")[0], *(packed(kind)[1] for kind in kinds), *merges]
    assert told == pytest.approx(measured, rel=0.1)


def test_pictures_are_small_shown_and_load_nothing() -> None:
    folder = ROOT / "docs/pictures"
    pictures = {file.name: file for file in folder.iterdir() if file.suffix in (".svg", ".png")}
    shown = {
        Path(link).name
        for page in page_names()
        for line in lines(page)
        for link in line.links
        if "pictures/" in link
    }
    assert shown == set(pictures)
    assert "docs/pictures/review-page.png" in "".join(line.text for line in lines("README.md"))
    for file in pictures.values():
        assert 1000 < file.stat().st_size < 150_000
        if file.suffix == ".svg":
            text = file.read_text()
            assert re.findall('https?://[^"]+', text) == ["http://www.w3.org/2000/svg"]
            assert not re.search("@font-face|@import|url\\((?!#)", text)


def test_the_sites_index_has_every_page() -> None:
    # With another name than its own a page stands in angle brackets.
    index = (ROOT / "docs/index.rst").read_text()
    listed = set(re.findall(r"^   (?:.*<)?([\w./*-]+)>?$", index, re.MULTILINE))
    pages = {Path(page) for page in page_names() if "ISSUE_TEMPLATE" not in page}
    wanted = {
        str(page.with_suffix("").relative_to("docs"))
        if page.parts[0] == "docs"
        else f"../{page.with_suffix('')}"
        for page in pages
    }
    left = {page for page in wanted if not any(fnmatchcase(page, one) for one in listed)}
    assert left == set(), "make site says so, too"
