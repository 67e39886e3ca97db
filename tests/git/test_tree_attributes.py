from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.git.histories import History, new_repo
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import attributes, run
from wtxtgit.git.attributes import TreeAttributes
from wtxtgit.git.repository import Repository

PATHS = [
    b"a.fold", b"sub/a.fold", b"sub/deep/a.fold", b"sub/b.npz", b"b.npz", b"A.FOLD", b"a b.fold",
    b"new\nline.fold", b"\xff\xfe.fold", b'q"uote.fold', b"tab\t.fold", b"-n.fold", b":x.fold",
    "modèle.fold".encode(), b"other", b"sub/other", b"sub/deep/b.npz", b"*.fold", b"x" * 5000,
]  # fmt: skip

FILES: list[dict[bytes, bytes]] = [
    {b".gitattributes": b"*.fold filter=wtxt -text\n"},
    {b".gitattributes": b"[attr]model filter=wtxt -text\n*.fold model\nsub/*.npz model\n"},
    # A macro is one at the top level only.
    {b".gitattributes": b"*.fold m\n", b"sub/.gitattributes": b"[attr]m filter=wtxt\n*.npz m\n"},
    {b".gitattributes": b"*.fold filter=wtxt\n", b"sub/.gitattributes": b"*.fold -filter\n"},
    {b".gitattributes": b"*.fold filter=wtxt\n", b"sub/.gitattributes": b"a.fold !filter\n",
     b"sub/deep/.gitattributes": b"* filter=wtxt\n"},
    {b".gitattributes": b"*.fold filter=wtxt\n*.fold filter=lfs\n*.npz filter\n"},
    {b".gitattributes": b"*.fold filter=wtxt\n!a.fold -filter\nsub/ filter=wtxt\n"},
    {b".gitattributes": b'"a b.fold" filter=wtxt\n"new\\nline.fold" filter=wtxt\n'},
    {b".gitattributes": b'"q\\"*" filter=wtxt'},
    {b".gitattributes": b'"\\377\\376.fold" filter=wtxt\r\ntab\\t* filter=wtxt\n'},
    {b".gitattributes": b"\xef\xbb\xbf*.fold filter=wtxt\n/b.npz filter=wtxt"},
    {b".gitattributes": b"*.fold filter=WTXT\n**/b.npz filter=wtxt\nb.npz -filter"},
    {b".gitattributes": b"*.fold filter=wtxt " + b"x" * 3000 + b"\n*.npz filter=wtxt\n"},
    {b"sub/.gitattributes": b"* filter=wtxt\n", b".GitAttributes": b"* filter=wtxt\n"},
    {b".gitattributes": b""},
    {},
]  # fmt: skip


def attribute_files(make: History, files: Mapping[bytes, bytes]) -> dict[bytes, str]:
    return {
        path: make.blob(content).decode()
        for path, content in files.items()
        if path.split(b"/")[-1] == b".gitattributes"
    }


def in_a_checkout(repo: Repo, paths: list[bytes]) -> set[bytes]:
    """What git says where the files are really checked out."""
    said = repo.git("check-attr", "-z", "--stdin", "filter", stdin=run.joined(paths))
    fields = run.records(said)
    return {path for path, value in zip(fields[::3], fields[2::3], strict=True) if value == b"wtxt"}


def random_files(chance: random.Random) -> dict[bytes, bytes]:
    patterns = [b"*", b"*.fold", b"a.*", b"sub/*", b"deep/**", b"**/b.npz", b'"a b.fold"', b"?.npz"]
    words = [
        b"filter=wtxt",
        b"filter=wtxt",
        b"-filter",
        b"!filter",
        b"filter",
        b"filter=lfs",
        b"m",
        b"-m",
        b"text",
    ]
    files = {}
    for folder in (b"", b"sub/", b"sub/deep/"):
        if chance.random() < 0.7:
            lines = [b"[attr]m filter=wtxt -text"] if chance.random() < 0.5 else []
            lines += [
                b" ".join([chance.choice(patterns), *chance.sample(words, 2)])
                for _ in range(chance.randrange(5))
            ]
            files[folder + b".gitattributes"] = b"\n".join(lines) + b"\n"
    return files


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_it_is_what_git_says_in_a_checkout(tmp_path: Path, kind: str) -> None:
    chance = random.Random(20)  # noqa: S311 - the same in every run
    every = FILES + [random_files(chance) for _ in range(30)]
    repo = new_repo(tmp_path / "r", kind)
    make = History(repo)
    filtered = 0
    with TreeAttributes(repo.repository) as attributes:
        for files in every:
            commit = make.commit({b"sub/deep/x": b"", **files})
            repo.git("checkout", "-q", "-f", "--detach", commit)
            expected = in_a_checkout(repo, PATHS)
            found = attributes.filtered(attribute_files(make, files), PATHS)
            assert found == expected, files
            filtered += bool(found)
        # Those asked before say the same again.
        for files in every[:2]:
            assert attributes.filtered(attribute_files(make, files), PATHS[:1]) == {b"a.fold"}
    assert filtered > len(every) / 2


FOLDING = [
    b"*.fold", b"*.FOLD", b"[[:upper:]].fold", b"[@-Z].fold", b'"\\101.fold"', b"[[:lower:]].npz",
    b"a.f[O]ld", b"SUB/*", b"s[^u]b/*",
]  # fmt: skip
"""Patterns of which some mean more where names of any case are one; one has an escaped capital."""


@pytest.mark.parametrize("pattern", FOLDING)
def test_where_names_of_any_case_are_one(repo: Repo, pattern: bytes) -> None:
    make = History(repo)
    files = {
        b".gitattributes": pattern + b" filter=wtxt\n",
        b"sub/.gitattributes": b"*.x -filter\n",
    }
    repo.git("checkout", "-q", "-f", "--detach", make.commit(files))
    with TreeAttributes(repo.repository) as attributes:
        # Each alone: whether git has to be asked anew hangs on the paths as well.
        for ignore_case in (False, True):
            repo.git("config", "core.ignoreCase", str(ignore_case).lower())
            for path in PATHS:
                values = attributes.values(
                    attribute_files(make, files), [path], ("filter",), ignore_case=ignore_case
                )
                expected = in_a_checkout(repo, [path])
                assert (values[path] == (b"wtxt",)) == bool(expected), (path, ignore_case)


def test_nothing_of_the_clone_counts(
    repo: Repo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = attribute_files(History(repo), {b".gitattributes": b"*.fold filter=wtxt\n"})
    other = repo.write("../other", "*.fold -filter\n*.npz filter=wtxt\n").resolve()
    for place in (repo.path / ".git/info/attributes", home / ".config/git/attributes"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(other.read_bytes())
    repo.write(".gitattributes", other.read_bytes())
    repo.add()
    repo.git("config", "core.attributesFile", str(other))
    repo.git("config", "core.ignoreCase", "true")
    repo.git("config", "--global", "core.ignoreCase", "true")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.attributesFile")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(other))
    monkeypatch.setenv("GIT_ATTR_SOURCE", repo.git("write-tree").decode().strip())
    paths = [b"a.fold", b"b.npz", b"A.FOLD"]
    assert in_a_checkout(repo, paths) == {b"b.npz"}
    with TreeAttributes(repo.repository) as attributes:
        assert attributes.filtered(files, paths) == {b"a.fold"}


def test_many_paths(repo: Repo) -> None:
    value = b"v" * 1500
    content = b"*.fold filter=wtxt\n*.npz filter=" + value + b"\n"
    files = attribute_files(History(repo), {b".gitattributes": content})
    paths = [b"%06d%b" % (i, ending) for i in range(20_000) for ending in (b".fold", b".npz")]
    with TreeAttributes(repo.repository) as attributes:
        found = attributes.filtered(files, paths + paths[:10])
    assert found == {path for path in paths if path.endswith(b".fold")}


def test_several_attributes(repo: Repo) -> None:
    lines = b"*.npz filter=wtxt merge=union -diff\n"
    files = attribute_files(History(repo), {b".gitattributes": lines})
    paths = [b"%04d.npz" % n for n in range(3000)]
    names = ("filter", "merge", "diff", "other")
    with TreeAttributes(repo.repository) as attributes:
        for _ in range(2):
            found = attributes.values(files, [*paths, b"a", *paths[:5]], names)
            assert found.pop(b"a") == (b"unspecified",) * 4
            assert found == dict.fromkeys(paths, (b"wtxt", b"union", b"unset", b"unspecified"))
        assert attributes.filtered(files, [b"a", *paths[:2]]) == set(paths[:2])
        assert attributes.values({}, [b"a"], names) == {b"a": (b"unspecified",) * 4}


def test_more_sets_than_processes(repo: Repo) -> None:
    make = History(repo)
    sets = [
        attribute_files(make, {b".gitattributes": b"*.%d filter=wtxt\n" % i}) for i in range(20)
    ]
    paths = [b"x.%d" % i for i in range(20)]
    with TreeAttributes(repo.repository) as attributes:
        for _ in range(2):
            for i, files in enumerate(sets):
                assert attributes.filtered(files, paths) == {paths[i]}


def test_memory_of_answers_is_bounded(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtxtgit.git.attributes._MOST_ANSWERS", 3)
    files = attribute_files(History(repo), {b".gitattributes": b"*.fold filter=wtxt\n"})
    paths = [b"%d.fold" % i for i in range(1000)]
    with TreeAttributes(repo.repository) as attributes:
        assert attributes.filtered(files, paths) == set(paths)
        assert attributes.filtered(files, paths) == set(paths)


@pytest.mark.slow
def test_a_huge_file_is_ignored_as_git_does(repo: Repo) -> None:
    make = History(repo)
    content = b"*.fold filter=wtxt\n" + b"#\n" * (50 << 20)
    files = attribute_files(make, {b".gitattributes": content})
    repo.git("checkout", "-q", "-f", "--detach", make.commit({b".gitattributes": content}))
    with TreeAttributes(repo.repository) as attributes:
        assert attributes.filtered(files, [b"a.fold"]) == in_a_checkout(repo, [b"a.fold"])


def test_a_missing_blob_is_no_empty_file(repo: Repo) -> None:
    present = attribute_files(History(repo), {b".gitattributes": b"* filter=wtxt\n"})
    with TreeAttributes(repo.repository) as attributes:
        with pytest.raises(EnvironmentFailure, match="no blob"):
            attributes.filtered({**present, b"sub/.gitattributes": "1" * 40}, [b"a"])
        assert attributes.filtered(present, [b"a"]) == {b"a"}
        assert attributes.filtered(present, []) == set()
        assert attributes.filtered({}, [b"a"]) == set()


def test_a_path_that_git_refuses_is_told(repo: Repo) -> None:
    files = attribute_files(History(repo), {b".gitattributes": b"* filter=wtxt\n"})
    with TreeAttributes(repo.repository) as attributes:
        with pytest.raises(EnvironmentFailure):
            attributes.filtered(files, [b"../a"])
        for path in (b"../.gitattributes", b"/.gitattributes", b"a//.gitattributes",
                     b"a/./.gitattributes", b"a/../../.gitattributes",
                     b"n" * 300 + b"/.gitattributes"):  # fmt: skip
            with pytest.raises(EnvironmentFailure):
                attributes.filtered({**files, path: files[b".gitattributes"]}, [b"a"])


def test_nothing_is_left_behind(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = attribute_files(History(repo), {b".gitattributes": b"* filter=wtxt\n"})
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = set((repo.path / ".git").rglob("*"))
    with TreeAttributes(repo.repository) as attributes:
        attributes.filtered(files, [b"a"])
        (made,) = folder.iterdir()
        assert made.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []
    assert set((repo.path / ".git").rglob("*")) == before


def test_where_objects_are(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {b".gitattributes": b"*.fold filter=wtxt\n"}
    files = attribute_files(History(repo), content)
    repo.git("update-ref", "refs/heads/main", History(repo).commit(content))
    repo.git("config", "uploadpack.allowFilter", "true")
    beside = repo.path.parent
    repo.git("clone", "-q", "--bare", ".", "../bare")
    repo.git("clone", "-q", "--shared", ".", "../sh:ared repo")
    repo.git("clone", "-q", "--shared", "../sh:ared repo", "../shared-again")
    repo.git("worktree", "add", "-q", "--detach", "../linked", "main")
    url = f"file://{repo.path}"
    repo.git("clone", "-q", "--no-checkout", "--filter=blob:none", url, "../partial")
    outer = new_repo(beside / "outer")
    outer.git("submodule", "--quiet", "add", str(repo.path), "sub")
    relative = new_repo(beside / "relative")
    (relative.path / ".git/objects/info/alternates").write_text("../../../repo/.git/objects\n")
    names = ("bare", "sh:ared repo", "shared-again", "linked", "partial", "outer/sub", "relative")
    for name in names:
        with TreeAttributes(Repository.discover(beside / name)) as attributes:
            assert attributes.filtered(files, [b"a.fold", b"b"]) == {b"a.fold"}, name
    # As it is told by the environment, from where the process is.
    monkeypatch.chdir(beside)
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", "repo/.git/objects")
    with TreeAttributes(Repository.discover(relative.path)) as attributes:
        assert attributes.filtered(files, [b"a.fold", b"b"]) == {b"a.fold"}


_RECEIVED = """\
#!{python}
import os, sys
sys.path.insert(0, {package!r})
from wtxtgit.git.repository import Repository
from wtxtgit.git.attributes import TreeAttributes
assert "GIT_QUARANTINE_PATH" in os.environ
with TreeAttributes(Repository.discover()) as attributes:
    print(attributes.filtered({{b".gitattributes": {oid!r}}}, [b"a.fold", b"b"]))
"""


def test_what_a_push_brings_is_read_before_it_is_taken(repo: Repo) -> None:
    make = History(repo)
    content = {b".gitattributes": b"*.fold filter=wtxt\n"}
    repo.git("update-ref", "refs/heads/main", make.commit(content))
    oid = attribute_files(make, content)[b".gitattributes"]
    repo.git("init", "-q", "--bare", "../bare")
    hook = repo.path.parent / "bare/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    package = str(Path(attributes.__file__).parents[2])
    hook.write_text(_RECEIVED.format(python=sys.executable, package=package, oid=oid))
    hook.chmod(0o755)
    pushed = subprocess.run(
        [run.executable(), "push", "../bare", "main"],
        cwd=repo.path,
        env={**os.environ},
        capture_output=True,
        check=False,
    )
    assert b"{b'a.fold'}" in pushed.stderr
    assert pushed.returncode == 0
