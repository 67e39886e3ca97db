"""The filter as git starts it: one process for all files, soon ready, and safe to lose."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.data import fixture, golden
from tests.e2e.conftest import (
    MIB,
    MODEL,
    PAIRS,
    PATTERNS,
    SPOOLED,
    assert_clean,
    assert_clean_when_touched,
    assert_version,
    filter_command,
    set_launch,
    states,
    traced,
    version,
    work_tree,
    write_version,
)
from tests.kit import LAUNCHER, Repo, safetensors, text_of
from tests.review.repos import file, weights
from wtxtgit.git import run
from wtxtgit.git.filter_protocol import greeting

NAMES = [
    b"with space.fold",
    b" leading and trailing .fold",
    b"new\nline.fold",
    b"tab\t.fold",
    b'it\'s "quoted".fold',
    b"$HOME `id` $(id) ;|&.fold",
    b"back\\slash.fold",
    b"%f %p %%.fold",
    "größe-模型-🧠.fold".encode(),
    b"latin-\xe9.fold",
    b"--help.fold",
    b"-dash/--.fold",
    b":(top)magic.fold",
    b"*star?.fold",
    b"\x1b[31mred.fold",
    b"long-" + b"x" * 200 + b".fold",
]


@contextmanager
def filter_process(
    cwd: Path, *, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The filter after the handshake, without git around it."""
    process = subprocess.Popen(
        [*LAUNCHER.arguments, "filter-process"],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(greeting())
        assert packets(process) == [b"git-filter-server\n", b"version=2\n"]
        assert packets(process) == [b"capability=clean\n", b"capability=smudge\n"]
        yield process
        process.stdin.close()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def packet(data: bytes) -> bytes:
    return b"%04x%b" % (len(data) + 4, data)


def content(data: bytes) -> bytes:
    return b"".join(packet(data[i : i + 65_516]) for i in range(0, len(data), 65_516)) + b"0000"


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    view = memoryview(data)
    while view:
        view = view[process.stdin.write(view) :]


def read(process: subprocess.Popen[bytes], size: int) -> bytes:
    assert process.stdout is not None
    found = b""
    while len(found) < size:
        piece = process.stdout.read(size - len(found))
        assert piece, "the filter has ended"
        found += piece
    return found


def packets(process: subprocess.Popen[bytes]) -> list[bytes]:
    """Read up to a flush packet."""
    found = []
    while (size := int(read(process, 4), 16)) != 0:
        found.append(read(process, size - 4))
    return found


def answer(process: subprocess.Popen[bytes]) -> bytes:
    assert packets(process) == [b"status=success\n"]
    data = b"".join(packets(process))
    assert packets(process) == []
    return data


def loaded(process: subprocess.Popen[bytes]) -> str:
    """Which files the process has mapped: every compiled module is among them."""
    return Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.true_start
@pytest.mark.slow
def test_a_thousand_files_start_one_filter(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    files = {f"m/{i:04}.safetensors": safetensors(float(i), 1.0) for i in range(1000)}
    for name, data in files.items():
        repo.write(name, data)
    assert traced(repo, "add", ".").filters == 1
    repo.commit()
    for name in files:
        (repo.path / name).unlink()
    assert traced(repo, "checkout", "--", ".").filters == 1
    assert all((repo.path / name).read_bytes() == data for name, data in files.items())


def test_a_command_without_tracked_files_starts_no_filter(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    repo.write("readme", "x")
    assert traced(repo, "add", ".").filters == 0


@pytest.mark.true_start
@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="there is no /proc here: run it on Linux"
)
def test_git_is_answered_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    heavy = ("numpy", "crc32c", "pybase64", "zstandard", "blake3", "nacl", "pygit2", "msgpack")
    with filter_process(tmp_path) as process:
        before = loaded(process)
        assert not [name for name in heavy if f"/{name}/" in before or f"/{name}." in before]
        send(process, packet(b"command=clean\n") + packet(b"pathname=x\n") + b"0000")
        send(process, content(b"x"))
        answer(process)
        # The test sees what it looks for.
        assert "/numpy/" in loaded(process)


@pytest.mark.true_start
@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="there is no /proc here: run it on Linux"
)
def test_what_a_request_needs_is_loaded_while_its_content_comes(tmp_path: Path) -> None:
    with filter_process(tmp_path) as process:
        send(process, packet(b"command=clean\n") + packet(b"pathname=x\n") + b"0000")
        # Nothing of the content was sent. The test fails where it is waited for.
        give_up = time.monotonic() + 60
        while "/numpy/" not in loaded(process):
            assert time.monotonic() < give_up
        send(process, content(b"x"))
        assert answer(process).startswith(b"WTXT 1\n")


@pytest.mark.true_start
@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="there is no /proc here: run it on Linux"
)
def test_what_is_not_smudged_loads_nothing(repo: Repo) -> None:
    repo.git("config", "wtxtgit.smudgeExclude", "*.out")
    text = b"WTXT 1\n" + bytes(100)
    for env, name in (({"WTXTGIT_SKIP_SMUDGE": "1"}, b"x"), ({}, b"x.out")):
        with filter_process(repo.path, env=env) as process:
            head = packet(b"command=smudge\n") + packet(b"pathname=%b\n" % name) + b"0000"
            send(process, head + content(text))
            assert answer(process) == text
            assert "/numpy/" not in loaded(process)


def test_a_stream_that_ends_inside_a_content_ends_the_filter(tmp_path: Path) -> None:
    head = packet(b"command=clean\n") + packet(b"pathname=x\n") + b"0000"
    for sent in (head, head + b"fff0" + bytes(100)):
        done = Repo(tmp_path).wtxtgit("filter-process", stdin=greeting() + sent, ok=(5,))
        assert done.stderr.startswith(b"wtxtgit: error: the stream ended ")


@pytest.mark.true_start
def test_a_process_answers_many_requests_of_both_kinds(tmp_path: Path) -> None:
    with filter_process(tmp_path) as process:
        for path in list(golden())[::7]:
            data = fixture(path)
            send(process, packet(b"command=clean\n") + packet(b"pathname=x\n") + b"0000")
            send(process, content(data))
            text = answer(process)
            wanted = golden()[path]["sha256"] if path else sha256().hexdigest()
            assert sha256(text).hexdigest() == wanted
            head = packet(b"command=smudge\n") + packet(b"pathname=x\n")
            send(process, head + packet(b"ref=refs/heads/main\n") + packet(b"blob=0\n") + b"0000")
            send(process, content(text))
            assert answer(process) == data


@pytest.mark.parametrize(
    ("name", "value"),
    [("THREADS", "many"), *(("MEMORY", v) for v in ("much", "0MiB", "64", "-1MiB", "9" * 99))],
)
def test_an_environment_that_is_wrong_is_told_and_fails_nothing(
    name: str, value: str, tmp_path: Path
) -> None:
    env = {f"WTXTGIT_{name}": value}
    done = Repo(tmp_path).wtxtgit("filter-process", env=env, stdin=greeting())
    said = f'wtxtgit: warning: WTXTGIT_{name} is "{value[:40]}"'
    assert done.stderr.decode().startswith(said)


@pytest.fixture
def single_shot(home: Path, driver: None) -> None:
    """Leave git the commands for one file alone; an empty process would leave it none."""
    run.git("config", "--global", "--unset", "filter.wtxt.process", cwd=home)


@pytest.mark.true_start
@pytest.mark.slow
def test_single_shot_commands_give_the_same_bytes(pairs: Repo, single_shot: None) -> None:
    process = {name: pairs.git("rev-parse", f"v1:{name}") for name in PAIRS}
    write_version(pairs, 1)
    added = traced(pairs, "add", ".")
    assert added.filters == len(PAIRS)
    assert {name: pairs.git("rev-parse", f":{name}") for name in PAIRS} == process
    restored = traced(pairs, "reset", "-q", "--hard", "v2")
    assert restored.filters == len(PAIRS)
    assert_version(pairs, 2)


def test_single_shot_commands_take_strange_names(repo: Repo, single_shot: None) -> None:
    """Git puts the name in the command line, which a shell reads."""
    repo.track("*.fold")
    names = [b'it\'s "q" $(id) %f\n\xe9.fold', b"--help.fold"]
    for name in names:
        repo.write(name, version("none.fold", 1))
    repo.git("add", ".")
    for name in names:
        assert repo.git("cat-file", "blob", b":" + name).startswith(b"WTXT 1\n")
        (repo.path / os.fsdecode(name)).unlink()
    repo.git("checkout", "--", ".")
    for name in names:
        assert (repo.path / os.fsdecode(name)).read_bytes() == version("none.fold", 1)


@pytest.mark.slow
def test_names_that_need_care(repo: Repo, driver: None) -> None:
    repo.track("*.fold")
    for number, name in enumerate(NAMES):
        repo.write(name, safetensors(float(number)))
    repo.add()
    repo.commit()
    clone = repo.clone("clone")
    for number, name in enumerate(NAMES):
        assert repo.git("cat-file", "blob", b"HEAD:" + name).startswith(b"WTXT 1\n")
        assert (clone.path / os.fsdecode(name)).read_bytes() == safetensors(float(number))
    assert_clean_when_touched(clone, map(os.fsdecode, NAMES))
    assert set(states(clone).values()) == {"ok"}


def test_a_warning_shows_a_strange_name_safely(repo: Repo, driver: None) -> None:
    repo.track("*.fold")
    repo.write(b"\x1b[31m\n\xe9.fold", b"WTXT no text\n")
    said = repo.run("git", "add", ".").stderr
    assert b"wtxtgit: warning: \\x1b[31m\\x0a\\xe9.fold: not a valid text" in said
    assert b"\x1b" not in said


@pytest.mark.slow
def test_skip_smudge_leaves_texts_and_install_writes_them(pairs: Repo, tmp_path: Path) -> None:
    skip = {"WTXTGIT_SKIP_SMUDGE": "1"}
    pairs.git("clone", "-q", str(pairs.path), str(tmp_path / "clone"), env=skip)
    clone = Repo(tmp_path / "clone")
    for name in PAIRS:
        assert (clone.path / name).read_bytes() == pairs.blob(name)
    assert_clean_when_touched(clone, PAIRS)
    clone.git("checkout", "-q", "v1", env=skip)
    assert set(states(clone).values()) == {"text"}
    clone.wtxtgit("install")
    assert_version(clone, 1)


@pytest.mark.slow
def test_smudge_include_and_exclude(pairs: Repo, tmp_path: Path) -> None:
    pairs.git(
        "clone", "-q", "-c", "wtxtgit.smudgeInclude=*.fold, sub/,*.aero",
        "-c", "wtxtgit.smudgeExclude=single.*", str(pairs.path), str(tmp_path / "clone"),
    )  # fmt: skip
    clone = Repo(tmp_path / "clone")
    binaries = {"none.fold", "sub/train.taridx"}
    for name in PAIRS:
        wanted = version(name, 2) if name in binaries else pairs.blob(name)
        assert (clone.path / name).read_bytes() == wanted, name
    assert_clean_when_touched(clone, PAIRS)
    # Install respects the choice, and follows when it changes.
    clone.wtxtgit("install")
    assert {n for n, state in states(clone).items() if state == "text"} == set(PAIRS) - binaries
    clone.git("config", "--unset", "wtxtgit.smudgeInclude")
    clone.git("config", "--unset", "wtxtgit.smudgeExclude")
    clone.wtxtgit("install")
    assert_version(clone, 2)


@pytest.mark.true_start
@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="there is no /proc here: run it on Linux"
)
def test_a_large_input_is_spooled_under_the_git_dir(repo: Repo) -> None:
    spool = repo.path / ".git/wtxtgit"
    with filter_process(repo.path) as process:
        send_most(process, bytes(64 * MIB))
        assert files_of(process, spool)
        assert anonymous(process) < 48 * MIB
        send(process, b"0000")
        assert answer(process).startswith(b"WTXT 1\n")
    assert list(spool.iterdir()) == []
    assert spool.stat().st_mode & 0o777 == 0o700


@pytest.mark.true_start
@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="there is no /proc here: run it on Linux"
)
def test_an_input_that_the_machine_has_memory_for_goes_to_no_file(repo: Repo) -> None:
    spool = repo.path / ".git/wtxtgit"
    with filter_process(repo.path, env={"WTXTGIT_MEMORY": ""}) as process:
        # Less than any machine's eighth on which this runs.
        send_most(process, bytes(24 * MIB))
        assert not spool.exists()
        send(process, b"0000")
        assert answer(process).startswith(b"WTXT 1\n")


def send_most(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Send a request to clean, but for its end: all but what the pipe holds was read then."""
    send(process, packet(b"command=clean\n") + packet(b"pathname=x\n") + b"0000")
    send(process, content(data)[:-4])


def files_of(process: subprocess.Popen[bytes], folder: Path) -> list[str]:
    """Files in a folder that a process has open."""
    targets = [str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    return [target for target in targets if target.startswith(str(folder))]


def anonymous(process: subprocess.Popen[bytes]) -> int:
    """The process's own memory, that of no file, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


@pytest.mark.true_start
@pytest.mark.slow
def test_a_large_file_leaves_nothing_behind(repo: Repo, driver: None) -> None:
    repo.git("config", "core.compression", "1")
    repo.track("*.fold")
    pattern = b"".join(i.to_bytes(4, "little") for i in range(MIB // 4))
    data = pattern * 40
    repo.write("big.fold", data)
    repo.add()
    repo.commit()
    (repo.path / "big.fold").unlink()
    repo.git("checkout", "--", ".")
    assert (repo.path / "big.fold").read_bytes() == data
    assert_clean(repo)
    left = {file.name for file in (repo.path / ".git/wtxtgit").iterdir()}
    assert left == {"facts.sqlite"}
    assert work_tree(repo) == {"big.fold", ".gitattributes"}


KILLER = """\
import os, signal, subprocess, sys, threading
# Hands the conversation through, and kills the filter when LIMIT bytes of it were answered.
limit, command = int(sys.argv[1]), sys.argv[2:]
process = subprocess.Popen(command, stdin=0, stdout=subprocess.PIPE)
while limit and (piece := os.read(process.stdout.fileno(), limit)):
    limit -= len(piece)
    os.write(1, piece)
if not limit:
    os.kill(process.pid, signal.SIGKILL)
sys.exit(process.wait() and 137)
"""


@pytest.fixture
def killed(home: Path, tmp_path: Path) -> Iterator[str]:
    """A command for git whose filter is killed in the middle of an answer."""
    script = tmp_path / "killer.py"
    script.write_text(KILLER)
    return shlex.join(
        [sys.executable, str(script), "200000", *LAUNCHER.arguments, "filter-process"]
    )


@pytest.mark.true_start
def test_a_filter_that_is_killed_fails_git_add_and_damages_nothing(
    pairs: Repo, killed: str, home: Path
) -> None:
    index = pairs.git("ls-files", "-s")
    write_version(pairs, 1)
    set_launch(home, killed)
    failed = pairs.run("git", "add", ".", ok=(128,)).stderr
    assert b"clean filter 'wtxt' failed" in failed
    set_launch(home, filter_command())
    assert not (pairs.path / ".git/index.lock").exists()
    assert pairs.git("ls-files", "-s") == index
    for name in PAIRS:
        assert (pairs.path / name).read_bytes() == version(name, 1)
    pairs.add()
    for name in PAIRS:
        assert pairs.blob(name) == pairs.blob(name, "v1")
    assert pairs.git("fsck", "--full", "--strict") == b""


@pytest.mark.true_start
def test_a_filter_that_is_killed_fails_a_checkout_which_can_be_repeated(
    pairs: Repo, killed: str, home: Path
) -> None:
    head = pairs.git("rev-parse", "HEAD")
    set_launch(home, killed)
    failed = pairs.run("git", "checkout", "-q", "v1", ok=(128,)).stderr
    assert b"smudge filter wtxt failed" in failed
    set_launch(home, filter_command())
    assert pairs.git("rev-parse", "HEAD") == head
    assert not (pairs.path / ".git/index.lock").exists()
    # No file holds anything but a whole version.
    for name in PAIRS:
        file = pairs.path / name
        assert not file.exists() or file.read_bytes() in (version(name, 1), version(name, 2))
    pairs.git("reset", "-q", "--hard")
    assert_version(pairs, 2)
    pairs.git("checkout", "-q", "v1")
    assert_version(pairs, 1)


def test_a_driver_that_is_gone_stops_git_before_it_stores_a_binary(pairs: Repo, home: Path) -> None:
    for key in ("process", "clean", "smudge"):
        run.git("config", "--global", f"filter.wtxt.{key}", "/gone/wtxtgit x", cwd=home)
    pairs.write("new.fold", version("none.fold", 1))
    pairs.run("git", "add", "new.fold", ok=(128,))
    assert pairs.git("ls-files", "--", "new.fold") == b""


@pytest.mark.slow
def test_outside_a_repository(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    here = Repo(outside)
    for path in list(golden())[::40]:
        text = here.wtxtgit("clean", stdin=fixture(path)).stdout
        assert sha256(text).hexdigest() == golden()[path]["sha256"]
        assert here.wtxtgit("smudge", stdin=text).stdout == fixture(path)
    big = bytes(SPOOLED)
    assert here.wtxtgit("smudge", stdin=here.wtxtgit("clean", stdin=big).stdout).stdout == big
    with filter_process(outside) as process:
        send(process, packet(b"command=clean\n") + packet(b"pathname=x\n") + b"0000")
        send(process, content(big))
        assert answer(process).startswith(b"WTXT 1\n")
    assert list(outside.iterdir()) == []


def test_where_the_git_folder_can_not_be_written(repo: Repo) -> None:
    """A large file is spooled elsewhere then; a file where the folder would be stands for it."""
    (repo.path / ".git/wtxtgit").write_bytes(b"")
    big = bytes(SPOOLED)
    text = repo.wtxtgit("clean", stdin=big).stdout
    assert repo.wtxtgit("smudge", stdin=text).stdout == big


@pytest.mark.slow
def test_a_path_need_not_be_the_content_s_own(repo: Repo, driver: None) -> None:
    """Git names a path whose file is longer, shorter, a link, or not there."""
    repo.track(*PATTERNS)
    model = safetensors(*range(300_000))
    repo.write("other", model)
    wanted = repo.git("hash-object", "--stdin", stdin=repo.wtxtgit("clean", stdin=model).stdout)
    file = repo.path / MODEL

    def link() -> None:
        file.unlink()
        file.symlink_to("other")

    for place in (
        lambda: None,
        lambda: repo.write(MODEL, model),
        lambda: repo.write(MODEL, model + bytes(MIB)),
        lambda: repo.write(MODEL, model[: -MIB // 10]),
        lambda: repo.write(MODEL, bytes(len(model))),
        link,
    ):
        place()
        assert repo.git("hash-object", "--stdin", "--path", MODEL, stdin=model) == wanted


@pytest.mark.true_start
def test_threads_do_not_change_what_is_stored(repo: Repo, driver: None) -> None:
    repo.track(*PATTERNS)
    repo.write(MODEL, version(MODEL, 1))
    stored = set()
    for threads in ("1", "5"):
        (repo.path / ".git/index").unlink(missing_ok=True)
        repo.git("add", ".", env={"WTXTGIT_THREADS": threads})
        stored.add(repo.git("rev-parse", f":{MODEL}"))
    assert len(stored) == 1


@pytest.mark.parametrize(
    "command", [("commit", "-qam", "all"), ("stash", "-q"), ("commit", "-qa", "--dry-run")]
)
def test_commands_that_store_leave_what_git_would_have_written(
    repo: Repo, driver: None, command: tuple[str, ...]
) -> None:
    """Objects that are written ahead, on all cores, are those of `git add`, and no others."""
    contents = [file(weights(head=np.full((40, 25), n, "f4"))) for n in range(2)]
    repo.track("*.safetensors")
    repo.write("m.safetensors", contents[0])
    repo.add()
    repo.commit()
    repo.write("m.safetensors", contents[1])
    repo.git(*command)
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == b""
    revision = "stash@{0}" if command[0] == "stash" else "HEAD"
    assert repo.blob("m.safetensors", revision) == text_of(contents["--dry-run" not in command])
