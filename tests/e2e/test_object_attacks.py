"""What stands under an object's name and is another content is believed by no command.

Git gives it: it inflates what it finds, and hashes it only where it takes it in.
"""

from __future__ import annotations

import pytest

from tests.e2e.attacks import commit_of
from tests.e2e.conftest import hash_object
from tests.e2e.sealed import LEDGER, MODEL, OTHER, ROOT, SIGNERS, Sealed, text
from tests.git.histories import put_in_place

OTHER_HASH = "have another hash"


def swap(chain: Sealed, name: str, content: bytes, revision: str = "HEAD") -> str:
    """Put another content in the place of a blob that a commit names."""
    oid = chain.git("rev-parse", f"{revision}:{name}").decode().strip()
    put_in_place(chain, oid, b"blob", content)
    assert chain.git("cat-file", "blob", oid) == content
    return oid


def assert_refused(chain: Sealed, oid: str, *arguments: str) -> None:
    said = chain.call(*arguments, ok=(5,))
    told = said.err + said.out
    assert f"{oid}: the bytes that git returned {OTHER_HASH}" in told


@pytest.fixture
def branched(chain: Sealed) -> Sealed:
    """Main, with what the fixture has, and a branch with one generation more; both sealed."""
    chain.branch("topic")
    chain.generation(2.0)
    return chain


AUDIT = ("audit", "--no-cache", "--trust-root", ROOT)


def test_a_blob_is_what_its_name_says(branched: Sealed) -> None:
    oid = swap(branched, MODEL, text(7.0))
    assert_refused(branched, oid, *AUDIT)
    assert_refused(branched, oid, "verify", f"HEAD:{MODEL}")
    assert_refused(branched, oid, "diff", f"{ROOT}:{MODEL}", f"HEAD:{MODEL}")
    assert_refused(branched, oid, "diff", f"HEAD:{MODEL}", f"HEAD:{OTHER}")
    assert_refused(branched, oid, "review", "--trust-root", ROOT, "main...topic")


@pytest.mark.parametrize("name", [LEDGER, ".gitattributes"])
def test_so_is_what_says_what_is_sealed(branched: Sealed, name: str) -> None:
    oid = swap(branched, name, b"")
    assert_refused(branched, oid, *AUDIT)
    assert_refused(branched, oid, "review", "--trust-root", ROOT, "main...topic")


def test_so_are_the_signers(branched: Sealed) -> None:
    content = branched.blob(SIGNERS)
    swap(branched, SIGNERS, content.replace(b"alice@", b"mallory@"))
    said = branched.call(*AUDIT, ok=(1, 4, 5))
    assert OTHER_HASH in said.out + said.err


@pytest.mark.parametrize("kind", ["tree", "commit"])
def test_trees_and_commits_are_what_their_names_say(branched: Sealed, kind: str) -> None:
    suffix = "^{tree}" if kind == "tree" else ""
    oid, old = (
        branched.git("rev-parse", revision + suffix).decode().strip() for revision in ("HEAD", ROOT)
    )
    put_in_place(branched, oid, kind.encode(), branched.git("cat-file", kind, old))
    said = branched.call(*AUDIT, ok=(5,))
    assert OTHER_HASH in said.err or "names nothing" in said.err


def test_a_checkout_writes_no_other_content(branched: Sealed, driver: None) -> None:
    file = branched.path / MODEL
    file.unlink()
    oid = swap(branched, MODEL, text(7.0))
    assert_refused(branched, oid, "checkout", MODEL)
    assert not file.exists()
    assert {path.name for path in branched.path.glob("*model*")} == {LEDGER}


def test_a_conflict_is_not_settled_with_other_content(branched: Sealed, driver: None) -> None:
    branched.branch("ours", ROOT)
    branched.put(3.0)
    branched.commit("ours")
    branched.run("git", "merge", "-q", "topic", ok=(1,))
    oid = branched.git("rev-parse", f":3:{MODEL}").decode().strip()
    put_in_place(branched, oid, b"blob", text(7.0))
    assert_refused(branched, oid, "resolve", MODEL, "--take", "*=theirs")
    assert_refused(branched, oid, "diff", f":2:{MODEL}", f":3:{MODEL}")


@pytest.mark.parametrize("order", ["reversed", "the signers last"])
def test_no_tree_out_of_order_hides_the_signers(branched: Sealed, order: str) -> None:
    """Git passes over `.wtxt` in it, where it is asked about that path alone."""
    branched.add_signer("mallory")
    branched.seal(SIGNERS, key="mallory")
    tree = branched.git("write-tree").decode().strip()
    entries = []
    raw = branched.git("cat-file", "tree", tree)
    while raw:
        end = raw.index(b"\0") + 21
        entries.append(raw[:end])
        raw = raw[end:]
    if order == "reversed":
        entries.reverse()
    else:
        entries.sort(key=lambda entry: b" .wtxt\0" in entry)
    options = ("-t", "tree", "-w", "--stdin", "--literally")
    crooked = branched.git("hash-object", *options, stdin=b"".join(entries)).decode().strip()
    evil = commit_of(branched, "HEAD", tree=crooked)
    said = branched.call(*AUDIT, evil, ok=(5,))
    assert f"tree {crooked} has " in said.err
    assert "out of order" in said.err
    assert "hint: git fsck --full" in said.err


def test_a_name_that_is_there_twice_is_no_file(branched: Sealed) -> None:
    """Git reads one of the two, and checks out the other."""
    oid = hash_object(branched, text(7.0))
    raw = branched.git("cat-file", "tree", "HEAD^{tree}")
    entry = b"100644 " + MODEL.encode() + b"\0"
    at = raw.index(entry)
    twice = raw[:at] + entry + bytes.fromhex(oid) + raw[at:]
    options = ("-t", "tree", "-w", "--stdin", "--literally")
    crooked = branched.git("hash-object", *options, stdin=twice).decode().strip()
    evil = commit_of(branched, "HEAD", tree=crooked)
    for arguments in ((*AUDIT, evil), ("verify", f"{evil}:{MODEL}"), ("review", f"topic...{evil}")):
        said = branched.call(*arguments, ok=(1, 5))
        assert f"tree {crooked} has '{MODEL}' twice" in said.out + said.err
