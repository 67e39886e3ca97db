"""The examples of `docs/ci`: a hook of a plain server, and a job of GitLab's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.runner import NONE, ROOT
from tests.e2e.sealed import MODEL, Sealed
from tests.kit import Repo, safetensors

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def path(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wtxtgit` and `python` are those of the environment that runs the tests."""
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def server(chain: Sealed, tmp_path: Path) -> Repo:
    """A bare repository with the hook, to which nothing has been pushed."""
    folder = tmp_path / "server.git"
    chain.git("init", "-q", "--bare", str(folder))
    shutil.copy(ROOT / "docs/ci/pre-receive", folder / "hooks/pre-receive")
    bare = Repo(folder)
    bare.git("config", "wtxtgit.trustRoot", chain.oid("root"))
    chain.git("remote", "add", "server", str(folder))
    return bare


def raw(chain: Sealed) -> str:
    chain.add_raw(MODEL, safetensors(2.0))
    return chain.commit("raw")


class TestPreReceive:
    def push(self, chain: Sealed, *arguments: str, ok: bool) -> str:
        """Push; gives what git says."""
        done = chain.run("git", "push", "server", *arguments, ok=(0,) if ok else (1,))
        return done.stderr.decode()

    def ref(self, server: Repo, name: str) -> str:
        return server.git("for-each-ref", "--format=%(objectname)", name).decode().strip()

    def test_what_holds_gets_in(self, chain: Sealed, server: Repo) -> None:
        self.push(chain, "main", ok=True)
        chain.generation(2.0)
        said = self.push(chain, "main", ok=True)
        assert "wtxtgit audit: refs/heads/main" in said
        assert "ok: 1 commit judged" in said
        assert self.ref(server, "refs/heads/main") == chain.head

    def test_a_raw_binary_does_not(self, chain: Sealed, server: Repo) -> None:
        self.push(chain, "main", ok=True)
        bad = raw(chain)
        said = self.push(chain, "main", ok=False)
        assert "raw-binary" in said
        assert MODEL in said
        assert self.ref(server, "refs/heads/main") == chain.oid("root")
        # Git has taken away what was in quarantine.
        server.git("cat-file", "-e", bad, ok=(1, 128))

    def test_not_in_the_first_push_either(self, chain: Sealed, server: Repo) -> None:
        raw(chain)
        assert "raw-binary" in self.push(chain, "main", ok=False)
        assert server.git("for-each-ref") == b""

    def test_one_of_several_branches_is_enough(self, chain: Sealed, server: Repo) -> None:
        self.push(chain, "main", ok=True)
        chain.branch("good")
        chain.generation(2.0)
        chain.branch("bad", "root")
        raw(chain)
        said = self.push(chain, "bad", "good", ok=False)
        assert "wtxtgit audit: refs/heads/good" in said
        assert self.ref(server, "refs/heads/good") == ""

    def test_a_force_push(self, chain: Sealed, server: Repo) -> None:
        before = chain.generation(2.0)
        self.push(chain, "main", ok=True)
        chain.git("reset", "-q", "--hard", "root")
        chain.generation(3.0)
        assert "bad-root" in self.push(chain, "--force", "main", ok=False)
        assert self.ref(server, "refs/heads/main") == before

    def test_a_branch_is_not_rewritten(self, chain: Sealed, server: Repo) -> None:
        """It is deleted, and begun anew."""
        self.push(chain, "main", ok=True)
        chain.branch("topic")
        chain.generation(2.0)
        self.push(chain, "topic", ok=True)
        before = self.ref(server, "refs/heads/topic")
        chain.git("reset", "-q", "--hard", "root")
        chain.generation(3.0)
        refused = self.push(chain, "--force", "topic", ok=False)
        assert "bad-root" in refused
        assert "ledger-rewritten" in refused
        assert self.ref(server, "refs/heads/topic") == before
        self.push(chain, "--delete", "topic", ok=True)
        self.push(chain, "topic", ok=True)
        assert self.ref(server, "refs/heads/topic") == chain.head
        self.push(chain, "root:refs/tags/t", ok=True)

    def test_another_signer(self, chain: Sealed, server: Repo) -> None:
        chain.generation(2.0, key="mallory")
        assert "untrusted-signer" in self.push(chain, "main", ok=False)

    def test_no_trust_root(self, chain: Sealed, server: Repo) -> None:
        server.git("config", "--unset", "wtxtgit.trustRoot")
        assert "wtxtgit.trustRoot is not set" in self.push(chain, "main", ok=False)


class TestGitLab:
    @pytest.fixture
    def clone(self, chain: Sealed, tmp_path: Path) -> Repo:
        """What a job works in."""
        bare = tmp_path / "bare.git"
        chain.git("init", "-q", "--bare", str(bare))
        chain.git("remote", "add", "origin", str(bare))
        chain.git("push", "-q", "origin", "main")
        folder = tmp_path / "clone"
        chain.git("clone", "-q", bare.as_uri(), str(folder))
        return Repo(folder)

    def run(
        self, chain: Sealed, clone: Repo, *, ref: str = "main", root: str = "root", **given: str
    ) -> tuple[int, str]:
        chain.git("push", "-q", "--force", "origin", f"HEAD:refs/heads/{ref}")
        clone.git("fetch", "-q", "--no-tags", "origin", f"refs/heads/{ref}")
        clone.git("checkout", "-q", "--detach", "FETCH_HEAD")
        job = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text())["checkpoints"]
        (script,) = job["script"]
        done = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=clone.path,
            env={**os.environ, "TRUST_ROOT": chain.oid(root), "CI_COMMIT_SHA": chain.head, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    def test_a_push(self, chain: Sealed, clone: Repo) -> None:
        before = chain.head
        chain.generation(2.0)
        code, said = self.run(chain, clone, CI_COMMIT_BEFORE_SHA=before)
        assert (code, "ok: 1 commit judged" in said) == (0, True), said

    def test_a_new_branch(self, chain: Sealed, clone: Repo) -> None:
        chain.generation(2.0)
        chain.generation(3.0)
        code, said = self.run(chain, clone, CI_COMMIT_BEFORE_SHA=NONE)
        assert (code, "ok: 2 commits judged" in said) == (0, True), said

    def test_a_merge_request(self, chain: Sealed, clone: Repo) -> None:
        base = chain.head
        raw(chain)
        code, said = self.run(
            chain, clone, ref="topic", CI_MERGE_REQUEST_DIFF_BASE_SHA=base,
            CI_COMMIT_BEFORE_SHA=NONE,
        )  # fmt: skip
        assert (code, "raw-binary" in said) == (1, True), said

    def test_a_merge_request_tried_with_its_target(self, chain: Sealed, clone: Repo) -> None:
        base = chain.head
        chain.branch("topic")
        head = chain.generation(2.0)
        chain.switch("main")
        chain.merge(head)
        code, said = self.run(
            chain, clone, ref="tried", CI_MERGE_REQUEST_DIFF_BASE_SHA=base,
            CI_MERGE_REQUEST_SOURCE_BRANCH_SHA=head,
        )  # fmt: skip
        assert (code, "ok: 1 commit judged" in said) == (0, True), said

    def test_a_force_push(self, chain: Sealed, clone: Repo) -> None:
        before = chain.generation(2.0)
        chain.git("push", "-q", "origin", "main")
        chain.git("reset", "-q", "--hard", "root")
        chain.generation(3.0)
        code, said = self.run(chain, clone, CI_COMMIT_BEFORE_SHA=before)
        assert (code, "bad-root" in said) == (1, True), said

    def test_a_force_push_whose_old_tip_is_gone(self, chain: Sealed, clone: Repo) -> None:
        chain.generation(2.0)
        code, _ = self.run(chain, clone, CI_COMMIT_BEFORE_SHA="1" * 40)
        assert code not in (0, 1)

    def test_a_file_is_not_taken_for_the_trust_root(self, chain: Sealed, clone: Repo) -> None:
        key = chain.call("key", "show", "mallory").out.split()
        line = next(word for word in key if word.startswith("AAAA"))
        chain.write("v9", f"mallory@example.com ssh-ed25519 {line}\n")
        chain.add("v9")
        chain.generation(2.0, key="mallory")
        assert self.run(chain, clone)[0] == 4
        assert self.run(chain, clone, TRUST_ROOT="v9")[0] == 5
