"""The two workflows of `docs/ci` that review pull requests, their scripts run as they stand.

In the place of GitHub's API is a server that keeps comments as GitHub does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.e2e.runner import ROOT
from tests.e2e.sealed import MODEL, Sealed
from tests.kit.starts import FOLDER

pytestmark = pytest.mark.slow

REVIEW, COMMENT = "docs/ci/github-review.yml", "docs/ci/github-review-comment.yml"
REPOSITORY = "owner/models"
TOKEN = "a token"  # noqa: S105 - of no forge
BOT = "github-actions[bot]"
BRANCH = "a branch&state=closed#`$(x)`"


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return loaded


def step(name: str, title: str) -> dict[str, Any]:
    (job,) = workflow(name)["jobs"].values()
    (found,) = [step for step in job["steps"] if step.get("name") == title]
    return dict(found)


def test_the_second_one_runs_nothing_of_a_pull_request() -> None:
    loaded = workflow(COMMENT)
    (job,) = loaded["jobs"].values()
    # YAML 1.1 takes the key `on` for a truth value.
    assert set(loaded[True]) == {"workflow_run"}
    assert loaded[True]["workflow_run"]["workflows"] == [workflow(REVIEW)["name"]]
    assert loaded["permissions"] == {}
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    uses = [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]
    assert uses == ["actions/download-artifact"]
    assert "${{" not in step(COMMENT, "Comment")["run"], "no expression in a script"


def test_the_first_one_only_reads() -> None:
    loaded = workflow(REVIEW)
    assert set(loaded[True]) == {"pull_request"}
    assert loaded["permissions"] == {"contents": "read"}
    (job,) = loaded["jobs"].values()
    assert "permissions" not in job
    assert job["env"]["TRUST_ROOT"] == "0" * 40, "a string, whatever its digits"
    checkout, upload = job["steps"][0]["with"], job["steps"][-1]["with"]
    assert (checkout["fetch-depth"], checkout["persist-credentials"]) == (0, False)
    assert all("${{" not in step.get("run", "") for step in job["steps"])
    download = workflow(COMMENT)["jobs"]["comment"]["steps"][0]["with"]
    assert (upload["name"], upload["path"]) == (download["name"], download["path"])


def test_the_review(chain: Sealed, tmp_path: Path) -> None:
    base = chain.head
    head = chain.generation(2.0)
    (tmp_path / "temp").mkdir()
    (tmp_path / "temp/wtxtgit").mkdir()
    (tmp_path / "temp/wtxtgit/bin").symlink_to(FOLDER)
    given = {"RUNNER_TEMP": str(tmp_path / "temp"), "BASE": base, "HEAD": head, "TRUST_ROOT": base}
    given["GITHUB_STEP_SUMMARY"] = str(tmp_path / "summary")
    script = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
    chain.run(*script, step(REVIEW, "Review")["run"], env=given)
    told = (tmp_path / "temp/review/review.md").read_text("utf-8")
    assert (tmp_path / "summary").read_text("utf-8") == told
    assert told.startswith("### wtxtgit review: 1 checkpoint, 0 risk flags\n")
    page = (tmp_path / "temp/review/review.html").read_text("utf-8")
    assert MODEL in page


@dataclass
class Forge:
    """Pull requests and their comments, with every request that was made."""

    pulls: list[dict[str, Any]]
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def answer(self, method: str, path: str, query: dict[str, str], fields: Any) -> Any:
        self.asked.append((method, path))
        prefix = f"/repos/{REPOSITORY}/"
        assert path.startswith(prefix)
        what = path.removeprefix(prefix)
        if (method, what) == ("GET", "pulls"):
            assert query == {"state": "open", "head": f"someone:{BRANCH}"}
            return self.pulls
        if method == "GET" and what == "issues/7/comments":
            start = (int(query["page"]) - 1) * int(query["per_page"])
            return self.comments[start : start + int(query["per_page"])]
        if method == "POST" and what == "issues/7/comments":
            made = {"id": len(self.comments) + 1, "user": {"login": BOT}, **fields}
            self.comments.append(made)
            return made
        found = re.fullmatch(r"issues/comments/(\d+)", what)
        assert method == "PATCH"
        assert found
        self.comments[int(found[1]) - 1].update(fields)
        return self.comments[int(found[1]) - 1]


@pytest.fixture
def forge() -> Forge:
    return Forge(
        [{"number": 6, "head": {"sha": "1" * 40}}, {"number": 7, "head": {"sha": "2" * 40}}]
    )


class _Handler(BaseHTTPRequestHandler):
    forge: ClassVar[Forge]

    def _answer(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        length = int(self.headers["Content-Length"] or 0)
        fields = json.loads(self.rfile.read(length)) if length else None
        address = urlsplit(self.path)
        query = {key: value[0] for key, value in parse_qs(address.query).items()}
        answer = json.dumps(self.forge.answer(self.command, address.path, query, fields)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(forge: Forge) -> Iterator[str]:
    _Handler.forge = forge
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestTheComment:
    @pytest.fixture(autouse=True)
    def setup(self, tmp_path: Path, forge: Forge, address: str) -> None:
        self.folder, self.forge, self.address = tmp_path, forge, address
        (tmp_path / "review").mkdir()

    @property
    def artifact(self) -> Path:
        return self.folder / "review/review.md"

    def post(self, *, ok: bool = True) -> None:
        about = step(COMMENT, "Comment")
        assert about["shell"] == "python3 -I {0}"
        event = {
            "workflow_run": {
                "head_branch": BRANCH,
                "head_sha": "2" * 40,
                "head_repository": {"owner": {"login": "someone"}},
            }
        }
        (self.folder / "event.json").write_text(json.dumps(event))
        (self.folder / "script").write_text(about["run"])
        environment = {
            "PATH": os.environ["PATH"],
            "TOKEN": TOKEN,
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_API_URL": self.address,
            "GITHUB_REPOSITORY": REPOSITORY,
        }
        argv = [sys.executable, "-I", self.folder / "script"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == ok, done.stderr
        assert TOKEN not in done.stdout + done.stderr

    def test_one_comment_is_kept_up_to_date(self) -> None:
        for words in ("first", "second"):
            self.artifact.write_text(words)
            self.post()
            assert [c["body"] for c in self.forge.comments] == [f"<!-- wtxtgit review -->\n{words}"]

    def test_it_is_found_among_many(self) -> None:
        others = {"user": {"login": "someone"}, "body": "<!-- wtxtgit review -->\nnot ours"}
        self.forge.comments = [{"id": n + 1, **others} for n in range(150)]
        for words in ("first", "second"):
            self.artifact.write_text(words)
            self.post()
        assert len(self.forge.comments) == 151
        assert self.forge.comments[150]["body"].endswith("second")

    def test_an_artifact_that_is_too_much_for_a_comment(self) -> None:
        self.artifact.write_bytes(b"\xff" * 1_000_000)
        self.post()
        assert len(self.forge.comments[0]["body"]) == 65_536

    def test_an_artifact_that_is_a_link(self) -> None:
        (self.folder / "secret").write_text("secret")
        self.artifact.symlink_to(self.folder / "secret")
        self.post(ok=False)
        assert self.forge.comments == []

    def test_a_pull_request_that_went_on(self) -> None:
        self.artifact.write_text("old")
        self.forge.pulls = self.forge.pulls[:1]
        self.post()
        assert [method for method, _ in self.forge.asked] == ["GET"]
