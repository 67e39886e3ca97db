"""docs/git.md: the commands that it gives, and what it says that they do."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import blocks, spans, tables
from tests.docs.shell import Done, assert_as_shown, run, steps
from tests.kit import Repo

pytestmark = pytest.mark.slow

PAGE = "docs/git.md"
MODEL = "model.safetensors"
QUERY = "layers.0.q row 63"
"""The row that a test's both sides change."""


def model(query: float, key: float) -> bytes:
    """A safetensors file of two tensors; the numbers stand in their last rows."""
    header: dict[str, dict[str, object]] = {}
    data = b""
    for name, value in {"layers.0.q": query, "layers.0.k": key}.items():
        tensor = np.arange(64 * 64, dtype="<f4").reshape(64, 64)
        tensor[-1] = value
        end = len(data) + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": [64, 64], "data_offsets": [len(data), end]}
        data += tensor.tobytes()
    spelled = json.dumps(header).encode()
    spelled += b" " * (-len(spelled) % 8)
    return struct.pack("<Q", len(spelled)) + spelled + data


def do(repo: Repo, section: str, block: int = 0, **placeholders: str) -> list[Done]:
    """Run one of a section's blocks in a repository; all has to end well."""
    todo = steps(blocks(PAGE, "console", section)[block])
    for name, value in placeholders.items():
        todo = [replace(s, command=s.command.replace(f"<{name}>", value)) for s in todo]
    done = run(todo, repo.path, {"GIT_EDITOR": "true"})
    assert_as_shown(done)
    return done


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keeps what `installed` has made, for the tests after the first."""
    return tmp_path_factory.mktemp("template")


@pytest.fixture
def installed(repo: Repo, home: Path, template: Path) -> Repo:
    """A repository after the steps of "Set up", with a first commit."""
    if (template / "repo").exists():
        shutil.rmtree(repo.path)
        shutil.copytree(template / "repo", repo.path)
        shutil.copy(template / ".gitconfig", home)
        return repo
    repo.write(MODEL, model(1, 2))
    do(repo, "Set up")
    repo.commit("one")
    shutil.copytree(repo.path, template / "repo")
    shutil.copy(home / ".gitconfig", template)
    return repo


def test_no_block_is_left_out() -> None:
    found = Counter(block.section for block in blocks(PAGE, "console"))
    assert found == {
        "Set up": 1,
        "Checkpoints as they are saved": 1,
        "Faster than through the filter": 1,
        "Selecting what is smudged": 1,
        "Looking at changes": 1,
        "Merging": 1,
        "Large checkpoints": 1,
        "Leaving": 3,
    }


class TestSetUp:
    def test_git_holds_text(self, installed: Repo) -> None:
        assert installed.blob(MODEL, "HEAD").startswith(b"WTXT 1\nmeta schema=safetensors/v1 ")
        assert (installed.path / MODEL).read_bytes() == model(1, 2)
        assert installed.status() == b""

    @pytest.mark.parametrize("scope", ["--global", "--local"])
    def test_the_keys_are_those_of_the_table(self, installed: Repo, scope: str) -> None:
        listed = {key: row[1] for row in tables(PAGE, "Set up")[0] for key in spans(row[0])}
        config = installed.git(
            "config", scope, "-z", "--get-regexp", r"\.wtxt(-ledger|-detached)?\."
        ).decode()
        entries = [entry.partition("\n") for entry in config.split("\0") if entry]
        assert {key for key, _, _ in entries} == set(listed)
        values = {key: value for key, _, value in entries}
        assert values["filter.wtxt.required"] == spans(listed["filter.wtxt.required"])[0]
        assert values["filter.wtxt.process"].endswith(" filter-process")
        assert Path(shlex.split(values["filter.wtxt.process"])[0]).is_absolute()

    def test_the_attributes_are_those_it_prints(self, installed: Repo) -> None:
        (printed,) = blocks(PAGE, "", "Set up")
        assert (installed.path / ".gitattributes").read_text() == printed.text

    def test_the_hook_is_there(self, installed: Repo) -> None:
        assert (installed.path / ".git/hooks/pre-commit").is_file()

    def test_install_refuses_what_another_tool_has_set(self, repo: Repo, home: Path) -> None:
        repo.git("config", "--global", "filter.wtxt.clean", "another-tool")
        before = (home / ".gitconfig").read_bytes()
        assert b"another-tool" in repo.run("wtxtgit", "install", ok=(1,)).stderr
        assert (home / ".gitconfig").read_bytes() == before
        repo.run("wtxtgit", "install", "--force")
        assert b"another-tool" not in (home / ".gitconfig").read_bytes()


def test_a_checkpoint_as_another_library_saves_it(installed: Repo) -> None:
    do(installed, "Checkpoints as they are saved")
    saved = (installed.path / "saved.safetensors").read_bytes()
    assert saved[8:9] == b"{", "a binary"
    assert installed.blob("saved.safetensors", "HEAD").startswith(b"WTXT 1\n")
    (installed.path / "saved.safetensors").unlink()
    installed.git("checkout", "-q", "--", "saved.safetensors")
    assert (installed.path / "saved.safetensors").read_bytes() == saved


def test_faster_than_through_the_filter(installed: Repo) -> None:
    do(installed, "Checkpoints as they are saved")
    installed.git("rm", "-q", "--cached", "saved.safetensors")
    do(installed, "Faster than through the filter")
    assert installed.git("status", "--porcelain", "--untracked-files=no") == b""


def test_selecting_what_is_smudged(installed: Repo) -> None:
    do(installed, "Selecting what is smudged", url=shlex.quote(str(installed.path)))
    text = installed.blob(MODEL, "HEAD")
    assert (installed.path / "texts" / MODEL).read_bytes() == text
    assert Repo(installed.path / "texts").status() == b""

    (installed.path / MODEL).unlink()
    installed.git("checkout", "--", MODEL)
    assert (installed.path / MODEL).read_bytes() == text, "smudgeInclude does not name it"
    assert installed.git("status", "--porcelain", "--", MODEL) == b""
    installed.git("config", "--unset", "wtxtgit.smudgeInclude")
    installed.run("wtxtgit", "install")
    assert (installed.path / MODEL).read_bytes() == model(1, 2)


def test_looking_at_changes(installed: Repo) -> None:
    installed.write(MODEL, model(3, 2))
    installed.commit("query", "-a")
    installed.write(MODEL, model(3, 4))
    last = installed.commit("key", "-a")
    done = do(installed, "Looking at changes")
    table, tables_of, _, alias, commits, with_lines, blame, diff, grep, inspected = [
        one.output for one in done
    ]
    assert table.startswith(f"diff --wtxt {MODEL}: changed, safetensors\n2 tensors: 1 changed; ")
    assert re.findall("^layers.0.([qk]) ", table, re.MULTILINE) == ["k"]
    assert re.findall("^layers.0.([qk]) ", tables_of, re.MULTILINE) == ["k", "q"]
    assert tables_of.count(f"diff --wtxt {MODEL}: added, safetensors, ") == 1
    assert re.findall("^layers.0.([qk]) ", alias, re.MULTILINE) == ["k"]
    assert [line.split()[1] for line in commits.splitlines()] == ["query", "one"]
    assert re.findall(r"^[0-9a-f]{7,} (\w+)$", with_lines, re.MULTILINE) == ["query", "one"]
    assert "-arr name=layers_0_q " in with_lines
    assert "arr name=layers_0_k " not in with_lines
    assert "arr name=layers_0_q " in blame
    assert not re.search(rf"^\^?{last[:7]}", blame, re.MULTILINE)
    assert re.search(r"^@@ .* @@ layers_0_k$", diff, re.MULTILINE)
    assert not re.search(r"^@@ .* @@ layers_0_q$", diff, re.MULTILINE)
    assert re.findall(r"^arr name=(\w+) ", grep, re.MULTILINE) == [
        "_header",
        "_layout",
        "layers_0_k",
        "layers_0_q",
    ]
    for name, greatest in {"layers.0.q": r"4\.03e\+03", "layers.0.k": r"4\.03e\+03"}.items():
        assert re.search(
            rf"^{name} +F32 +64 x 64 +16 KiB +[0-9a-f]{{12}} +0 +{greatest} ",
            inspected,
            re.MULTILINE,
        )


def test_a_merge_in_the_log(installed: Repo) -> None:
    """As the page says: a table for each parent, for the first, or the texts combined."""
    installed.git("checkout", "-q", "-b", "other")
    installed.write(MODEL, model(3, 2))
    installed.commit("theirs", "-a")
    installed.git("checkout", "-q", "main")
    installed.write(MODEL, model(1, 4))
    installed.commit("ours", "-a")
    installed.git("merge", "-q", "--no-edit", "other")

    def changed(*arguments: str) -> list[str]:
        shown = installed.git(*arguments, "--ext-diff").decode()
        return re.findall("^layers.0.([qk]) ", shown, re.MULTILINE)

    for command in (("show",), ("log", "-p", "-1")):
        assert changed(*command, "-m") == ["q", "k"]
        assert changed(*command, "--first-parent") == ["q"]
        assert changed(*command) == []
    assert b"diff --cc" in installed.git("show", "--ext-diff")
    assert b"diff" not in installed.git("log", "-p", "-1", "--ext-diff")


def test_merging(installed: Repo) -> None:
    installed.git("checkout", "-q", "-b", "other")
    installed.write(MODEL, model(3, 2))
    installed.commit("theirs", "-a")
    installed.git("checkout", "-q", "main")
    installed.write(MODEL, model(5, 2))
    installed.commit("ours", "-a")
    done = installed.run("git", "merge", "other", ok=(1,))
    assert (
        f"both sides changed it; ours (HEAD) is kept for now: {QUERY}; the file has no"
        in done.stderr.decode()
    )
    assert (installed.path / MODEL).read_bytes() == model(5, 2), "ours, whole"
    do(installed, "Merging")
    assert (installed.path / MODEL).read_bytes() == model(3, 2)
    assert installed.blob(MODEL, "HEAD") == installed.blob(MODEL, "other")
    assert installed.git("rev-list", "--count", "--merges", "HEAD") == b"1\n"
    assert installed.status() == b""


def test_large_checkpoints_are_kept_beside_git(installed: Repo) -> None:
    content = np.random.default_rng(1).standard_normal(40_000).tobytes()
    installed.write("model.gguf", b"GGUF" + content)
    do(installed, "Large checkpoints")
    assert installed.blob("model.gguf", "HEAD").startswith(b"WTXT-DETACHED 1\n")
    line = b"*.gguf filter=wtxt-detached diff=wtxt merge=wtxt -text"
    assert line in installed.blob(".gitattributes", "HEAD")
    # A fresh clone has no data.
    clone = installed.clone("fresh")
    assert clone.blob("model.gguf", "HEAD") == (clone.path / "model.gguf").read_bytes()
    assert clone.status() == b""
    assert b"detached" in clone.run("wtxtgit", "status").stdout
    shutil.copytree(installed.path / ".git/wtxt/store", clone.path / ".git/wtxt/store")
    clone.run("wtxtgit", "checkout")
    assert (clone.path / "model.gguf").read_bytes() == b"GGUF" + content
    clone.run("wtxtgit", "track", "*.gguf")
    clone.git("add", "--renormalize", ".")
    assert clone.blob("model.gguf").startswith(b"WTXT 1\n")


class TestLeaving:
    def test_plain_binaries_again(self, installed: Repo) -> None:
        before = installed.blob(MODEL, "HEAD")
        do(installed, "Leaving", 0)
        assert installed.blob(MODEL, "HEAD") == model(1, 2)
        assert installed.blob(MODEL, "HEAD~1") == before, "old commits keep their texts"
        assert (installed.path / MODEL).read_bytes() == model(1, 2)
        tree = installed.git("ls-tree", "-r", "--name-only", "HEAD").decode().split()
        assert ".gitattributes" not in tree or not installed.blob(".gitattributes", "HEAD")
        assert installed.status() == b""

    def test_uninstall(self, repo: Repo, home: Path) -> None:
        def configs() -> list[bytes]:
            return [file.read_bytes() for file in (home / ".gitconfig", repo.path / ".git/config")]

        hook = repo.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n")
        hook.chmod(0o755)
        before = configs()
        repo.write(MODEL, model(1, 2))
        do(repo, "Set up")
        repo.commit("one")
        assert configs() != before
        do(repo, "Leaving", 1)
        assert configs() == before
        assert hook.read_text() == "#!/bin/sh\nexit 0\n"
        assert (repo.path / MODEL).read_bytes() == model(1, 2)
        (repo.path / MODEL).unlink()
        repo.git("checkout", "--", MODEL)
        assert (repo.path / MODEL).read_bytes().startswith(b"WTXT 1\n")

    def test_a_file_of_a_text(self, installed: Repo) -> None:
        (installed.path / MODEL).unlink()
        do(installed, "Leaving", 2)
        assert (installed.path / MODEL).read_bytes() == model(1, 2)
        assert (installed.path / f"{MODEL}.wtxt").read_bytes() == installed.blob(MODEL, "HEAD")
