"""The audit as a command: ranges, forms of its report, its cache, and what it says to nonsense."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import Grown
from tests.e2e.sealed import (
    MODEL,
    OTHER,
    ROOT,
    SIGNERS,
    Sealed,
    assert_found,
    assert_holds,
    checkpoint,
    text,
)
from tests.kit import Repo
from wtxtgit.cli.environment import facts_key
from wtxtgit.filter.content import ContentCache, examine
from wtxtgit.io.spool import spooled
from wtxtgit.report.audit import HINTS


@pytest.fixture
def faulty(grown: Grown) -> Sealed:
    """Two commits that are wrong between three that are not; tags of all."""

    def grow(chain: Sealed) -> None:
        chain.generation(2.0)
        chain.put(3.0)
        chain.commit("nobody seals")
        chain.git("tag", "fault")
        chain.generation(4.0)
        chain.generation(2.0, name=OTHER, key="mallory")
        chain.git("tag", "distrust")
        chain.generation(5.0)

    return grown("faulty", grow)


class TestExitCodes:
    def test_integrity_goes_before_trust(self, faulty: Sealed) -> None:
        integrity = (faulty.oid("fault"), MODEL, "content-mismatch")
        trust = (faulty.oid("distrust"), OTHER, "untrusted-signer")
        assert_found(faulty, integrity, trust, code=1)
        assert_found(faulty, integrity, code=1, args=["fault"])
        assert_found(faulty, trust, code=4, args=["fault..HEAD"])
        # The tip's whole tree is judged, whatever the range.
        tip = (faulty.head, OTHER, "untrusted-signer")
        assert_found(faulty, tip, code=4, args=["distrust..HEAD"])
        assert_holds(faulty, "fault~1")

    @pytest.mark.slow
    def test_of_the_process(self, faulty: Sealed) -> None:
        for range_, code in (("HEAD", 1), ("fault..HEAD", 4), ("fault~1", 0)):
            faulty.wtxtgit("audit", "--trust-root", ROOT, range_, ok=(code,))


class TestWhatIsJudged:
    """As docs/spec/trust.md says below the table of what has to hold."""

    def test_a_file_that_is_gone_is_not(self, chain: Sealed) -> None:
        (chain.path / MODEL).unlink()
        chain.commit_all()
        assert_holds(chain)

    @pytest.mark.parametrize(
        ("content", "kinds"),
        [
            (checkpoint(2.0), ["raw-binary"]),
            (text(2.0)[:-9], ["corrupt-text"]),
            (text(2.0).replace(b"host=any", b"host=one"), ["not-canonical", "content-mismatch"]),
        ],
    )
    def test_content_that_is_no_text_is_not_compared(
        self, chain: Sealed, content: bytes, kinds: list[str]
    ) -> None:
        chain.write(MODEL, content)
        bad = chain.commit_all()
        assert_found(chain, *((bad, MODEL, kind) for kind in kinds))

    def test_a_text_that_should_be_filtered_is_not_compared(self, chain: Sealed) -> None:
        chain.write(".gitattributes", b"")
        bad = chain.commit_all()
        gone = [(bad, name, "untracked-artifact") for name in (MODEL, OTHER)]
        assert_found(chain, *gone)


class TestRanges:
    def test_a_range_of_either_side(self, faulty: Sealed) -> None:
        assert faulty.audit("distrust..").report["commits"] == 1
        assert faulty.audit("..").report["commits"] == 0
        assert faulty.audit("HEAD..HEAD~2").report["commits"] == 0

    def test_side_commits(self, chain: Sealed) -> None:
        """Of a merged branch the commits between are judged where that is asked for."""
        chain.branch("pr")
        chain.put(2.0)
        bad = chain.commit("nobody seals")
        chain.generation(3.0)
        chain.switch("main")
        chain.merge("pr")
        said = assert_holds(chain)
        assert said.report["commits"] == 1
        assert_found(chain, (bad, MODEL, "content-mismatch"), args=["--every"])
        assert_found(chain, (bad, MODEL, "content-mismatch"), args=["--every", f"{ROOT}..HEAD"])
        assert_holds(chain, "--every", "pr..HEAD")

    def test_a_root_within_the_range(self, faulty: Sealed) -> None:
        """What the root reaches is not judged, whatever the range says."""
        trust = (faulty.oid("distrust"), OTHER, "untrusted-signer")
        assert_found(faulty, trust, code=4, args=[f"{ROOT}..HEAD"], root="fault")

    @pytest.mark.slow
    def test_signers_of_a_change_within_the_range_before_it(self, chain: Sealed) -> None:
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        assert_holds(chain, "HEAD~1..HEAD")

    def test_a_push(self, chain: Sealed) -> None:
        was = chain.generation(2.0)
        chain.generation(3.0)
        assert_holds(chain, "--was", was)
        assert_holds(chain, f"{was}..HEAD", "--was", was)
        assert_holds(chain, "--was", "HEAD")


class TestForms:
    def test_for_people(self, faulty: Sealed) -> None:
        said = faulty.call("audit", "--trust-root", ROOT, ok=(1,))
        lines = said.out.splitlines()
        fault, distrust = faulty.oid("fault")[:12], faulty.oid("distrust")[:12]
        assert lines[0].startswith(f"{fault} {MODEL}: content-mismatch: ")
        assert lines[1].startswith(f"{distrust} {OTHER}: untrusted-signer: ")
        assert any(HINTS["untrusted-signer"] in line for line in lines)
        assert not any(HINTS["content-mismatch"] in line for line in lines), "sealed since"
        assert any("wtxtgit audit --trust-root COMMIT" in line for line in lines)
        assert any(line.startswith("FAILED: ") for line in lines)
        assert "trusted: alice@example.com" in lines
        assert said.err == ""

    def test_of_an_audit_that_holds(self, chain: Sealed) -> None:
        said = chain.call("audit", "--format", "text")
        first, trusted, note, judged = said.out.splitlines()
        assert first.startswith("ok: ")
        assert trusted == "trusted: alice@example.com"
        root = chain.oid(ROOT)
        assert note == (
            f"note: no trust root is given: trust starts at {root[:12]}, the first commit "
            f"with signers that was seen; git config wtxtgit.trustRoot {root} fixes it there"
        )
        chain.git("config", "wtxtgit.trustRoot", root)
        assert "no trust root" not in chain.call("audit").out
        assert judged == "note: no commit was judged, but the files at the tip match their seals"

    def test_json_by_either_option(self, faulty: Sealed) -> None:
        by_format = faulty.call("audit", "--format", "json", ok=(1,)).out
        assert faulty.call("audit", "--json", ok=(1,)).out == by_format
        assert json.loads(by_format)["findings"][0].keys() == {
            "commit", "path", "kind", "severity", "message",
        }  # fmt: skip

    def test_annotations(self, faulty: Sealed) -> None:
        said = faulty.call("audit", "--trust-root", ROOT, "--format", "github", ok=(1,))
        found = [line for line in said.out.splitlines() if line.startswith("::error ")]
        wanted = ((MODEL, "content-mismatch"), (OTHER, "untrusted-signer"))
        for line, words in zip(found, wanted, strict=True):
            assert all(word in line.rpartition("::")[0] for word in words)

    def test_sarif(self, faulty: Sealed) -> None:
        said = faulty.call("audit", "--trust-root", ROOT, "--format", "sarif", ok=(1,))
        run = json.loads(said.out)["runs"][0]
        assert [result["ruleId"] for result in run["results"]] == [
            "content-mismatch", "untrusted-signer",
        ]  # fmt: skip
        assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == HINTS.keys()

    @pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
    @pytest.mark.slow
    def test_hostile_names(self, chain: Sealed, form: str) -> None:
        for name in (b"a\n::error::b.safetensors", b"\xff.safetensors", b"\x1b[31m.safetensors"):
            chain.write(name, text(1.0))
            chain.add(b":(literal)" + name)
        chain.commit()
        said = chain.call("audit", "--trust-root", ROOT, "--format", form, ok=(1,))
        assert "\x1b" not in said.out
        assert "\n::error::b" not in said.out
        said.out.encode()


class TestCache:
    """What is known of blobs never changes what is found."""

    def cache(self, repo: Sealed) -> Path:
        return repo.path / ".git/wtxtgit/facts.sqlite"

    def test_a_second_run_says_the_same(self, faulty: Sealed) -> None:
        plain = faulty.audit("--no-cache")
        assert not self.cache(faulty).exists()
        first = faulty.audit()
        assert self.cache(faulty).exists()
        assert first == plain
        assert faulty.audit() == plain
        assert faulty.audit("--no-cache") == plain

    def test_a_second_run_reads_no_blob(
        self, faulty: Sealed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = faulty.audit()
        monkeypatch.setattr("wtxtgit.chain.reader.read_facts", None)
        assert faulty.audit() == plain
        assert "TypeError" in faulty.call("audit", "--no-cache", ok=(70,)).err

    def test_what_is_new_is_found(self, chain: Sealed) -> None:
        assert_holds(chain, root=None)
        chain.write(MODEL, checkpoint(2.0))
        bad = chain.commit_all()
        for _ in range(2):
            assert_found(chain, (bad, MODEL, "raw-binary"), root=None)

    def test_it_never_keeps_whom_to_trust(self, chain: Sealed) -> None:
        chain.generation(2.0, key="bob")
        bad = (chain.head, MODEL, "untrusted-signer")
        assert_found(chain, bad, code=4)
        chain.git("reset", "-q", "--hard", "HEAD~1")
        chain.add_signer("bob")
        chain.change_signers("alice")
        chain.generation(2.0, key="bob")
        assert_holds(chain)

    def test_forged_facts_are_not_believed(self, chain: Sealed, home: Path) -> None:
        """A repository that comes with facts of somebody else's is judged as one without."""
        sealed = chain.blob(MODEL, "HEAD")
        facts = examine(memoryview(sealed), threads=1)
        chain.put(3.0)
        bad = (chain.commit("nobody seals"), MODEL, "content-mismatch")
        oid = chain.git("rev-parse", f"HEAD:{MODEL}").decode().strip()
        with ContentCache(chain.repository, home / "of-somebody-else" / "key") as forged:
            forged.put_facts({oid: facts})
        assert_found(chain, bad, root=None)
        # The same facts, had this user found them, would have hidden it.
        with ContentCache(chain.repository, facts_key()) as known:
            known.put_facts({oid: facts})
        assert_holds(chain, root=None)
        assert_found(chain, bad, root=None, args=["--no-cache"])

    @pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(200)])
    def test_a_file_that_is_no_cache(self, faulty: Sealed, content: bytes) -> None:
        plain = faulty.audit()
        self.cache(faulty).write_bytes(content)
        assert faulty.audit() == plain
        assert faulty.audit() == plain

    @pytest.mark.slow
    def test_a_folder_in_its_place(self, faulty: Sealed) -> None:
        plain = faulty.audit("--no-cache")
        self.cache(faulty).mkdir(parents=True)
        assert faulty.audit() == plain

    @pytest.mark.slow
    def test_no_home_for_the_secret(
        self, faulty: Sealed, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = faulty.audit("--no-cache")
        (home / "no-folder").write_bytes(b"")
        for name in ("XDG_STATE_HOME", "HOME"):
            monkeypatch.setenv(name, str(home / "no-folder"))
        assert faulty.audit() == plain
        assert not self.cache(faulty).exists()


class TestNonsense:
    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["nothing"], 5, "'nothing' names nothing in this repository"),
            (["nothing..HEAD"], 5, "'nothing' names nothing in this repository"),
            (["HEAD..nothing"], 5, "'nothing' names nothing in this repository"),
            (["a..b..c"], 5, "'b..c' names nothing in this repository"),
            ([""], 5, "'' names nothing in this repository"),
            (["HEAD^{tree}"], 5, "'HEAD^{tree}' names a tree, not a commit"),
            ([f"HEAD:{MODEL}"], 5, f"'HEAD:{MODEL}' names a blob, not a commit"),
            (["0" * 40], 5, f"'{'0' * 40}' names nothing in this repository"),
            (["a\nb"], 5, "'a\\nb' names nothing in this repository"),
            (["main...HEAD"], 2, "'main...HEAD': not a range, which is spelled A..B"),
            (["--", "-x"], 2, "'-x' is not a revision"),
            (["--", "--all..HEAD"], 2, "'--all..HEAD' is not a revision"),
            (["--was", "nothing"], 5, "'nothing' names nothing in this repository"),
            (["--was", ""], 5, "'' names nothing in this repository"),
            (["--trust-root", "nothing"], 5, "'nothing' names nothing in this repository"),
            (["--trust-root", ""], 5, "'' names nothing in this repository"),
            (["--trust-root", "-x"], 5, "'-x' names nothing in this repository"),
            (["--trust-root", ".wtxt"], 5, "'.wtxt' names nothing in this repository"),
        ],
        ids=str,
    )
    def test_of_revisions(
        self, chain: Sealed, arguments: list[str], code: int, message: str
    ) -> None:
        said = chain.call("audit", "--json", *arguments, ok=(code,))
        lines = said.err.splitlines()
        assert lines[0] == f"wtxtgit: error: {message}"
        assert said.out == ""
        assert len(lines) == (1 if code == 2 else 2)
        assert all(line.startswith("wtxtgit: hint: git log ") for line in lines[1:])

    @pytest.mark.parametrize(
        "content", [b"", b"# nobody\n", b"alice ssh-rsa AAAA\n", b"\xff", bytes(10)]
    )
    def test_of_a_file_that_trusts_nobody(
        self, chain: Sealed, tmp_path: Path, content: bytes
    ) -> None:
        (tmp_path / "signers").write_bytes(content)
        said = assert_found(chain, ("", "", "bad-root"), root=str(tmp_path / "signers"), code=4)
        assert said.report["findings"][0]["message"].startswith("signers: ") or (
            str(tmp_path / "signers") in said.report["findings"][0]["message"]
        )

    def test_a_root_whose_signers_are_nonsense(self, chain: Sealed) -> None:
        chain.write(SIGNERS, "nonsense\n")
        root = chain.commit_all()
        assert_found(chain, ("", "", "bad-root"), root=root, code=4)

    def test_before_the_first_commit(self, repo: Repo) -> None:
        said = Sealed(repo.path).call("audit", ok=(5,))
        assert said.err == "wtxtgit: error: no commits yet\n"

    def test_outside_of_a_repository(self, tmp_path: Path) -> None:
        said = Sealed(tmp_path).call("audit", ok=(5,))
        assert said.err.splitlines() == [
            "wtxtgit: error: not in a git repository",
            "wtxtgit: hint: change to a repository, or run git init",
        ]

    def test_a_commit_whose_objects_are_gone(self, chain: Sealed) -> None:
        chain.generation(2.0)
        oid = chain.git("rev-parse", f"HEAD:{MODEL}").decode().strip()
        (chain.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
        said = chain.call("audit", ok=(5,))
        assert oid in said.err


@pytest.mark.slow
def test_several_processes_say_the_same(faulty: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = faulty.audit("--no-cache")
    monkeypatch.setattr("wtxtgit.chain.reader.FEW_BYTES", 0)
    monkeypatch.setenv("WTXTGIT_THREADS", "2")
    assert faulty.audit("--no-cache") == plain


def test_large_blobs_say_the_same(faulty: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written to a file while they are read, not kept in memory."""
    plain = faulty.audit("--no-cache")
    monkeypatch.setattr("wtxtgit.chain.reader.spooled", partial(spooled, in_memory=0))
    assert faulty.audit("--no-cache") == plain
