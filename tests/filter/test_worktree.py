from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.conftest import stage_blob, traced
from tests.kit import Repo, safetensors, text_of
from wtxtgit.cli.environment import facts_key
from wtxtgit.filter import status
from wtxtgit.filter.clean import clean
from wtxtgit.filter.content import ContentCache, content_digest, examine
from wtxtgit.filter.status import tracked as entries_of
from wtxtgit.git import run
from wtxtgit.git.index import FileChange
from wtxtgit.setup import install

NAME = "model.safetensors"
CONTENT = safetensors(1.0, 2.0, 3.0)
OTHER = safetensors(1.0, 2.0, 4.0)


def changes(repo: Repo, *, is_kept: bool = True) -> dict[str, FileChange]:
    here = repo.repository
    with ContentCache(here, facts_key() if is_kept else None) as known:
        found = status.file_changes(here, entries_of(here), known, 1).changes
    return {os.fsdecode(path): change for path, change in found.items()}


def by_git(repo: Repo) -> dict[str, FileChange]:
    """What git says, with the filter."""
    from wtxtgit.git import index

    found = index.changes(repo.repository)
    return {os.fsdecode(path): one for path, one in found.items() if one is not FileChange.NONE}


def put(repo: Repo, name: str, content: bytes = CONTENT) -> None:
    """Have a file and its blob, with stat fields in the index that are no file's."""
    stage_blob(repo, name, text_of(content))
    repo.write(name, content)


@pytest.fixture
def stored(repo: Repo, driver: None) -> Repo:
    """A repository with the driver and a checkpoint in the index."""
    repo.track("*.safetensors")
    put(repo, NAME)
    return repo


def touch(repo: Repo, name: str = NAME, when: int = 1_000_000_000) -> None:
    os.utime(repo.path / name, (when, when))


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where git and the git commands that it starts are recorded."""
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(tmp_path / "trace"))
    return tmp_path / "trace"


def filters(trace: Path) -> int:
    """How many filters git started since it was asked last."""
    events = [json.loads(line) for line in trace.read_bytes().splitlines()]
    assert events
    trace.write_bytes(b"")
    return sum(
        "filter-process" in " ".join(event["argv"])
        for event in events
        if event["event"] == "child_start"
    )


class TestTouched:
    def test_it_is_unchanged_and_no_filter_is_run(self, stored: Repo, trace: Path) -> None:
        assert changes(stored) == {}
        for when in (1_000_000_000, 1_100_000_000):
            touch(stored, when=when)
            assert changes(stored) == {}
        assert filters(trace) == 0

    @pytest.mark.slow
    def test_git_need_not_look_either(self, stored: Repo) -> None:
        touch(stored)
        assert NAME.encode() in traced(stored, "diff-files").done.stdout
        changes(stored)
        assert NAME.encode() not in traced(stored, "diff-files").done.stdout
        told = traced(stored, "status", "--porcelain")
        assert (told.done.stdout, told.filters) == (f"A  .gitattributes\nA  {NAME}\n".encode(), 0)

    def test_the_index_stays_as_it_is_where_it_is_locked(self, stored: Repo, trace: Path) -> None:
        touch(stored)
        index = (stored.path / ".git/index").read_bytes()
        stored.write(".git/index.lock", b"")
        assert changes(stored) == {}
        assert filters(trace) == 0
        assert (stored.path / ".git/index").read_bytes() == index

    def test_the_index_stays_as_it_is_where_that_is_asked(
        self, stored: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        touch(stored)
        index = (stored.path / ".git/index").read_bytes()
        monkeypatch.setenv("GIT_OPTIONAL_LOCKS", "0")
        assert changes(stored) == {}
        assert (stored.path / ".git/index").read_bytes() == index

    def test_its_content_is_cleaned_once(
        self, stored: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert changes(stored) == {}
        monkeypatch.setattr("wtxtgit.filter.clean.clean", None)
        touch(stored, when=1_100_000_000)
        assert changes(stored) == {}
        touch(stored)
        with pytest.raises(TypeError):
            changes(stored, is_kept=False)

    def test_what_was_found_is_known_to_others(self, stored: Repo) -> None:
        touch(stored)
        changes(stored)
        oid = stored.git("rev-parse", f":{NAME}").decode().strip()
        with ContentCache(stored.repository, facts_key()) as known:
            assert known.facts([oid]) == {oid: examine(memoryview(stored.blob(NAME)), threads=1)}
            assert known.file_of(oid) == (content_digest(memoryview(CONTENT)), len(CONTENT))

    @pytest.mark.parametrize("is_kept", [True, False])
    def test_sha256(self, driver: None, tmp_path: Path, is_kept: bool) -> None:
        (tmp_path / "r").mkdir()
        repo = Repo(tmp_path / "r")
        repo.git("init", "-q", "--object-format=sha256")
        repo.track("*.safetensors")
        put(repo, NAME)
        for when in (1_000_000_000, 1_100_000_000):
            touch(repo, when=when)
            assert changes(repo, is_kept=is_kept) == {}

    @pytest.mark.slow
    def test_a_linked_worktree(self, stored: Repo, trace: Path) -> None:
        changes(stored)
        stored.commit()
        stored.git("worktree", "add", "-q", "../linked")
        linked = Repo(stored.path.parent / "linked")
        touch(linked)
        filters(trace)
        assert changes(linked) == {}
        assert filters(trace) == 0


class TestChanged:
    @pytest.mark.slow
    def test_of_the_same_size(self, stored: Repo, trace: Path) -> None:
        """The second time one hash tells, and the first time where the blob's file is known."""
        touch(stored)
        changes(stored)
        stored.write(NAME, OTHER)
        touch(stored, when=1_100_000_000)
        assert changes(stored) == {NAME: FileChange.MODIFIED}
        assert filters(trace) == 0
        assert by_git(stored) == {NAME: FileChange.MODIFIED}

    @pytest.mark.slow
    def test_one_hash_tells(self, stored: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
        touch(stored)
        changes(stored)
        monkeypatch.setattr("wtxtgit.filter.clean.clean", None)
        stored.write(NAME, OTHER)
        assert changes(stored) == {NAME: FileChange.MODIFIED}

    @pytest.mark.slow
    def test_a_text_in_the_place_of_its_file(self, stored: Repo) -> None:
        """Git goes by the size."""
        touch(stored)
        changes(stored)
        stored.write(NAME, stored.blob(NAME))
        touch(stored)
        assert by_git(stored) == changes(stored) == {NAME: FileChange.MODIFIED}

    @pytest.mark.slow
    def test_a_file_in_the_place_of_its_text(self, stored: Repo) -> None:
        """Git goes by the size, and takes it for the same once it is told."""
        stored.write(NAME, stored.blob(NAME))
        stored.add()
        stored.write(NAME, CONTENT)
        touch(stored)
        assert by_git(stored) == {NAME: FileChange.MODIFIED}
        assert changes(stored) == by_git(stored) == {}

    @pytest.mark.slow
    @pytest.mark.parametrize("is_kept", [True, False])
    def test_all_kinds_at_once(self, stored: Repo, is_kept: bool) -> None:
        names = ["same", "other", "longer", "gone", "mode", "link", "text", "damaged", "folder"]
        for name in names:
            put(stored, f"{name}.safetensors")
        stored.write("plain.txt", "a")
        stored.add("plain.txt")
        held = text_of(CONTENT)
        stored.write("other.safetensors", OTHER)
        stored.write("longer.safetensors", CONTENT + b"x")
        stored.write("text.safetensors", held)
        stored.write("damaged.safetensors", held.replace(b"crc32c=", b"crc32c=0", 1))
        stored.write("plain.txt", "b")
        (stored.path / "mode.safetensors").chmod(0o755)
        for name in ("gone", "link", "folder"):
            (stored.path / f"{name}.safetensors").unlink()
        (stored.path / "link.safetensors").symlink_to(NAME)
        (stored.path / "folder.safetensors").mkdir()
        for name in ("same", "other", "longer", "text", "damaged"):
            touch(stored, f"{name}.safetensors")
        wanted = {
            "other": FileChange.MODIFIED,
            "longer": FileChange.MODIFIED,
            "damaged": FileChange.MODIFIED,
            "mode": FileChange.MODIFIED,
            "link": FileChange.TYPE,
            "gone": FileChange.DELETED,
            "folder": FileChange.DELETED,
        }
        for _ in range(2):
            found = changes(stored, is_kept=is_kept)
            assert found == {f"{name}.safetensors": one for name, one in wanted.items()}
        assert by_git(stored) == found | {"plain.txt": FileChange.MODIFIED}

    def test_a_file_that_grows_while_it_is_read(
        self, stored: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Git is asked, and nothing is kept of what was half the one and half the other."""

        def grow(*given: object, **more: object) -> object:
            cleaned = clean(*given, **more)  # type: ignore[arg-type]
            stored.write(NAME, OTHER)
            return cleaned

        touch(stored)
        monkeypatch.setattr("wtxtgit.filter.clean.clean", grow)
        assert changes(stored) == {NAME: FileChange.MODIFIED}
        with ContentCache(stored.repository, facts_key()) as known:
            assert known.blob_of(content_digest(memoryview(CONTENT)), len(CONTENT)) is None


class TestOfOthers:
    """Where git would not run our filter alone, git is asked."""

    @pytest.mark.slow
    def test_no_driver(self, stored: Repo) -> None:
        install.unset_driver(scope="global")
        touch(stored)
        assert by_git(stored) == changes(stored) == {NAME: FileChange.MODIFIED}

    @pytest.mark.slow
    def test_another_driver(self, stored: Repo, home: Path) -> None:
        run.git("config", "--global", "--unset", "filter.wtxt.process", cwd=home)
        run.git("config", "--global", "filter.wtxt.clean", "tr a b", cwd=home)
        touch(stored)
        assert by_git(stored) == changes(stored) == {NAME: FileChange.MODIFIED}

    @pytest.mark.slow
    @pytest.mark.parametrize("more", ["text eol=crlf", "-text ident", "text=auto"])
    def test_attributes_that_change_what_the_filter_gives(self, stored: Repo, more: str) -> None:
        content = b"no text $Id$\r\n"
        stored.write(".gitattributes", f"*.safetensors filter=wtxt {more}\n")
        stored.write(NAME, content)
        stored.add()
        touch(stored)
        assert by_git(stored) == changes(stored) == {}


def test_paths_are_taken_literally(stored: Repo) -> None:
    for name in (":(top)x.safetensors", "a\nb.safetensors", "\udcff.safetensors", "*.safetensors"):
        put(stored, name)
    assert changes(stored) == {}


def test_forged_rows_hide_no_change(stored: Repo, home: Path) -> None:
    """What somebody else wrote, with all of the repository's content in view, is not believed."""
    stored.write(NAME, OTHER)
    touch(stored)
    oid = stored.git("rev-parse", f":{NAME}").decode().strip()
    with ContentCache(stored.repository, home / "of-somebody-else" / "key") as forged:
        forged.put_blob(content_digest(memoryview(OTHER)), len(OTHER), oid, is_binary=True)
    assert changes(stored) == {NAME: FileChange.MODIFIED}
