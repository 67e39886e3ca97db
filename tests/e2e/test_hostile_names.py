"""Names of files, tensors, keys, branches and commits that would control a terminal or a page.

Each command says them in each of its forms, and what it says controls nothing. What Markdown,
pages and SARIF make of such names is in tests/report.
"""

from __future__ import annotations

import json
import os
import pty
import struct
import subprocess
from collections.abc import Iterator

import pytest

from tests.kit import LAUNCHER, Repo

pytestmark = pytest.mark.slow

NAME = "\x1b[31mr\x07\u202e\u200f\u2066\x85\x9b<img src=x>|`a`\n::error::x\n# h\u2028"
FILE = "m\x1b[2J\n::error file=x::y\u202e\u200e\x9b<b>|`.safetensors"
PLAIN = "plain.safetensors"
BRANCH = "to\u202epic<b>|`x`"
SUBJECT = "sub\x1b[31m\u202e<b>|`ject"
CONTROLS = {*range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
"""Marks of direction and separators of lines, beside control characters of all kinds."""
WHOLE = (
    *("status", "status --json", "ls-files", "doctor", "check --staged", "hook pre-commit"),
    *(f"audit --trust-root root --format {form}" for form in ("text", "json", "sarif", "github")),
    *(f"review root..HEAD --format {form}" for form in ("text", "markdown", "html", "json")),
)
OF_A_FILE = (
    *("inspect @", "inspect --json @", "verify @", "verify --json @", "log @", "log --json @"),
    *("diff HEAD~1:@ @", "diff --json HEAD~1:@ @", "emit @ -o x.wtxt", "verify x.wtxt"),
    *("convert @ o.gguf", "inspect o.gguf", "convert @ o.fold", "inspect o.fold", "verify o.fold"),
    *("diff o.gguf o.fold", "delta make HEAD~1:@ @ -o d.wtxtdelta", "verify d.wtxtdelta"),
    *("restore @", "verify @none", "add @none", "seal @none", "checkout @", "recover --ecc @"),
    *(
        "repack @ --compression none",
        "merge-file @ @ @ -o o.safetensors",
        "resolve @",
        "taridx ls @",
    ),
)


def model(*values: float) -> bytes:
    """A safetensors file whose only tensor, and all that it says of itself, is called NAME."""
    data = struct.pack(f"<{len(values)}f", *values)
    tensor = {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}
    header = json.dumps({NAME: tensor, "__metadata__": {NAME: f"{NAME}{values[1]}"}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def assert_harmless(said: bytes, what: object) -> None:
    """Nothing but text in lines, none of which is one that a name holds."""
    text = said.decode("utf-8")
    controls = {
        c for c in text if ord(c) in CONTROLS or (ord(c) < 0xA0 and not c.isprintable())
    } - {"\n"}
    assert not controls, (what, controls)
    starts = ("::error::x", "::error file=x::y", "# h")
    assert not [line for line in text.split("\n") if line.startswith(starts)], what


def words(line: str, file: str) -> list[str]:
    """The arguments of a command; `@` stands for the file, whose name has blanks."""
    return [word.replace("@", file) for word in line.split()]


def on_terminal(repo: Repo, columns: int, *arguments: str) -> bytes:
    """What a command shows on a terminal that knows no colours."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb"}
    with subprocess.Popen(
        (*LAUNCHER.arguments, *arguments), cwd=repo.path, env=env, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        shown = b"".join(_read(ours))
    os.close(ours)
    return shown.replace(b"\r\n", b"\n")


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # Linux says so where the other end is closed
            return
        yield piece


@pytest.fixture
def hostile(repo: Repo, driver: None) -> Repo:
    """A sealed repository in which everything has such a name."""
    repo.git("config", "user.name", "A\x1b[31m\u202eU")
    repo.write(".gitattributes", "*.safetensors filter=wtxt diff=wtxt merge=wtxt -text\n")
    repo.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    repo.wtxtgit("signers", "add", "alice@example.com", "alice")
    for name in (FILE, PLAIN):
        repo.write(name, model(1.0, 2.0, 3.0))
    repo.git("add", "--all")
    repo.wtxtgit("seal", "--staged", "--key", "alice")
    repo.commit(SUBJECT)
    repo.git("tag", "root")
    repo.git("checkout", "-q", "-b", BRANCH)
    for name in (FILE, PLAIN):
        repo.write(name, model(1.0, 5.0, float("nan")))
    repo.git("add", "--all")
    repo.commit(f"two {SUBJECT}")
    return repo


def test_no_command_says_what_controls_something(hostile: Repo) -> None:
    calls = [words(line, "") for line in WHOLE]
    calls += [words(line, file) for file in (FILE, PLAIN) for line in OF_A_FILE]
    for arguments in calls:
        done = hostile.wtxtgit(*arguments, ok=range(6))
        for said in (done.stdout, done.stderr):
            assert_harmless(said, arguments)
        if "--json" in arguments or "json" in arguments or "sarif" in arguments:
            assert done.stdout.isascii()
            json.loads(done.stdout or b"{}")


@pytest.mark.parametrize("columns", [40, 200])
def test_no_terminal_is_controlled(hostile: Repo, columns: int) -> None:
    for line in ("inspect @", "diff HEAD~1:@ @", "status", "review root..HEAD", "log @"):
        said = on_terminal(hostile, columns, *words(line, FILE))
        assert said
        assert_harmless(said, line)


def test_conflicts_and_damage_are_told_harmlessly(hostile: Repo) -> None:
    hostile.git("checkout", "-q", "main")
    hostile.write(FILE, model(1.0, 9.0, 3.0))
    hostile.git("commit", "-qam", "ours")
    hostile.git("merge", BRANCH, ok=(1,))
    for line in ("resolve", "resolve @", "resolve --json @", "status", "check --staged"):
        done = hostile.wtxtgit(*words(line, FILE), ok=range(6))
        assert_harmless(done.stdout + done.stderr, line)
    header = json.dumps({NAME: {"dtype": "X"}}).encode()
    hostile.write("bad.safetensors", struct.pack("<Q", len(header)) + header)
    for line in (
        "verify bad.safetensors",
        "verify --json bad.safetensors",
        "inspect bad.safetensors",
    ):
        done = hostile.wtxtgit(*line.split(), ok=range(6))
        assert_harmless(done.stdout + done.stderr, line)


def test_what_is_escaped_is_spelled_as_in_reports(repo: Repo) -> None:
    done = repo.wtxtgit("verify", "\u202e\x1b.wtxt", ok=(3,))
    assert done.stderr.startswith(b"wtxtgit: error: \\u202e\\x1b.wtxt: ")
