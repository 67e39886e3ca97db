"""Every hint that the product has is followed, or has a reason why no machine can.

What is followed is made in a small repository, told in a folder of it, pasted there, and is
gone when the command is given again. A hint without a row fails.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.data import fixture
from tests.e2e.hint_worlds import (
    INSTEAD,
    LISTS,
    NAMED,
    NEW,
    OPTION,
    UP,
    Row,
    Words,
    World,
    follow,
)
from tests.e2e.hints_not_followed import NOT_FOLLOWED
from tests.e2e.sealed import LEDGER, MODEL, SIGNERS, Sealed, checkpoint, text
from tests.e2e.test_hints_of_clusters import APART as OF_CLUSTERS
from tests.e2e.test_hints_of_lfs import FOLLOWED as OF_LFS
from tests.e2e.test_hints_of_machine import FOLLOWED as OF_MACHINE
from tests.e2e.test_hints_of_remotes import FOLLOWED as OF_REMOTES
from tests.e2e.test_hints_of_servers import APART
from tests.e2e.test_hints_of_servers import FOLLOWED as OF_SERVERS
from tests.e2e.test_told_hints import FOLLOWED as TOLD
from tests.kit.hints import hints
from tests.kit.pasting import HERE
from wtxtgit.checkpoint.inspect import inspect
from wtxtgit.model.tensor import ReadOptions

pytestmark = pytest.mark.slow


@pytest.fixture
def world(pastable: Sealed) -> World:
    return World(pastable.path)


# What makes each.


def is_there_already(world: World) -> Words:
    world.write(f"{HERE}/x.wtxt", text(1.0))
    world.write(f"{HERE}/x", b"other")
    return ["restore", "x.wtxt"]


def revisions_without_a_path(world: World) -> Words:
    return ["diff", "HEAD~1", "HEAD"]


def file_of_a_commit_alone(world: World) -> Words:
    world.put(2.0)
    return ["diff", f"HEAD:{MODEL}"]


def revision_and_a_file(world: World) -> Words:
    return ["diff", "HEAD", f"{UP}{MODEL}"]


def sealed_before_it_was_added(world: World) -> Words:
    world.write(f"{HERE}/{NEW}", text(3.0))
    return ["seal", "--staged"]


def delta_target_is_there(world: World) -> Words:
    for name, value in (("a", 1.0), ("b", 2.0)):
        world.write(f"{HERE}/{name}", checkpoint(value))
    assert world.said("delta", "make", "a", "b", "-o", "it s.wtxtdelta")[0] == 0
    world.write(f"{HERE}/it s", b"other")
    return ["delta", "apply", "a", "it s.wtxtdelta"]


def lost_beyond_recovery(world: World) -> Words:
    lines = text(3.0).splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith(b"ch ")) + 1
    world.write(f"{HERE}/lost.wtxt", b"".join(lines[:at] + lines[-1:]))
    return ["recover", "lost.wtxt", "-o", "out.safetensors"]


def delta_of_containers_as_plain(world: World) -> Words:
    for name, value in (("a", 1.0), ("b", 2.0)):
        world.write(f"{HERE}/{name}", checkpoint(value))
    return ["delta", "make", "--plain", "a", "b", "-o", "x.wtxtdelta"]


def signers_named_like_a_revision(world: World) -> Words:
    shutil.copy(world.path / SIGNERS, world.path / HERE / "trusted")
    return ["audit", "--trust-root", "trusted"]


def private_key_is_open(world: World) -> Words:
    (key,) = Path(os.environ["XDG_CONFIG_HOME"]).rglob("alice")
    key.chmod(0o644)
    world.put(2.0)
    return ["seal", "--staged", "--", UP + MODEL]


def keyring_is_open(world: World) -> Words:
    (key,) = Path(os.environ["XDG_CONFIG_HOME"]).rglob("alice")
    key.parent.chmod(0o777)
    world.put(2.0)
    return ["seal", "--staged", "--", UP + MODEL]


def not_added(world: World) -> Words:
    world.write(f"{HERE}/{NEW}", text(2.0))
    return ["seal", "--", NEW]


def not_canonical(world: World) -> Words:
    world.write("x", checkpoint(2.0))
    world.call("emit", "x", "-o", "y", "--gen", "7", "--build", "nightly")
    world.write(MODEL, (world.path / "y").read_bytes())
    world.add(MODEL)
    return ["seal", "--staged", "--", UP + MODEL]


def a_binary(world: World) -> Words:
    world.add_raw(MODEL, checkpoint(2.0))
    return ["seal", "--staged", "--", UP + MODEL]


def broken_ledger(world: World) -> Words:
    world.write(LEDGER, world.ledger() + b"meta\n")
    world.add(LEDGER)
    world.put(2.0)
    return ["seal", "--staged", "--", UP + MODEL]


def broken_signers(world: World) -> Words:
    world.write(SIGNERS, b"nonsense\n")
    world.add(SIGNERS)
    return ["seal", "--staged", "--", UP + SIGNERS]


def signers_that_are_nobody(world: World) -> Words:
    world.write(SIGNERS, b"# threshold: 1\n")
    world.add(SIGNERS)
    return ["seal", "--staged", "--", UP + SIGNERS]


def threshold_that_nobody_reaches(world: World) -> Words:
    world.set_threshold(2)
    return ["seal", "--staged", "--", UP + SIGNERS]


def signer_of_a_threshold(world: World) -> Words:
    world.add_signer("bob")
    world.call("signers", "threshold", "2")
    return ["signers", "remove", "bob@example.com"]


def first_signer_below_the_threshold(world: World) -> Words:
    world.write(SIGNERS, b"# threshold: 2\n")
    return ["signers", "add", "alice@example.com", "alice"]


def other_content_is_cosigned(world: World) -> Words:
    world.put(2.0)
    return ["seal", "--staged", "--cosign", "--", UP + MODEL]


def ledger_of_a_file_that_went(world: World) -> Words:
    for end in ("", ".wsum"):
        world.git("mv", MODEL + end, NEW + end)
    world.put(5.0)
    return ["seal", "--staged", "--", UP + MODEL]


def same_ledger_twice(world: World) -> Words:
    world.put(1.0, name=NEW)
    world.write(f"{NEW}.wsum", world.ledger())
    world.add(f"{NEW}.wsum")
    return ["seal", "--staged", "--", UP + NEW]


def an_edited_hook(world: World) -> Words:
    assert world.said("install", "--hooks")[0] == 0
    (hook,) = (world.path / ".git/hooks").glob("pre-commit")
    hook.write_bytes(hook.read_bytes() + b"echo mine\n")
    return ["install", "--hooks"]


def another_driver(world: World) -> Words:
    world.git("config", "filter.wtxt.process", "something else")
    return ["install", "--local"]


def nothing_is_named(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write(f"{HERE}/{NEW}", checkpoint(2.0))
    return ["add"]


def no_filter(world: World) -> Words:
    world.write(f"{HERE}/{NEW}", checkpoint(2.0))
    return ["add", "."]


def a_folder_as_pattern(world: World) -> Words:
    return ["track", "models/"]


def staged_alone_is_checked(world: World) -> Words:
    return ["check"]


def damaged_text(world: World) -> Words:
    world.write(f"{HERE}/it s.wtxt", text(2.0).replace(b"crc32c=", b"crc32c=f", 1))
    return ["restore", "it s.wtxt", "-o", "x"]


def tensor_of_a_damaged_text(world: World) -> Words:
    damaged_text(world)
    return ["inspect", "it s.wtxt", "first"]


def both_a_revision_and_a_file(world: World) -> Words:
    world.write(f"{HERE}/x.safetensors", text(2.0))
    world.add(f"{HERE}/x.safetensors")
    world.git("tag", "x.safetensors")
    return ["fetch", "x.safetensors"]


def name_that_is_there_twice(world: World) -> Words:
    path = world.write(f"{HERE}/it s.fold", fixture("fold/duplicate_names_a.fold"))
    names = [part.name for part in inspect(str(path), ReadOptions()).parts]
    return ["cat", "it s.fold", next(one for one in names if one and names.count(one) > 1)]


def damaged_container(world: World) -> Words:
    world.write(f"{HERE}/it s.safetensors", checkpoint(2.0)[:-5])
    return ["convert", "it s.safetensors", "x.npz"]


def no_such_generation(world: World) -> Words:
    return ["verify", f"{UP}{MODEL}@gen:99"]


def file_that_is_no_text(world: World) -> Words:
    world.write(f"{HERE}/it s", checkpoint(2.0))
    return ["restore", "it s", "-o", "x"]


def no_such_file_in_a_commit(world: World) -> Words:
    return ["verify", "HEAD:nothing"]


def no_such_signer(world: World) -> Words:
    return ["signers", "remove", "nobody"]


def no_such_key(world: World) -> Words:
    world.put(2.0)
    return ["seal", "--staged", "--key", "nobody", "--", UP + MODEL]


def no_such_revision(world: World) -> Words:
    return ["review", "nothing...main"]


def no_default_branch(world: World) -> Words:
    """As in the clone of a repository that was empty, once it has two branches."""
    bare = world.path.parent / "bare"
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare))
    world.git("remote", "add", "origin", str(bare))
    world.git("push", "-q", "origin", "HEAD", "HEAD:refs/heads/two")
    return ["review"]


def no_such_option(world: World) -> Words:
    return ["seal", "--nothing"]


def no_such_tensor(world: World) -> Words:
    world.write(f"{HERE}/it s", checkpoint(2.0))
    return ["inspect", "it s", "nothing"]


def named_a_little_wrong(world: World) -> Words:
    world.write(f"{HERE}/x", checkpoint(2.0))
    return ["cat", "x", "-o", "x.npy", "fist"]


def native_text(world: World) -> Words:
    api.dump({"w": np.ones(3, "f4")}, world.path / HERE / "it s.wtxt")
    return ["convert", "it s.wtxt", "x.safetensors"]


def a_pending_text(world: World) -> Words:
    world.write(f"{HERE}/x", checkpoint(2.0))
    assert world.said("emit", "x", "-o", "it s.wtxt", "--pending")[0] == 0
    return ["delta", "make", "it s.wtxt", "x", "-o", "d.wtxtdelta"]


def an_unsealed_pending_text(world: World, *, with_wsum: bool = False) -> Words:
    api.dump({"w": np.ones(3, "f4")}, world.path / HERE / "x.wtxt")
    pending = "it s.wtxt"
    assert world.said("restore", "x.wtxt", "-o", "x.npz")[0] == 0
    assert world.said("emit", "x.npz", "-o", pending, "--pending")[0] == 0
    if not with_wsum:
        (world.path / HERE / f"{pending}.root.wsum").unlink()
    world.add(f"{HERE}/{pending}")
    return ["seal", "--staged", "--", pending]


def a_pending_text_without_its_wsum(world: World) -> Words:
    """The WSUM is there, but not staged."""
    return an_unsealed_pending_text(world, with_wsum=True)


def a_conflict(world: World) -> Words:
    world.branch("topic")
    world.generation(2.0)
    world.switch("main")
    world.generation(3.0)
    world.run("git", "merge", "topic", ok=(1,))
    return ["seal", "--", UP + MODEL]


def no_ref_is_named(world: World) -> Words:
    world.git("checkout", "-q", "--detach")
    return ["migrate", "export"]


def what_fits_no_format(world: World) -> Words:
    api.dump({"w": np.ones(3, "f4"), "c": np.ones(3, "c16")}, world.path / HERE / "x.wtxt")
    assert world.said("restore", "x.wtxt", "-o", "x.npz")[0] == 0
    return ["convert", "x.npz", "x.gguf"]


def both_sides_of_a_ledger(world: World) -> Words:
    a_conflict(world)
    world.git("checkout", "--ours", "--", MODEL)
    world.add(MODEL)
    return ["seal", "--staged", "--", UP + MODEL]


def ledger_of_a_text_that_is_damaged(world: World) -> Words:
    world.write(MODEL, text(2.0).replace(b"crc32c=", b"crc32c=f", 1))
    world.add(MODEL)
    return ["seal", "--staged", "--", UP + MODEL]


def secret_key_as_signer(world: World) -> Words:
    (key,) = Path(os.environ["XDG_CONFIG_HOME"]).rglob("mallory")
    shutil.copy(key, world.path / HERE / "mallory")
    shutil.copy(key.with_name("mallory.pub"), world.path / HERE / "mallory.pub")
    return ["signers", "add", "mallory@example.com", "./mallory"]


def no_such_tensor_in_history(world: World) -> Words:
    return ["history", UP + MODEL, "--tensor", "nothing"]


def one_of_several_keys(world: World) -> Words:
    assert world.said("key", "new", "--no-passphrase", "--name", "another")[0] == 0
    return ["key", "show"]


def one_of_several_keys_signs(world: World) -> Words:
    assert world.said("key", "new", "--no-passphrase", "--name", "another")[0] == 0
    world.git("config", "--unset", "wtxtgit.signingKey")
    world.put(2.0)
    return ["seal", "--staged", "--", UP + MODEL]


def nothing_since_the_push(world: World) -> Words:
    world.generation(2.0)
    world.git("remote", "add", "origin", "elsewhere")
    world.git("update-ref", "refs/remotes/origin/main", "HEAD")
    return ["review"]


def key_of_no_signer(world: World) -> Words:
    assert world.said("key", "new", "--no-passphrase", "--name", "another")[0] == 0
    world.put(2.0)
    return ["seal", "--staged", "--key", "another", "--", UP + MODEL]


def nothing_to_resolve(world: World) -> Words:
    return ["resolve", UP + MODEL]


def one_side_alone_has_it(world: World) -> Words:
    oid = world.git("rev-parse", f"HEAD:{MODEL}").decode().strip()
    world.git("rm", "-q", "--cached", MODEL)
    world.git("update-index", "--index-info", stdin=f"100644 {oid} 2\t{MODEL}\n".encode())
    return ["resolve", UP + MODEL]


def ledger_to_resolve(world: World) -> Words:
    both_sides_of_a_ledger(world)
    return ["resolve", UP + LEDGER]


def edited_file(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write(MODEL, checkpoint(9.0))
    return ["checkout", "--", UP + MODEL]


def outside_of_a_repository(world: World) -> Words:
    shutil.rmtree(world.path / ".git")
    return ["status"]


ASIDE = "mv -i -- {} {}.old keeps it; or name another file with -o"
FOLLOWED = [
    (ASIDE, Row(is_there_already)),
    (ASIDE, Row(delta_target_is_there)),
    (
        "--partial writes what is left, with zeros for what is lost",
        Row(lost_beyond_recovery, OPTION, 1),
    ),
    (
        "--skip leaves out and lists what can't be kept",
        Row(what_fits_no_format, OPTION),
    ),
    ("to name a signers file, write ./{}", Row(signers_named_like_a_revision, NAMED)),
    ("git remote set-head --auto -- {}", Row(no_default_branch)),
    (
        "add another signer first, or lower it: wtxtgit signers threshold {}",
        Row(signer_of_a_threshold, rewrites=(SIGNERS,)),
    ),
    ("chmod 600 {}", Row(private_key_is_open)),
    ("chmod 700 {}", Row(keyring_is_open)),
    ("did you mean {}? {}", Row(named_a_little_wrong, NAMED)),
    ("git add -- {}", Row(not_added)),
    ("git add -- {}, then wtxtgit seal --staged", Row(sealed_before_it_was_added)),
    ("git add -- {}", Row(a_pending_text_without_its_wsum)),
    (
        "wtxtgit review {} shows all checkpoints, wtxtgit diff REV:PATH REV:PATH one",
        Row(revisions_without_a_path, INSTEAD),
    ),
    ("wtxtgit diff {} compares it with the work tree's", Row(file_of_a_commit_alone, INSTEAD)),
    ("wtxtgit diff {} shows what changed in it", Row(revision_and_a_file, INSTEAD)),
    ("git status lists the conflicts", Row(nothing_to_resolve, LISTS)),
    ("git status says why", Row(one_side_alone_has_it, LISTS)),
    ("git log --oneline --all lists the commits of this repository", Row(no_such_revision, LISTS)),
    ("git stash push -- :/{} sets it aside", Row(broken_signers)),
    (
        ("git stash push -- :/{} sets it aside, wtxtgit signers add PRINCIPAL KEY adds one"),
        Row(signers_that_are_nobody),
    ),
    ("git stash push -- {} sets it aside", Row(broken_ledger)),
    ("change to a repository, or run git init", Row(outside_of_a_repository)),
    (
        "git stash push --keep-index -- {} sets the change aside and writes the file",
        Row(edited_file),
    ),
    ("wtxtgit seal --reseal -- {}", Row(both_sides_of_a_ledger)),
    ("wtxtgit verify -- {}", Row(ledger_of_a_text_that_is_damaged, LISTS)),
    ("{}.pub", Row(secret_key_as_signer, NAMED)),
    ("mv -i -- {} {} keeps it; then try again", Row(an_edited_hook)),
    ("name a branch, or --everything takes all", Row(no_ref_is_named, OPTION, among_work=False)),
    ("wtxtgit add . adds this folder and all below it", Row(nothing_is_named, INSTEAD)),
    (
        (
            "wtxtgit check --staged checks the next commit, wtxtgit verify PATH files, "
            "wtxtgit audit commits"
        ),
        Row(staged_alone_is_checked, INSTEAD),
    ),
    ("wtxtgit finalize -- {}{}", Row(an_unsealed_pending_text)),
    (
        "wtxtgit finalize --inline -- {}",
        Row(a_pending_text, then=2, rewrites=("it s.wtxt", ".wsum")),
    ),
    (
        "wtxtgit inspect --parts {} shows them in their order; {} names the first",
        Row(name_that_is_there_twice, LISTS),
    ),
    ("wtxtgit inspect {} lists all tensors", Row(no_such_tensor_in_history, LISTS)),
    ("wtxtgit key list lists them", Row(one_of_several_keys, LISTS)),
    ("wtxtgit review HEAD~1 shows the last commit", Row(nothing_since_the_push, LISTS)),
    (
        "git config wtxtgit.signingKey NAME keeps one of {}; --key NAME names it once",
        Row(one_of_several_keys_signs, meant={"NAME": "alice"}),
    ),
    (
        (
            "wtxtgit signers list lists them; wtxtgit seal --countersign --key NAME signs with the "
            "key of one, wtxtgit signers add YOU@HOST NAME adds another"
        ),
        Row(key_of_no_signer, LISTS),
    ),
    ("wtxtgit seal --reseal -- {} joins its two sides", Row(ledger_to_resolve, then=3)),
    ("wtxtgit inspect {} lists all", Row(no_such_tensor, LISTS)),
    ("wtxtgit install", Row(no_filter)),
    ("wtxtgit install --{} --force replaces it", Row(another_driver)),
    ("wtxtgit install, then git add --renormalize -- {}", Row(a_binary)),
    ("wtxtgit install, then git add --renormalize -- {}", Row(not_canonical)),
    (
        "wtxtgit key list lists them; a file is given with a slash, as ./{}",
        Row(no_such_key, LISTS),
    ),
    ("wtxtgit log {} {} lists all", Row(no_such_generation, LISTS)),
    (
        "git ls-tree -r --full-tree --name-only {} lists its files",
        Row(no_such_file_in_a_commit, LISTS),
    ),
    ("wtxtgit resolve {} first", Row(a_conflict, LISTS)),
    ("wtxtgit emit -- {} makes its text", Row(file_that_is_no_text, LISTS)),
    ("wtxtgit restore -o FILE.npz -- {} writes its arrays", Row(native_text, INSTEAD)),
    ("wtxtgit seal --reseal -- {} starts a ledger of its own", Row(same_ledger_twice)),
    ("wtxtgit seal -- {} seals the current content", Row(other_content_is_cosigned)),
    ("wtxtgit seal -- {} {} seals both", Row(ledger_of_a_file_that_went)),
    ("wtxtgit signers list lists them", Row(no_such_signer, LISTS)),
    (
        "wtxtgit signers threshold {}, then git add -- :/{}",
        Row(threshold_that_nobody_reaches, rewrites=(SIGNERS,)),
    ),
    (
        "wtxtgit signers threshold {}; raise it when the others are added",
        Row(first_signer_below_the_threshold, rewrites=(SIGNERS,)),
    ),
    ("wtxtgit track -- {}", Row(a_folder_as_pattern, INSTEAD)),
    (
        "wtxtgit recover -- {} shows what can be mended, or healed from other copies",
        Row(damaged_text, LISTS),
    ),
    ("wtxtgit verify -- {} lists all problems", Row(tensor_of_a_damaged_text, LISTS)),
    ("./{} names the file", Row(both_a_revision_and_a_file, NAMED)),
    ("wtxtgit verify -- {} lists all problems", Row(damaged_container, LISTS)),
    ("{} --help", Row(no_such_option, LISTS)),
    ("leave out --plain", Row(delta_of_containers_as_plain, OPTION)),
]


@pytest.mark.parametrize(("hint", "row"), FOLLOWED, ids=[row.make.__name__ for _, row in FOLLOWED])
def test_it_ends_what_it_speaks_of(hint: str, row: Row, world: World) -> None:
    follow(world, hint, row)


def test_every_hint_has_a_row() -> None:
    tables = (FOLLOWED, TOLD, OF_LFS, OF_MACHINE, OF_REMOTES, OF_SERVERS)
    followed = {hint for table in tables for hint, _ in table} | {*APART, *OF_CLUSTERS}
    others = [hint for listed in NOT_FOLLOWED.values() for hint in listed]
    assert len(others) == len(set(others))
    assert followed.isdisjoint(others)
    assert followed | set(others) == set(hints())
