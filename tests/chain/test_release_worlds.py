"""What `release` names, and what `verify` says of a commit, in small worlds; docs/spec/release.md.

The commits are those of small histories, with every one-step edit of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.chain import naive_history as naive
from tests.chain.naive_history import ATTRIBUTES, SIGNERS
from tests.chain.small_histories import (
    ALICE,
    BOB,
    EXECUTABLE,
    HISTORIES,
    LINK,
    PLAIN,
    Files,
    M,
    Made,
    Store,
    Truth,
    afterwards,
)
from tests.checkpoint.bundle_worlds import Bundles, resource, statement
from tests.kit import Repo
from tests.kit.changes import AUDIT
from wtxtgit.chain.reader import Facts
from wtxtgit.chain.release import ReleaseOptions, release
from wtxtgit.checkpoint.released_files import bundle_verdict
from wtxtgit.errors import CheckError
from wtxtgit.git.blobs import BlobReader
from wtxtgit.git.repository import Repository
from wtxtgit.trust.pem_keys import EcPublicKey

Named = dict[str, str]


@pytest.fixture
def repository(repo: Repo) -> Iterator[Repository]:
    found = repo.repository
    with BlobReader(found):
        yield found


def named(objects: naive.Objects, tip: str, root: str, *, every: bool) -> Named | str:
    """What a release of a commit names, by the page; or how it ends."""
    if not naive.audit(objects, tip, root):
        return "report"
    there = naive.files(objects, naive.commit(objects, tip).tree)
    # No artifact of these worlds is a text, so none has a WSUM.
    chosen = naive.artifacts(there) - {SIGNERS}
    paths = [path for path, entry in there.items() if every or path in chosen]
    if not paths or not all(naive.is_file(there[path]) for path in paths):
        return "error"
    return {path.decode(): sha256(objects[there[path][1]][1]).hexdigest() for path in paths}


def released(repository: Repository, tip: str, root: str, *, every: bool) -> Named | str:
    (repository.common_dir / "refs/tags/v1").write_text(f"{tip}\n")
    try:
        options = ReleaseOptions("v1", root, every)
        _, report, _ = release(repository, options, Facts(repository, 1), None)
    except CheckError:
        return "error"
    return "report" if report is None else {one.path: one.sha256 for one in report.files}


def _besides(truth: Truth, tip: Made) -> Iterator[tuple[str, Made]]:
    """Files that lie beside an artifact, or in its place."""
    path = M if M in tip.files else b"n.bin"
    keys = [key for key in (ALICE, BOB) if key.name in tip.trusted[0]]

    def then(files: Files) -> Made:
        return Made(files, tip, message=b"later\n", trusted=tip.trusted)

    plain = {name: one for name, one in tip.files.items() if name not in (b"link", b"module")}
    yield "no link", then(plain)
    wsum = path + b".root.wsum"
    yield "what looks like a WSUM", then({**plain, wsum: (PLAIN, b"WSUM 1 of nothing\n")})
    yield "a file of that name", then({**plain, wsum: (PLAIN, b"any\n")})
    yield "an artifact of that name", then(truth.sealed(plain, path + b".root", b"x", keys[:1]))
    yield "sealed, empty", then(truth.sealed(plain, b"empty", b"", keys[:1]))
    yield "sealed, deleted", then(truth.sealed(plain, path, None, keys[:1]))
    yield "sealed, to be run", then({**plain, path: (EXECUTABLE, plain[path][1])})
    yield "a link for it", then({**plain, path: (LINK, b"README")})
    yield (
        "its ledger gone",
        then({name: one for name, one in plain.items() if name != path + b".wsum"}),
    )


@pytest.mark.slow
@pytest.mark.sampled(AUDIT)
@pytest.mark.parametrize("name", HISTORIES)
def test_what_is_named_is_what_was_sealed(repository: Repository, name: str) -> None:
    store = Store(repository.common_dir / "objects")
    truth = Truth(store)
    old = HISTORIES[name](truth)
    wrong, ends = [], set()
    root = store.commit(old.line[0])
    for how, tip in [("as it is", old), *afterwards(truth, old), *_besides(truth, old)]:
        for every in (False, True):
            oid = store.commit(tip)
            wanted = named(store.objects, oid, root, every=every)
            told = released(repository, oid, root, every=every)
            ends.add(wanted if isinstance(wanted, str) else "named")
            if told != wanted:
                wrong.append(f"{how}, {every}: {told} is named, {wanted} by the naive reader")
            if isinstance(told, dict) and not every and not _is_so(truth, tip, told):
                wrong.append(f"{how}: named, and it is not so")
    assert not wrong, "\n".join(wrong)
    assert ends == {"named", "report", "error"}


def _is_so(truth: Truth, tip: Made, told: Named) -> bool:
    """Whether each file that is named is what was sealed last there, and all of those are."""
    sealed = {
        path.decode(): sha256(content).hexdigest()
        for path, seals in truth.known(tip).items()
        if (content := max(seals, key=lambda one: one[0])[1]) is not None
        and path in tip.files
        and path != SIGNERS
    }
    return told == sealed


@pytest.mark.slow
def test_a_commit_is_what_a_checkout_of_it_writes(
    repository: Repository, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit of a commit, held against a bundle of all of its files and a real checkout."""
    monkeypatch.chdir(repo.path)
    store, bundles = Store(repository.common_dir / "objects"), Bundles()
    # A checkout that changes any of these changes its bytes.
    lines = b"$Id$\nl\xc3\xbcne\n"
    files: Files = {b"a.bin": (PLAIN, lines), b"sub/b.bin": (PLAIN, lines), b"c": (PLAIN, b"")}
    listed = [resource(path.decode(), content) for path, (_, content) in files.items()]
    data = memoryview(json.dumps(bundles.of(statement(listed), "P-256")).encode())
    key = EcPublicKey(bundles.keys["P-256"].public_key())  # type: ignore[arg-type]
    wrong, count = [], {True: 0, False: 0}
    for how, edit in _commits_of(files):
        (repository.common_dir / "refs/tags/v1").write_text(store.commit(Made(edit)) + "\n")
        told = bundle_verdict("x", data, [key], "v1")
        there = repo.path.parent / "out"
        repo.git("worktree", "add", "-q", "--force", str(there), "v1", "--detach")
        is_so = all(
            (there / path.decode()).is_file()
            and not any(one.is_symlink() for one in (there / path.decode(), there / "sub"))
            and (there / path.decode()).read_bytes() == content
            for path, (_, content) in files.items()
        )
        repo.git("worktree", "remove", "--force", str(there))
        count[is_so] += 1
        if (not told.errors) != is_so:
            wrong.append(f"{how}: {told.errors}, and a checkout says {is_so}")
    assert not wrong, "\n".join(wrong)
    assert min(count.values()) >= 5


def _commits_of(files: Files) -> Iterator[tuple[str, Files]]:
    yield "as it is", files
    for path, (_, content) in files.items():
        yield f"{path!r} to be run", {**files, path: (EXECUTABLE, content)}
        yield f"{path!r} longer", {**files, path: (PLAIN, content + b"\n")}
        yield f"no {path!r}", {name: one for name, one in files.items() if name != path}
        yield f"{path!r} a link", {**files, path: (LINK, b"c" if path != b"c" else b"a.bin")}
    yield "a link for sub", {
        **{name: one for name, one in files.items() if not name.startswith(b"sub")},
        b"sub": (LINK, b"."), b"b.bin": files[b"sub/b.bin"],
    }  # fmt: skip
    for attributes in (
        b"* -text", b"*.bin text", b"* text=auto", b"*.bin eol=lf", b"*.bin eol=crlf",
        b"*.bin ident",
        b"*.bin -ident", b"*.bin -text eol=crlf", b"*.bin working-tree-encoding=UTF-16",
        b"*.bin export-subst", b"*.bin diff=x", b"[attr]win eol=crlf\n*.bin win", b"*.bin crlf",
        b"*.bin -crlf eol=crlf", b"none ident",
    ):  # fmt: skip
        yield f"{attributes!r}", {**files, ATTRIBUTES: (PLAIN, attributes + b"\n")}
        yield f"{attributes!r} in sub", {**files, b"sub/" + ATTRIBUTES: (PLAIN, attributes + b"\n")}
