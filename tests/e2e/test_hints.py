"""Hints end what they speak of: each is run as it is printed, and the finding is gone after it.

A commit stays found for what it did: there the hint says so, and what comes
after the commit is right again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import wtxtgit
from tests.cli.test_reseal import change
from tests.data import FIXTURES
from tests.e2e.sealed import (
    LEDGER,
    MODEL,
    OTHER,
    ROOT,
    SIGNERS,
    SIGNERS_LEDGER,
    Sealed,
    checkpoint,
    secret,
    text,
)
from tests.kit.lfs import kept_by_lfs
from tests.kit.pasting import HERE, paste
from tests.kit.uncommitted import assert_kept, begin_work, uncommitted
from tests.review.repos import file
from wtxtgit.containers.aero import read as aero_read
from wtxtgit.report import audit, check
from wtxtgit.report.audit import Finding, Severity
from wtxtgit.report.check import LARGE_BLOB, STALE_INDEX, UNFILTERED
from wtxtgit.text.digest import sign
from wtxtgit.trust.openssh import SecretKey

pytestmark = pytest.mark.slow

NEW, NATIVE = "new model's.safetensors", "notes.wtxt"
STAYS = "{0} itself can only be cleared by a later trust root or a rewritten history"
Make = Callable[[Sealed], None]


@pytest.fixture
def repo(pastable: Sealed) -> Sealed:
    """The chain, in which hints can be pasted, and a second generation."""
    pastable.generation(2.0)
    return pastable


def commit(repo: Sealed) -> None:
    """Commit what is staged; what a hint of the filter wrote may change files on disk."""
    repo.git("commit", "-q", "--no-verify", "--allow-empty", "-m", "mended")


def pushed(repo: Sealed) -> bytes:
    """What git tells the hook of a push of a new branch."""
    return f"refs/heads/main {repo.head} refs/heads/main {'0' * 40}\n".encode()


def said(repo: Sealed, kind: str, *range_: str) -> list[Finding]:
    """The findings of a kind."""
    found = repo.audit(*range_).report["findings"]
    return [read(told) for told in found if told["kind"] == kind]


def read(told: dict[str, str]) -> Finding:
    """A finding as it is told."""
    path, severity = os.fsencode(told["path"]), Severity(told["severity"])
    return Finding(told["commit"], path, told["kind"], told["message"], severity)


# What makes each kind.


def raw(repo: Sealed) -> None:
    repo.add_raw(MODEL, checkpoint(2.0))


def pointer(repo: Sealed) -> None:
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed: apt install git-lfs")
    repo.add_raw(MODEL, kept_by_lfs(repo.path / ".git/lfs", checkpoint(2.0))[0])


def damaged(repo: Sealed) -> None:
    repo.write(MODEL, text(2.0).replace(b"crc32c=", b"crc32c=f", 1))
    repo.add()


def other_spelling(repo: Sealed) -> None:
    repo.write("x", checkpoint(2.0))
    repo.call("emit", "x", "-o", "y", "--gen", "7", "--build", "nightly")
    content = (repo.path / "y").read_bytes()
    for name in ("x", "y"):
        (repo.path / name).unlink()
    repo.write(MODEL, content)
    repo.add()


def link(repo: Sealed) -> None:
    (repo.path / MODEL).unlink()
    (repo.path / MODEL).symlink_to(OTHER)
    repo.add()


def filter_dropped(repo: Sealed) -> None:
    repo.write(".gitattributes", "")
    repo.add()


def twin(repo: Sealed) -> None:
    repo.write(MODEL.upper(), b"x")
    repo.add()


def folder(repo: Sealed) -> None:
    repo.git("rm", "-q", MODEL)
    repo.write(f"{MODEL}/x", b"x")
    repo.add()


def ident(repo: Sealed) -> None:
    with (repo.path / ".gitattributes").open("a") as file:
        file.write("*.safetensors ident\n")
    repo.add()


def unsealed(repo: Sealed) -> None:
    repo.put(3.0, name=NEW)


def mismatch(repo: Sealed) -> None:
    repo.put(3.0)


def broken(repo: Sealed) -> None:
    repo.write(LEDGER, repo.ledger() + b"meta\n")
    repo.add()


def copied(repo: Sealed) -> None:
    repo.put(2.0, name=NEW)
    repo.write(f"{NEW}.wsum", repo.ledger())
    repo.add()


def moved(repo: Sealed) -> None:
    for end in ("", ".wsum"):
        repo.git("mv", MODEL + end, NEW + end)


def moved_onto(repo: Sealed) -> None:
    """One model in the other's place, which goes nowhere."""
    for end in ("", ".wsum"):
        repo.git("mv", "-f", MODEL + end, OTHER + end)


def rolled_back(repo: Sealed) -> None:
    repo.take(ROOT, MODEL, LEDGER)


def ledger_gone(repo: Sealed) -> None:
    repo.git("rm", "-q", LEDGER)


def both_gone(repo: Sealed) -> None:
    repo.git("rm", "-q", MODEL, LEDGER)


def both_gone_before(repo: Sealed) -> None:
    """As after `git revert` of the commit that added it, for which git runs no hook."""
    both_gone(repo)
    commit(repo)


def forged_signature(repo: Sealed) -> None:
    repo.put(3.0)
    repo.seal(MODEL)
    repo.falsify_signature()


def not_signed(repo: Sealed) -> None:
    repo.put(3.0)
    repo.seal(MODEL)
    lines = (repo.path / LEDGER).read_bytes().splitlines(keepends=True)
    repo.write(LEDGER, b"".join(lines[:-1]))
    repo.add()


def foreign(repo: Sealed) -> None:
    for value in (3.0, 4.0):
        repo.put(value)
        repo.seal(MODEL, key="mallory")


def signers_unsealed(repo: Sealed) -> None:
    repo.add_signer("bob")


def signers_by_themselves(repo: Sealed) -> None:
    repo.add_signer("mallory")
    repo.seal(SIGNERS, key="mallory")


def signers_gone(repo: Sealed) -> None:
    repo.git("rm", "-q", SIGNERS, SIGNERS_LEDGER)


def looks_like_one(repo: Sealed) -> None:
    repo.add_raw("x.gguf", b"GGUF, or so")


MAKERS: list[tuple[str, Make]] = [
    ("raw-binary", raw),
    ("lfs-pointer", pointer),
    ("corrupt-text", damaged),
    ("not-canonical", other_spelling),
    ("untracked-artifact", link),
    ("untracked-artifact", filter_dropped),
    ("untracked-artifact", twin),
    ("untracked-artifact", folder),
    ("untracked-artifact", looks_like_one),
    ("altered-checkout", ident),
    ("unsealed", unsealed),
    ("content-mismatch", mismatch),
    ("bad-record", broken),
    ("bad-record", copied),
    ("moved-unsealed", moved),
    ("ledger-rewritten", rolled_back),
    ("ledger-rewritten", moved_onto),
    ("ledger-removed", ledger_gone),
    ("ledger-removed", both_gone),
    ("bad-signature", forged_signature),
    ("missing-signature", not_signed),
    ("untrusted-signer", foreign),
    ("signers-changed", signers_unsealed),
    ("signers-changed", signers_by_themselves),
    ("signers-changed", signers_gone),
]
STAGED = [
    *(
        (kind, make)
        for kind, make in MAKERS
        if make not in (looks_like_one, signers_unsealed, signers_gone)
    ),
    ("ledger-removed", both_gone_before),
]
"""Those that a check has its own hint for."""
cases = pytest.mark.parametrize(
    ("kind", "make"), MAKERS, ids=[f"{kind}-{make.__name__}" for kind, make in MAKERS]
)


class TestCommits:
    """What an audit prints."""

    @cases
    def test_the_tip_is_right_again(self, repo: Sealed, kind: str, make: Make) -> None:
        make(repo)
        repo.git("commit", "-q", "-m", "made")
        made = repo.head
        finding, *_ = said(repo, kind)
        assert finding.commit == made
        hint = audit.hint(finding, HERE)
        # Git reverts no commit whose files were edited since.
        begin_work(repo, with_attributes=make not in (filter_dropped, ident))
        if make in (damaged, raw, pointer):
            repo.write(MODEL, text(77.0))
        elif make in (signers_unsealed, signers_by_themselves):
            repo.write(SIGNERS, (repo.path / SIGNERS).read_bytes() + b"# mine\n")
        before = uncommitted(repo)
        paste(repo, hint)
        assert_kept(repo, before, but=(".wsum",))
        commit(repo)
        assert said(repo, kind, "HEAD~1..HEAD") == []
        left = {one.commit for one in said(repo, kind)}
        if finding.severity is Severity.WARNING or make is twin:
            assert not left, "the tip alone is looked at"
        else:
            assert left == ({made} if STAYS.format(made) in hint else set())

    @pytest.mark.parametrize(
        ("kind", "make"),
        [("raw-binary", raw), ("content-mismatch", mismatch), ("untrusted-signer", foreign)],
        ids=["raw", "mismatch", "foreign"],
    )
    def test_what_is_left_when_the_tip_is_right_again(
        self, repo: Sealed, kind: str, make: Make
    ) -> None:
        make(repo)
        repo.commit("made")
        made = repo.head
        repo.write("x", b"later")
        repo.add()
        repo.commit("later")
        first = audit.hint(said(repo, kind)[0], HERE)
        assert STAYS.format(made) in first
        assert audit.HINTS[kind] in repo.call("audit", ok=(1, 4)).out
        paste(repo, first)
        commit(repo)
        assert audit.HINTS[kind] not in repo.call("audit", ok=(1, 4)).out
        finding, *more = said(repo, kind)
        assert {finding.commit, *(one.commit for one in more)} == {made}
        left = audit.hint(finding, HERE, {kind})
        vouch, _, about = left.partition("  # ")
        told = repo.wtxtgit("hook", "pre-push", stdin=pushed(repo), ok=(1, 4)).stderr
        assert f"hint: {left}\n".encode() in told
        assert "0 errors" in paste(repo, vouch)
        (reset,) = re.findall(r"yet, (git reset .*?) and commit again", about)
        paste(repo, reset)
        commit(repo)
        assert repo.audit().found == []

    def test_all_kinds_are_tried(self) -> None:
        tried = {kind for kind, _ in MAKERS}
        # tests/e2e/test_strict.py follows the last one.
        assert set(audit.HINTS) - tried == {
            "bad-root",
            "shallow",
            audit.ODD_CHECKPOINT,
            audit.UNCHECKED,
        }

    def test_signers_that_those_of_before_let_in(self, repo: Sealed) -> None:
        """The other way of the same hint."""
        signers_by_themselves(repo)
        repo.commit("made")
        finding, *_ = said(repo, "signers-changed")
        (command,) = re.findall(r"or (wtxtgit seal .*?), by as many", audit.hint(finding, HERE))
        paste(repo, command)
        commit(repo)
        assert repo.audit("HEAD~1..HEAD").found == []
        assert len(repo.audit("HEAD~1..HEAD").report["signers"]) == 2

    def test_an_older_seal_of_a_native_text(self, repo: Sealed) -> None:
        """A warning: nothing of the past is found."""
        from tests.e2e.sealed import signed_ledger
        from wtxtgit.filter.content import examine
        from wtxtgit.text.ledger import native_record

        content = wtxtgit.dumps({"W": np.ones((2, 3))})
        facts = examine(memoryview(content))
        assert facts.sha256_all is not None
        assert facts.meta is not None
        record = native_record(None, sha256_all=facts.sha256_all, meta=facts.meta)
        repo.write(NATIVE, content)
        repo.write(f"{NATIVE}.wsum", signed_ledger(repo, NATIVE, [record], secret("alice")))
        repo.add()
        repo.commit("made")
        finding, *_ = said(repo, "unsealed")
        assert finding.severity is Severity.WARNING
        paste(repo, audit.hint(finding, HERE))
        commit(repo)
        assert repo.audit("HEAD~1..HEAD").found == []

    def test_a_native_text_with_a_false_sign_line(self, repo: Sealed) -> None:
        """It is not sealed again: what refuses it has a hint of its own."""
        key = getattr(secret("alice"), "secret")  # noqa: B009
        assert isinstance(key, SecretKey)
        good = wtxtgit.dumps({"W": np.ones((2, 3))}, sign=lambda m: sign(key.seed, m))
        other = wtxtgit.dumps({"W": np.zeros((2, 3))}, sign=lambda m: sign(key.seed, m))
        lines = [re.findall(rb"^sign .*$", one, re.MULTILINE)[0] for one in (good, other)]
        repo.write(NATIVE, good)
        repo.add()
        repo.seal(NATIVE)
        repo.commit("native")
        repo.write(NATIVE, other.replace(lines[1], lines[0]))
        repo.add()
        repo.commit("false")
        assert said(repo, "bad-signature")
        refused = repo.call("seal", "--reseal", "--", NATIVE, ok=(4,)).err
        (command,) = re.findall(r"hint: (git stash push .*?) restores the earlier text", refused)
        paste(repo, command, "")
        commit(repo)
        assert said(repo, "bad-signature", "HEAD~1..HEAD") == []

    def test_a_root_that_the_tip_does_not_have(self, repo: Sealed) -> None:
        repo.branch("other")
        repo.generation(5.0)
        repo.switch("main")
        found = repo.audit(root="other")
        assert found.kinds == {"bad-root"}
        finding = Finding("", b"", "bad-root", "")
        *_, oldest = paste(repo, audit.hint(finding, HERE)).splitlines()
        assert repo.audit(root=oldest.split()[0]).found == []

    def test_a_shallow_clone(self, repo: Sealed) -> None:
        path = repo.path.parent / "shallow"
        repo.git("clone", "-q", "--depth", "1", f"file://{repo.path}", str(path))
        shallow = Sealed(path)
        root = repo.oid(ROOT)
        found = shallow.audit(root=root)
        assert found.kinds == {"shallow"}
        paste(shallow, audit.hint(Finding("", b"", "shallow", "")), "")
        assert shallow.audit(root=root).found == []


class TestStaged:
    """What a check, and the hook, print before the commit."""

    def hints(self, repo: Sealed, kind: str) -> Iterator[str]:
        printed = repo.call("check", "--staged", ok=(0, 1, 4), folder=HERE).out
        yield from re.findall(rf"^{kind} {{2,}}(.*)$", printed, re.MULTILINE)

    def follow(self, repo: Sealed, kind: str, *replaced: str) -> None:
        begin_work(repo)
        before = uncommitted(repo)
        (hint, *_) = self.hints(repo, kind)
        paste(repo, hint)
        assert list(self.hints(repo, kind)) == []
        assert_kept(repo, before, but=(".wsum", *replaced))

    @pytest.mark.parametrize(
        ("kind", "make"),
        STAGED,
        ids=[f"{kind}-{make.__name__}" for kind, make in STAGED],
    )
    def test_it_is_gone(self, repo: Sealed, kind: str, make: Make) -> None:
        make(repo)
        # git-lfs still has what a pointer stands for.
        self.follow(repo, kind, *([MODEL] if make is pointer else []))

    @pytest.mark.parametrize(
        ("kind", "make"),
        [("corrupt-text", damaged), ("raw-binary", raw), ("altered-checkout", ident)],
        ids=["damaged", "raw", "ident"],
    )
    def test_what_was_edited_after_it_was_staged_is_kept_in_both_versions(
        self, repo: Sealed, kind: str, make: Make
    ) -> None:
        make(repo)
        repo.write(MODEL, text(77.0))
        with (repo.path / ".gitattributes").open("a") as attributes:
            attributes.write("*.edited -diff\n")
        self.follow(repo, kind)

    def test_twins_of_a_name_and_attributes_stay(self, repo: Sealed) -> None:
        """Both are new: of the names one is composed, the other is not."""
        names = ["\u00e9.safetensors", "e\u0301.safetensors"]
        for number, name in enumerate(names):
            repo.put(float(number), name=name)
        with (repo.path / ".gitattributes").open("a") as attributes:
            attributes.write("*.npz filter=wtxt diff=wtxt merge=wtxt -text\n")
        repo.add()
        before = {name: (repo.path / name).read_bytes() for name in (*names, ".gitattributes")}
        self.follow(repo, "untracked-artifact")
        for name, content in before.items():
            assert (repo.path / name).read_bytes().startswith(content)

    def test_a_change_of_the_signers(self, repo: Sealed) -> None:
        """What is not sealed has a finding, and a hint, of its own."""
        signers_unsealed(repo)
        self.follow(repo, "content-mismatch")
        assert list(self.hints(repo, "signers-changed")) == []

    @pytest.mark.parametrize("content", [None, b"", b"no key\n"])
    def test_signers_that_no_seal_helps(self, repo: Sealed, content: bytes | None) -> None:
        """The second way that the hint names."""
        if content is None:
            signers_gone(repo)
        else:
            repo.write(SIGNERS, content)
            repo.add(SIGNERS)
        (hint,) = self.hints(repo, "signers-changed")
        paste(repo, hint.rpartition("; ")[2].removesuffix(" leaves the change out"))
        assert repo.call("check", "--staged").code == 0

    def test_a_text_that_is_too_large(self, repo: Sealed) -> None:
        repo.git("config", "wtxtgit.maxBlob", "1024")
        repo.put(3.0, name=NEW)
        (hint,) = [one for one in self.hints(repo, LARGE_BLOB) if "new" in one]
        paste(repo, hint)
        assert not any("new" in one for one in self.hints(repo, LARGE_BLOB))

    def test_a_set_whose_part_changed_alone(self, repo: Sealed) -> None:
        for one in (FIXTURES / "aero/aeroset_multi_a").iterdir():
            repo.write(f"new set/{one.name}", one.read_bytes())
        repo.git("add", "-A")
        assert list(self.hints(repo, STALE_INDEX)) == []
        repo.commit("a set")
        part = repo.path / "new set/part-000.aero"
        change(part, aero_read.read(memoryview(part.read_bytes())).entries[0].name)
        assert list(self.hints(repo, STALE_INDEX)) == []
        repo.git("add", "-A")
        (hint,) = self.hints(repo, STALE_INDEX)
        name = "new set/model.aeroset.json"
        assert f"wtxtgit: warning: {name}: stale-index" in repo.call("hook", "pre-commit").err
        paste(repo, hint)
        assert list(self.hints(repo, STALE_INDEX)) == []

    @pytest.mark.parametrize("way", ["track", "renormalize"])
    def test_a_text_that_was_renamed_out_of_its_pattern(self, repo: Sealed, way: str) -> None:
        repo.put(3.0, name=NEW)
        repo.commit("unsealed")
        repo.wtxtgit("install", "--local")
        name = "new model.bin"
        repo.git("mv", NEW, name)
        (hint,) = self.hints(repo, UNFILTERED)
        assert f"wtxtgit: warning: {name}: unfiltered-text" in repo.call("hook", "pre-commit").err
        command, _, other = hint.partition("  # or ")
        paste(repo, command if way == "track" else other.partition(", to")[0])
        assert list(self.hints(repo, UNFILTERED)) == []

    def test_a_text_that_is_too_large_is_detached(self, repo: Sealed) -> None:
        """The first of the other ways that the hint names."""
        paste(repo, "wtxtgit install --local")
        repo.git("config", "wtxtgit.maxBlob", "16384")
        repo.write(NEW, file({"w": np.arange(40_000.0)}))
        repo.add()
        (hint,) = [one for one in self.hints(repo, LARGE_BLOB) if "new" in one]
        unstaged, about = hint.split("  # ")
        (command,) = re.findall(r"^then: (wtxtgit track --detached) PATTERN keeps", about)
        paste(repo, unstaged)
        paste(repo, f"{command} 'new*.safetensors'", "")
        repo.add()
        assert not any("new" in one for one in self.hints(repo, LARGE_BLOB))

    def test_all_kinds_are_tried(self) -> None:
        tried = {kind for kind, _ in MAKERS}
        others = {"bad-root", LARGE_BLOB, STALE_INDEX, UNFILTERED}
        others |= {audit.ODD_CHECKPOINT, audit.UNCHECKED}
        assert set(check.HINTS) - tried == others
