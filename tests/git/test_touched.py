from __future__ import annotations

import os

from tests.e2e.conftest import traced
from tests.kit import Repo, safetensors
from wtxtgit.git.index import FileChange, Touched, touched

NAME = "model.safetensors"


def of(repo: Repo) -> dict[str, tuple[FileChange, bool]]:
    found = touched(repo.repository)
    return {os.fsdecode(path): (one.change, one.is_content) for path, one in found.items()}


def aged(repo: Repo, name: str = NAME) -> None:
    """Give a file other times than its index entry has."""
    os.utime(repo.path / name, (1_000_000_000, 1_000_000_000))


def test_what_the_index_has_is_not_told(tracked: Repo) -> None:
    aged(tracked)
    tracked.git("update-index", "--refresh")
    assert of(tracked) == {}


def test_times_tell_of_content(tracked: Repo) -> None:
    aged(tracked)
    assert touched(tracked.repository) == {NAME.encode(): Touched(FileChange.MODIFIED, True)}


def test_other_changes_are_not_of_content(tracked: Repo) -> None:
    for name in ("mode", "gone", "link"):
        tracked.write(f"{name}.safetensors", safetensors(1.0, 2.0))
    tracked.add()
    for name in ("mode", "gone", "link"):
        aged(tracked, f"{name}.safetensors")
    aged(tracked)
    tracked.git("update-index", "--refresh")
    (tracked.path / "mode.safetensors").chmod(0o755)
    for name in ("gone", "link"):
        (tracked.path / f"{name}.safetensors").unlink()
    (tracked.path / "link.safetensors").symlink_to(NAME)
    assert of(tracked) == {
        "mode.safetensors": (FileChange.MODIFIED, False),
        "gone.safetensors": (FileChange.DELETED, False),
        "link.safetensors": (FileChange.TYPE, False),
    }


def test_names_of_any_kind(tracked: Repo) -> None:
    for name in (b"a\nb.safetensors", b"\xff.safetensors", b" :100644 M.safetensors"):
        tracked.write(name, safetensors(1.0))
        tracked.git("--literal-pathspecs", "add", "--", name)
        os.utime(tracked.path / os.fsdecode(name), (1, 1))
        assert touched(tracked.repository)[name] == Touched(FileChange.MODIFIED, True)


def test_no_filter_is_run(tracked: Repo) -> None:
    """Neither for a file of other times, nor for one as young as its index."""
    aged(tracked)
    log = tracked.path.parent / "trace"
    os.environ["GIT_TRACE2_EVENT"] = str(log)
    try:
        assert NAME in of(tracked)
        tracked.write("young.safetensors", safetensors(5.0))
    finally:
        del os.environ["GIT_TRACE2_EVENT"]
    assert b"filter-process" not in log.read_bytes()
    # The trace is one that would show it.
    assert traced(tracked, "status").filters == 1
