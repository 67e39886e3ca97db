from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit import ATTRIBUTES, Repo, safetensors
from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git.repository import Repository
from wtxtgit.setup import track as ops

COMPANIONS = (
    "*.wtxt text eol=lf diff=wtxt\n"
    "*.wtxt.age -text diff=wtxt merge=binary\n"
    "*.wtxtdelta text eol=lf\n"
    "*.wsum text eol=lf merge=wtxt-ledger\n"
    ".wtxt/* text eol=lf\n"
)

ABOUT = (
    "# Kept as text by wtxtgit: pip install wtxtgit, then wtxtgit install. "
    "A file that begins with WTXT: docs/met-a-text.md in its source\n"
)


def lines(repo: Repo) -> str:
    return (repo.path / ".gitattributes").read_bytes().decode()


def test_track_and_untrack_leave_nothing(repo: Repo) -> None:
    done = ops.track(repo.repository, [b"*.fold", b"a b.fold"])
    assert done.changed == (b"*.fold", b"a b.fold")
    assert lines(repo) == ABOUT + f'*.fold {ATTRIBUTES}\n"a b.fold" {ATTRIBUTES}\n' + COMPANIONS
    again = ops.track(repo.repository, [b"*.fold"])
    assert (again.changed, again.unchanged) == ((), (b"*.fold",))
    assert ops.untrack(repo.repository, [b"*.fold", b"*.x"]).unchanged == (b"*.x",)
    assert lines(repo) == ABOUT + f'"a b.fold" {ATTRIBUTES}\n' + COMPANIONS
    ops.untrack(repo.repository, [b"a b.fold"])
    assert not (repo.path / ".gitattributes").exists()


def test_foreign_lines_stay_byte_for_byte(repo: Repo) -> None:
    foreign = b"# mine\r\n*.png binary\r\n\r\n*.psd filter=lfs -text"
    repo.write(".gitattributes", foreign)
    ops.track(repo.repository, [b"*.fold"])
    changed = (repo.path / ".gitattributes").read_bytes()
    about = ABOUT.rstrip().encode()
    assert changed.startswith(foreign + b"\r\n" + about + b"\r\n*.fold filter=wtxt")
    assert b"\n" not in changed.replace(b"\r\n", b"")
    ops.untrack(repo.repository, [b"*.fold"])
    assert (repo.path / ".gitattributes").read_bytes() == foreign + b"\r\n"


def test_the_line_that_says_what_this_is_stands_once_and_may_go(repo: Repo) -> None:
    ops.track(repo.repository, [b"*.fold"])
    repo.write(".gitattributes", lines(repo).replace(ABOUT, ""))
    ops.track(repo.repository, [b"*.pt"])
    assert ABOUT not in lines(repo)
    # An edited one is its author's.
    repo.write(".gitattributes", ABOUT.replace("text", "TEXT") + lines(repo))
    ops.untrack(repo.repository, [b"*.fold", b"*.pt"])
    assert lines(repo) == ABOUT.replace("text", "TEXT")


def test_a_line_without_text_is_completed(repo: Repo) -> None:
    repo.write(".gitattributes", "*.fold filter=wtxt lockable text eol=crlf\n")
    assert ops.track(repo.repository, [b"*.fold"]).changed == (b"*.fold",)
    assert lines(repo) == f"*.fold {ATTRIBUTES} lockable\n" + COMPANIONS
    ops.untrack(repo.repository, [b"*.fold"])
    assert lines(repo) == "*.fold lockable\n"


def test_the_file_is_that_of_the_folder(repo: Repo) -> None:
    (repo.path / "sub").mkdir()
    sub = Repository.discover(repo.path / "sub")
    assert ops.track(sub, [b"*.fold"]).file == repo.path / "sub/.gitattributes"
    ops.track(repo.repository, [b"*.aero"])
    found = ops.list_patterns(repo.repository).patterns
    assert found == (
        ops.Pattern(b"*.aero", b".gitattributes"),
        ops.Pattern(b"*.fold", b"sub/.gitattributes"),
    )


def test_a_linked_gitattributes_is_not_written(repo: Repo, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine\n")
    (repo.path / ".gitattributes").symlink_to(target)
    with pytest.raises(EnvironmentFailure, match="symbolic link"):
        ops.track(repo.repository, [b"*.fold"])
    assert target.read_text() == "mine\n"


@pytest.mark.parametrize("pattern", [b"", b"!*.fold", b"models/"])
def test_useless_patterns_are_refused(repo: Repo, pattern: bytes) -> None:
    with pytest.raises(UsageError):
        ops.track(repo.repository, [pattern])
    assert not (repo.path / ".gitattributes").exists()


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("./a b.fold", "wtxtgit track -- 'a b.fold'"),
        ("{top}/sub/a b.fold", "wtxtgit track -- 'a b.fold'"),
        ("x/../a b.fold", "wtxtgit track -- 'a b.fold'"),
        ("models", "wtxtgit track -- 'models/**'"),
        ("./models/", "wtxtgit track -- 'models/**'"),
        ("{top}/sub/models", "wtxtgit track -- 'models/**'"),
        ("../*.fold", ops.SUCH_AS),
        ("{top}/other.fold", ops.SUCH_AS),
        (".", ops.SUCH_AS),
        ("*", ops.SUCH_AS),
        (".git*", ops.SUCH_AS),
    ],
)
def test_a_path_that_git_would_not_match_is_told(repo: Repo, pattern: str, hint: str) -> None:
    """It would seem to be tracked, and be stored as it is; and git has to read gitattributes."""
    repo.write("sub/models/.gitattributes", "")
    repo.write("sub/.gitattributes", "# mine\n")
    repo.add()
    refused = repo.wtxtgit("track", pattern.format(top=repo.path), cwd="sub", ok=(2,)).stderr
    assert refused.decode().endswith(f"\nwtxtgit: hint: {hint}\n")
    assert (repo.path / "sub/.gitattributes").read_bytes() == b"# mine\n"


@pytest.mark.parametrize("pattern", ["/a.fold", "sub/*.fold", "a.fold", "[.]/a"])
def test_a_pattern_is_no_path(repo: Repo, pattern: str) -> None:
    repo.wtxtgit("track", pattern)


def test_committed_raw_files_are_told_and_renormalised(repo: Repo, driver: None) -> None:
    repo.write("a.safetensors", safetensors(1.0))
    repo.write("other.bin", b"x")
    repo.add()
    repo.commit()
    done = ops.track(repo.repository, [b"*.safetensors"])
    assert done.consequences.raw == (b"a.safetensors",)
    repo.git("add", "--renormalize", "--", "a.safetensors")
    assert repo.blob("a.safetensors").startswith(b"WTXT 1\n")
    assert ops.track(repo.repository, [b"*.safetensors"]).consequences.raw == ()


def test_paths_with_intent_to_add_are_not_raw(repo: Repo, driver: None) -> None:
    repo.write("a.safetensors", safetensors(1.0))
    repo.git("add", "-N", "--", "a.safetensors")
    assert ops.track(repo.repository, [b"*.safetensors"]).consequences.raw == ()
    repo.git("add", "-N", "--", ".gitattributes")
    assert ops.list_patterns(repo.repository).patterns[0].pattern == b"*.safetensors"


def test_sizes_are_told_before_the_first_add(repo: Repo) -> None:
    with (repo.path / "big.fold").open("wb") as file:
        file.truncate(400 << 20)
    with (repo.path / "ignored.fold").open("wb") as file:
        file.truncate(400 << 20)
    repo.write(".gitignore", "ignored.fold\n")
    found = ops.track(repo.repository, [b"*.fold"]).consequences
    (warning,) = found.sizes
    assert warning.path == b"big.fold"
    assert "core.bigFileThreshold" in warning.message
    assert "100 MiB (about 72 MiB of binary)" in warning.message
    assert "of memory" in warning.message
    assert found.long == 1


@pytest.mark.slow
def test_the_command_that_mends_is_told(repo: Repo, driver: None) -> None:
    repo.git("config", "core.bigFileThreshold", "1m")
    repo.write("big.fold", bytes(2 << 20))
    told = repo.wtxtgit("track", "*.fold").stderr.decode()
    assert "git packs such files better with core.bigFileThreshold=8m" in told
    assert "wtxtgit doctor --fix sets that for this repository" in told
    assert "pull requests may not show a diff of 1 file" in told
    done = repo.wtxtgit("doctor", "--fix").stdout.decode()
    assert "mended: set core.bigFileThreshold to 8m for this repository" in done
    assert "core.bigFileThreshold" not in repo.wtxtgit("track", "*.fold").stderr.decode()


@pytest.mark.slow
def test_the_command_line(repo: Repo) -> None:
    assert b"no tracked patterns" in repo.wtxtgit("track").stdout
    told = repo.wtxtgit("track", "*.fold", "*.aero").stdout
    assert told == b"tracking *.fold\ntracking *.aero\n"
    assert repo.wtxtgit("track", "*.fold").stdout == b"already tracked: *.fold\n"
    listed = json.loads(repo.wtxtgit("track", "--json").stdout)
    assert listed["patterns"][0] == {"pattern": "*.fold", "file": ".gitattributes"}
    repo.wtxtgit("track", "--detached", "*.gguf")
    listed = json.loads(repo.wtxtgit("track", "--json").stdout)
    assert [one.get("detached") for one in listed["patterns"]] == [None, None, True]
    assert repo.wtxtgit("untrack", "*.fold").stdout == b"no longer tracking *.fold\n"
    assert repo.wtxtgit("untrack", ok=(2,)).stdout == b""


def test_indexes_of_sets_are_merged_by_the_driver(repo: Repo) -> None:
    ops.track(repo.repository, [b"*.fold"])
    assert "aeroset" not in lines(repo)
    ops.track(repo.repository, [b"parts/*.aero"])
    assert lines(repo).splitlines()[-1] == "*.aeroset.json merge=wtxt"
    once = lines(repo)
    ops.track(repo.repository, [b"parts/*.aero"])
    assert lines(repo) == once
    ops.untrack(repo.repository, [b"*.fold", b"parts/*.aero"])
    assert not (repo.path / ".gitattributes").exists()


def test_the_template_says_what_track_writes(repo: Repo) -> None:
    template = Path(__file__).parents[2] / "gitattributes.template"
    patterns = [b"*.fold", b"*.mind", b"*.aero", b"*.checkpoint", b"*.taridx", b"*.safetensors"]
    ops.track(repo.repository, patterns)
    active = [line.split() for line in template.read_text().splitlines() if line and line[0] != "#"]
    written = [line.split() for line in lines(repo).splitlines()]
    assert active == [line for line in written if line[0] != "#"]
