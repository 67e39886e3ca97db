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

from tests.docs.test_commands import COMMANDS as CALLED
from tests.docs.test_commands import GROUPS
from tests.kit import LAUNCHER, Repo

pytestmark = pytest.mark.slow

COMMANDS = [" ".join(words) for words in CALLED]
NAME = "\x1b[31mr\x07\u202e\u200f\u2066\x85\x9b<img src=x>|`a`\n::error::x\n# h\u2028"
FILE = "m\x1b[2J\n::error file=x::y\u202e\u200e\x9b<b>|`.safetensors"
PLAIN = "plain.safetensors"
BRANCH = "to\u202epic<b>|`x`"
SUBJECT = "sub\x1b[31m\u202e<b>|`ject"
CONTROLS = {*range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
"""Marks of direction and separators of lines, beside control characters of all kinds."""
WHOLE = (
    *("status", "status --json", "ls-files", "doctor", "check --staged", "hook pre-commit"),
    *("signers list", "signers list --json", "signers threshold", "key list", "ring ls ."),
    *("key show alice", "hook pre-push", "hook commit-msg", "track"),
    *("store ls", "store verify", "store repack", "store prune", "store use", "fetch", "push"),
    *("migrate info", "migrate info --everything --json", "migrate export --dry-run"),
    "migrate import --include *.none --dry-run",
    *("release root --trust-root root --dry-run", "release root --trust-root root --json"),
    *(f"audit --trust-root root --format {form}" for form in ("text", "json", "sarif", "github")),
    *(f"check --staged --format {form}" for form in ("sarif", "github")),
    *(
        f"review root..HEAD --format {form}"
        for form in ("text", "md", "html", "json", "sarif", "github")
    ),
)
OF_A_FILE = (
    *("inspect @", "inspect --json @", "verify @", "verify --json @", "log @", "log --json @"),
    *("inspect @ --html -", "diff HEAD~1:@ @ --html -", "history @ --html -"),
    *("history @", "history --json @", "history @ --tensor *"),
    *(
        "cat @ @",
        "cat @ __metadata__",
        "diff HEAD~1:@ @",
        "diff --json HEAD~1:@ @",
        "emit @ -o x.wtxt",
        "verify x.wtxt",
    ),
    *("convert @ o.gguf", "inspect o.gguf", "convert @ o.fold", "inspect o.fold", "verify o.fold"),
    *("diff o.gguf o.fold", "delta make HEAD~1:@ @ -o d.wtxtdelta", "verify d.wtxtdelta"),
    *("restore @", "verify @none", "add @none", "seal @none", "checkout @", "recover --ecc @"),
    *(
        "repack @ --compression none",
        "merge-file @ @ @ -o o.safetensors",
        "resolve @",
        "taridx ls @",
        "reseal @",
    ),
    *("recover @", "recover --json @", "recover x.wtxt -o y.wtxt", "recover --json HEAD:@"),
    *("restore x.wtxt -o r.safetensors", "delta apply HEAD~1:@ d.wtxtdelta -o a.wtxt"),
    *("fetch @", "push @", "store use @", "store import --from-lfs @"),
    *("attach @", "detach @", "detach x.wtxt -o @.wtxt", "attach @.wtxt"),
    *("finalize @", "track @", "untrack @", "salvage @", "taridx cat @ @", "taridx verify @"),
    *("taridx build @.tar -o t.taridx", "ring verify @", "ring prune @", "key import @"),
    *("ring push @", "ring retry @", "pull @", "pull . --gen @"),
    *("encrypt @ -r x -o e.wtxt.age", "decrypt @ -i none", "rekey @", "signers remove @"),
    *("signers add @ alice", "key show @", "key new --name @", "check @", "audit --trust-root @"),
    *("clean @", "smudge @", "merge-driver @ @ @ 7 @", "diff-driver @", "filter-process @"),
    *("install @", "uninstall @"),
)
"""Every command stands in one of these: a test below holds them against the help."""
FORMATS = (
    *("o.npz", "o.pt", "o.aero", "o.checkpoint", "o.fold", "o.gguf"),
    *("w.aeroset.json", "o.safetensors"),
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
        # A form that there is not would be harmless, too.
        assert done.stdout or "--format" not in arguments, arguments
        if "--json" in arguments or "json" in arguments or "sarif" in arguments:
            assert done.stdout.isascii()
            json.loads(done.stdout or b"{}")


def test_every_command_is_tried() -> None:
    tried = {line.partition(" @")[0] for line in (*WHOLE, *OF_A_FILE)}
    missing = [
        command
        for command in COMMANDS
        if command not in GROUPS and not any(f"{one} ".startswith(f"{command} ") for one in tried)
    ]
    assert missing == []


def test_names_within_files_of_every_format_control_nothing(hostile: Repo) -> None:
    """Of what another format can't say in its own way convert tells: harmlessly, too."""
    read = 0
    for made in FORMATS:
        hostile.wtxtgit("convert", PLAIN, made, ok=range(6))
        for line in ("inspect", "inspect --json", "verify", "verify --json", f"diff {PLAIN}"):
            done = hostile.wtxtgit(*line.split(), made, ok=range(6))
            assert_harmless(done.stdout + done.stderr, (line, made))
            read += done.returncode == 0
        done = hostile.wtxtgit("convert", PLAIN, made, ok=range(6))
        assert_harmless(done.stdout + done.stderr, made)
    assert read > 2 * len(FORMATS)


def test_nothing_in_a_name_is_markup(hostile: Repo) -> None:
    """Pages have no element of a name's, and Markdown none of HTML, wherever names stand."""
    calls = [["review", "root..HEAD", "--format", form] for form in ("html", "md")]
    calls += [[*words(line, FILE), "--html", "-"] for line in ("inspect @", "history @")]
    calls.append(["diff", f"root:{FILE}", FILE, "--html", "-"])
    for call in calls:
        said = hostile.wtxtgit(*call).stdout
        assert b"img src" in said.replace(b"&#32;", b" "), call
        assert b"<img" not in said, call
        assert b"<b>" not in said, call
    said = hostile.wtxtgit("audit", "--trust-root", "root", "--format", "sarif", ok=range(6)).stdout
    for run in json.loads(said)["runs"]:
        for result in run["results"]:
            assert result["message"]["text"].isprintable()
            assert "markdown" not in result["message"]


def test_git_is_told_nothing_that_controls_something(hostile: Repo) -> None:
    """What stands between git and a terminal: the drivers of diffs and merges, and the hooks."""
    done = hostile.git("diff", "--ext-diff", "root", "HEAD")
    assert_harmless(done, "git diff")
    hostile.git("checkout", "-q", "main")
    hostile.write(FILE, model(1.0, 9.0, 3.0))
    hostile.git("commit", "-qam", "ours")
    done = hostile.run("git", "merge", BRANCH, ok=(1,))
    ours = [line for line in done.stderr.split(b"\n") if line.startswith(b"wtxtgit")]
    assert ours
    assert_harmless(b"\n".join(ours), "git merge")


@pytest.mark.parametrize("columns", [40, 200])
def test_no_terminal_is_controlled(hostile: Repo, columns: int) -> None:
    for line in (
        "inspect @",
        "diff HEAD~1:@ @",
        "status",
        "review root..HEAD",
        "log @",
        "history @",
    ):
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
