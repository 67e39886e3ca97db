"""`PATH@gen:12`, `PATH@latest`, `PATH@signed-by:NAME` where commands and Python take a revision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wtxtgit
from tests.e2e.sealed import LEDGER, MODEL, SIGNERS, Sealed, checkpoint, text

pytestmark = pytest.mark.slow


@pytest.fixture
def generations(chain: Sealed) -> Sealed:
    """Three generations, the second by bob; the file of the work tree is none of them."""
    chain.add_signer("bob")
    chain.change_signers("alice")
    chain.generation(2.0, key="bob")
    chain.generation(3.0)
    (chain.path / MODEL).write_bytes(checkpoint(9.0))
    return chain


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (f"{MODEL}@gen:1", 1.0),
        (f"{MODEL}@gen:2", 2.0),
        (f"{MODEL}@latest", 3.0),
        (f"HEAD~1:{MODEL}@latest", 2.0),
        (f"{MODEL}@signed-by:bob@example.com", 2.0),
        (f"{MODEL}@signed-by:alice@example.com", 3.0),
        (f"{MODEL}@signed-by:bob", 2.0),
    ],
)
def test_a_name_means_what_its_record_seals(
    generations: Sealed, name: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"
    generations.call("restore", name, "-o", str(out))
    assert out.read_bytes() == checkpoint(value)
    generations.call("emit", name, "-o", str(tmp_path / "out.wtxt"))
    assert (tmp_path / "out.wtxt").read_bytes() == text(value)
    generations.call("verify", name)
    generations.call("diff", name, str(out))
    generations.call("convert", name, str(tmp_path / "out.npz"))
    generations.call("inspect", name)
    monkeypatch.chdir(generations.path)
    assert wtxtgit.load(name)["first"][0] == value
    with wtxtgit.open(name) as opened:
        assert opened["first"][0] == value


def test_as_a_revision_it_is_the_commit_that_brought_it(
    generations: Sealed, tmp_path: Path
) -> None:
    first, second, third = (f"{MODEL}@{name}" for name in ("gen:1", "signed-by:bob", "latest"))
    ids = [generations.oid(revision) for revision in ("HEAD~3", "HEAD~1", "HEAD")]
    reviewed = generations.call("review", "--json", f"{first}..{second}").report
    assert (reviewed["base"], reviewed["head"]) == (ids[0], ids[1])
    assert generations.call("review", "--json", second).report["base"] == ids[1]
    for command in ("log", "history"):
        listed = generations.call(command, "--json", MODEL, second).report
        assert len(listed["generations" if command == "log" else "versions"]) == 2
    audited = generations.call("audit", "--json", f"{first}..{third}").report
    assert audited["commits"] == 3
    assert generations.call("ls-files", "--json", first).report["files"]
    for command in ("fetch", "push"):
        generations.call(command, "--dry-run", second)
    merged = tmp_path / "merged"
    generations.call("merge-file", first, first, third, "-o", str(merged))
    assert merged.read_bytes() == text(3.0)
    lines = text(2.0).splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith(b"ch ")) + 1
    damaged = generations.write("damaged.wtxt", b"".join(lines[:at] + lines[at + 1 :]))
    generations.call("recover", str(damaged), "--from", second, "-o", str(merged))
    assert merged.read_bytes() == checkpoint(2.0)
    folder = generations.path / "sub"
    folder.mkdir()
    done = generations.wtxtgit("review", "--json", f"../{first}...../{third}", cwd=folder)
    assert json.loads(done.stdout)["head"] == ids[2]


def test_a_file_with_dots_in_its_name(generations: Sealed) -> None:
    name = "model..v2.safetensors"
    generations.write(name, text(9.0))
    generations.run("git", "add", name)
    generations.seal(name)
    generations.run("git", "commit", "-q", "-m", "dots")
    listed = generations.call("log", "--json", name, f"{name}@latest").report
    assert len(listed["generations"]) == 1


def test_records_are_kept_of_the_side_that_one_is_of(generations: Sealed) -> None:
    generations.branch("topic")
    generations.generation(5.0)
    generations.switch("main")
    generations.generation(6.0)
    generations.run("git", "merge", "-q", "topic", ok=(1,))
    generations.put(7.0)
    generations.seal(f"--reseal=topic:{MODEL}@latest", MODEL)
    staged = generations.ledger(revision="")
    assert staged.startswith(generations.ledger(revision="topic"))


def test_what_is_a_revision_to_git_too(generations: Sealed) -> None:
    """An audit of a tag that someone pushed would say nothing of the generation."""
    name = f"{MODEL}@latest"
    for kind in ("branch", "tag"):
        generations.git(kind, name, "HEAD~1")
        said = generations.call("audit", name, ok=(2,)).err
        assert "a branch or tag, and a generation of another commit" in said
        generations.git(kind, "-d", name)
    generations.git("branch", name, "HEAD~1")
    for revision, known in ((f"refs/heads/{name}", 2), (f"HEAD:{name}", 3)):
        found = generations.call("log", "--json", MODEL, revision).report
        assert len(found["generations"]) == known
    generations.git("branch", "--force", name, "HEAD")
    generations.call("audit", name)
    generations.git("branch", "other@latest", "HEAD~1")
    found = generations.call("log", "--json", MODEL, "other@latest").report
    assert len(found["generations"]) == 2


def test_a_name_of_two_people_is_refused(generations: Sealed) -> None:
    generations.call("key", "new", "--no-passphrase", "--name", "other")
    generations.call("signers", "add", "bob@example.org", "other")
    generations.add(SIGNERS)
    generations.change_signers("alice")
    generations.generation(4.0, key="other")
    said = generations.call("verify", f"{MODEL}@signed-by:bob", ok=(2,)).err
    assert "may be 'bob@example.com' or 'bob@example.org'" in said
    generations.call("verify", f"{MODEL}@signed-by:bob@example.com")


def test_a_file_of_that_name_wins(generations: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(generations.path)
    Path(f"{MODEL}@latest").write_bytes(checkpoint(7.0))
    assert wtxtgit.load(f"{MODEL}@latest")["first"][0] == 7.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{MODEL}@gen:9", ": no generation 9\n"),
        (f"{MODEL}@signed-by:mallory@example.com", ": no generation that 'mallory@example.com' s"),
        ("nothing@latest", "no ledger in HEAD"),
        (f"{MODEL}@gen:x", f"{MODEL}@gen:x: not a generation's name\n"),
        (f"{MODEL}@gen", "not a generation's name\n"),
        (f"{MODEL}@signed-by:", "not a generation's name\n"),
        (f"nowhere:{MODEL}@latest", "names nothing"),
    ],
)
def test_what_there_is_not(generations: Sealed, name: str, message: str) -> None:
    assert message in generations.call("verify", name, ok=(2, 3, 5)).err


def test_reports_name_the_commit_by_its_whole_id(generations: Sealed) -> None:
    named = f"{generations.head}:{MODEL}"
    assert generations.call("verify", f"{MODEL}@latest").out.startswith(f"ok      {named}  (")
    assert f"\n{named}: safetensors" in "\n" + generations.call("inspect", f"{MODEL}@latest").out
    said = generations.call("restore", f"{MODEL}@latest", ok=(2,)).err
    assert said.startswith(f"wtxtgit: error: {named} is in a commit: name the output with -o")


def test_a_tag_named_like_an_abbreviated_id_is_not_read(generations: Sealed) -> None:
    """Git takes twelve digits for the tag of that name."""
    generations.call("emit", f"{MODEL}@latest", "-o", "before")
    for digits in (7, 12, 40):
        generations.git("update-ref", f"refs/tags/{generations.head[:digits]}", "HEAD~1")
    generations.call("emit", f"{MODEL}@latest", "-o", "after")
    assert (generations.path / "after").read_bytes() == (generations.path / "before").read_bytes()


def test_a_branch_may_be_called_like_half_a_name(generations: Sealed) -> None:
    generations.git("branch", f"{MODEL}@gen")
    generations.call("verify", f"{MODEL}@gen:{MODEL}")


def test_only_what_is_there_can_be_sealed(generations: Sealed) -> None:
    assert "hint" not in generations.call("verify", "nothing@latest", ok=(3,)).err
    generations.write("nothing", b"")
    assert "seal --staged -- nothing" in generations.call("verify", "nothing@latest", ok=(3,)).err


def test_a_name_below_the_top_level_is_as_gits(generations: Sealed) -> None:
    folder = generations.path / "sub"
    folder.mkdir()
    for name in (f"../{MODEL}@gen:2", f"HEAD:{MODEL}@gen:2", f"HEAD:../{MODEL}@gen:2"):
        done = generations.wtxtgit("verify", name, cwd=folder)
        assert done.returncode == 0


def test_a_commit_that_has_other_content_than_the_record_is_refused(generations: Sealed) -> None:
    """Whoever may commit puts a record of alice's beside a content of his own."""
    ledger = (generations.path / LEDGER).read_bytes()
    generations.git("checkout", "-q", "-f", "HEAD~1")
    (generations.path / LEDGER).write_bytes(ledger)
    (generations.path / MODEL).write_bytes(text(66.0))
    generations.git("add", "-A")
    generations.git("commit", "-qm", "a content that nobody sealed")
    for name in (f"{MODEL}@gen:3", f"{MODEL}@latest", f"{MODEL}@signed-by:alice@example.com"):
        said = generations.call("verify", name, ok=(1,))
        assert "does not have the content that generation 3 seals" in said.err
    generations.call("verify", f"{MODEL}@gen:2")
