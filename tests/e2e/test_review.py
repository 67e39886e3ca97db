"""Reviews of sealed repositories, through the command line."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    ROOT,
    SIGNERS,
    Sealed,
    checkpoint,
    forged,
    secret,
    text,
)
from tests.kit import Repo
from tests.kit.starts import PYTHON

pytestmark = pytest.mark.slow


def reviewed(chain: Sealed, *arguments: str, root: str | None = ROOT) -> dict[str, Any]:
    pinned = ("--trust-root", root) if root is not None else ()
    return chain.call("review", "--json", *pinned, *(arguments or ("main...topic",))).report


def only(chain: Sealed, *arguments: str, root: str | None = ROOT) -> dict[str, Any]:
    (one,) = reviewed(chain, *arguments, root=root)["artifacts"]
    found: dict[str, Any] = one
    return found


def risks(one: dict[str, Any]) -> set[str]:
    return {flag["risk"] for flag in one["flags"]}


@pytest.fixture
def topic(chain: Sealed) -> Sealed:
    chain.branch("topic")
    return chain


class TestSeals:
    def test_sealed_by_a_signer(self, topic: Sealed) -> None:
        first = topic.generation(2.0)
        second = topic.generation(3.0)
        one = only(topic)
        assert one["seal"]["state"] == "sealed"
        assert one["seal"]["message"] == "generation 3 by alice@example.com"
        generations = one["seal"]["generations"]
        assert [(g["gen"], g["commit"], g["signers"], g["verdict"]) for g in generations] == [
            (3, second, ["alice@example.com"], "ok"),
            (2, first, ["alice@example.com"], "ok"),
        ]
        assert [commit["commit"] for commit in one["commits"]] == [second, first]
        assert risks(one) == set()

    def test_not_sealed_again(self, topic: Sealed) -> None:
        topic.put(2.0)
        topic.commit()
        one = only(topic)
        assert (one["seal"]["state"], risks(one)) == ("stale", {"unsealed"})
        assert one["seal"]["message"] == "generation 1 of its ledger does not match the content"

    def test_never_sealed(self, topic: Sealed) -> None:
        topic.put(2.0, name="new.safetensors")
        topic.commit()
        one = only(topic)
        assert (one["seal"]["state"], risks(one)) == ("unsealed", {"unsealed"})

    def test_sealed_by_nobody_who_is_trusted(self, topic: Sealed) -> None:
        topic.generation(2.0, key="mallory")
        one = only(topic)
        assert (one["seal"]["state"], risks(one)) == ("untrusted", {"unknown-signer"})
        (generation,) = one["seal"]["generations"]
        assert generation["verdict"] == "untrusted-signer"
        assert "mallory@example.com" not in generation["signers"]

    def test_a_signer_that_the_branch_adds_for_itself(self, topic: Sealed) -> None:
        topic.add_signer("mallory")
        topic.commit()
        topic.generation(2.0, key="mallory")
        found = reviewed(topic)
        (one,) = found["artifacts"]
        assert (one["seal"]["state"], risks(one)) == ("untrusted", {"unknown-signer"})
        assert any(".wtxt/signers" in note for note in found["notes"])
        assert any("its change is not sealed" in note for note in found["notes"])

    def test_a_signer_that_signers_added(self, topic: Sealed) -> None:
        topic.add_signer("bob")
        topic.change_signers("alice")
        topic.generation(2.0, key="bob")
        one = only(topic)
        assert one["seal"]["message"] == "generation 2 by bob@example.com"
        assert (one["seal"]["state"], risks(one)) == ("sealed", set())

    def test_a_forged_signature(self, topic: Sealed) -> None:
        topic.put(2.0)
        bad = forged(topic.ledger(), text(2.0), secret("mallory"))
        topic.write(LEDGER, bad)
        topic.add(LEDGER)
        topic.commit()
        one = only(topic)
        assert (one["seal"]["state"], risks(one)) == ("untrusted", {"unknown-signer"})

    def test_a_ledger_that_was_rewritten(self, topic: Sealed) -> None:
        topic.generation(2.0)
        topic.git("branch", "-f", "main")
        topic.write(LEDGER, forged(topic.ledger(), text(2.0), secret("alice"), keep=0))
        topic.add(LEDGER)
        topic.commit()
        one = only(topic)
        assert one["seal"]["state"] == "untrusted"
        assert risks(one) == {"broken-chain"}

    def test_a_ledger_that_is_gone(self, topic: Sealed) -> None:
        topic.git("rm", "-q", LEDGER)
        topic.commit()
        one = only(topic)
        assert (one["seal"]["state"], risks(one)) == ("unsealed", {"unsealed", "broken-chain"})

    def test_a_ledger_that_does_not_read(self, topic: Sealed) -> None:
        topic.write(LEDGER, topic.ledger()[:-20])
        topic.add(LEDGER)
        topic.commit()
        one = only(topic)
        assert one["seal"]["state"] == "untrusted"
        assert "broken-chain" in risks(one)

    def test_a_text_that_claims_to_be_what_was_sealed(self, topic: Sealed) -> None:
        """Other arrays under the root line that the ledger seals."""
        sealed_text, other = text(1.0), text(2.0)
        roots = [re.search(rb"\nroot [^\n]*\n", one) for one in (sealed_text, other)]
        assert roots[0]
        assert roots[1]
        topic.write(MODEL, other.replace(roots[1][0], roots[0][0]))
        topic.add(MODEL)
        topic.commit()
        one = only(topic)
        assert one["seal"]["state"] == "stale"
        assert "damaged" in risks(one)

    def test_a_deleted_checkpoint_keeps_its_ledger(self, topic: Sealed) -> None:
        topic.git("rm", "-q", MODEL)
        topic.commit()
        one = only(topic)
        assert (one["change"], one["seal"]["state"]) == ("removed", "sealed")
        assert risks(one) == {"tensor-removed"}

    def test_a_rename_with_its_ledger(self, topic: Sealed) -> None:
        topic.git("mv", MODEL, "moved.safetensors")
        topic.git("mv", LEDGER, "moved.safetensors.wsum")
        topic.put(7.0, -3.0, name="moved.safetensors")
        topic.seal("moved.safetensors")
        topic.commit()
        one = only(topic)
        assert (one["change"], one["base_path"]) == ("renamed", MODEL)
        assert (one["seal"]["state"], risks(one)) == ("sealed", set())
        assert [g["gen"] for g in one["seal"]["generations"]] == [2]

    def test_a_merge_of_the_base(self, topic: Sealed) -> None:
        topic.generation(2.0)
        topic.switch("main")
        topic.generation(5.0, name="other.safetensors")
        topic.switch("topic")
        topic.merge("main")
        found = reviewed(topic)
        assert [one["path"] for one in found["artifacts"]] == [MODEL]
        assert found["artifacts"][0]["seal"]["state"] == "sealed"


class TestTrustRoots:
    def test_none(self, topic: Sealed) -> None:
        topic.generation(2.0)
        found = reviewed(topic, root=None)
        assert found["artifacts"][0]["seal"]["state"] == "sealed"
        assert any("no trust root is given" in note for note in found["notes"])

    def test_of_the_configuration(self, topic: Sealed) -> None:
        topic.generation(2.0)
        topic.git("config", "wtxtgit.trustRoot", ROOT)
        assert reviewed(topic, root=None)["notes"] == []

    def test_signers_that_the_branch_brings(self, repo: Repo, keys: None) -> None:
        chain = Sealed(repo.path)
        chain.track("*.safetensors")
        chain.put(1.0)
        chain.commit()
        chain.branch("topic")
        chain.add_signer("mallory")
        chain.put(2.0)
        chain.seal(key="mallory")
        chain.commit()
        found = reviewed(chain, root=None)
        (one,) = found["artifacts"]
        assert (one["seal"]["state"], risks(one)) == ("untrusted", {"unknown-signer"})
        assert "added as a signer by this branch" in one["seal"]["message"]
        assert any("which is on this branch itself" in note for note in found["notes"])

    def test_one_that_the_head_does_not_descend_from(self, topic: Sealed) -> None:
        topic.switch("main")
        topic.commit("apart")
        topic.git("tag", "later")
        topic.switch("topic")
        topic.generation(2.0)
        found = reviewed(topic, root="later")
        (one,) = found["artifacts"]
        assert (one["seal"]["state"], risks(one)) == ("untrusted", {"unknown-signer"})
        assert any("does not descend" in note for note in found["notes"])

    def test_one_that_is_not_there(self, topic: Sealed) -> None:
        said = topic.call("review", "--trust-root", "nothing", "main...topic", ok=(5,))
        assert said.out == ""

    def test_a_shallow_clone(self, topic: Sealed, tmp_path: Path) -> None:
        topic.generation(2.0)
        topic.git("branch", "-f", "main")
        topic.generation(3.0)
        folder = tmp_path / "shallow"
        topic.git("clone", "-q", "--depth", "2", "-b", "topic", topic.path.as_uri(), str(folder))
        found = reviewed(Sealed(folder), "HEAD~1..HEAD", root=None)
        (one,) = found["artifacts"]
        assert one["diff"]["summary"]["changed"] == 1
        assert one["seal"]["state"] == "untrusted"
        assert any("shallow" in note for note in found["notes"])


class TestTheCommand:
    def test_text(self, topic: Sealed) -> None:
        commit = topic.generation(2.0)
        said = topic.call("review", "--trust-root", ROOT, "main...topic")
        lines = said.out.splitlines()
        assert said.err == ""
        assert lines[0] == "main -> topic: 1 commit, 1 checkpoint, 0 risk flags"
        assert f"{MODEL}: changed" in lines
        assert "sealed: generation 2 by alice@example.com" in lines
        assert any(line.startswith("first  ") for line in lines)
        (told,) = [line.split() for line in lines if line.startswith(commit[:12])]
        assert told[2:] == ["A", "U", "Thor", MODEL, "2.0", "0.0"]

    @pytest.mark.parametrize("columns", [60, 160])
    def test_a_terminal_of_any_width(self, columns: int, topic: Sealed) -> None:
        topic.generation(2.0)
        leader, follower = pty.openpty()
        env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
        argv = [PYTHON, "-m", "wtxtgit", "review", "main...topic"]
        with subprocess.Popen(argv, cwd=topic.path, stdout=follower, env=env) as process:
            os.close(follower)
            read = b"".join(iter(lambda: _output(leader), b""))
            assert process.wait(60) == 0
        os.close(leader)
        lines = re.sub("\x1b\\[[0-9;]*m", "", read.decode()).splitlines()
        tables = [line for line in lines if "─" in line or "━" in line]
        assert tables
        assert max(map(len, tables)) <= columns
        assert "generation2byalice" in "".join("".join(lines).split())

    @pytest.mark.parametrize("form", ["text", "md", "json", "html"])
    def test_a_file_holds_what_is_printed(self, form: str, topic: Sealed) -> None:
        topic.generation(2.0)
        asked = ("review", "main...topic", "--format", form)
        printed = topic.wtxtgit(*asked).stdout
        # A page breaks names after dots.
        shown = printed.decode().replace("&#46;", ".").replace("<wbr>", "")
        assert MODEL in shown
        assert topic.wtxtgit(*asked, "-o", "out").stdout == b""
        assert (topic.path / "out").read_bytes() == printed
        assert topic.wtxtgit(*asked, "-o", "-").stdout == printed
        named = f"out.{form}"
        topic.wtxtgit("review", "main...topic", "-o", named)
        assert (topic.path / named).read_bytes() == printed
        topic.wtxtgit(*asked, "-o", "out.html")
        assert (topic.path / "out.html").read_bytes() == printed

    def test_the_default_base(self, topic: Sealed, tmp_path: Path) -> None:
        clone = Sealed(topic.clone("clone").path)
        clone.git("remote", "set-head", "origin", "main")
        clone.git("checkout", "-q", "-b", "mine", "origin/main")
        clone.generation(2.0)
        report = clone.call("review", "--json").report
        assert (report["base"], report["head"]) == ("origin/main", "HEAD")
        assert [one["path"] for one in report["artifacts"]] == [MODEL]

    def test_before_the_first_push(self, repo: Repo, keys: None, tmp_path: Path) -> None:
        """Nothing to compare with: all is new, and so are those who may seal."""
        mine = Sealed(repo.path)
        said = mine.call("review", ok=(5,))
        assert said.err == "wtxtgit: error: no commits yet\n"
        mine.track("*.safetensors")
        mine.add_signer("alice")
        mine.put(1.0)
        mine.seal()
        tip = mine.commit()
        report = mine.call("review", "--json").report
        assert (report["base"], report["head"], report["commits"]) == ("nothing", "HEAD", 1)
        assert (report["base_commit"], report["head_commit"]) == ("0" * 40, tip)
        (one,) = report["artifacts"]
        assert (one["path"], one["change"], one["seal"]["state"]) == (MODEL, "added", "sealed")
        assert risks(one) == set()
        assert [commit["commit"] for commit in one["commits"]] == [tip]
        note, *_ = report["notes"]
        assert note.startswith("this clone has no remote branch, so HEAD is compared with nothing")

        mine.git("init", "-q", "--bare", str(tmp_path / "bare"))
        mine.git("remote", "add", "origin", str(tmp_path / "bare"))
        mine.git("checkout", "-q", "--detach")
        for form in ("text", "md", "html", "sarif"):
            mine.call("review", "--format", form, "-o", f"out.{form}")
        assert "nothing -> HEAD: 1 commit, 1 checkpoint" in (mine.path / "out.text").read_text()
        assert mine.call("review", "--json").report == report
        mine.git("push", "-q", "origin", "HEAD:refs/heads/main")
        assert mine.call("review", "--json").report["artifacts"] == []

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("nowhere...topic",), 5),
            (("main...nowhere",), 5),
            (("main...topic", "-o", "no/such/folder"), 5),
            (("main...topic", "--key", "missing"), 3),
        ],
    )
    def test_failures(self, arguments: tuple[str, ...], code: int, topic: Sealed) -> None:
        topic.generation(2.0)
        said = topic.call("review", *arguments, ok=(code,))
        assert said.out == ""
        assert said.err.startswith("wtxtgit: error: ")
        assert len(said.err.splitlines()) <= 2

    def test_what_is_found_is_no_failure(self, topic: Sealed) -> None:
        topic.write(SIGNERS, "junk")
        topic.add_raw(MODEL, checkpoint(2.0)[:-4])
        topic.write(LEDGER, "junk")
        topic.add(LEDGER, SIGNERS)
        topic.commit()
        found = topic.call("review", "main...topic", "--json").report
        assert found["summary"]["flags"] >= 2


def _output(terminal: int) -> bytes:
    """What a program wrote to its terminal; nothing where it has ended."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
