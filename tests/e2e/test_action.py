"""The action: its scripts as they stand in `action.yml`, run as GitHub runs them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runner import NONE, Ran, Runner, action, commands, step
from tests.e2e.sealed import LEDGER, MODEL, SIGNERS, Sealed, text
from tests.e2e.test_strict import put, unpadded
from tests.kit import Repo, safetensors

pytestmark = pytest.mark.slow

PULL = "refs/pull/1/merge"


@pytest.fixture
def server(chain: Sealed, tmp_path: Path) -> Repo:
    """A server's repository, where the first commit of `chain` is main."""
    bare = Repo(tmp_path / "server.git")
    chain.git("clone", "-q", "--bare", str(chain.path), str(bare.path))
    bare.git("config", "uploadpack.allowAnySHA1InWant", "true")
    chain.git("remote", "add", "server", str(bare.path))
    return bare


@pytest.fixture
def runner(server: Repo, tmp_path: Path) -> Runner:
    made = Runner(server, tmp_path / "runner")
    made.start()
    return made


def push(chain: Sealed, *refspecs: str) -> None:
    chain.git("push", "-q", "server", *refspecs)


def pull(chain: Sealed, runner: Runner, branch: str = "topic", **inputs: str) -> Ran:
    """Open a pull request of HEAD, from a fork; GitHub makes a merge to be tried."""
    base, head = chain.oid("main"), chain.head
    chain.git("checkout", "-q", "--detach", "main")
    chain.merge(head)
    push(chain, f"+HEAD:{PULL}")
    runner.checkout(PULL)
    context = {"github.event.pull_request.base.sha": base}
    context["github.event.pull_request.head.sha"] = head
    variables = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": PULL}
    variables["GITHUB_HEAD_REF"] = branch
    return run(chain, runner, context, variables, inputs)


def pushed(chain: Sealed, runner: Runner, before: str, branch: str = "main", **inputs: str) -> Ran:
    """Push HEAD to a branch."""
    push(chain, f"+HEAD:refs/heads/{branch}")
    runner.checkout(f"refs/heads/{branch}")
    context = {"github.event.before": before, "github.event.after": chain.head}
    variables = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": f"refs/heads/{branch}"}
    variables["GITHUB_REF_NAME"] = branch
    return run(chain, runner, context, variables, inputs)


def run(
    chain: Sealed,
    runner: Runner,
    context: dict[str, str],
    variables: dict[str, str],
    inputs: dict[str, str],
) -> Ran:
    given = {"trust_root": chain.oid("root"), **inputs}
    named = {f"inputs.{key.replace('_', '-')}": value for key, value in given.items()}
    return runner.audit({**context, **named}, variables)


class TestPullRequests:
    def test_one_that_holds(self, chain: Sealed, runner: Runner) -> None:
        chain.branch("topic")
        chain.generation(2.0)
        chain.generation(3.0)
        ran = pull(chain, runner, require_signed="true", all="true")
        assert (ran.code, ran.annotations) == (0, [])
        assert (ran.outputs["ok"], ran.outputs["findings"]) == ("true", "0")
        report = ran.report
        # What merging it gives is judged.
        assert (report["ok"], report["commits"], report["findings"]) == (True, 1, [])
        assert report["signers"] == ["alice@example.com"]
        assert ran.summary.startswith("### wtxtgit audit: ok\n")
        assert "ok: 1 commit judged" in ran.log

    def test_a_raw_binary(self, chain: Sealed, runner: Runner) -> None:
        chain.branch("topic")
        chain.add_raw(MODEL, safetensors(2.0))
        chain.commit("a hook was passed by")
        ran = pull(chain, runner)
        assert ran.code == 1
        first = ran.annotations[0]
        assert first.name == "error"
        assert first.properties == {"title": "wtxtgit: raw-binary", "file": MODEL}
        assert (ran.outputs["ok"], int(ran.outputs["findings"])) == ("false", len(ran.titles))
        assert "raw-binary" in ran.kinds
        assert ran.summary.startswith("### wtxtgit audit: FAILED\n")
        assert "| `raw-binary` |" in ran.summary

    def test_only_trust(self, chain: Sealed, runner: Runner) -> None:
        chain.branch("topic")
        chain.generation(2.0, key="mallory")
        ran = pull(chain, runner)
        assert (ran.code, ran.outputs["ok"]) == (4, "false")
        assert ran.kinds == {"untrusted-signer"}
        assert ran.titles == ["wtxtgit: untrusted-signer"]

    def test_of_other_commits_what_its_tip_holds_is_told(
        self, chain: Sealed, runner: Runner
    ) -> None:
        """Its own commits are judged as changes; what was wrong in main before still is."""
        chain.add_raw(MODEL, safetensors(2.0))
        chain.commit("in main")
        push(chain, "main")
        chain.branch("topic")
        chain.write("README", "x")
        chain.add("README")
        chain.commit("topic")
        ran = pull(chain, runner)
        assert (ran.code, ran.report["commits"]) == (1, 1)
        assert ran.kinds == {"raw-binary"}
        assert {found["commit"] for found in ran.report["findings"]} == {chain.head}
        # What main has mended is not told.
        chain.switch("main")
        shutil.rmtree(runner.folder)
        runner.start()
        chain.git("checkout", "-q", "root", "--", MODEL)
        chain.commit("mended")
        push(chain, "main")
        chain.branch("other")
        chain.write("README", "x")
        chain.add("README")
        chain.commit("topic")
        assert pull(chain, runner).code == 0

    @pytest.mark.parametrize("is_missing", [False, True])
    def test_a_file_is_not_taken_for_the_trust_root(
        self, chain: Sealed, runner: Runner, is_missing: bool
    ) -> None:
        chain.branch("topic")
        root = "v9" if is_missing else chain.oid("root")
        key = chain.call("key", "show", "mallory").out.split()
        line = next(word for word in key if word.startswith("AAAA"))
        chain.write(root, f"mallory@example.com ssh-ed25519 {line}\n")
        chain.add(root)
        chain.generation(2.0, key="mallory")
        ran = pull(chain, runner, trust_root=root)
        if is_missing:
            assert (ran.code, ran.outputs["ok"]) == (5, "false")
        else:
            assert (ran.code, ran.kinds) == (4, {"untrusted-signer"})

    def test_no_module_is_taken_from_it(self, chain: Sealed, runner: Runner) -> None:
        chain.branch("topic")
        for name in ("wtxtgit.py", "json.py", "venv.py", "pip.py", "sitecustomize.py"):
            chain.write(name, "raise SystemExit(0)\n")
            chain.add(name)
        chain.generation(2.0, key="mallory")
        runner.environment["PYTHONPATH"] = str(runner.workspace)
        assert pull(chain, runner).code == 4


HOSTILE = [
    'x";touch${IFS}pwned;"',
    "$(touch${IFS}pwned)",
    "`touch${IFS}pwned`",
    "a'b\"&touch${IFS}pwned;#",
    "::error::x",
    "--help",
]


class TestHostileNames:
    @pytest.mark.parametrize("branch", HOSTILE)
    def test_branches(self, chain: Sealed, runner: Runner, branch: str) -> None:
        chain.generation(2.0)
        # Some of these git allows for no branch; an event could still say them.
        context = {"github.event.before": NONE, "github.event.after": chain.head}
        context["github.head_ref"] = context["github.ref_name"] = branch
        push(chain, "main")
        runner.checkout("refs/heads/main")
        names = {f"GITHUB_{name}": branch for name in ("HEAD_REF", "REF_NAME", "BASE_REF")}
        names |= {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": f"refs/heads/{branch}"}
        ran = run(chain, runner, context, names, {})
        assert (ran.code, ran.annotations) == (0, [])
        assert not list(runner.folder.rglob("pwned"))

    @pytest.mark.parametrize("value", HOSTILE)
    @pytest.mark.parametrize("what", ["before", "after"])
    def test_ids_that_are_none(self, chain: Sealed, runner: Runner, what: str, value: str) -> None:
        runner.checkout("refs/heads/main")
        context = {"github.event.before": chain.head, "github.event.after": chain.head}
        context[f"github.event.{what}"] = value
        names = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main"}
        assert run(chain, runner, context, names, {}).code == 0
        assert not list(runner.folder.rglob("pwned"))

    def test_paths(self, chain: Sealed, runner: Runner) -> None:
        """No path is taken for a command, neither in the log nor in a summary."""
        names = [
            "##[set-output name=ok]true.safetensors",
            "::set-output name=ok::true.safetensors",
            "a\n::set-output name=ok::true\n.safetensors",
            "%0A::notice::x.safetensors",
            "a|b `<img src=x>` [l](u).safetensors",
            "a\x1b[31m\r.safetensors",
        ]
        chain.branch("topic")
        for name in names:
            chain.add_raw(name, safetensors(2.0))
        chain.commit("hostile")
        ran = pull(chain, runner)
        assert (ran.code, ran.outputs["ok"]) == (1, "false")
        assert {finding["path"] for finding in ran.report["findings"]} == set(names)
        shown = {a.properties["file"] for a in ran.annotations}
        assert shown == {name.replace("\n", "\\x0a").replace("\x1b", "\\x1b").replace("\r", "\\x0d")
                         for name in names}  # fmt: skip
        assert "\x1b" not in ran.log + ran.summary
        assert "<img" not in ran.summary
        assert "##[" in ran.log, "the text names it, where commands are stopped"

    def test_errors(self, chain: Sealed, runner: Runner) -> None:
        chain.generation(2.0)
        ran = pushed(chain, runner, NONE, range="##[set-output name=ok]true\n::notice::x")
        assert (ran.code, ran.outputs) == (5, {"ok": "false", "findings": "0"})
        assert ran.titles == ["wtxtgit"]
        assert "names nothing in this repository" in ran.annotations[0].value


class TestPushes:
    def test_one_that_goes_on(self, chain: Sealed, runner: Runner) -> None:
        before = chain.generation(2.0)
        push(chain, "main")
        chain.generation(3.0)
        ran = pushed(chain, runner, before)
        assert (ran.code, ran.report["commits"]) == (0, 1)

    def test_a_new_branch_is_judged_from_the_trust_root(
        self, chain: Sealed, runner: Runner
    ) -> None:
        chain.generation(2.0)
        chain.generation(3.0)
        ran = pushed(chain, runner, NONE, branch="other")
        assert (ran.code, ran.report["commits"]) == (0, 2)

    def test_a_force_push(self, chain: Sealed, runner: Runner) -> None:
        before = chain.generation(2.0)
        push(chain, "main")
        chain.git("reset", "-q", "--hard", "root")
        chain.generation(3.0)
        ran = pushed(chain, runner, before)
        assert ran.code == 1
        assert {"bad-root", "ledger-rewritten"} <= ran.kinds
        assert "wtxtgit: bad-root" in ran.titles

    def test_a_force_push_whose_old_tip_is_gone(self, chain: Sealed, runner: Runner) -> None:
        chain.branch("other")
        chain.write("README", "x")
        chain.add("README")
        before = chain.commit("never pushed")
        chain.switch("main")
        chain.generation(3.0)
        ran = pushed(chain, runner, before)
        assert (ran.code, ran.outputs["ok"]) == (4, "false")
        assert ran.titles == ["wtxtgit"]
        assert "a force push: " + before[:12] in ran.annotations[0].value
        assert ran.report["commits"] == 1, "what is there is judged all the same"

    def test_a_tag(self, chain: Sealed, runner: Runner) -> None:
        chain.generation(2.0)
        push(chain, "main")
        chain.git("tag", "moved", "root")
        push(chain, "HEAD:refs/tags/moved")
        runner.checkout("refs/tags/moved")
        context = {"github.event.before": chain.oid("root"), "github.event.after": chain.head}
        names = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/tags/moved"}
        assert run(chain, runner, context, names, {}).code == 0

    def test_other_events_judge_what_is_checked_out(self, chain: Sealed, runner: Runner) -> None:
        chain.generation(2.0)
        chain.generation(3.0)
        push(chain, "main")
        runner.checkout("refs/heads/main")
        ran = run(chain, runner, {}, {"GITHUB_EVENT_NAME": "schedule"}, {})
        assert (ran.code, ran.report["commits"]) == (0, 2)


class TestWhatIsMissing:
    def test_a_shallow_clone(self, chain: Sealed, runner: Runner) -> None:
        before = chain.generation(2.0)
        push(chain, "main")
        runner.checkout("refs/heads/main", "--depth=1")
        context = {"github.event.before": before, "github.event.after": chain.head}
        names = {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main"}
        ran = run(chain, runner, context, names, {})
        assert (ran.code, ran.kinds, ran.outputs["ok"]) == (1, {"shallow"}, "false")
        assert ran.titles == ["wtxtgit", "wtxtgit: shallow"]
        assert "fetch-depth: 0" in ran.annotations[0].value

    def test_no_checkout(self, chain: Sealed, runner: Runner) -> None:
        ran = run(chain, runner, {}, {"GITHUB_EVENT_NAME": "push"}, {})
        assert (ran.code, ran.outputs["ok"]) == (5, "false")
        assert "actions/checkout" in ran.annotations[0].value

    @pytest.mark.parametrize("root", ["", "no-such-tag"])
    def test_no_trust_root(self, chain: Sealed, runner: Runner, root: str) -> None:
        ran = pushed(chain, runner, NONE, trust_root=root)
        assert ran.code == (5 if root else 2)
        assert (ran.outputs["ok"], ran.titles) == ("false", ["wtxtgit"])

    @pytest.mark.parametrize("name", ["require_signed", "strict", "every", "all", "cache"])
    def test_words_that_are_no_booleans(self, chain: Sealed, runner: Runner, name: str) -> None:
        value = "yes\r\n::notice::%0Ax"
        ran = pushed(chain, runner, NONE, **{name: value})
        assert (ran.code, ran.outputs["ok"], ran.titles) == (2, "false", ["wtxtgit"])
        assert ran.annotations[0].value.endswith(value)
        assert "\r" not in ran.log


class TestInputs:
    def test_require_signed(self, chain: Sealed, runner: Runner) -> None:
        """A root without signers is taken, but where the option asks for some."""
        chain.git("rm", "-q", SIGNERS, f"{SIGNERS}.wsum", LEDGER)
        start = chain.commit("no signers")
        chain.put(2.0)
        chain.commit("unsealed")
        told = [("error", "bad-root"), ("warning", "unsealed")]
        for value, code in (("false", 0), ("true", 4)):
            shutil.rmtree(runner.folder)
            runner.start()
            ran = pushed(chain, runner, NONE, trust_root=start, require_signed=value)
            wanted = told if code else told[1:]
            assert (ran.code, ran.kinds) == (code, {kind for _, kind in wanted})
            assert [a.name for a in ran.annotations] == [name for name, _ in wanted]

    def test_strict(self, chain: Sealed, runner: Runner) -> None:
        put(chain, unpadded())
        chain.commit("what verify has a note on")
        assert pushed(chain, runner, NONE, strict="false").code == 0
        shutil.rmtree(runner.folder)
        runner.start()
        ran = pushed(chain, runner, NONE, strict="true")
        assert (ran.code, ran.kinds) == (1, {"odd-checkpoint"})

    def test_range(self, chain: Sealed, runner: Runner) -> None:
        first = chain.generation(2.0)
        chain.generation(3.0)
        assert pushed(chain, runner, NONE, range=f"{first}..HEAD").report["commits"] == 1

    @pytest.mark.parametrize("value", ["true", "false"])
    def test_cache(self, chain: Sealed, runner: Runner, value: str) -> None:
        chain.generation(2.0)
        assert pushed(chain, runner, NONE, cache=value).code == 0
        assert (runner.workspace / ".git/wtxtgit").exists() == (value == "true")


class TestTheFile:
    def test_no_expression_stands_in_a_script(self) -> None:
        scripts = [one["run"] for one in action()["runs"]["steps"]]
        assert len(scripts) == 2
        assert not any("${{" in script for script in scripts)

    def test_scripts_parse(self) -> None:
        for one in action()["runs"]["steps"]:
            subprocess.run(["bash", "-n"], input=one["run"].encode(), check=True)

    def test_every_input_and_output_is_used(self) -> None:
        used = set(re.findall(r"inputs\.([\w-]+)", str(action()["runs"])))
        assert used == set(action()["inputs"])
        for about in action()["outputs"].values():
            assert about["value"].startswith("${{ steps.audit.outputs.")

    @pytest.mark.parametrize("found", [True, False])
    def test_an_old_python_or_none(self, runner: Runner, found: bool) -> None:
        folder = runner.folder / "bin"
        folder.mkdir()
        for name in ("bash", "mktemp"):
            (folder / name).symlink_to(str(shutil.which(name)))
        if found:
            old = folder / "python3"
            old.write_text("#!/usr/bin/env bash\nexit 1\n")
            old.chmod(0o755)
        ran = runner.audit({}, {"PATH": str(folder)}, "Install wtxtgit")
        assert ran.code == 5
        assert "Python 3.11" in ran.annotations[0].value

    def test_what_installs_is_told_where(self) -> None:
        """The step itself runs in the check of the wheel, which has a registry at hand."""
        script: Any = step("Install wtxtgit")["run"]
        assert '"$GITHUB_ACTION_PATH"' in script


class TestTheRunner:
    """What the tests above rest on finds commands where a runner does."""

    def test_both_forms(self) -> None:
        found = commands("  ::error file=a%2Cb,title=t::m%0An\nx ##[set-output name=ok]true\nplain")
        assert [(one.name, one.properties) for one in found] == [
            ("error", {"file": "a,b", "title": "t"}),
            ("set-output", {}),
        ]
        assert found[0].value == "m\nn"

    def test_stopped(self) -> None:
        output = "::stop-commands::w\n::error::a\n##[error]\n::w::\n::error::b"
        assert [one.value for one in commands(output)] == ["b"]
        with pytest.raises(AssertionError, match="stopped"):
            commands("::stop-commands::w\n::error::a")


def test_texts_are_what_the_tests_take_them_for() -> None:
    assert text(2.0).startswith(b"WTXT 1\n")
