"""Very many tracked files: every command starts as many processes as for a few."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors
from tests.kit.changes import PRODUCT
from tests.scale.many import MANY

pytestmark = [pytest.mark.slow, pytest.mark.sampled(PRODUCT)]


def write(repo: Repo, count: int, value: float) -> None:
    for number in range(count):
        repo.write(
            f"shards/{number // 500:02d}/m{number:05d}.safetensors", safetensors(value, number)
        )


def traced(repo: Repo, *arguments: str) -> tuple[int, bytes]:
    """Run a command of ours; give how many git processes it and they started, and its output."""
    log = repo.path.parent / "trace.json"
    log.unlink(missing_ok=True)
    done = repo.wtxtgit(*arguments, env={"GIT_TRACE2_EVENT": str(log)})
    events = (json.loads(line) for line in log.read_bytes().splitlines())
    return sum(event["event"] == "start" for event in events), done.stdout


def started(repo: Repo, *arguments: str) -> int:
    """How many git processes a command of ours starts, and those by themselves."""
    return traced(repo, *arguments)[0]


def worked_with(repo: Repo, count: int) -> dict[str, int]:
    """Do with so many files what is done every day; give the number of processes by command."""
    found: dict[str, int] = {}

    def run(*arguments: str) -> bytes:
        processes, told = traced(repo, *arguments)
        found[f"{' '.join(arguments)} #{len(found)}"] = processes
        return told

    def states() -> dict[str, int]:
        files = json.loads(run("status", "--json"))["files"]
        return dict(Counter(file["state"] for file in files))

    run("install", "--local")
    write(repo, count, 1.0)
    run("track", "*.safetensors")
    run("add", ".")
    run("check", "--staged")
    repo.commit("one")
    run("status")
    run("ls-files")
    run("doctor")
    assert states() == {"ok": count}
    write(repo, count, 2.0)
    assert states() == {"modified": count}
    repo.add()
    assert states() == {"ok": count}
    run("check", "--staged")
    repo.commit("two")
    run("review", "HEAD~1...HEAD", "--json")
    run("audit", "HEAD")
    repo.git("checkout", "-q", "HEAD~1")
    last = f"shards/{(count - 1) // 500:02d}/m{count - 1:05d}.safetensors"
    assert (repo.path / last).read_bytes() == safetensors(1.0, count - 1)
    assert states() == {"ok": count}
    run("checkout", ".")
    run("uninstall", "--local")
    return found


def test_processes_do_not_grow_with_files(tmp_path: Path) -> None:
    few, *others = (worked_in(tmp_path / str(count), count) for count in (3, 40, 200 * MANY))
    # Where there is much to read, each processor has a process of git's for it.
    most = 2 * (os.cpu_count() or 1)
    for found in others:
        assert found.keys() == few.keys()
        assert {name: n for name, n in found.items() if n > few[name] + most} == {}


def worked_in(folder: Path, count: int) -> dict[str, int]:
    folder.mkdir()
    repo = Repo(folder)
    repo.git("init", "-q")
    return worked_with(repo, count)


def test_very_many_patterns_start_few_processes(tracked: Repo) -> None:
    patterns = [f"models/{'x' * 60}{number}.fold" for number in range(12_000)]
    few = started(tracked, "doctor")
    lines = "".join(f"{pattern} filter=wtxt diff=wtxt merge=wtxt -text\n" for pattern in patterns)
    tracked.write(
        ".gitattributes", lines + "*.safetensors filter=wtxt diff=wtxt merge=wtxt -text\n"
    )
    assert started(tracked, "doctor") <= few + 3
