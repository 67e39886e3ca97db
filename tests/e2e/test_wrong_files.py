"""A wrong file under a checkpoint's name: a warning, under strict a refusal, in plain words."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Repo, safetensors
from tests.data import GOLDEN
from wtxtgit.git import run

GOOD = safetensors(1.0)
CUT = f"cut at {len(GOOD) - 2:,} of {len(GOOD):,} bytes: download it again"
WRONG = {
    "html.gguf": (b"<!doctype html><title>TheBloke/X at main</title>", "an HTML page"),
    "xml.safetensors": (
        b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
        "an XML error (AccessDenied)",
    ),
    "empty.safetensors": (b"", "empty"),
    "zeros.safetensors": (bytes(100_000), "all zeros"),
    "cut.safetensors": (GOOD[:-2], CUT),
    "torch.safetensors": (
        (GOLDEN / "torch/state_dict.pt").read_bytes(),
        "not safetensors as its name says, but a torch file",
    ),
}


@pytest.fixture(params=["wtxt", "wtxt-detached"])
def tracked(repo: Repo, driver: None, request: pytest.FixtureRequest) -> Repo:
    """A repository that tracks checkpoints, with the hook of an installation."""
    repo.wtxtgit("install", "--local", "--hooks")
    options = ["--detached"] if request.param == "wtxt-detached" else []
    repo.wtxtgit("track", *options, "*.safetensors", "*.gguf", "*.pt")
    repo.write("good.safetensors", GOOD)
    repo.write("old.pt", (GOLDEN / "torch/legacy.pt").read_bytes())
    repo.add()
    repo.git("commit", "-q", "-m", "base")
    return repo


def committing(repo: Repo, message: str, code: int = 0) -> bytes:
    """Commit what is staged; return what was said."""
    return repo.run(run.executable(), "commit", "-q", "-m", message, ok=(code,)).stderr


def test_strict_refuses_each_and_says_what_it_is(tracked: Repo) -> None:
    tracked.git("config", "wtxtgit.strict", "true")
    before = tracked.git("rev-parse", "HEAD")
    for name, (data, words) in WRONG.items():
        tracked.write(name, data)
        tracked.add(name)
        said = committing(tracked, name, code=1).decode()
        assert f"error: {name}: odd-checkpoint: {words}\n" in said
        report = json.loads(tracked.wtxtgit("check", "--staged", "--json", ok=(1,)).stdout)
        odd = [one["message"] for one in report["findings"] if one["kind"] == "odd-checkpoint"]
        assert odd == [words]
        tracked.git("rm", "-q", "--cached", "--", name)
    assert tracked.git("rev-parse", "HEAD") == before


def test_by_default_the_hook_warns_once(tracked: Repo) -> None:
    for name, (data, _) in WRONG.items():
        tracked.write(name, data)
    tracked.add()
    said = committing(tracked, "wrong").decode()
    for name, (_, words) in WRONG.items():
        assert said.count(f"warning: {name}: odd-checkpoint: {words}\n") == 1
    assert said.count("odd-checkpoint") == len(WRONG)
    # It is there now: no later commit tells it again.
    tracked.write("good.safetensors", safetensors(2.0))
    tracked.add()
    assert b"odd-checkpoint" not in committing(tracked, "next")


def test_status_and_verify_and_inspect_say_the_same(tracked: Repo) -> None:
    for name, (data, _) in WRONG.items():
        tracked.write(name, data)
    tracked.add()
    for arguments in ((), ("--no-cache",)):
        report = json.loads(tracked.wtxtgit("status", *arguments, "--json").stdout)
        told = {file["path"]: file["wrong"] for file in report["files"] if file["wrong"]}
        assert told == {name: words for name, (_, words) in WRONG.items()}
    for name, (_, words) in WRONG.items():
        assert words in tracked.wtxtgit("verify", name, ok=(0, 1, 3)).stdout.decode()
        assert words in tracked.wtxtgit("inspect", name).stdout.decode()
    assert tracked.wtxtgit("verify", "--strict", "torch.safetensors", ok=(1,)).returncode == 1


def test_an_audit_refuses_them_only_if_it_is_strict(tracked: Repo) -> None:
    for name, (data, _) in WRONG.items():
        tracked.write(name, data)
    tracked.add()
    tracked.git("commit", "-q", "-m", "wrong")
    assert b"odd-checkpoint" not in tracked.wtxtgit("audit").stdout
    report = json.loads(tracked.wtxtgit("audit", "--strict", "--json", ok=(1,)).stdout)
    odd = {one["path"]: one["message"] for one in report["findings"] if one["severity"] == "error"}
    assert odd == {name: words for name, (_, words) in WRONG.items()}


def test_track_warns_of_files_that_would_be_added(repo: Repo, driver: None) -> None:
    for name, (data, _) in WRONG.items():
        repo.write(name, data)
    said = repo.wtxtgit("track", "*.safetensors").stderr.decode()
    assert f"warning: cut.safetensors: {CUT}\n" in said
    assert "html.gguf" not in said
    assert said.count("warning:") == len(WRONG) - 1


def test_a_name_with_an_escape_and_a_text_with_one_are_harmless(tracked: Repo) -> None:
    name = "a\x1b[31m.safetensors"
    tracked.write(name, json.dumps({"error": "\x1b[31mred"}).encode())
    tracked.add()
    outputs = [
        committing(tracked, "wrong"),
        tracked.wtxtgit("status").stdout,
        tracked.wtxtgit("verify", name, ok=(3,)).stdout,
        tracked.wtxtgit("inspect", name).stdout,
    ]
    assert not any(b"\x1b" in output for output in outputs)
    assert b"a JSON error" in outputs[0]
