"""The main job of wtxtgit, on real checkpoint files: `make demo`.

Everything happens in a scratch folder with a HOME of its own, so that nothing
of the user's git is read or changed. Every claim is checked as it is printed;
what does not hold ends the demo with an error.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

FILES = Path(__file__).parents[1] / "tests" / "data" / "fixtures"
FIRST = {
    "model.fold": "fold/pair_none_v1.fold",
    "model.aero": "aero/pair_single_v1.aero",
    "model.checkpoint": "mlcp/pair_v1_a.checkpoint",
    "train.taridx": "taridx/pair_v1/train.taridx",
    "model.safetensors": "plain/pair_v1.safetensors",
    "arrays.npz": "plain/arrays_a.npz",
    "model.pt": "plain/nested_a.pt",
    "model.gguf": "../golden/gguf/numbers.gguf",
}
DAMAGED, MENDED = "fold/none_rs16_flipped_a.fold", "fold/none_rs16_a.fold"
CHANGED, SECOND = "model.safetensors", "plain/pair_v2.safetensors"
TENSOR, OTHER_TENSOR = "embed", "w"

console = Console(highlight=False, soft_wrap=True)


class NotAsClaimed(Exception):
    """Something that the demo says does not hold."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="wtxtgit-demo-") as scratch:
        try:
            show(Path(scratch))
        except NotAsClaimed as error:
            Console(stderr=True, highlight=False).print(f"\n[bold red]FAILED[/] {error}")
            return 1
    return 0


def show(scratch: Path) -> None:
    repo, clone = scratch / "models", scratch / "clone"
    repo.mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]
    os.environ["GIT_CONFIG_NOSYSTEM"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    be_user(scratch / "alice")

    title("A repository for checkpoints")
    run(repo, "git", "init", "-q", shown=True)
    run(repo, "wtxtgit", "install", shown=True)
    run(repo, "wtxtgit", "track", *(f"*{Path(name).suffix}" for name in FIRST), shown=True)

    title("Eight files in eight formats, one commit")
    for name, source in FIRST.items():
        shutil.copyfile(FILES / source, repo / name)
    run(repo, "git", "add", ".", shown=True)
    run(repo, "git", "commit", "-q", "-m", "first checkpoint", shown=True)
    run(repo, "wtxtgit", "ls-files", shown=True)
    before = packed(repo)
    head = run(repo, "git", "cat-file", "blob", f"HEAD:{CHANGED}").splitlines()
    note(f"What git holds for {CHANGED} is text:")
    for line in (*head[:2], head[4], *head[7:9]):
        quote(line)

    title("A few rows change: a second commit")
    shutil.copyfile(FILES / SECOND, repo / CHANGED)
    run(repo, "git", "commit", "-q", "-a", "-m", "a few rows of embed", shown=True)
    stat = run(repo, "git", "show", "--stat", "--format=%h %s", shown=True)
    check(f"{CHANGED} |" in stat, "git show --stat counts the lines that changed")
    note(f"Which commits changed the tensor {TENSOR}, and which the tensor {OTHER_TENSOR}?")
    follow = ("git", "log", "--oneline", "-L")
    log = run(repo, *follow, f":name={TENSOR} :{CHANGED}", shown=True, most=9)
    check(log.count("diff --git") == 2, f"git log -L finds two commits for {TENSOR}")
    log = run(repo, *follow, f":name={OTHER_TENSOR} :{CHANGED}", "-s", shown=True)
    check(len(log.splitlines()) == 1, f"git log -L finds one commit for {OTHER_TENSOR}")

    title("A clone elsewhere, compared byte by byte")
    be_user(scratch / "bob")
    note("Another user, who has not set wtxtgit up yet:")
    run(scratch, "git", "clone", "-q", str(repo), str(clone), shown=True)
    check((clone / CHANGED).read_bytes().startswith(b"WTXT 1"), "without the driver texts stand")
    run(clone, "wtxtgit", "install", shown=True)
    table = Table("file", "bytes", "sha256 of the original", "sha256 of the clone", box=None)
    table.columns[1].justify = "right"
    table.columns[2].no_wrap = table.columns[3].no_wrap = True
    for name in FIRST:
        original = (FILES / (SECOND if name == CHANGED else FIRST[name])).read_bytes()
        cloned = (clone / name).read_bytes()
        check(original == cloned, f"{name} is the same in the clone")
        table.add_row(name, f"{len(cloned):,}", short(original), short(cloned))
    console.print(table)
    check(run(clone, "git", "status", "--porcelain") == "", "the clone is clean")
    run(clone, "git", "checkout", "-q", "HEAD~1", shown=True)
    check(
        (clone / CHANGED).read_bytes() == (FILES / FIRST[CHANGED]).read_bytes(),
        "the first version comes back too",
    )
    note("Equal, both versions.")

    title("What it costs")
    after = packed(repo)
    run(repo, "git", "count-objects", "-v", "-H", shown=True)
    first = sum((FILES / source).stat().st_size for source in FIRST.values()) / 1024
    second = (FILES / SECOND).stat().st_size / 1024
    note(f"First commit: {first:,.0f} KiB of files, {before} KiB of pack after git gc.")
    note(f"Second commit: {second:,.0f} KiB of file, {after - before} KiB more.")
    check(after - before < second / 4, "the second version costs a fraction of the file")

    title("One wrong character in a text")
    text = scratch / "model.wtxt"
    run(repo, "wtxtgit", "emit", CHANGED, "-o", str(text), shown=True)
    number, column = flip(text)
    note(f"Line {number}, column {column} of {text.name} now has another character.")
    found = run(scratch, "wtxtgit", "verify", text.name, shown=True, code=1)
    check(f'line {number}, array "{TENSOR}", chunk ' in found, "verify names array, chunk and line")
    run(scratch, "wtxtgit", "restore", text.name, "-o", "model.out", shown=True, code=1)
    check(not (scratch / "model.out").exists(), "nothing was written from a damaged text")

    title("Converted to another format, and inspected")
    run(repo, "wtxtgit", "convert", CHANGED, str(scratch / "model.npz"), shown=True)
    run(repo, "wtxtgit", "convert", "model.pt", str(scratch / "model.fold"), shown=True)
    converted = run(scratch, "wtxtgit", "inspect", "model.npz", shown=True)
    original = run(repo, "wtxtgit", "inspect", CHANGED)
    check(hashes(converted) == hashes(original) != set(), "the values are the same to the bit")

    title("A damaged checkpoint, repaired from its own parity")
    shutil.copyfile(FILES / DAMAGED, scratch / "damaged.fold")
    run(scratch, "wtxtgit", "verify", "damaged.fold", shown=True)
    run(scratch, "wtxtgit", "recover", "--ecc", "damaged.fold", shown=True)
    check(
        (scratch / "damaged.fold").read_bytes() == (FILES / MENDED).read_bytes(),
        "the file is what it was before the damage",
    )

    show_seal(scratch)
    console.print("\n[bold green]All of it held.[/]")


def show_seal(scratch: Path) -> None:
    """Signed generations, a commit that is none, and the audit that tells them apart."""
    repo = scratch / "sealed"
    repo.mkdir()
    be_user(scratch / "carol")
    title("Signed generations")
    run(repo, "git", "init", "-q")
    run(repo, "wtxtgit", "install", "--local")
    run(repo, "wtxtgit", "track", f"*{Path(CHANGED).suffix}")
    run(repo, "wtxtgit", "key", "new", "--name", "carol", "--no-passphrase", shown=True)
    run(repo, "wtxtgit", "signers", "add", "carol@example.com", "carol", shown=True)
    shutil.copyfile(FILES / FIRST[CHANGED], repo / CHANGED)
    run(repo, "git", "add", ".gitattributes", ".wtxt", CHANGED, shown=True)
    run(repo, "wtxtgit", "seal", "--staged", shown=True)
    run(repo, "git", "commit", "-q", "-m", "first generation", shown=True)
    run(repo, "git", "tag", "trusted", shown=True)
    shutil.copyfile(FILES / SECOND, repo / CHANGED)
    run(repo, "git", "add", CHANGED)
    run(repo, "wtxtgit", "seal", "--staged", "--build", "run-2", shown=True)
    run(repo, "git", "commit", "-q", "-m", "second generation", shown=True)
    run(repo, "wtxtgit", "log", CHANGED, shown=True)
    run(repo, "wtxtgit", "audit", "--trust-root", "trusted", shown=True)

    title("The audit finds a commit that nobody signed")
    shutil.copyfile(FILES / FIRST[CHANGED], repo / CHANGED)
    run(repo, "git", "commit", "-q", "-a", "-m", "back again, by no one", shown=True)
    found = run(repo, "wtxtgit", "audit", "--trust-root", "trusted", shown=True, code=1)
    check(f"{CHANGED}: content-mismatch" in found, "the audit names the checkpoint")
    run(repo, "git", "reset", "-q", "--hard", "HEAD~1")
    run(repo, "git", "revert", "--no-edit", "HEAD", shown=True)
    found = run(repo, "wtxtgit", "audit", "--trust-root", "trusted", shown=True, code=1)
    check(f"{CHANGED}: ledger-rewritten" in found, "so is a revert, which takes a record back")


def hashes(table: str) -> set[str]:
    """The hashes in the table of tensors that inspect prints."""
    return set(re.findall(r"\b[0-9a-f]{12}\b", table))


def flip(text: Path) -> tuple[int, int]:
    """Change one base64 character in the middle of the tensor; gives line and column from 1."""
    lines = text.read_bytes().split(b"\n")
    start = next(
        i for i, line in enumerate(lines) if line.startswith(b"arr name=%b " % TENSOR.encode())
    )
    number = next(i for i in range(start + 1500, len(lines)) if len(lines[i]) == 78)
    line = bytearray(lines[number])
    line[10] = ord("A") if line[10] != ord("A") else ord("B")
    lines[number] = bytes(line)
    text.write_bytes(b"\n".join(lines))
    return number + 1, 11


def be_user(home: Path) -> None:
    """Go on as a user with an empty home and nothing but a name set up in git."""
    home.mkdir()
    os.environ.update(HOME=str(home), XDG_CONFIG_HOME=str(home / ".config"))
    for key, value in (
        ("user.name", home.name),
        ("user.email", f"{home.name}@example.org"),
        ("init.defaultBranch", "main"),
        ("advice.detachedHead", "false"),
    ):
        run(home, "git", "config", "--global", key, value)


def packed(repo: Path) -> int:
    """Size of the repository's pack after git gc, in KiB."""
    run(repo, "git", "gc", "-q")
    counted = run(repo, "git", "count-objects", "-v")
    line = next(line for line in counted.splitlines() if line.startswith("size-pack"))
    return int(line.split()[1])


def run(folder: Path, *command: str, shown: bool = False, code: int = 0, most: int = 40) -> str:
    """Run a command; print it and its output, up to `most` lines, where `shown`."""
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    if shown:
        console.print(Text("\n$ " + " ".join(map(quoted, command)), style="bold cyan"))
        lines = output.splitlines()
        for line in lines[:most]:
            quote(line)
        if len(lines) > most:
            quote(f"... {len(lines) - most} more lines")
    if done.returncode != code:
        raise NotAsClaimed(f"{' '.join(command)} ended with {done.returncode}:\n{output}")
    return output


def quoted(word: str) -> str:
    return f"'{word}'" if set(word) & set("* :'") and not word.startswith("/") else word


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise NotAsClaimed(f"not so: {claim}")


def title(words: str) -> None:
    console.print()
    console.print(Rule(words, align="left", style="green"))


def note(words: str) -> None:
    console.print(Text(words, style="italic"))


def quote(line: str) -> None:
    """Print a line of output; what is wider than the terminal is cut in the middle."""
    room = max(40, console.width) - 2
    if len(line) > room:
        line = f"{line[: room // 2 - 2]}...{line[-(room - room // 2 - 2) :]}"
    console.print(Text("  " + line))


def short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
