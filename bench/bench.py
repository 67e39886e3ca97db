"""Speed and memory, measured side by side in one run: `make bench`.

Every figure is a whole process started fresh, timed by the wall, the best and
the median of several runs; what is compared takes turns, so that a machine
whose speed drifts slows both. Data is generated from a seed. Results go to
`bench/out/` as JSON and as the table that is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import zstandard
from blake3 import blake3
from history import add_generations

from wtxtgit import containers
from wtxtgit.containers.aero import write as aero
from wtxtgit.containers.fold import write as fold
from wtxtgit.containers.fold.chunks import ChunkSource
from wtxtgit.containers.fold.read import read as fold_read
from wtxtgit.model import Buffer
from wtxtgit.model.reading import TensorSource
from wtxtgit.ops import tensor_bytes
from wtxtgit.ops.files import map_file
from wtxtgit.text import ledger as ledger_text
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.verify import verify
from wtxtgit.text.write import TextWriter
from wtxtgit.trust.signing import seed_key

MIB = 1024 * 1024
COLUMNS = 1024
PYTHON = sys.executable
WTXTGIT = (PYTHON, "-E", "-P", "-m", "wtxtgit")
OUT = Path(__file__).parent / "out"
ROWS = 16
"""Rows of 1024 float32 in a chunk."""
HASH_BOTH = """
import hashlib, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        hashlib.file_digest(file, "sha256")
"""
MERGE = f"""
import sys
import numpy as np
base, ours, theirs = (np.fromfile(name, "u1") for name in sys.argv[1:4])
start = len(base) % {COLUMNS * 4}
rows = [side[start:].view("u4").reshape(-1, {COLUMNS}) for side in (base, ours, theirs)]
changed = [(rows[0] != side).any(axis=1) for side in rows[1:]]
assert not (changed[0] & changed[1]).any()
rows[1][changed[1]] = rows[2][changed[1]]
ours.tofile(sys.argv[4])
"""
"""What numpy alone takes for the same merge: nothing is checked, everything is held."""
PACKAGES = ("numpy", "pybase64", "crc32c", "blake3", "zstandard", "click")


@dataclass(frozen=True)
class Row:
    """One measured thing; rates in MB/s (10^6) of raw bytes, times in seconds."""

    name: str
    best: float
    median: float
    rate: float | None = None
    ratio: float | None = None
    floor: str = ""
    note: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="for emit and verify")
    parser.add_argument(
        "--big", type=int, default=1024, metavar="MIB", help="for git; 0: not at all"
    )
    parser.add_argument(
        "--commits", type=int, default=1000, metavar="N", help="for audit; 0: not at all"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument("--start-runs", type=int, default=15, metavar="N")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="wtxtgit-bench-") as folder:
        top = Path(folder)
        rows += bench_start(top, options.start_runs)
        rows += bench_library(top, options.size, options.runs)
        rows += bench_text(top, options.size, options.runs)
        rows += bench_checks(top, options.size, options.runs)
        rows += bench_diff(top, options.size, options.runs)
        rows += bench_delta(top, options.size, options.runs)
        rows += bench_merge(top, options.size, options.runs)
        if options.commits:
            rows += bench_audit(top, options.commits, options.runs)
        if options.big:
            rows += bench_git(top, options.big)
            rows += bench_git_diff(top, options.size, options.runs)
    report(rows, options)


def bench_start(top: Path, runs: int) -> list[Row]:
    """A filter's first answer against `import numpy`; help against an empty program."""
    greeting = (
        b"0016git-filter-client\n000eversion=2\n0000"
        b"0015capability=clean\n0016capability=smudge\n0000"
    )

    def ready() -> None:
        process = subprocess.Popen(
            (*WTXTGIT, "filter-process"), cwd=top, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
        process.stdin.write(greeting)
        process.stdin.flush()
        first = process.stdout.read(4)
        if first != b"0016":
            sys.exit(f"the filter answers with {first!r}")
        nonlocal answered
        answered = time.perf_counter()
        process.stdin.close()
        process.stdout.read()
        process.wait()

    answered = 0.0
    filter_times, numpy_times, help_times, pass_times = [], [], [], []
    for _ in range(runs):
        started = time.perf_counter()
        ready()
        filter_times.append(answered - started)
        numpy_times.append(timed(lambda: run(PYTHON, "-c", "import numpy", cwd=top)))
        help_times.append(timed(lambda: run(*WTXTGIT, "--help", cwd=top)))
        pass_times.append(timed(lambda: run(PYTHON, "-c", "pass", cwd=top)))
    return [
        row("python -c pass", pass_times),
        row('python -c "import numpy"', numpy_times),
        row("filter process ready", filter_times, floor=("import numpy", numpy_times)),
        row("wtxtgit --help", help_times, floor=("python -c pass", pass_times)),
    ]


def bench_text(top: Path, size: int, runs: int) -> list[Row]:
    """emit, verify and restore of one file against sha256sum of it."""
    model = make_model(top / "model.safetensors", size)
    text, back = top / "model.wtxt", top / "back.safetensors"
    commands: dict[str, tuple[str | Path, ...]] = {
        "sha256sum of the file": ("sha256sum", model),
        "emit to a file": (*WTXTGIT, "emit", model, "-o", text),
        "emit to a pipe": (*WTXTGIT, "emit", model),
        "verify the text": (*WTXTGIT, "verify", text),
        "restore the file": (*WTXTGIT, "restore", text, "-o", back),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(timed(lambda command=command: run(*command, cwd=top)))  # type: ignore[misc]
    if back.read_bytes() != model.read_bytes():
        sys.exit("the restored file differs")
    nbytes = model.stat().st_size
    floor = "sha256sum of the file"
    return [
        row(name, taken, nbytes=nbytes, floor=(floor, times[floor]), note=f"{size} MiB")
        for name, taken in times.items()
    ]


def bench_library(top: Path, size: int, runs: int) -> list[Row]:
    """Writing and reading inside one process, against one SHA-256 pass of hashlib."""
    model = map_file(make_model(top / "model.safetensors", size))
    sha, file, pipe, read = [], [], [], []
    with (top / "text").open("w+b") as out:
        for _ in range(runs):
            sha.append(timed(lambda: hashlib.sha256(model).digest()))
            out.truncate(0)
            file.append(timed(lambda: writer(model).write_file(out.fileno())))
            pipe.append(timed(lambda: sum(len(piece) for piece in writer(model).stream())))
            text = map_file(top / "text")
            read.append(timed(lambda text=text: verified(text)))  # type: ignore[misc]
            del text
    floor = ("one hashlib pass", sha)
    note = f"{size} MiB, in process"
    return [
        row("one hashlib pass", sha, nbytes=len(model), note=note),
        row("write a text to a file", file, nbytes=len(model), floor=floor, note=note),
        row("write a text to nowhere", pipe, nbytes=len(model), floor=floor, note=note),
        row("read a text, all checked", read, nbytes=len(model), floor=floor, note=note),
    ]


def bench_checks(top: Path, size: int, runs: int) -> list[Row]:
    """All checks of AERO and FOLD files against hashing (and decoding) the same bytes."""
    model = map_file(make_model(top / "model.safetensors", size))
    tensors = list(containers.tensors(containers.describe(model)))
    sources = [
        TensorSource(t.name, "f32", t.shape, t.data.nbytes, partial(tensor_bytes.blocks, t))
        for t in tensors
    ]
    plain = [ChunkSource("torch_state", b"STEN", len(model), partial(slices, model))]
    files: dict[str, tuple[Iterable[Buffer], Callable[[memoryview], object]]] = {
        "AERO": (aero.build(sources, ihsh=True), blake3_pass),
        "AERO, page and tensor hashes": (
            aero.build(sources, ihsh=True, phsh=MIB, tensor_hash=True),
            blake3_pass,
        ),
        "FOLD, stored": (fold.build(plain), sha256_pass),
        "FOLD, zstd": (fold.build(plain, compression="zstd"), sha256_and_zstd_pass),
    }
    rows = []
    for name, (pieces, floor_pass) in files.items():
        path = top / "file"
        with path.open("wb") as out:
            for piece in pieces:
                out.write(piece)
        data = map_file(path)
        floor, check = [], []
        for _ in range(runs):
            floor.append(timed(partial(floor_pass, data)))
            check.append(timed(partial(checked, data)))
        words = floor_pass.__doc__ or ""
        note = f"{name}, {size} MiB, in process"
        rows.append(row(words, floor, nbytes=len(model), note=note))
        rows.append(row(f"check {name}", check, nbytes=len(model), floor=(words, floor), note=note))
        del data
    return rows


def blake3_pass(data: memoryview) -> None:
    """one blake3 pass, all threads"""
    blake3(data, max_threads=blake3.AUTO).digest()


def sha256_pass(data: memoryview) -> None:
    """one SHA-256 pass"""
    hashlib.sha256(data).digest()


def sha256_and_zstd_pass(data: memoryview) -> None:
    """SHA-256 and zstd decoding"""
    hashlib.sha256(data).digest()
    for chunk in fold_read(data).chunks:
        held = data[chunk.payload_start : chunk.payload_end]
        decoder = zstandard.ZstdDecompressor().decompressobj()
        for piece in slices(held):
            decoder.decompress(piece)


def slices(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]


def checked(data: memoryview) -> None:
    if containers.check(data).errors:
        sys.exit("the file does not hold")


def writer(model: memoryview) -> TextWriter:
    return TextWriter(snapshot_of(containers.split(model)))


def verified(text: memoryview) -> None:
    if not verify(text).ok:
        sys.exit("the text does not verify")


COMPARE = """
import hashlib, mmap, sys
import numpy as np
sides = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    hashlib.sha256(held).digest()
    start = 8 + int.from_bytes(held[:8], "little")
    sides.append(np.frombuffer(held, "<f4", offset=start))
print(np.count_nonzero(sides[0] != sides[1]))
"""
"""The floor of a diff: both files hashed once, and compared with numpy."""

RESIDENT = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def bench_diff(top: Path, size: int, runs: int) -> list[Row]:
    """A diff of two files, one row in a hundred changed, and of their texts."""
    a = make_model(top / "model.safetensors", size)
    b = changed_model(a, top / "changed.safetensors")
    texts = [path.with_suffix(".wtxt") for path in (a, b)]
    for path, text in zip((a, b), texts, strict=True):
        run(*WTXTGIT, "emit", path, "-o", text, cwd=top)
    # Of what is the same on both sides nothing is decoded.
    again = top / "again.wtxt"
    again.write_bytes(texts[0].read_bytes())
    floor = "hash both files, compare with numpy"
    commands: dict[str, tuple[str | Path, ...]] = {
        floor: (PYTHON, "-c", COMPARE, a, b),
        "diff": (*WTXTGIT, "diff", a, b),
        "diff of equal files": (*WTXTGIT, "diff", a, a),
        "diff of the texts": (*WTXTGIT, "diff", *texts),
        "diff of equal texts": (*WTXTGIT, "diff", texts[0], again),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(timed(lambda command=command: run(*command, cwd=top)))  # type: ignore[misc]
    nbytes = a.stat().st_size + b.stat().st_size
    return [
        row(
            name,
            taken,
            nbytes=nbytes,
            floor=(floor, times[floor]),
            note=f"2 x {size} MiB, {resident(*commands[name], cwd=top):.0f} MiB resident at most",
        )
        for name, taken in times.items()
    ]


def bench_merge(top: Path, size: int, runs: int) -> list[Row]:
    """A merge of two sides that changed one row in a hundred each, apart from each other."""
    base = make_model(top / "merge-base.safetensors", size)
    ours = changed_model(base, top / "merge-ours.safetensors", part=0)
    theirs = changed_model(base, top / "merge-theirs.safetensors", part=1)
    files = (base, ours, theirs)
    texts = [path.with_suffix(".wtxt") for path in files]
    for path, text in zip(files, texts, strict=True):
        run(*WTXTGIT, "emit", path, "-o", text, cwd=top)
    out = top / "merged"
    floor = "merge the three with numpy"
    merge = (*WTXTGIT, "merge-file")
    commands: dict[str, tuple[str | Path, ...]] = {
        floor: (PYTHON, "-c", MERGE, *files, out),
        "merge-file": (*merge, *files, "-o", out),
        "merge-file of the texts": (*merge, *texts, "-o", out),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    memory = {name: Memory(b"merge-file") for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            with memory[name]:
                times[name].append(timed(lambda command=command: run(*command, cwd=top)))  # type: ignore[misc]
    return [
        row(
            name,
            taken,
            floor=(floor, times[floor]),
            note=f"3 x {size} MiB" + ("" if name == floor else f", {memory[name].note()}"),
        )
        for name, taken in times.items()
    ]


def changed_model(model: Path, path: Path, part: int | None = None) -> Path:
    """The model with one row in a hundred changed, from a seed.

    Of the odd (`part` 1) or the even rows (0) alone, or of all.
    """
    content = bytearray(model.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    values = np.frombuffer(content, "<f4", offset=start).reshape(-1, COLUMNS)
    generator = np.random.default_rng(20250102)
    count = len(values) // 100
    if part is None:
        chosen = generator.choice(len(values), count, replace=False)
    else:
        chosen = 2 * generator.choice(len(values) // 2, count, replace=False) + part
    values[chosen] *= np.float32(1.01)
    path.write_bytes(content)
    return path


def resident(*command: str | Path, cwd: Path) -> float:
    """Run a command to its end, and give the most memory that it had resident, in MiB.

    A process that is started counts the memory of the one that starts it: that
    is a small one here.
    """
    lines = run(PYTHON, "-c", RESIDENT, *command, cwd=cwd)
    return int(lines) / 1024


def bench_git(top: Path, size: int) -> list[Row]:
    """`git add` and checkout of one big file, with the filter's own anonymous memory."""
    repo = top / "repo"
    home = top / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    run("git", "init", "-q", repo, cwd=top, env=env)
    run(*WTXTGIT, "install", "--local", cwd=repo, env=env)
    run(*WTXTGIT, "track", "*.safetensors", cwd=repo, env=env)
    model = make_model(repo / "model.safetensors", size)
    nbytes = model.stat().st_size
    raw = repo / "model.raw"
    os.link(model, raw)
    raw_times = [timed(lambda: run("git", "add", "model.raw", cwd=repo, env=env))]
    with Memory() as add_memory:
        add = [timed(lambda: run("git", "add", "model.safetensors", cwd=repo, env=env))]
    model.unlink()
    with Memory() as checkout_memory:
        out = [timed(lambda: run("git", "checkout", "--", model.name, cwd=repo, env=env))]
    if run("cmp", model, raw, cwd=repo):
        sys.exit("the checkout differs")
    floor = ("raw git add", raw_times)
    return [
        row("raw git add", raw_times, nbytes=nbytes, note=f"{size} MiB"),
        row("git add through the filter", add, nbytes=nbytes, floor=floor, note=add_memory.note()),
        row("git checkout", out, nbytes=nbytes, floor=floor, note=checkout_memory.note()),
    ]


def bench_git_diff(top: Path, size: int, runs: int) -> list[Row]:
    """`git diff` of two commits: through the driver, as text, and what git takes by itself."""
    repo, home = top / "diffs", top / "diffs-home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    run("git", "init", "-q", repo, cwd=top, env=env)
    run(*WTXTGIT, "install", "--local", cwd=repo, env=env)
    run(*WTXTGIT, "track", "*.safetensors", cwd=repo, env=env)
    model = make_model(repo / "model.safetensors", size)
    for number in (1, 2):
        run("git", "add", ".", cwd=repo, env=env)
        run("git", "commit", "-q", "-m", str(number), cwd=repo, env=env)
        if number == 1:
            changed_model(model, model)
    sides = "HEAD~1", "HEAD"
    text = "git diff --no-ext-diff"
    commands: dict[str, tuple[str, ...]] = {
        text: ("git", "diff", "--no-ext-diff", *sides),
        "git diff, a driver that does nothing": (
            "git",
            "-c",
            "diff.wtxt.command=true",
            "diff",
            *sides,
        ),
        "git diff": ("git", "diff", *sides),
        "wtxtgit diff of the blobs": (
            *WTXTGIT,
            "diff",
            *(f"{side}:{model.name}" for side in sides),
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(timed(lambda command=command: run(*command, cwd=repo, env=env)))  # type: ignore[misc]
    return [
        row(name, taken, floor=(text, times[text]), note=f"2 x {size} MiB")
        for name, taken in times.items()
    ]


def bench_audit(top: Path, commits: int, runs: int) -> list[Row]:
    """An audit of a history against `git fsck` plus SHA-256 of the texts in it."""
    repo, home = top / "history", top / "auditor"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {
        f"GIT_{who}_{what}": "a@example.com"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    run("git", "init", "-q", "-b", "main", repo, cwd=top, env=env)
    for command in (
        ("install", "--local"),
        ("track", "*.safetensors"),
        ("key", "new", "--name", "a", "--no-passphrase"),
        ("signers", "add", "a@example.com", "a"),
    ):
        run(*WTXTGIT, *command, cwd=repo, env=env)
    run("git", "add", ".gitattributes", ".wtxt", cwd=repo, env=env)
    run(*WTXTGIT, "seal", "--staged", cwd=repo, env=env)
    run("git", "commit", "-q", "-m", "signers", cwd=repo, env=env)
    signers = ledger_text.read((repo / ".wtxt" / "signers.wsum").read_bytes()).ledger
    key = seed_key((home / ".config/wtxtgit/keys/a").read_bytes(), "a", None)
    if signers is None:
        sys.exit("the signers ledger does not read")
    add_generations(repo, key, signers.last.merkle_this, commits, 10)
    listed = run("git", "rev-list", "--max-parents=0", "main", cwd=repo, env=env)
    audit = (*WTXTGIT, "audit", "main", "--trust-root", listed.decode().strip())

    def hashed() -> float:
        """Seconds of SHA-256 over the texts alone, git's reading aside."""
        seconds = 0.0
        for oid in texts:
            content = subprocess.check_output(("git", "cat-file", "blob", oid), cwd=repo, env=env)
            seconds += timed(lambda content=content: hashlib.sha256(content).digest())
        return seconds

    objects = subprocess.check_output(("git", "rev-list", "--objects", "main"), cwd=repo, env=env)
    texts = [line[:40] for line in objects.decode().splitlines() if line.endswith(".safetensors")]
    floor, cold, warm = [], [], []
    for _ in range(runs):
        fsck = timed(lambda: run("git", "fsck", "--full", "--no-progress", cwd=repo, env=env))
        floor.append(fsck + hashed())
        cold.append(timed(lambda: run(*audit, cwd=repo, env=env)))
        run(*audit, "--cache", cwd=repo, env=env)
        warm.append(timed(lambda: run(*audit, "--cache", cwd=repo, env=env)))
    name = "git fsck, and SHA-256 of the texts"
    note = f"{commits} commits, {len(texts)} texts of 1 MiB"
    return [
        row(name, floor, note=note),
        row("audit", cold, floor=(name, floor), note=note),
        row("audit --cache, again", warm, floor=(name, floor), note=note),
    ]


def bench_delta(top: Path, size: int, runs: int) -> list[Row]:
    """A delta of two files, 1% of whose chunks changed, against hashing both of them."""
    base = make_model(top / "base.safetensors", size)
    target, back = top / "target.safetensors", top / "back.safetensors"
    content = bytearray(base.read_bytes())
    weights = np.frombuffer(content, "<f4", offset=len(content) - size * MIB).reshape(-1, COLUMNS)
    blocks = np.random.default_rng(1).permutation(len(weights) // ROWS)
    for block in blocks[: max(1, len(blocks) // 100)]:
        weights[block * ROWS : (block + 1) * ROWS] += 1e-3
    target.write_bytes(content)
    delta = top / "target.wtxtdelta"
    floor = (PYTHON, "-c", HASH_BOTH, base, target)
    make = (*WTXTGIT, "delta", "make", base, target, "-o", delta)
    apply = (*WTXTGIT, "delta", "apply", base, delta, "-o", back)
    memory = {command: Memory(b"delta") for command in (make, apply)}
    times: dict[tuple[str | Path, ...], list[float]] = {c: [] for c in (floor, make, apply)}
    for _ in range(runs):
        for command, taken in times.items():
            with memory.get(command, contextlib.nullcontext()):
                taken.append(timed(lambda command=command: run(*command, cwd=top)))  # type: ignore[misc]
    if back.read_bytes() != content:
        sys.exit("the file that the delta makes differs")
    text = delta.read_bytes()
    carried = [chunk.split(b"\n", 1)[1] for chunk in text.split(b"\nch ")[1:]]
    armored = sum(len(chunk.partition(b"endch\n")[0]) for chunk in carried)
    note = f"2 x {size} MiB, {len(carried)} chunks changed"
    larger = f"{len(text) / armored:.4f} of the armored lines"
    found = ("hashlib over both files", times[floor])
    return [
        row(found[0], times[floor], nbytes=2 * size * MIB, note=note),
        row("delta make", times[make], floor=found, note=f"{larger}; {memory[make].note()}"),
        row("delta apply", times[apply], floor=found, note=memory[apply].note()),
    ]


class Memory:
    """Watches the anonymous memory of processes that have a word in their command line."""

    def __init__(self, word: bytes = b"filter-process") -> None:
        self._word = word
        self._peak = 0
        self._stop = threading.Event()

    def note(self) -> str:
        who = "filter's own " if self._word == b"filter-process" else ""
        return f"{who}anonymous memory: {self._peak / 1024:.0f} MiB at most"

    def __enter__(self) -> Memory:
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if self._word not in (folder / "cmdline").read_bytes().split(b"\0"):
                        continue
                    status = (folder / "status").read_text()
                except OSError:
                    continue
                for line in status.splitlines():
                    if line.startswith("RssAnon:"):
                        self._peak = max(self._peak, int(line.split()[1]))


def make_model(path: Path, size: int) -> Path:
    """A safetensors file of one float32 matrix of `size` MiB, from a seed."""
    rows = size * MIB // 4 // COLUMNS
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [rows, COLUMNS], "data_offsets": [0, rows * COLUMNS * 4]}}
    ).encode()
    header += b" " * (-len(header) % 8)
    generator = np.random.default_rng(20250101)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for start in range(0, rows, 4096):
            count = min(4096, rows - start)
            file.write(generator.standard_normal((count, COLUMNS), dtype=np.float32).data)
    return path


def row(
    name: str,
    times: list[float],
    *,
    nbytes: int | None = None,
    floor: tuple[str, list[float]] | None = None,
    note: str = "",
) -> Row:
    best, median = min(times), statistics.median(times)
    rate = None if nbytes is None else nbytes / median / 1e6
    if floor is None or floor[1] is times:
        return Row(name, best, median, rate, note=note)
    ratio = statistics.median(a / b for a, b in zip(times, floor[1], strict=True))
    return Row(name, best, median, rate, ratio, floor[0], note)


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> bytes:
    """Run a command to its end; its output is read from a pipe and thrown away in blocks."""
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # noqa: S101
        last = b""
        while block := process.stdout.read(MIB):
            last = block
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return last


def report(rows: list[Row], options: argparse.Namespace) -> None:
    lines = ["| | best s | median s | MB/s | ratio | |", "|---|---|---|---|---|---|"]
    for r in rows:
        rate = "" if r.rate is None else f"{r.rate:.0f}"
        ratio = "" if r.ratio is None else f"{r.ratio:.2f} of {r.floor}"
        lines.append(f"| {r.name} | {r.best:.3f} | {r.median:.3f} | {rate} | {ratio} | {r.note} |")
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        + f", {run('git', 'version', cwd=OUT.parent).decode().strip()}"
    )
    table = "\n".join(lines)
    print(f"{machine}\n\n{table}")
    OUT.mkdir(exist_ok=True)
    (OUT / "bench.md").write_text(f"{machine}\n\n{table}\n")
    record = {"machine": machine, "options": vars(options), "rows": [asdict(r) for r in rows]}
    (OUT / "bench.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
