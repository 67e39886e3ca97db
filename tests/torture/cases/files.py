"""Commands that write checkpoints, texts and what is made of them."""

from __future__ import annotations

import io
import shutil

import numpy as np
from pyrage import x25519

from tests.cli.test_reseal import change
from tests.data import FIXTURES
from tests.kit import safetensors
from tests.torture.cases.places import IDENTITY, Killed, Place
from tests.torture.cases.starts import (
    MODEL,
    NEW,
    OLD,
    OTHER,
    branches,
    changed,
    conflict,
    damaged,
    missing,
    plain,
    texts,
)
from wtxtgit.containers.aero import read, reseal
from wtxtgit.model.tensor import ReadOptions

TARS = tuple(sorted(tar.name for tar in (FIXTURES / "taridx/enforced_a").glob("*.tar")))
_OPENED = ("-i", f"../{IDENTITY}")


def pending(place: Place) -> None:
    changed(place)
    place.call("emit", MODEL, "--pending", "-o", "model.wtxt")


def pending_alone(place: Place) -> None:
    pending(place)
    (place.repo / "model.wtxt.root.wsum").unlink()


def delta(place: Place) -> None:
    changed(place)
    place.call("delta", "make", OTHER, MODEL, "-o", "change.wtxtdelta")


def folds(place: Place) -> None:
    plain(place)
    names = {"pair_zstd3_v1": "base", "pair_npz_v1": "ours", "pair_zstd3_v2": "theirs"}
    names["none_rs16_flipped_a"] = "flipped"
    for name, to in names.items():
        shutil.copy(FIXTURES / f"fold/{name}.fold", place.repo / f"{to}.fold")
    shutil.copy(place.repo / "base.fold", place.repo / "ours.fold")


def aeroset(place: Place) -> None:
    """A set of which a part has changed, and its index has not."""
    plain(place)
    folder = FIXTURES / "aero/aeroset_multi_a"
    for file in folder.iterdir():
        shutil.copy(file, place.repo)
    place.commit()
    part = sorted(place.repo.glob("part-*.aero"))[-1]
    container = read.read(memoryview(part.read_bytes()))
    first = next(one.name for one in reseal.entries(container, ReadOptions()) if one.tensor)
    change(part, first)


def aeroset_staged(place: Place) -> None:
    aeroset(place)
    place.git("add", ".")


def tars(place: Place) -> None:
    plain(place)
    for tar in (FIXTURES / "taridx/enforced_a").glob("*.tar"):
        shutil.copy(tar, place.repo)
    place.write("all.taridx", b"what was there")


def folder_of_texts(place: Place) -> None:
    """A folder with a text of each checkpoint, one of which is another one by now."""
    plain(place)
    (place.repo / "texts").mkdir()
    place.call("emit", MODEL, OTHER, "-o", "texts/")
    place.write(MODEL, NEW)


def holed(place: Place) -> None:
    """A text without one of its lines, which stand nowhere else."""
    plain(place)
    place.write("lost.safetensors", safetensors(*(value / 7 for value in range(3000))))
    place.call("emit", "lost.safetensors", "--rows-per-chunk", "500", "-o", "lost.wtxt")
    lines = (place.repo / "lost.wtxt").read_bytes().splitlines(keepends=True)
    at = max(range(len(lines)), key=lambda number: lines[number].startswith(b"ch ix=0 "))
    del lines[at + 3]
    place.write("lost.wtxt", b"".join(lines))
    place.write("lost.safetensors", OLD)


def cut_off(place: Place) -> None:
    """The start of a checkpoint with two tensors."""
    plain(place)
    whole = io.BytesIO()
    np.savez(whole, a=np.arange(3000.0), b=np.arange(5000.0))
    place.write("half.npz", whole.getvalue()[:40000])
    place.write("whole.npz", b"what was there")


def encrypted(place: Place) -> None:
    """Two texts for one recipient, and two recipients in the list; another text of the first."""
    plain(place)
    secret, other = x25519.Identity.generate(), x25519.Identity.generate()
    (place.top / IDENTITY).touch(mode=0o600)
    (place.top / IDENTITY).write_text(f"{secret}\n")
    place.write(".wtxt/recipients", f"{secret.to_public()}\n".encode())
    for name in (MODEL, OTHER):
        place.call("encrypt", name, "-o", f"{name}.wtxt.age")
    place.commit()
    place.write(".wtxt/recipients", f"{secret.to_public()}\n{other.to_public()}\n".encode())
    place.write(MODEL, NEW)
    place.write("opened.wtxt", b"what was there")


def two_conflicts(place: Place) -> None:
    """Two branches that change the same two tensors, and their merge."""
    plain(place)
    place.write(
        ".gitattributes",
        (place.repo / ".gitattributes").read_bytes()
        + b"*.npz filter=wtxt diff=wtxt merge=wtxt -text\n",
    )
    values = {"base": 0.0, "topic": 1.0, "main": 2.0}
    for branch, value in values.items():
        place.git("checkout", "-q", "-B", branch, *(() if branch == "base" else ("base",)))
        content = io.BytesIO()
        np.savez(content, a=np.full(300, value), b=np.full(300, value))
        place.write("two.npz", content.getvalue())
        place.call("add", "two.npz")
        place.commit()
    place.git("merge", "-q", "topic", ok=(1,))


FILES = (
    Killed("add", changed, ("add", ".")),
    Killed("checkout", missing, ("checkout",)),
    Killed("checkout REV", branches, ("checkout", "topic", "--", MODEL)),
    Killed("status", changed, ("status",)),
    Killed("diff", branches, ("diff", f"base:{MODEL}", f"topic:{MODEL}")),
    Killed("emit -o", texts, ("emit", MODEL, "-o", "other.wtxt")),
    Killed("emit -o FOLDER", folder_of_texts, ("emit", MODEL, OTHER, "-o", "texts/")),
    Killed("emit --pending", pending, ("emit", OTHER, "--pending", "-o", "model.wtxt")),
    Killed("restore -o", texts, ("restore", "model.wtxt", "-o", OTHER)),
    Killed("finalize", pending_alone, ("finalize", "model.wtxt")),
    Killed("finalize --inline", pending, ("finalize", "model.wtxt", "--inline"), over=3),
    Killed("recover -o", texts, ("recover", "model.wtxt", "-o", OTHER)),
    Killed("recover: container", cut_off, ("recover", "half.npz", "-o", "whole.npz"), code=1),
    Killed("recover --partial", holed,
           ("recover", "lost.wtxt", "-o", "lost.safetensors", "--partial"), code=1),
    Killed("recover --as-commit", damaged, ("recover", MODEL, "--as-commit")),
    Killed("recover --ecc", folds, ("recover", "--ecc", "flipped.fold")),
    Killed("recover --ecc -o", folds, ("recover", "--ecc", "flipped.fold", "-o", "ours.fold")),
    Killed("convert", changed, ("convert", MODEL, OTHER)),
    Killed("convert --max-shard", changed,
           ("convert", MODEL, "set.safetensors", "--max-shard", "4KiB")),
    Killed("delta make", delta, ("delta", "make", OTHER, MODEL, "-o", "change.wtxtdelta")),
    Killed("delta apply", delta, ("delta", "apply", OTHER, "change.wtxtdelta", "-o", MODEL)),
    Killed("encrypt", encrypted, ("encrypt", MODEL, "-o", f"{MODEL}.wtxt.age"), is_random=True),
    Killed("decrypt", encrypted,
           ("decrypt", f"{MODEL}.wtxt.age", *_OPENED, "-o", "opened.wtxt")),
    Killed("decrypt --restore", encrypted,
           ("decrypt", f"{MODEL}.wtxt.age", *_OPENED, "--restore", "-o", MODEL)),
    Killed("rekey", encrypted, ("rekey", *_OPENED), is_random=True),
    Killed("repack", folds, ("repack", "base.fold", "--compression", "none", "-o", "ours.fold")),
    Killed("merge-file", folds, ("merge-file", "base.fold", "ours.fold", "theirs.fold")),
    Killed("cat -o", changed, ("cat", MODEL, "w", "-o", "one.npy")),
    Killed("reseal", aeroset, ("reseal", "model.aeroset.json")),
    Killed("reseal --stage", aeroset_staged, ("reseal", "--stage", "model.aeroset.json")),
    Killed("taridx build", tars, ("taridx", "build", *TARS, "-o", "all.taridx")),
    Killed("review -o", branches,
           ("review", "base..topic", "--format", "html", "-o", "review.html")),
    Killed("resolve", conflict, ("resolve", MODEL, "--strategy", "theirs"), over=3),
    Killed("resolve --take", two_conflicts,
           ("resolve", "two.npz", "--take", "a.npy/data=theirs"), code=1),
)  # fmt: skip
