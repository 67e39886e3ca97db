"""`wtxtgit checkout` writes what `git checkout` writes, and nothing outside of the work tree."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.data import fixture, golden
from tests.e2e.conftest import PAIRS, traced, version
from tests.e2e.sealed import Sealed
from tests.kit import Repo, safetensors
from wtxtgit.filter import checkout
from wtxtgit.filter.process import FilterSettings

MODEL = "model.safetensors"
OTHER = "sub/dir/other.safetensors"


@pytest.fixture
def here(repo: Repo, driver: None) -> Sealed:
    """A repository with two checkpoints, committed."""
    repo.track("*.safetensors")
    repo.write(MODEL, safetensors(1.0, 2.0))
    repo.write(OTHER, safetensors(*range(70_000)))
    repo.add()
    repo.commit()
    aged(repo)
    return Sealed(repo.path)


def aged(repo: Repo) -> None:
    """Make the index younger than all files: git reads those again that may be as young."""
    index = repo.path / os.fsdecode(repo.git("rev-parse", "--git-path", "index").strip())
    status = index.stat()
    os.utime(index, (status.st_atime + 5, status.st_mtime + 5))


@pytest.fixture
def least(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the bytes of a blob from which on its file is written while it is inflated."""
    monkeypatch.setattr(checkout, "_ARRIVING", request.param)


arriving = pytest.mark.parametrize(
    "least", [pytest.param(1 << 40, id="at hand"), pytest.param(0, id="arriving")], indirect=True
)


def content(repo: Repo, *names: str) -> list[bytes]:
    return [(repo.path / name).read_bytes() for name in names]


def bare_of_driver(here: Sealed, name: str) -> Sealed:
    """A clone that was made without smudging."""
    here.git("clone", "-q", str(here.path), f"../{name}", env={"WTXTGIT_SKIP_SMUDGE": "1"})
    return Sealed(here.path.parent / name)


@pytest.mark.slow
def test_missing_files_are_written(here: Sealed) -> None:
    wanted = content(here, MODEL, OTHER)
    (here.path / MODEL).chmod(0o755)
    here.add()
    for name in (MODEL, OTHER):
        (here.path / name).unlink()
    (here.path / "sub/dir").rmdir()
    assert here.call("checkout").out == "2 files written\n"
    assert content(here, MODEL, OTHER) == wanted
    assert stat.S_IMODE((here.path / MODEL).stat().st_mode) & 0o111
    aged(here)
    told = traced(here, "status", "--porcelain")
    assert told.filters == 0
    assert told.done.stdout == b"M  model.safetensors\n"
    assert here.call("checkout").out == "0 files written\n"


@pytest.mark.slow
def test_texts_become_files(here: Sealed) -> None:
    clone = bare_of_driver(here, "clone")
    assert clone.path.joinpath(MODEL).read_bytes() == here.blob(MODEL, "HEAD")
    said = clone.call("checkout", "--json")
    assert json.loads(said.out) == {
        "written": [MODEL, OTHER], "changed": [], "left": [], "failed": [],
    }  # fmt: skip
    assert content(clone, MODEL, OTHER) == content(here, MODEL, OTHER)
    aged(clone)
    assert traced(clone, "status").filters == 0
    assert clone.status() == b""


@pytest.mark.slow
def test_install_writes_texts_again(here: Sealed) -> None:
    clone = bare_of_driver(here, "clone")
    clone.wtxtgit("install", "--local")
    assert content(clone, MODEL, OTHER) == content(here, MODEL, OTHER)
    aged(clone)
    assert traced(clone, "status").filters == 0
    assert clone.status() == b""


@pytest.mark.slow
def test_what_was_changed_stays(here: Sealed) -> None:
    wanted = content(here, MODEL)
    here.write(MODEL, safetensors(9.0))
    (here.path / OTHER).unlink()
    said = here.call("checkout", ok=(1,))
    assert said.out == "1 file written\n"
    assert f"{MODEL}: changed, left alone" in said.err
    assert content(here, MODEL) == [safetensors(9.0)]
    assert here.call("checkout", "--force", MODEL).out == "1 file written\n"
    assert content(here, MODEL) == wanted
    assert here.status() == b""


@pytest.mark.slow
def test_a_text_that_was_changed_stays(here: Sealed) -> None:
    clone = bare_of_driver(here, "clone")
    text = clone.path / MODEL
    text.write_bytes(text.read_bytes().replace(b"endwtxt", b"ENDWTXT"))
    before = text.read_bytes()
    clone.call("checkout", MODEL, ok=(1,))
    assert text.read_bytes() == before


def test_paths_choose(here: Sealed) -> None:
    for name in (MODEL, OTHER):
        (here.path / name).unlink()
    Sealed(here.path / "sub").call("checkout", "dir")
    assert not (here.path / MODEL).exists()
    assert (here.path / OTHER).exists()
    assert "no tracked file matches 'nosuch'" in here.call("checkout", "nosuch", ok=(2,)).err


@pytest.mark.slow
def test_nothing_is_written_through_a_link(here: Sealed, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "dir").mkdir(parents=True)
    (here.path / OTHER).unlink()
    (here.path / "sub/dir").rmdir()
    (here.path / "sub").rmdir()
    (here.path / "sub").symlink_to(outside)
    said = here.call("checkout", ok=(5,))
    assert "other.safetensors: " in said.err
    assert list((outside / "dir").iterdir()) == []
    (here.path / "sub").unlink()
    target = outside / "target"
    target.write_bytes(b"kept")
    (here.path / MODEL).unlink()
    (here.path / MODEL).symlink_to(target)
    here.call("checkout", "--force")
    assert target.read_bytes() == b"kept"
    assert not (here.path / MODEL).is_symlink()
    assert here.status() == b""


@pytest.mark.slow
def test_a_folder_in_the_way_is_told(here: Sealed) -> None:
    (here.path / MODEL).unlink()
    here.write(f"{MODEL}/inner", "kept")
    assert "model.safetensors: " in here.call("checkout", "--force", ok=(5,)).err
    assert content(here, f"{MODEL}/inner") == [b"kept"]
    assert not list(here.path.glob(".wtxtgit-*"))


@arriving
def test_damaged_texts_are_left_as_text(here: Sealed, least: None) -> None:
    damaged = here.blob(MODEL, "HEAD").replace(b" crc32c=", b" crc32c=0", 1)
    oid = here.git("hash-object", "-w", "--stdin", stdin=damaged).decode().strip()
    here.git("update-index", "--cacheinfo", f"100644,{oid},{MODEL}")
    (here.path / MODEL).unlink()
    said = here.call("checkout")
    assert "damaged, left as text" in said.err
    assert "left as text" in said.err
    assert content(here, MODEL) == [damaged]


@arriving
@pytest.mark.slow
def test_what_is_not_wanted_stays_text(here: Sealed, least: None) -> None:
    clone = bare_of_driver(here, "clone")
    clone.git("config", "wtxtgit.smudgeExclude", "sub")
    done = clone.wtxtgit("checkout")
    assert done.stdout == b"1 file written\n"
    assert b"other.safetensors: left as text" in done.stderr
    assert clone.path.joinpath(OTHER).read_bytes().startswith(b"WTXT 1\n")


@arriving
@pytest.mark.slow
def test_deltas_are_gits_to_give(here: Sealed, least: None) -> None:
    for number in range(4):
        here.write(OTHER, safetensors(*range(number, 70_000)))
        here.add()
        here.commit(str(number))
    here.git("gc", "-q", "--aggressive")
    for number in range(4):
        here.git("read-tree", f"HEAD~{number}")
        here.call("checkout", "--force")
        assert content(here, OTHER) == [safetensors(*range(3 - number, 70_000))]


@pytest.mark.slow
def test_many_small_files_are_written_side_by_side(here: Sealed) -> None:
    names = [f"d{number % 5}/{number}.safetensors" for number in range(60)]
    for number, name in enumerate(names):
        here.write(name, safetensors(float(number)))
    here.call("add", ".")
    aged(here)
    wanted = content(here, *names)
    for name in names:
        (here.path / name).unlink()
    assert here.call("checkout").out == "60 files written\n"
    assert content(here, *names) == wanted
    assert here.git("diff-files") == b""


@pytest.mark.slow
def test_real_files_come_back(repo: Repo, driver: None) -> None:
    repo.track("*.aero", "*.fold", "*.checkpoint", "*.taridx", "*.safetensors")
    here = Sealed(repo.path)
    for name in PAIRS:
        here.write(name, version(name, 2))
    here.add()
    for name in PAIRS:
        (here.path / name).unlink()
    here.call("checkout")
    for name in PAIRS:
        assert (here.path / name).read_bytes() == version(name, 2)


@arriving
@pytest.mark.slow
def test_every_real_file_comes_back(repo: Repo, driver: None, least: None) -> None:
    repo.track("checkpoints/**")
    here = Sealed(repo.path)
    files = {f"checkpoints/{path or 'empty'}": fixture(path) if path else b"" for path in golden()}
    for name, data in files.items():
        here.write(name, data)
    here.call("add", ".")
    here.git("gc", "-q")
    aged(here)
    for name in files:
        (here.path / name).unlink()
    here.call("checkout")
    for name, data in files.items():
        assert (here.path / name).read_bytes() == data
    aged(here)
    assert here.git("diff-files", "--name-only") == b""


@pytest.mark.slow
def test_modes_follow_the_umask(here: Sealed) -> None:
    (here.path / MODEL).unlink()
    before = os.umask(0o027)
    try:
        here.call("checkout")
    finally:
        os.umask(before)
    assert stat.S_IMODE((here.path / MODEL).stat().st_mode) == 0o640


@pytest.mark.slow
def test_a_linked_worktree(here: Sealed) -> None:
    here.git("worktree", "add", "-q", "../linked", env={"WTXTGIT_SKIP_SMUDGE": "1"})
    linked = Sealed(here.path.parent / "linked")
    linked.call("checkout")
    assert content(linked, MODEL, OTHER) == content(here, MODEL, OTHER)
    assert linked.status() == b""


@pytest.mark.slow
def test_a_partial_clone_fetches(here: Sealed) -> None:
    here.git("config", "uploadpack.allowFilter", "true")
    clone = Sealed(here.clone("clone", "--no-local", "--no-checkout", "--filter=blob:none").path)
    clone.git("read-tree", "HEAD")
    clone.call("checkout")
    assert content(clone, MODEL, OTHER) == content(here, MODEL, OTHER)


@pytest.mark.slow
def test_a_sparse_checkout_is_respected(here: Sealed) -> None:
    here.git("sparse-checkout", "set", "--cone", "elsewhere")
    assert not (here.path / OTHER).exists()
    here.call("checkout")
    assert not (here.path / OTHER).exists()


@pytest.mark.slow
def test_attributes_may_be_in_the_work_tree_or_in_the_index_alone(here: Sealed) -> None:
    attributes = (here.path / ".gitattributes").read_bytes()
    (here.path / ".gitattributes").unlink()
    (here.path / MODEL).unlink()
    assert here.call("checkout").out == "1 file written\n"
    here.git("rm", "-q", "--cached", ".gitattributes")
    here.write(".gitattributes", attributes)
    (here.path / MODEL).unlink()
    assert here.call("checkout").out == "1 file written\n"


@pytest.mark.slow
def test_what_is_written_meanwhile_stays(here: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    from wtxtgit.filter import smudge

    smudge_into = smudge.smudge_into

    def saved(descriptor: int, text: memoryview, **more: int | None) -> str | None:
        here.write(MODEL, b"saved meanwhile")
        return smudge_into(descriptor, text, **more)

    (here.path / MODEL).unlink()
    clone = bare_of_driver(here, "clone")
    monkeypatch.setattr(smudge, "smudge_into", saved)
    assert "was written meanwhile" in here.call("checkout", ok=(5,)).err
    assert content(here, MODEL) == [b"saved meanwhile"]
    assert not list(here.path.glob(".wtxtgit-*"))
    here.path.joinpath(MODEL).unlink()
    monkeypatch.setattr(smudge, "smudge_into", smudge_into)
    clone.call("checkout")
    assert content(clone, OTHER) == content(here, OTHER)


def test_one_blob_that_is_missing_keeps_no_other_from_being_written(here: Sealed) -> None:
    oid = here.git("rev-parse", f":{MODEL}").decode().strip()
    for name in (MODEL, OTHER):
        (here.path / name).unlink()
    (here.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    said = here.call("checkout", ok=(5,))
    assert f"{MODEL}: " in said.err
    assert (here.path / OTHER).exists()


@arriving
@pytest.mark.parametrize("place", ["the begin", "the middle", "the end"])
def test_a_damaged_object_is_told_and_leaves_nothing(here: Sealed, place: str, least: None) -> None:
    oid = here.git("rev-parse", f":{OTHER}").decode().strip()
    stored = here.path / ".git/objects" / oid[:2] / oid[2:]
    raw = bytearray(stored.read_bytes())
    at = {"the begin": 200, "the middle": len(raw) // 2, "the end": len(raw) - 2}[place]
    raw[at] ^= 0xFF
    stored.chmod(0o644)
    stored.write_bytes(raw)
    (here.path / OTHER).unlink()
    said = here.call("checkout", ok=(5,))
    assert said.err.startswith(f"wtxtgit: warning: {OTHER}: ")
    assert f"blob {oid}" in said.err
    assert list((here.path / "sub/dir").iterdir()) == []


@arriving
@pytest.mark.parametrize("change", [b" crc32c=", b"sha256_all=", b"no change"])
def test_progress_counts_each_byte_once(here: Sealed, change: bytes, least: None) -> None:
    text = here.blob(OTHER)
    at = text.find(change) + len(change)
    text = text.replace(text[:at] + b"%c" % text[at], text[:at] + b"0", 1)
    oid = here.git("hash-object", "-w", "--stdin", stdin=text).decode().strip()
    here.git("update-index", "--cacheinfo", f"100644,{oid},{OTHER}")
    counts: list[int] = []
    done = checkout.checkout(
        here.repository, (OTHER,), FilterSettings(), lambda *_: None,
        force=True, progress=counts.append,
    )  # fmt: skip
    assert done.failed == ()
    assert sum(counts) == len(text)
