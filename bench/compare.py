"""Diffs, deltas and merges of files and of their texts."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from bench.data import arrays_of, changed_chunks, changed_rows, model_of, text_of
from bench.floors import Command, comparing, hashing, merging
from bench.measure import (
    MIB,
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    command,
    race,
)


def diffs(place: Place, size: int, runs: int) -> list[Row]:
    """A diff of two files, one row in a hundred changed, and of their texts."""
    a = model_of(place, size)
    b = changed_rows(a, place.top / "changed.safetensors")
    texts = [text_of(place, path) for path in (a, b)]
    # Of what is the same on both sides nothing is decoded.
    again = place.top / "again.wtxt"
    again.write_bytes(texts[0].read_bytes())
    floor = "hash both files, compare with numpy"
    listed: dict[str, Command] = {
        floor: comparing(a, b),
        "diff": (*WTXTGIT, "diff", a, b),
        "diff of equal files": (*WTXTGIT, "diff", a, a),
        "diff of the texts": (*WTXTGIT, "diff", *texts),
        "diff of equal texts": (*WTXTGIT, "diff", texts[0], again),
    }
    nbytes = a.stat().st_size + b.stat().st_size
    found = race(_entrants(place, listed, floor, nbytes, f"2 x {size} MiB"), runs)
    again.unlink()
    return found


def deltas(place: Place, size: int, runs: int) -> list[Row]:
    """A delta of two files, 1% of whose chunks changed, against hashing both of them."""
    base = model_of(place, size)
    target = changed_chunks(base, place.top / "target.safetensors")
    delta, back = place.top / "target.wtxtdelta", place.top / "back.safetensors"
    command(place, *WTXTGIT, "delta", "make", base, target, "-o", delta)
    text = delta.read_bytes()
    carried = [chunk.split(b"\n", 1)[1] for chunk in text.split(b"\nch ")[1:]]
    armored = sum(len(chunk.partition(b"endch\n")[0]) for chunk in carried)
    note = (
        f"2 x {size} MiB, {len(carried)} chunks changed; "
        f"the delta is {len(text) / armored:.4f} of their armored lines"
    )
    floor = "hashlib over both files"
    listed: dict[str, Command] = {
        floor: hashing(base, target),
        "delta make": (*WTXTGIT, "delta", "make", base, target, "-o", delta),
        "delta apply": (*WTXTGIT, "delta", "apply", base, delta, "-o", back),
    }
    nbytes = base.stat().st_size + target.stat().st_size
    found = race(_entrants(place, listed, floor, nbytes, note), runs)
    if back.read_bytes() != target.read_bytes():
        raise BenchError("the file that the delta makes differs")
    for path in (target, delta, back):
        path.unlink()
    return found


def merges(place: Place, size: int, runs: int) -> list[Row]:
    """A merge of two sides that changed one row in a hundred each, apart from each other."""
    base = model_of(place, size)
    ours = changed_rows(base, place.top / "ours.safetensors", part=0)
    theirs = changed_rows(base, place.top / "theirs.safetensors", part=1)
    files = (base, ours, theirs)
    texts = [text_of(place, path) for path in files]
    out = place.top / "merged"
    floor = "merge the three with numpy"
    merge = (*WTXTGIT, "merge-file")
    listed: dict[str, Command] = {
        floor: merging(*files, out),
        "merge-file": (*merge, *files, "-o", out),
        "merge-file of the texts": (*merge, *texts, "-o", out),
    }
    nbytes = sum(path.stat().st_size for path in files)
    found = race(_entrants(place, listed, floor, nbytes, f"3 x {size} MiB"), runs)
    for path in (ours, theirs, out, *texts[1:]):
        path.unlink()
    return found


def git_diffs(place: Place, size: int, runs: int) -> list[Row]:
    """`git diff` of two commits: through the driver, as text, and what git takes by itself."""
    repo = place.folder("diffs")
    command(place, "git", "init", "-q", "-b", "main", repo)
    command(place, *WTXTGIT, "install", "--local", cwd=repo)
    command(place, *WTXTGIT, "track", "*.safetensors", cwd=repo)
    model = repo / "model.safetensors"
    model.write_bytes(model_of(place, size).read_bytes())
    for number in (1, 2):
        command(place, "git", "add", ".", cwd=repo)
        command(place, "git", "commit", "-q", "-m", str(number), cwd=repo)
        if number == 1:
            changed_rows(model, model)
    sides = "HEAD~1", "HEAD"
    floor = "git diff --no-ext-diff"
    listed: dict[str, Command] = {
        floor: ("git", "diff", "--no-ext-diff", *sides),
        "git diff, a driver that does nothing": (
            "git", "-c", "diff.wtxt.command=true", "diff", *sides,
        ),
        "git diff": ("git", "diff", *sides),
        "wtxtgit diff of the blobs": (
            *WTXTGIT, "diff", *(f"{side}:{model.name}" for side in sides),
        ),
        "wtxtgit review --no-cache": (*WTXTGIT, "review", "...".join(sides), "--no-cache"),
        "wtxtgit review, again": (*WTXTGIT, "review", "...".join(sides)),
    }  # fmt: skip
    nbytes = 2 * model.stat().st_size
    note = f"2 x {size} MiB"
    # What a review finds is kept, so that the next one has it.
    command(place, *WTXTGIT, "review", "...".join(sides), cwd=repo)
    found = race(_entrants(place, listed, floor, nbytes, note, repo), runs)
    shutil.rmtree(repo)
    return found


def git_diff_of_many(place: Place, files: int, runs: int) -> list[Row]:
    """`git diff` of many small files: all in one process, each driver by itself, and git's part."""
    repo = place.folder("many")
    command(place, "git", "init", "-q", "-b", "main", repo)
    command(place, *WTXTGIT, "install", "--local", cwd=repo)
    command(place, *WTXTGIT, "track", "*.npy", cwd=repo)
    for number in (1, 2):
        for file in range(files):
            np.save(repo / f"{file}.npy", np.full(4, number))
        command(place, "git", "add", ".", cwd=repo)
        command(place, "git", "commit", "-q", "-m", str(number), cwd=repo)
    sides = "HEAD~1", "HEAD"
    alone = f"GIT_DIFF_PATH_TOTAL=1 {shlex.join(WTXTGIT)} diff-driver --"
    floor = "git diff, each driver by itself"
    listed: dict[str, Command] = {
        floor: ("git", "-c", f"diff.wtxt.command={alone}", "diff", *sides),
        "git diff": ("git", "diff", *sides),
        "git diff, a driver that does nothing": (
            "git", "-c", "diff.wtxt.command=true", "diff", *sides,
        ),
    }  # fmt: skip
    found = race(_entrants(place, listed, floor, None, f"{files} files", repo), runs)
    shutil.rmtree(repo)
    return found


_ENDINGS = ("safetensors", "gguf", "npz", "pt", "fold", "aero", "checkpoint")
"""The formats of what a review is measured of."""
_COMPRESSED = ("npz", "fold", "aero")
"""Those of them that their own writers compress."""


def reviews(place: Place, size: int, runs: int) -> list[Row]:
    """A review of a file of each format, plain and compressed, against a diff of the same blobs.

    Of 64 matrices all values changed by about a thousandth.
    """
    sides = [
        arrays_of(place, 64, size * MIB // 4 // 64, is_tuned=is_tuned) for is_tuned in (False, True)
    ]
    made = [(ending, False) for ending in _ENDINGS] + [(one, True) for one in _COMPRESSED]
    rows = []
    for ending, is_compressed in made:
        repo = place.folder("reviews")
        command(place, "git", "init", "-q", "-b", "main", repo)
        file = repo / f"model.{ending}"
        command(place, *WTXTGIT, "install", "--local", cwd=repo)
        command(place, *WTXTGIT, "track", file.name, cwd=repo)
        for number, side in enumerate(sides):
            file.unlink(missing_ok=True)
            if file.suffix == side.suffix:
                shutil.copyfile(side, file)
            else:
                inline = ("--inline-data",) if ending == "checkpoint" else ()
                command(place, *WTXTGIT, "convert", *inline, side, file)
            if is_compressed and ending == "npz":
                with np.load(file) as arrays:
                    held = dict(arrays)
                np.savez_compressed(file, **held)
            elif is_compressed:
                command(place, *WTXTGIT, "repack", file, "--compression", "zstd")
            command(place, *WTXTGIT, "add", ".", cwd=repo)
            command(place, "git", "commit", "-q", "-m", str(number), cwd=repo)
        told = f"compressed {ending}" if is_compressed else ending
        floor = f"diff, {told}"
        listed: dict[str, Command] = {
            floor: (*WTXTGIT, "diff", f"HEAD~1:{file.name}", f"HEAD:{file.name}"),
            f"review, {told}": (*WTXTGIT, "review", "HEAD~1...HEAD", "--no-cache"),
        }
        rows += race(_entrants(place, listed, floor, 2 * size * MIB, f"2 x {size} MiB", repo), runs)
        shutil.rmtree(repo)
    return rows


def _entrants(
    place: Place,
    listed: Mapping[str, Command],
    floor: str,
    nbytes: int | None,
    note: str,
    folder: Path | None = None,
) -> list[Entrant]:
    """All of them against the one floor."""
    return [
        Entrant(
            name,
            nbytes,
            () if name == floor else (Against(floor),),
            note,
            action=partial(command, place, *argv, cwd=folder),
        )
        for name, argv in listed.items()
    ]
