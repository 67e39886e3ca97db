"""Hints of what ends well, and of `doctor`: followed, as tests/e2e/test_every_hint.py does."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_reseal import change, set_of_two
from tests.data import FIXTURES
from tests.e2e.hint_worlds import (
    DOCTOR,
    INSTEAD,
    LISTS,
    NEW,
    UP,
    Row,
    Words,
    World,
    follow,
)
from tests.e2e.sealed import LEDGER, MODEL, OTHER, Sealed, checkpoint, text
from tests.kit import Repo
from tests.kit.pasting import HERE
from tests.review.repos import file
from wtxtgit.containers.aero import read
from wtxtgit.setup.hooks import SENDING

pytestmark = pytest.mark.slow

DETACHED = "it s.npz"
TRACKED = "*.safetensors filter=wtxt diff=wtxt merge=wtxt -text\n"


@pytest.fixture
def world(pastable: Sealed) -> World:
    return World(pastable.path)


def damaged() -> bytes:
    """A text with a wrong character of its data."""
    lines = text(2.0).splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith(b"ch ")) + 1
    lines[at] = (b"B" if lines[at][:1] == b"A" else b"A") + lines[at][1:]
    return b"".join(lines)


def raw_binary_was_committed(world: World) -> Words:
    world.add_raw(MODEL, checkpoint(2.0))
    world.commit("raw")
    assert world.said("install", "--local")[0] == 0
    return DOCTOR


def signers_changed(world: World) -> Words:
    return ["signers", "add", "bob@example.com", "bob"]


def other_attributes_win(world: World) -> Words:
    world.write("nested/.gitattributes", "*.safetensors -filter\n")
    world.write(f"nested/{NEW}", checkpoint(2.0))
    world.add("nested")
    return DOCTOR


def moved_onto_another_one(world: World) -> Words:
    world.generation(2.0, name=OTHER)
    world.git("mv", "-f", MODEL, OTHER)
    world.git("mv", "-f", LEDGER, f"{OTHER}.wsum")
    return ["seal", "--staged"]


def two_ledgers_of_one_content(world: World) -> Words:
    world.generation(1.0, name=OTHER)
    world.git("mv", MODEL, NEW)
    world.git("rm", "-q", OTHER)
    return ["seal", "--staged"]


def one_ledger_of_two_files(world: World) -> Words:
    world.git("mv", MODEL, NEW)
    world.put(1.0, name="another.safetensors")
    return ["seal", "--staged"]


def attributes_outside_of_a_sparse_checkout(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write("nested/.gitattributes", TRACKED)
    world.write(f"nested/deep/{NEW}", checkpoint(2.0))
    world.add("nested")
    world.commit("nested")
    world.git("sparse-checkout", "set", "--no-cone", "/*", "!/nested/.gitattributes")
    (world.path / HERE).mkdir(exist_ok=True)
    return DOCTOR


def untracked_outside_of_a_sparse_checkout(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    assert world.said("track", "*.npz")[0] == 0
    world.write(f"{HERE}/nested/x.npz", checkpoint(2.0))
    world.add(HERE)
    world.commit("nested")
    world.git("sparse-checkout", "set", "--no-cone", "/*", f"!/{HERE}/nested/")
    return ["untrack", "*.npz"]


def left_by_a_killed_process(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write(".wtxtgit-0123456789abcdef", b"")
    return DOCTOR


def better_settings(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.git("config", "core.bigFileThreshold", "1m")
    world.write(f"{HERE}/x.fold", bytes(2 << 20))
    return ["track", "*.fold"]


def merged_parts(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    set_of_two(world)
    return ["git", "merge", "-q", "--no-edit", "topic"]


def part_in_conflict(world: World) -> Words:
    merged_parts(world)
    part = world.path / "set/part-000.aero"
    change(part, read.read(memoryview(part.read_bytes())).entries[0].name, by=2)
    world.git("commit", "-qam", "the same rows")
    world.run("git", "merge", "topic", ok=(1,))
    return ["reseal", f"{UP}set"]


def more_findings_than_are_shown(world: World) -> Words:
    for number in range(51):
        world.put(float(number), name=f"{number}.safetensors")
    world.commit("nobody sealed these")
    world.git("branch", "topic")
    world.git("checkout", "-q", "HEAD^")
    bare = world.path.parent / "bare"
    world.git("init", "-q", "--bare", str(bare))
    world.git("remote", "add", "origin", str(bare))
    assert world.said("install", "--local", "--hooks")[0] == 0
    return ["git", "push", "-q", "origin", "topic"]


def many_values_of_others(world: World) -> Words:
    for key in ("process", "clean", "smudge"):
        world.git("config", f"filter.wtxt.{key}", "something else")
    return DOCTOR


def a_hook_that_git_ignores(world: World) -> Words:
    assert world.said("install", "--local", "--hooks")[0] == 0
    (world.path / ".git/hooks/pre-commit").chmod(0o644)
    return DOCTOR


def two_hooks_of_others(world: World) -> Words:
    for name in ("pre-commit", "pre-commit.before-wtxtgit"):
        world.write(f".git/hooks/{name}", "#!/bin/sh\n").chmod(0o755)
    return ["install", "--local", "--hooks"]


def hooks_in_another_folder(world: World) -> Words:
    assert world.said("install", "--local", "--hooks")[0] == 0
    world.git("config", "core.hooksPath", "it s")
    return DOCTOR


def hooks_that_are_switched_off(world: World) -> Words:
    hooks_in_another_folder(world)
    world.git("config", "core.hooksPath", "/dev/null")
    return DOCTOR


def install_outside_of_a_repository(world: World) -> Words:
    shutil.rmtree(world.path / ".git")
    return ["install", "--local"]


def text_in_the_work_tree(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write(MODEL, text(1.0))
    return DOCTOR


def damaged_text_in_a_checkout(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    name = f"{HERE}/it s.safetensors"
    world.add_raw(name, damaged())
    (world.path / name).unlink()
    return ["git", "checkout-index", "-f", "--", "it s.safetensors"]


def recovered_and_not_written(world: World) -> Words:
    world.write(f"{HERE}/it s.wtxt", damaged())
    return ["recover", "it s.wtxt"]


def recovered_and_not_committed(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.add_raw(f"{HERE}/it s.safetensors", damaged())
    world.commit("damaged")
    world.git("checkout", "--", ".")
    return ["recover", "it s.safetensors"]


def compressed_and_tracked(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    assert world.said("track", "*.npz")[0] == 0
    packed = io.BytesIO()
    np.savez_compressed(packed, w=np.zeros(1000))
    world.write(f"{HERE}/it s.npz", packed.getvalue())
    world.add(HERE)
    return DOCTOR


def a_false_signature(world: World) -> Words:
    world.put(2.0)
    world.seal(MODEL)
    world.falsify_signature()
    return ["seal", "--countersign", "--", UP + MODEL]


def generation_of_what_nobody_sealed(world: World) -> Words:
    world.put(2.0, name=NEW)
    world.commit("not sealed")
    return ["verify", f"{UP}{NEW}@latest"]


def ledger_that_another_place_has(world: World) -> Words:
    for end in ("", ".wsum"):
        world.git("mv", MODEL + end, NEW + end)
    world.git("rm", "-q", "--cached", NEW)
    (world.path / NEW).unlink()
    return ["seal", "--staged", "--", UP + NEW]


def member_of_other_shards(world: World) -> Words:
    shutil.copytree(FIXTURES / "taridx" / "dots_a", world.path / HERE / "it s")
    shutil.copytree(FIXTURES / "taridx" / "collisions_a", world.path / HERE / "others")
    shard = min((world.path / HERE / "it s").glob("*.tar"))
    with tarfile.open(shard) as tar:
        name = next(member.name for member in tar if member.isfile())
    return ["taridx", "cat", "it s/train.taridx", name, "--shards", "others"]


def emit_of_a_damaged_text(world: World) -> Words:
    world.write(f"{HERE}/it s.wtxt", damaged())
    return ["emit", "it s.wtxt", "-o", "x.wtxt", "--gen", "7"]


def form_that_attributes_do_not_say(world: World) -> Words:
    detached_form_is_another(world)
    assert world.said("track", "--detached", "*.safetensors")[0] == 0
    return DOCTOR


def detached_form_is_another(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    assert world.said("track", "*.safetensors")[0] == 0
    world.write(f"{HERE}/{NEW}", file({"w": np.arange(40_000.0)}))
    world.add(HERE)
    world.commit("whole")
    return ["track", "--detached", "*.safetensors"]


def detached(world: World) -> Path:
    """A detached text whose data a remote has, too; gives the folder of the store."""
    assert world.said("install", "--local")[0] == 0
    assert world.said("track", "--detached", "*.npz")[0] == 0
    content = io.BytesIO()
    np.savez(content, w=np.arange(40_000.0))
    world.write(f"{HERE}/{DETACHED}", content.getvalue())
    world.add(HERE)
    world.seal()
    world.commit("detached")
    world.settle(f"{HERE}/{DETACHED}")
    bare = world.path.parent / "bare"
    world.git("init", "-q", "--bare", str(bare))
    world.git("remote", "add", "origin", str(bare))
    world.git("config", "wtxtgit.fetch", "false")
    assert world.said("push")[0] == 0
    return world.path / ".git" / "wtxt" / "store"


def far_away(world: World) -> None:
    shutil.rmtree(detached(world))


def standing_as_text(world: World) -> None:
    far_away(world)
    checked_out_anew(world)
    world.git("checkout", "-q", "--", f"{HERE}/{DETACHED}")


def damaged_store(world: World) -> None:
    pack = max(detached(world).rglob("*.pack"), key=lambda file: file.stat().st_size)
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.write_bytes(content)


def checked_out_anew(world: World) -> Words:
    (world.path / HERE / DETACHED).unlink()
    return ["git", "checkout", "--", DETACHED]


def far_from_a_checkout(world: World) -> Words:
    far_away(world)
    return checked_out_anew(world)


def damaged_for_a_checkout(world: World) -> Words:
    damaged_store(world)
    return checked_out_anew(world)


def far_from_a_seal(world: World) -> Words:
    store = detached(world)
    (world.path / HERE / f"{DETACHED}.wsum").unlink()
    world.git("rm", "-q", "--cached", f"{HERE}/{DETACHED}.wsum")
    shutil.rmtree(store)
    return ["seal", "--staged", "--", DETACHED]


def far_from_a_command(world: World) -> Words:
    far_away(world)
    return ["restore", f"HEAD:{HERE}/{DETACHED}", "-o", "x.npz"]


def far_from_another_form(world: World) -> Words:
    standing_as_text(world)
    return ["track", "*.npz"]


def far_from_a_doctor(world: World) -> Words:
    standing_as_text(world)
    return DOCTOR


def left_behind_by_git_push(world: World) -> Words:
    detached(world)
    return DOCTOR


def tracked_without_a_hook(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    return ["track", "--detached", "*.npz"]


def far_from_plain_files(world: World) -> Words:
    standing_as_text(world)
    return ["untrack", "*.npz"]


def store_that_is_verified(world: World) -> Words:
    damaged_store(world)
    return ["store", "verify"]


def damaged_for_a_command(world: World) -> Words:
    damaged_store(world)
    return ["restore", f"HEAD:{HERE}/{DETACHED}", "-o", "x.npz"]


def damaged_for_a_reader(world: World) -> Words:
    damaged_store(world)
    return ["cat", f"HEAD:{HERE}/{DETACHED}", "w", "-o", "x.npy"]


def store_that_is_repacked(world: World) -> Words:
    damaged_store(world)
    return ["store", "repack"]


def far_from_a_push(world: World) -> Words:
    far_away(world)
    assert world.said("install", "--local", "--hooks")[0] == 0
    world.git("init", "-q", "--bare", "--", str(world.path.parent / "empty"))
    return ["git", "push", "-q", str(world.path.parent / "empty"), "HEAD:refs/heads/main"]


def a_shallow_clone(world: World) -> Words:
    bare = world.path.parent / "bare"
    for branch in ("topic", "main"):
        world.branch(branch, "main")
        world.generation(2.0 if branch == "topic" else 3.0)
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare))
    shutil.rmtree(world.path)
    clone = ("git", "clone", "-q", "--depth=1", "--no-single-branch", bare.as_uri())
    Repo(world.path.parent).run(*clone, world.path)
    (world.path / HERE).mkdir()
    return ["review", "origin/main...origin/topic"]


def a_line_without_an_attribute(world: World) -> Words:
    assert world.said("install", "--local")[0] == 0
    world.write("a nested/.gitattributes", "*.safetensors filter=wtxt diff=wtxt merge=wtxt\n")
    world.add("a nested")
    return DOCTOR


FOLLOWED = [
    ("git add --renormalize -- {}, then commit{}", Row(raw_binary_was_committed)),
    ("git add -- :/.wtxt, then wtxtgit seal --staged, then git commit", Row(signers_changed)),
    ("git check-attr -a -- {} shows them", Row(other_attributes_win, LISTS)),
    ("git stash push -- {}, then wtxtgit seal --staged -- {}", Row(moved_onto_another_one)),
    ("git mv -- {} {} chooses the first", Row(two_ledgers_of_one_content)),
    ("git mv -- {} {} gives it to that file", Row(one_ledger_of_two_files)),
    ("{}git sparse-checkout add {}", Row(attributes_outside_of_a_sparse_checkout)),
    ("git sparse-checkout disable", Row(untracked_outside_of_a_sparse_checkout)),
    ("wtxtgit audit {} lists them", Row(more_findings_than_are_shown, LISTS)),
    (
        "wtxtgit doctor --fix removes it",
        Row(left_by_a_killed_process, rewrites=(".wtxtgit-0123456789abcdef",)),
    ),
    ("wtxtgit doctor --fix sets that for this repository", Row(better_settings)),
    (
        "wtxtgit reseal --stage -- {}",
        Row(merged_parts, again=("verify", f"{UP}set"), among_work=False, rewrites=(".json",)),
    ),
    ("wtxtgit resolve {} shows it", Row(part_in_conflict, LISTS)),
    (
        "wtxtgit taridx verify {} --shards {} lists all problems",
        Row(member_of_other_shards, LISTS),
    ),
    ("{}wtxtgit install{}{}", Row(many_values_of_others)),
    ("mv -i -- {} {}.old sets that one aside", Row(two_hooks_of_others)),
    ("wtxtgit doctor --fix", Row(a_hook_that_git_ignores)),
    (
        (
            "wtxtgit install{} --hooks --force puts ours there too, and keeps those of others; or "
            "call wtxtgit hook {} from the {} hook there, and so on"
        ),
        Row(hooks_in_another_folder),
    ),
    ("git config --{} --unset-all core.hooksPath", Row(hooks_that_are_switched_off)),
    (
        "wtxtgit install --global sets up all repositories",
        Row(install_outside_of_a_repository, INSTEAD),
    ),
    ("wtxtgit install writes the files again", Row(text_in_the_work_tree)),
    (
        "wtxtgit recover -- {} shows what can be mended, or healed from other copies",
        Row(damaged_text_in_a_checkout, LISTS),
    ),
    ("wtxtgit recover -o OUT -- {} writes it", Row(recovered_and_not_written, LISTS)),
    (
        "wtxtgit recover --as-commit -- {} commits it and writes the file; -o OUT writes another",
        Row(recovered_and_not_committed, among_work=False),
    ),
    ("wtxtgit repack {} stores it uncompressed", Row(compressed_and_tracked)),
    ("wtxtgit seal --reseal -- {} continues without it", Row(a_false_signature)),
    ("wtxtgit seal --staged -- {}, then git commit", Row(generation_of_what_nobody_sealed)),
    (
        "git mv -- {} {}, then wtxtgit seal --staged -- {}; or put the file back",
        Row(ledger_that_another_place_has, again=("check", "--staged")),
    ),
    ("wtxtgit {} -- {}", Row(emit_of_a_damaged_text, LISTS)),
    ("{}, with .gitattributes in one commit", Row(detached_form_is_another)),
    ("{}, then commit", Row(form_that_attributes_do_not_say)),
    (
        "git fetch --unshallow fetches the whole history; BASE..HEAD needs no common commit",
        Row(a_shallow_clone),
    ),
    ("wtxtgit fetch {}, and writes the files", Row(far_from_a_checkout)),
    (
        "wtxtgit fetch sets the damaged pack aside, and fetches its data again",
        Row(damaged_for_a_checkout),
    ),
    ("wtxtgit fetch fetches the missing data", Row(far_from_a_seal)),
    (
        "wtxtgit fetch, in the file's repository, fetches its payload",
        Row(far_from_a_command),
    ),
    ("wtxtgit fetch fetches their data, and writes the files", Row(far_from_a_doctor)),
    (SENDING, Row(left_behind_by_git_push)),
    (SENDING, Row(tracked_without_a_hook)),
    ("wtxtgit fetch, then {}", Row(far_from_another_form)),
    ("wtxtgit fetch", Row(far_from_plain_files)),
    (
        "wtxtgit store repack sets damaged packs aside, then wtxtgit fetch fetches the lost chunks",
        Row(store_that_is_verified, ends=(0, 1)),
    ),
    (
        "wtxtgit store repack sets damaged packs aside, then wtxtgit fetch fetches the lost chunks",
        Row(damaged_for_a_command, ends=(0, 1)),
    ),
    (
        "wtxtgit store repack sets damaged packs aside, then wtxtgit fetch fetches the lost chunks",
        Row(damaged_for_a_reader, ends=(0, 1)),
    ),
    ("wtxtgit fetch fetches lost chunks from the remote", Row(store_that_is_repacked)),
    ("git add --renormalize -- {} puts the data into the store again", Row(far_from_a_push)),
    ("{}wtxtgit track{} -- {}", Row(a_line_without_an_attribute)),
]


@pytest.mark.parametrize(("hint", "row"), FOLLOWED, ids=[row.make.__name__ for _, row in FOLLOWED])
def test_it_ends_what_it_speaks_of(hint: str, row: Row, world: World) -> None:
    follow(world, hint, row)
