"""The hooks, with real git: what each refuses, what they leave alone, and how to go on."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.e2e.sealed import LEDGER, MODEL, OTHER, ROOT, SIGNERS, Sealed, checkpoint, text
from tests.kit import LAUNCHER, Repo
from wtxtgit.setup import hooks

pytestmark = pytest.mark.slow

NEW = "new.safetensors"


@pytest.fixture
def hooked(chain: Sealed) -> Sealed:
    hooks.install(chain.repository, LAUNCHER)
    chain.git("config", "wtxtgit.trustRoot", ROOT)
    chain.git("config", "wtxtgit.signingKey", "alice")
    return chain


@pytest.fixture
def remote(hooked: Sealed) -> Repo:
    """A bare repository that the hooked one pushes to, with what it has."""
    bare = hooked.path.parent / "remote.git"
    hooked.git("init", "-q", "--bare", str(bare))
    hooked.git("remote", "add", "origin", str(bare))
    hooked.git("push", "-q", "origin", "main")
    return Repo(bare)


def refused(repo: Sealed, *command: str, ok: tuple[int, ...] = (1,)) -> str:
    """What git says where a hook stops it."""
    head = repo.head
    said = repo.run("git", *command, ok=ok).stderr.decode()
    assert repo.head == head
    return said


def seal_raw(repo: Sealed) -> None:
    """Commit a raw binary past the hook."""
    repo.add_raw(MODEL, checkpoint(2.0))
    repo.commit("raw", "--no-verify")


class TestCommit:
    def test_a_move_that_nobody_sealed(self, hooked: Sealed) -> None:
        for end in ("", ".wsum"):
            hooked.git("mv", MODEL + end, NEW + end)
        said = refused(hooked, "commit", "-qm", "moved")
        assert f"{NEW}: moved-unsealed" in said
        command = f"wtxtgit seal --staged -- {NEW}"
        assert f"wtxtgit: hint: {command}\n" in said
        hooked.run("sh", "-c", command, env=on_path())
        hooked.commit("moved")
        assert hooked.audit().found == []

    @pytest.mark.true_start
    def test_a_generation(self, hooked: Sealed) -> None:
        hooked.put(2.0)
        hooked.seal(MODEL)
        assert hooked.run("git", "commit", "-qm", "two").stderr == b""

    def test_unsealed(self, hooked: Sealed) -> None:
        hooked.put(2.0)
        said = refused(hooked, "commit", "-qm", "two")
        assert said == (
            f"wtxtgit: error: {MODEL}: content-mismatch: generation 1 of its ledger does not "
            f"match the content\n"
            f"wtxtgit: hint: wtxtgit seal --staged -- {MODEL}\n"
        )
        hooked.run("sh", "-c", said.rpartition("hint: ")[2].strip(), env=on_path())
        hooked.commit("two")

    def test_a_foreign_signer(self, hooked: Sealed) -> None:
        hooked.put(2.0)
        hooked.seal(MODEL, key="mallory")
        assert f"{MODEL}: untrusted-signer" in refused(hooked, "commit", "-qm", "two")
        assert hooked.call("hook", "pre-commit", ok=(4,)).out == ""

    def test_in_a_linked_worktree_and_a_subfolder(self, hooked: Sealed, tmp_path: Path) -> None:
        hooked.git("worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"))
        linked = Sealed(tmp_path / "linked")
        linked.write(f"sub/{NEW}", text(2.0))
        linked.add()
        sub = Sealed(linked.path / "sub")
        assert f"sub/{NEW}: unsealed" in refused(sub, "commit", "-qm", "x")
        linked.seal()
        linked.commit()

    def test_it_can_be_bypassed_and_the_audit_tells(self, hooked: Sealed) -> None:
        seal_raw(hooked)
        assert "raw-binary" in hooked.audit().kinds

    def test_nothing_is_said_where_nobody_seals(self, repo: Repo, driver: None) -> None:
        hooks.install(repo.repository, LAUNCHER)
        repo.track("*.safetensors")
        repo.write(NEW, checkpoint(1.0))
        repo.add()
        assert repo.run("git", "commit", "-qm", "one").stderr == b""

    def test_an_amend(self, hooked: Sealed) -> None:
        hooked.generation(2.0)
        hooked.take("HEAD~1", LEDGER)
        hooked.put(3.0)
        hooked.seal(MODEL)
        hooked.git("commit", "-q", "--amend", "--no-edit")
        assert hooked.audit().found == []

    def test_a_revert_by_hand(self, hooked: Sealed) -> None:
        hooked.generation(2.0)
        hooked.git("revert", "-n", "HEAD")
        said = refused(hooked, "commit", "-qm", "back")
        assert "ledger-rewritten" in said
        assert "wtxtgit seal --reseal -- " in said
        hooked.run("sh", "-c", said.rpartition("hint: ")[2].strip(), env=on_path())
        hooked.commit("back")
        assert hooked.audit().found == []
        assert hooked.blob(MODEL, "HEAD") == text(1.0)

    def test_a_cherry_pick_and_a_revert_run_no_hook(self, hooked: Sealed) -> None:
        """Only CI can see to these."""
        hooked.branch("side")
        seal_raw(hooked)
        hooked.switch("main")
        hooked.git("reset", "-q", "--hard")
        hooked.git("cherry-pick", "side")
        assert "raw-binary" in hooked.audit().kinds


def on_path() -> dict[str, str]:
    """Where the hints' commands are found."""
    folder = Path(LAUNCHER.arguments[0]).parent
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


class TestAutoSeal:
    @pytest.fixture
    def sealing(self, hooked: Sealed) -> Sealed:
        hooked.git("config", "wtxtgit.autoSeal", "true")
        return hooked

    @pytest.mark.true_start
    def test_it_seals_and_commits(self, sealing: Sealed) -> None:
        sealing.put(2.0)
        said = sealing.run("git", "commit", "-qm", "two").stderr.decode()
        assert said == f"wtxtgit: note: {MODEL}: sealed, generation 2\n"
        assert sealing.ledger().count(b"WSUM 1") == 2
        assert sealing.status() == b""
        assert sealing.audit().found == []

    def test_with_all(self, sealing: Sealed) -> None:
        """`git commit -a` gives its hooks another index."""
        sealing.write(MODEL, text(2.0))
        sealing.git("commit", "-qam", "two")
        assert sealing.ledger().count(b"WSUM 1") == 2
        assert sealing.status() == b""
        assert sealing.audit().found == []

    @pytest.mark.parametrize("ends", [("", ".wsum"), ("",)], ids=["both", "file"])
    def test_it_seals_a_move(self, sealing: Sealed, ends: tuple[str, ...]) -> None:
        for end in ends:
            sealing.git("mv", MODEL + end, NEW + end)
        said = sealing.run("git", "commit", "-qm", "moved").stderr.decode()
        assert said == f"wtxtgit: note: {NEW}: moved from {MODEL}, generation 2\n"
        assert sealing.status() == b""
        assert sealing.audit().found == []

    def test_it_warns_of_signers_that_nobody_will_take(self, sealing: Sealed) -> None:
        sealing.set_threshold(9)
        said = refused(sealing, "commit", "-qm", "nine", ok=(1, 4))
        assert "no audit will accept these signers" in said
        assert "hint: wtxtgit signers threshold 1" in said

    def test_it_leaves_alone_what_is_sealed(self, sealing: Sealed) -> None:
        sealing.write("readme", "x")
        sealing.add("readme")
        assert sealing.run("git", "commit", "-qm", "readme").stderr == b""
        assert sealing.git("show", "--format=", "--name-only", "HEAD") == b"readme\n"

    def test_it_checks_what_it_has_sealed(self, sealing: Sealed) -> None:
        sealing.git("config", "wtxtgit.signingKey", "mallory")
        sealing.put(2.0)
        said = refused(sealing, "commit", "-qm", "two")
        assert "is not one of the signers" in said
        assert f"{MODEL}: untrusted-signer" in said

    def test_without_a_key(self, sealing: Sealed) -> None:
        sealing.git("config", "--unset", "wtxtgit.signingKey")
        sealing.put(2.0)
        assert "wtxtgit: error: " in refused(sealing, "commit", "-qm", "two")

    def test_a_commit_of_paths_is_refused(self, sealing: Sealed) -> None:
        before = sealing.ledger(LEDGER, "")
        sealing.write(MODEL, text(2.0))
        said = refused(sealing, "commit", "-qm", "two", "--", MODEL)
        assert f"{MODEL}: content-mismatch" in said
        command = f"git add -- {MODEL} && wtxtgit seal --staged -- {MODEL} && git commit"
        assert f"hint: {command}\n" in said
        assert sealing.ledger(LEDGER, "") == before
        sealing.run("sh", "-c", f"{command} -qm two", env=on_path())
        assert sealing.audit().found == []

    def test_the_hint_to_a_commit_of_all_ends_its_finding(self, hooked: Sealed) -> None:
        """Git has put nothing into the index, where `seal --staged` looks."""
        hooked.write(MODEL, text(2.0))
        said = refused(hooked, "commit", "-qam", "two")
        command = f"git add -- {MODEL} && wtxtgit seal --staged -- {MODEL} && git commit"
        assert f"hint: {command}\n" in said
        hooked.run("sh", "-c", f"{command} -qm two", env=on_path())
        assert hooked.audit().found == []

    def test_a_commit_of_paths_is_refused_where_there_are_no_signers(
        self, repo: Repo, keys: None
    ) -> None:
        hooks.install(repo.repository, LAUNCHER)
        repo.git("config", "wtxtgit.autoSeal", "true")
        repo.track("*.safetensors")
        repo.commit("attributes")
        repo.write(NEW, text(1.0))
        repo.add(NEW)
        said = repo.run("git", "commit", "-qm", "x", "--", NEW, ok=(1,)).stderr
        assert b"unsealed" in said
        repo.git("config", "wtxtgit.autoSeal", "false")
        repo.git("commit", "-qm", "x", "--", NEW)

    def test_a_merge_is_not_sealed(self, sealing: Sealed) -> None:
        sealing.branch("side")
        sealing.write(NEW, text(5.0))
        sealing.add()
        sealing.commit("unsealed", "--no-verify")
        sealing.switch("main")
        sealing.generation(2.0)
        said = refused(sealing, "merge", "-q", "--no-edit", "side", ok=(1, 128))
        assert f"{NEW}: unsealed" in said
        assert "wtxtgit seal --reseal" in said
        # `git commit` ends the merge, and is refused as well.
        assert f"{NEW}: unsealed" in refused(sealing, "commit", "-q", "--no-edit")


class TestMerge:
    def test_both_sides_went_on_with_other_files(self, hooked: Sealed) -> None:
        hooked.branch("side")
        hooked.generation(2.0, name=OTHER)
        hooked.switch("main")
        hooked.generation(2.0)
        hooked.merge("side")
        assert hooked.audit().found == []

    @pytest.mark.true_start
    def test_a_blend(self, hooked: Sealed) -> None:
        """Without the driver git merges the texts line by line."""
        hooked.branch("side")
        hooked.generation(1.0, 2.0)
        hooked.switch("main")
        hooked.generation(2.0, 1.0)
        said = refused(hooked, "merge", "-q", "--no-edit", "-X", "theirs", "side", ok=(1, 128))
        assert f"{MODEL}: corrupt-text" in said

    def test_an_older_state_comes_back(self, hooked: Sealed) -> None:
        hooked.branch("side")
        hooked.commit("old")
        hooked.switch("main")
        hooked.generation(2.0)
        hooked.branch("other", "side")
        said = refused(hooked, "merge", "-q", "--no-edit", "-s", "ours", "main", ok=(1, 128))
        assert f"{MODEL}: ledger-rewritten" in said
        assert f"hint: wtxtgit seal --reseal -- {MODEL} && git commit --no-edit\n" in said

    def test_resealed(self, hooked: Sealed) -> None:
        hooked.branch("side")
        hooked.generation(2.0)
        hooked.switch("main")
        hooked.generation(3.0)
        hooked.merge("side", ok=(1,))
        hooked.git("checkout", "--theirs", "--", MODEL)
        hooked.git("checkout", "--ours", "--", LEDGER)
        hooked.add()
        said = refused(hooked, "commit", "-q", "--no-edit")
        assert f"{MODEL}: ledger-rewritten" in said
        hooked.run("sh", "-c", said.rpartition("hint: ")[2].strip(), env=on_path())
        assert hooked.audit().found == []
        assert hooked.blob(MODEL, "HEAD") == text(2.0)

    def test_what_a_side_brought_raw(self, hooked: Sealed) -> None:
        hooked.branch("side")
        hooked.add_raw(NEW, checkpoint(2.0))
        hooked.commit("raw", "--no-verify")
        hooked.switch("main")
        hooked.generation(3.0)
        said = refused(hooked, "merge", "-q", "--no-edit", "side", ok=(1, 128))
        assert f"{NEW}: raw-binary" in said


class TestApply:
    def patch(self, repo: Sealed) -> bytes:
        return repo.git("format-patch", "--binary", "-1", "--stdout")

    def test_a_sealed_generation(self, hooked: Sealed) -> None:
        hooked.branch("side")
        hooked.generation(2.0)
        patch = self.patch(hooked)
        hooked.switch("main")
        hooked.git("am", "-q", stdin=patch)
        assert hooked.audit().found == []

    def test_an_unsealed_one(self, hooked: Sealed) -> None:
        hooked.branch("side")
        hooked.put(2.0)
        hooked.commit("unsealed", "--no-verify")
        patch = self.patch(hooked)
        hooked.switch("main")
        head = hooked.head
        said = hooked.run("git", "am", "-q", ok=(1,), stdin=patch).stderr.decode()
        assert hooked.head == head
        assert f"{MODEL}: content-mismatch" in said


class TestPush:
    @pytest.mark.true_start
    def test_a_branch_goes_on(self, hooked: Sealed, remote: Repo) -> None:
        hooked.generation(2.0)
        hooked.git("push", "-q", "origin", "main")
        assert remote.git("rev-parse", "main") == hooked.git("rev-parse", "main")

    @pytest.mark.parametrize("target", ["main", "new", "HEAD:refs/tags/v1"])
    def test_what_does_not_hold(self, hooked: Sealed, remote: Repo, target: str) -> None:
        if target == "new":
            hooked.branch("new")
        before = remote.git("for-each-ref")
        seal_raw(hooked)
        hooked.commit("later", "--no-verify")
        said = refused(hooked, "push", "-q", "origin", target)
        assert f"{hooked.oid('HEAD~1')[:12]}: {MODEL}: raw-binary" in said
        assert remote.git("for-each-ref") == before
        hooked.git("push", "-q", "--no-verify", "origin", target)
        # What the other side has is no business of the next push.
        hooked.generation(3.0)
        if target != "HEAD:refs/tags/v1":
            hooked.git("push", "-q", "origin", target)

    def test_a_tag_of_a_commit(self, hooked: Sealed, remote: Repo) -> None:
        seal_raw(hooked)
        hooked.git("tag", "-am", "annotated", "bad")
        assert "raw-binary" in refused(hooked, "push", "-q", "origin", "bad")
        hooked.git("tag", "-am", "tree", "tree", "HEAD^{tree}")
        hooked.git("push", "-q", "origin", "tree")

    def test_a_rewritten_branch(self, hooked: Sealed, remote: Repo) -> None:
        hooked.generation(2.0)
        hooked.git("push", "-q", "origin", "main")
        hooked.git("reset", "-q", "--hard", ROOT)
        hooked.generation(3.0)
        said = refused(hooked, "push", "-q", "--force", "origin", "main")
        assert "bad-root: the tip does not descend from" in said
        assert f"{MODEL}: ledger-rewritten" in said

    def test_signers_that_a_rewritten_branch_leaves_out(self, chain: Sealed) -> None:
        """No trust root is given: the branch's old tip says who is trusted."""
        hooks.install(chain.repository, LAUNCHER)
        chain.git("init", "-q", "--bare", "../remote.git")
        chain.git("push", "-q", "../remote.git", "main")
        chain.git("checkout", "-q", "--orphan", "other")
        chain.git("rm", "-q", "--cached", SIGNERS, f"{SIGNERS}.wsum", LEDGER)
        chain.commit("nobody seals", "--no-verify")
        said = refused(chain, "push", "-q", "--force", "../remote.git", "other:main")
        assert "bad-root: the tip does not descend from" in said

    def test_a_deletion(self, hooked: Sealed, remote: Repo) -> None:
        hooked.git("push", "-q", "origin", "main:side")
        hooked.git("push", "-q", "origin", "--delete", "side")
        assert b"side" not in remote.git("for-each-ref")

    def test_many_refs_at_once(self, hooked: Sealed, remote: Repo) -> None:
        hooked.branch("good")
        hooked.generation(2.0)
        hooked.branch("bad", ROOT)
        seal_raw(hooked)
        said = refused(hooked, "push", "-q", "origin", "good", "bad", f"{ROOT}:main")
        assert "refs/heads/bad: " in said
        assert "refs/heads/good: " not in said

    def test_a_shallow_clone(self, hooked: Sealed, remote: Repo) -> None:
        hooked.git("clone", "-q", "--depth=1", f"file://{remote.path}", "../shallow")
        shallow = Sealed(hooked.path.parent / "shallow")
        hooks.install(shallow.repository, LAUNCHER)
        shallow.put(2.0)
        shallow.seal(MODEL)
        shallow.commit("two")
        assert "shallow" in refused(shallow, "push", "-q", "origin", "main")
        shallow.git("fetch", "-q", "--unshallow")
        shallow.git("push", "-q", "origin", "main")

    def test_to_a_url(self, hooked: Sealed, remote: Repo) -> None:
        seal_raw(hooked)
        assert "raw-binary" in refused(hooked, "push", "-q", str(remote.path), "main:other")

    def test_as_data(self, hooked: Sealed, remote: Repo) -> None:
        seal_raw(hooked)
        line = f"refs/heads/main {hooked.head} refs/heads/x {'0' * 40}\n".encode()
        said = hooked.wtxtgit("hook", "pre-push", "--json", "origin", stdin=line, ok=(1,))
        assert b'"raw-binary"' in said.stdout
        assert hooked.wtxtgit("hook", "pre-push", "origin", stdin=b"\n").stderr == b""
        wrong = hooked.wtxtgit("hook", "pre-push", "origin", stdin=b"what\n", ok=(2,))
        assert b"not a line that git passes to a pre-push hook: b'what'" in wrong.stderr

    def test_nothing_is_said_where_nothing_is_tracked(self, repo: Repo) -> None:
        hooks.install(repo.repository, LAUNCHER)
        repo.commit()
        repo.git("init", "-q", "--bare", "../bare.git")
        assert repo.run("git", "push", "-q", "../bare.git", "main").stderr == b""

    def test_a_foreign_hook_gets_the_same_lines(self, hooked: Sealed, remote: Repo) -> None:
        hooks.uninstall(hooked.repository)
        script = '#!/bin/sh\necho "$@" > ../told\ncat >> ../told\nexit $(cat ../code)\n'
        hook = hooked.path / ".git/hooks/pre-push"
        hook.write_text(script)
        hook.chmod(0o755)
        hooks.install(hooked.repository, LAUNCHER)
        (hooked.path.parent / "code").write_text("0")
        hooked.generation(2.0)
        was = hooked.oid("HEAD~1")
        hooked.git("push", "-q", "origin", "main")
        told = (hooked.path.parent / "told").read_text()
        lines = f"refs/heads/main {hooked.head} refs/heads/main {was}\n"
        assert told == f"origin {remote.path}\n{lines}"
        hooked.generation(3.0)
        (hooked.path.parent / "code").write_text("3")
        refused(hooked, "push", "-q", "origin", "main")
        hooks.uninstall(hooked.repository)
        assert hook.read_text() == script
        assert {p.name for p in hook.parent.iterdir() if p.suffix != ".sample"} == {"pre-push"}


class TestPushWhereNobodySeals:
    @pytest.fixture
    def pushed(self, repo: Repo, driver: None) -> Repo:
        """A repository with hooks, whose branch the remote has."""
        hooks.install(repo.repository, LAUNCHER)
        repo.git("init", "-q", "--bare", "../remote.git")
        repo.git("remote", "add", "origin", "../remote.git")
        repo.track("*.safetensors")
        for value in (1.0, 2.0):
            repo.write(NEW, checkpoint(value))
            repo.add()
            repo.commit()
        repo.git("push", "-q", "origin", "HEAD:side")
        return repo

    @pytest.mark.parametrize("rewrite", ["amend", "rebase", "back"])
    def test_a_rewritten_branch(self, pushed: Repo, rewrite: str) -> None:
        if rewrite == "rebase":
            pushed.git("commit", "-q", "--allow-empty", "-m", "three")
            pushed.git("rebase", "-q", "--onto", "HEAD~2", "HEAD~1")
        elif rewrite == "back":
            pushed.git("reset", "-q", "--hard", "HEAD~1")
        else:
            pushed.write(NEW, checkpoint(3.0))
            pushed.git("commit", "-q", "-a", "--amend", "--no-edit")
        assert pushed.run("git", "push", "-q", "--force", "origin", "HEAD:side").stderr == b""
        was = pushed.git("rev-parse", "HEAD@{1}").decode().strip()
        assert b'"bad-root"' not in pushed.wtxtgit("audit", "--json", "--was", was).stdout

    def test_what_is_wrong_with_the_content(self, pushed: Repo) -> None:
        pushed.git("commit", "-q", "--amend", "--allow-empty", "-m", "amended")
        pushed.write(NEW, checkpoint(3.0))
        pushed.git("-c", "filter.wtxt.clean=", "-c", "filter.wtxt.process=",
                   "-c", "filter.wtxt.required=false", "add", NEW)  # fmt: skip
        pushed.git("commit", "-q", "--no-verify", "-m", "raw")
        said = pushed.run("git", "push", "-q", "--force", "origin", "HEAD:side", ok=(1,)).stderr
        assert b"raw-binary" in said
        assert b"bad-root" not in said

    def test_the_first_to_seal_may_rewrite_too(self, pushed: Repo, keys: None) -> None:
        sealed = Sealed(pushed.path)
        sealed.add_signer("alice")
        sealed.seal()
        sealed.git("commit", "-q", "--amend", "--no-edit")
        assert sealed.run("git", "push", "-q", "--force", "origin", "HEAD:side").stderr == b""

    @pytest.mark.parametrize("target", ["side", "new"])
    def test_a_shallow_clone(self, pushed: Repo, target: str) -> None:
        pushed.git("clone", "-q", "-b", "side", "--depth=1", f"file://{pushed.path}/../remote.git",
                   "../shallow")  # fmt: skip
        shallow = Repo(pushed.path.parent / "shallow")
        hooks.install(shallow.repository, LAUNCHER)
        shallow.write(NEW, checkpoint(3.0))
        assert shallow.run("git", "commit", "-q", "-a", "-m", "three").stderr == b""
        said = shallow.run("git", "push", "-q", "origin", f"HEAD:{target}").stderr.decode()
        assert "warning: HEAD: shallow: the history is not whole" in said
        shallow.git("config", "wtxtgit.strict", "true")
        shallow.git("commit", "-q", "--allow-empty", "-m", "four")
        said = refused(Sealed(shallow.path), "push", "-q", "origin", f"HEAD:{target}")
        assert "error: HEAD: shallow" in said


@pytest.mark.parametrize("name", hooks.NAMES[:3])
def test_foreign_hooks_run_first(hooked: Sealed, name: str) -> None:
    hooks.uninstall(hooked.repository)
    hook = hooked.path / ".git/hooks" / name
    hook.write_text('#!/bin/sh\necho "$0" >> ../ran\nexit 1\n')
    hook.chmod(0o755)
    hooks.install(hooked.repository, LAUNCHER)
    hooked.branch("side")
    hooked.commit("side", "--no-verify")
    patch = hooked.git("format-patch", "--always", "-1", "--stdout")
    hooked.switch("main")
    hooked.put(2.0)
    commands = {
        "pre-commit": ("commit", "-qm", "x"),
        "pre-merge-commit": ("merge", "--no-ff", "--no-edit", "side"),
        "pre-applypatch": ("am", "--empty=keep"),
    }
    if name != "pre-commit":
        hooked.git("reset", "-q", "--hard")
    head = hooked.head
    done = hooked.run("git", *commands[name], ok=(1, 128), stdin=patch)
    assert hooked.head == head
    assert b"wtxtgit" not in done.stderr
    assert (hooked.path.parent / "ran").read_text().strip().endswith(f"{name}.before-wtxtgit")


def test_the_hooks_are_shell_scripts_that_parse() -> None:
    for name in hooks.NAMES:
        file = Path(__file__).parents[2] / "hooks" / name
        assert os.access(file, os.X_OK)
        subprocess.run(["sh", "-n", file], check=True)
        assert f"# wtxtgit-hook: {name}\n" in file.read_text()
        assert shlex.split(file.read_text().partition("\nexec ")[2])[:3] == [
            "wtxtgit",
            "hook",
            name,
        ]
