"""What shells complete, asked as they ask."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.kit import LAUNCHER, Repo, safetensors
from tests.kit.templates import Templates, copyable

HOSTILE = "$(touch${IFS}owned)"
QUOTED = r"\$\(touch\$\{IFS\}owned\)"
"""What bash is given of it."""
SPOKEN = "a [0] 'b' é"
"""The name of a tensor that a shell has to quote."""


def with_program(folder: Path) -> str:
    """A PATH on which `wtxtgit` is found first."""
    program = folder / "wtxtgit"
    program.write_text(f'#!/bin/sh\nexec {LAUNCHER.command()} "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def completed(repo: Repo, *words: str) -> list[str]:
    """What bash gets for the last of the words."""
    env = {
        "_WTXTGIT_COMPLETE": "bash_complete",
        "COMP_LINE": " ".join(("wtxtgit", *words)),
    }
    done = repo.run(*LAUNCHER.arguments, env=env)
    assert done.stderr == b""
    return [line.partition(",")[2] for line in done.stdout.decode().splitlines() if line]


@pytest.fixture
def model(templates: Templates, tmp_path: Path) -> Repo:
    return Repo(templates.copy("to complete", _make_model, tmp_path / "repo"))


def _make_model(folder: Path) -> Repo:
    repo = copyable(folder)
    repo.write("sub/a.safetensors", safetensors(1.0, name="layers.0.q"))
    repo.write("sub/b.safetensors", safetensors(1.0, name=HOSTILE))
    repo.write(f"sub/{HOSTILE}", "x")
    repo.git("add", "-f", ".")
    repo.commit()
    repo.git("branch", "topic")
    repo.git("branch", HOSTILE)
    return repo


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("ins",), ["install", "inspect"]),
        (("inspect", "--js"), ["--json"]),
        (("inspect", "HEAD:s"), ["HEAD:sub/"]),
        (
            ("diff", "topic:sub/"),
            [f"topic:sub/{QUOTED}", "topic:sub/a.safetensors", "topic:sub/b.safetensors"],
        ),
        (("inspect", "HEAD~0:s"), ["HEAD~0:sub/"]),
        (("verify", "nowhere:"), []),
        (("inspect", "sub/a.safetensors", "lay"), ["layers.0.q"]),
        (("inspect", "sub/b.safetensors", ""), [QUOTED]),
        (("inspect", "nothing", ""), []),
        (("log", "sub/a.safetensors", "to"), ["topic"]),
        (("review", "main..."), ["main...HEAD", f"main...{QUOTED}", "main...main", "main...topic"]),
        (("review", "main..t"), ["main..topic"]),
        (("audit", "--trust-root", "to"), ["to", "topic"]),
        (("fetch", "to"), ["to", "topic"]),
        (("migrate", "export", "to"), ["topic"]),
        (("resolve", "--strategy", "t"), ["theirs", "task"]),
    ],
)
def test_a_word_is_completed(model: Repo, words: tuple[str, ...], wanted: list[str]) -> None:
    assert completed(model, *words) == wanted


@pytest.mark.parametrize(
    "words", [("convert",), ("add",), ("checkout",), ("status",), ("resolve",), ("taridx", "ls")]
)
def test_a_file_is_left_to_the_shell(model: Repo, words: tuple[str, ...]) -> None:
    assert completed(model, *words, "sub/a") == ["sub/a"]


def test_what_is_mistyped_has_nothing_to_go_on_with(model: Repo) -> None:
    assert completed(model, "instal", "") == []
    assert completed(model, "instal", "--lo") == []


def test_keys_are_completed(model: Repo) -> None:
    model.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    assert completed(model, "seal", "--key", "al") == ["alice", "al"]
    assert completed(model, "signers", "add", "alice@example.com", "al") == ["alice", "al"]


def test_generations_are_completed(model: Repo) -> None:
    model.wtxtgit("track", "*.safetensors")
    model.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    model.wtxtgit("signers", "add", "alice@example.com", "alice")
    model.wtxtgit("install", "--local")
    model.git("add", "--renormalize", ".")
    model.wtxtgit("seal", "--staged", "--key", "alice", "sub/a.safetensors")
    model.wtxtgit("key", "new", "--name", "bob", "--no-passphrase")
    model.wtxtgit("signers", "add", "bob@example.com", "bob")
    at = "sub/a.safetensors@"
    people = [f"{at}signed-by:{who}@example.com" for who in ("alice", "bob")]
    names = [f"{at}latest", f"{at}gen:1", *people]
    assert completed(model, "verify", at) == names
    assert completed(model, "verify", f"{at}g") == names[1:2]
    assert completed(model, "verify", f"{at}signed-by:b") == people[1:]
    assert completed(model, "verify", f"{at}signed-by:bob@e") == people[1:]


def test_signers_are_completed(model: Repo) -> None:
    assert completed(model, "signers", "remove", "") == []
    for name, who in (("one", "alice"), ("two", "alice"), ("three", "bob")):
        model.wtxtgit("key", "new", "--name", name, "--no-passphrase")
        model.wtxtgit("signers", "add", f"{who}@example.com", name)
    people = ["alice@example.com", "bob@example.com"]
    assert completed(model, "signers", "remove", "") == people
    assert completed(model, "signers", "remove", "b") == people[1:]


def test_patterns_of_this_folder_are_completed(model: Repo) -> None:
    model.wtxtgit("track", "*.safetensors", "a.bin")
    model.wtxtgit("track", "*.npz", cwd="sub")
    assert completed(model, "untrack", "") == [r"\*.safetensors", "a.bin"]
    assert completed(model, "untrack", "a") == ["a.bin"]
    # The shell has files.
    assert completed(model, "untrack", "sub/") == ["sub/"]
    assert completed(model, "track", "sub/") == ["sub/"]


def test_tensors_of_a_history_are_completed(model: Repo) -> None:
    asked = ("history", "sub/a.safetensors", "--tensor")
    assert completed(model, *asked, "lay") == ["layers.0.q"]
    assert completed(model, *asked, "x") == []
    assert completed(model, "history", "--tensor", "lay") == []


def script_of(repo: Repo, shell: str) -> bytes:
    """What the command says to `_WTXTGIT_COMPLETE=bash_source wtxtgit`, or of another shell."""
    return repo.run(*LAUNCHER.arguments, env={"_WTXTGIT_COMPLETE": f"{shell}_source"}).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(repo: Repo, shell: str) -> None:
    assert b"_WTXTGIT_COMPLETE" in script_of(repo, shell)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("inspect sub/a.safetensors lay", ["layers.0.q"]),
        # Bash takes this for two words, and puts in what stands behind the colon.
        ("diff topic:sub/a", ["sub/a.safetensors"]),
        ("seal --key=al", ["alice"]),
        # A branch, and a file.
        ("inspect to", ["topic", "tools"]),
        ("review main..to", ["main..topic"]),
        ("diff topic~0:sub/a", ["sub/a.safetensors"]),
    ],
)
def test_bash_completes_by_its_script(
    model: Repo, tmp_path: Path, typed: str, wanted: list[str]
) -> None:
    """By `complete -p` what bash would call, called as bash calls it."""
    model.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    model.write("tools", "")
    path = with_program(tmp_path)
    asked = """
        eval "$(_WTXTGIT_COMPLETE=bash_source wtxtgit)"
        [[ "$(complete -p wtxtgit)" =~ -F\\ ([_a-z]+) ]] || exit 1
        COMP_LINE="wtxtgit $1 and more" COMP_POINT=$((${#1} + 8))
        "${BASH_REMATCH[1]}" wtxtgit
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = model.run("bash", "-c", asked, "bash", typed, env={"PATH": path})
    assert done.stdout.decode().splitlines() == wanted, done.stderr


_TAB, _SHOW = "\t", "\x18"
_ZSH = """
    autoload -Uz compinit && compinit -u -C -d "$FOUND"
    source "$ZDOTDIR/script"
    show() { print -rn -- $BUFFER >"$SHOWN"; exit }
    zle -N show && bindkey '^X' show
    told() { print READY }
    zle -N zle-line-init told
"""


def _type(shell: Sequence[str], repo: Repo, env: Mapping[str, str], typed: str) -> None:
    """Type a command and a tab in an interactive shell that says READY; it shows its line then."""
    terminal, end = os.openpty()
    with (
        os.fdopen(terminal, "r+b", buffering=0) as screen,
        subprocess.Popen(
            shell,
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=repo.path,
            env={**os.environ, **env},
            start_new_session=True,
        ),
    ):
        os.close(end)
        seen = b""
        while b"READY" not in seen:
            seen += screen.read(1024)
        screen.write(f"wtxtgit {typed}{_TAB}{_SHOW}".encode())
        # Linux says so once nobody has the other end.
        with contextlib.suppress(OSError):
            while screen.read(1024):
                pass


def typed_in_zsh(repo: Repo, folder: Path, found: Path, typed: str) -> str:
    """The line that zsh has after a tab; what it looked for at its start it leaves in `found`."""
    dots = folder / "dots"
    dots.mkdir()
    (dots / ".zshrc").write_text(_ZSH)
    (dots / "script").write_bytes(script_of(repo, "zsh"))
    shown = dots / "shown"
    places = {"ZDOTDIR": str(dots), "SHOWN": str(shown), "FOUND": str(found)}
    env = {"PATH": with_program(folder), "TERM": "vt100", **places}
    _type(["zsh", "-d", "-i"], repo, env, typed)
    return shown.read_text()


@pytest.fixture
def spoken(templates: Templates, tmp_path: Path, home: Path) -> Repo:
    """Names that only a shell which quotes them can be given."""

    def make(folder: Path) -> None:
        folder.mkdir()
        model = _make_model(folder / "repo")
        model.write("odd/one.safetensors", safetensors(1.0, name=SPOKEN))
        model.write("odd/it's mine.safetensors", safetensors(1.0, name="a\nb"))
        model.write("tools", "")
        model.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
        model.git("add", "-f", "odd")
        model.commit()
        model.wtxtgit("track", "*.safetensors")
        model.wtxtgit("signers", "add", "alice@example.com", "alice")
        model.wtxtgit("seal", "--key", "alice", "sub/a.safetensors")
        keys.rename(folder / "keys")

    keys = home / ".config/wtxtgit/keys"
    made = templates.copy("to quote", make, tmp_path / "made")
    keys.parent.mkdir(parents=True, exist_ok=True)
    (made / "keys").rename(keys)
    return Repo(made / "repo")


CASES = [
    ("inspect sub/a.safetensors lay", "layers.0.q"),
    ("inspect odd/one.safetensors a", SPOKEN),
    ("inspect sub/b.safetensors ", HOSTILE),
    ("diff topic:sub/a", "topic:sub/a.safetensors"),
    ("diff HEAD:odd/it", "HEAD:odd/it's mine.safetensors"),
    ("diff odd/it", "odd/it's mine.safetensors"),
    ("seal --key=al", "--key=alice"),
    ("convert tool", "tools"),
    ("review main..to", "main..topic"),
    ("verify sub/a.safetensors@signed-by:al", "sub/a.safetensors@signed-by:alice@example.com"),
    ("history sub/a.safetensors --tensor=lay", "--tensor=layers.0.q"),
    ("untrack ", "*.safetensors"),
]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(("typed", "wanted"), CASES)
def test_zsh_puts_in(
    spoken: Repo, tmp_path: Path, templates: Templates, typed: str, wanted: str
) -> None:
    found = templates.folder / "zcompdump"
    # Quoted by zsh, so that running the line runs nothing that is in a name.
    assert shlex.split(typed_in_zsh(spoken, tmp_path, found, typed))[-1] == wanted
    assert not list(spoken.path.rglob("owned"))


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("typed", "wanted"), CASES)
def test_fish_lists(spoken: Repo, tmp_path: Path, typed: str, wanted: str) -> None:
    asked = "_WTXTGIT_COMPLETE=fish_source wtxtgit | source; complete -C $argv[1]"
    env = {"PATH": with_program(tmp_path), "HOME": str(tmp_path)}
    listed = spoken.run("fish", "--no-config", "-c", asked, f"wtxtgit {typed}", env=env)
    assert wanted in listed.stdout.decode().splitlines(), listed.stderr
    assert not list(spoken.path.rglob("owned"))


def typed_in_bash(repo: Repo, folder: Path, typed: str) -> str:
    """The line that bash has after a tab."""
    shown = folder / "shown"
    rc, script = folder / "bashrc", folder / "script"
    script.write_bytes(script_of(repo, "bash"))
    rc.write_text(
        f"source {shlex.quote(str(script))}\n"
        'show() { printf %s "$READLINE_LINE" >"$SHOWN"; exit; }\n'
        "bind -x '\"\\C-x\": show'\nPS1=READY\n"
    )
    env = {"PATH": with_program(folder), "SHOWN": str(shown), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    _type(["bash", "--noprofile", "--rcfile", str(rc), "-i"], repo, env, typed)
    return shown.read_text()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        *CASES,
        (r"inspect odd/one.safetensors a\ ", SPOKEN),
        (r"diff HEAD:odd/it\'s", "HEAD:odd/it's mine.safetensors"),
        ("diff HEAD~0:odd/it", "HEAD~0:odd/it's mine.safetensors"),
    ],
)
def test_bash_puts_in(spoken: Repo, tmp_path: Path, typed: str, wanted: str) -> None:
    line = typed_in_bash(spoken, tmp_path, typed)
    assert shlex.split(line)[-1] == wanted, line
    assert not list(spoken.path.rglob("owned"))


def test_outside_of_a_repository_nothing_fails(
    repo: Repo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = Repo(tmp_path_factory.mktemp("elsewhere"))
    assert completed(elsewhere, "review", "") == ["HEAD"]
    assert completed(elsewhere, "diff", "HEAD:") == []
