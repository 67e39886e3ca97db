"""What tests of all folders share: repositories, the command, files."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.json_output import assert_as_specified
from tests.kit.starts import PYTHON
from wtxtgit.filter.clean import clean
from wtxtgit.git import run
from wtxtgit.git.driver import Launcher
from wtxtgit.git.repository import Repository

LAUNCHER = Launcher((PYTHON, "-E", "-P", "-m", "wtxtgit"))
CONFIG = """\
[user]
\tname = A U Thor
\temail = author@example.com
[init]
\tdefaultBranch = main
[maintenance]
\tauto = false
[protocol "file"]
\tallow = always
"""
"""Whose repositories they are, in a configuration of git.

It starts no maintenance: git would ask after each commit whether there is any to be done.
"""
ATTRIBUTES = "filter=wtxt diff=wtxt merge=wtxt -text"


def safetensors(*values: float, name: str = "w") -> bytes:
    """Make a safetensors file of one float32 tensor."""
    data = struct.pack(f"<{len(values)}f", *values)
    header = {name: {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}}
    spelled = json.dumps(header, separators=(",", ":")).encode()
    spelled += b" " * (-len(spelled) % 8)
    return struct.pack("<Q", len(spelled)) + spelled + data


def text_of(content: bytes) -> bytes:
    """Make the text that git stores for a file."""
    return b"".join(clean(memoryview(content), threads=1).pieces())


@dataclass(frozen=True)
class Repo:
    """A repository in a temporary folder, driven through the real git."""

    path: Path

    def run(
        self,
        *command: str | bytes | Path,
        ok: Sequence[int] = (0,),
        cwd: str = "",
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            command,
            cwd=self.path / cwd,
            capture_output=True,
            input=stdin,
            env={**os.environ, **env} if env else None,
            check=False,
        )
        assert done.returncode in ok, (done.args, done.returncode, done.stdout, done.stderr)
        words = [os.fsdecode(word) for word in command]
        if "wtxtgit" in words:
            called = words[words.index("wtxtgit") + 1 :]
            assert_as_specified(called, done.returncode, done.stdout)
        return done

    def git(self, *arguments: str | bytes, **options: object) -> bytes:
        return self.run(run.executable(), *arguments, **options).stdout  # type: ignore[arg-type]

    def wtxtgit(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        return self.run(*LAUNCHER.arguments, *arguments, **options)  # type: ignore[arg-type]

    def settle(self, *names: str) -> None:
        """Have unchanged files look older than the index, so that git never reads them again.

        Of others it can't know whether they have changed since: any command may have the filter
        store their data once more.
        """
        for name in names:
            os.utime(self.path / name, (1_000_000_000, 1_000_000_000))
        self.git("update-index", "-q", "--refresh")

    def write(self, name: str | bytes, content: bytes | str) -> Path:
        file = self.path / os.fsdecode(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def add(self, *names: str | bytes) -> None:
        self.git("add", "--", *(names or (".",)))

    def commit(self, message: str = "c", *arguments: str) -> str:
        self.git("commit", "-q", "--allow-empty", "-m", message, *arguments)
        return self._branch_tip() or self.git("rev-parse", "HEAD").decode().strip()

    def _branch_tip(self) -> str:
        """The commit that was just made, where that takes no git to tell; "" where it does."""
        head = self.path / ".git/HEAD"
        ref = head.read_text() if head.is_file() else ""
        loose = self.path / ".git" / ref.removeprefix("ref: ").strip()
        return loose.read_text().strip() if ref.startswith("ref: ") and loose.is_file() else ""

    def track(self, *patterns: str) -> None:
        self.write(".gitattributes", "".join(f"{p} {ATTRIBUTES}\n" for p in patterns))
        self.add(".gitattributes")

    def blob(self, name: str, revision: str = "") -> bytes:
        return self.git("cat-file", "blob", f"{revision}:{name}")

    def status(self) -> bytes:
        return self.git("status", "--porcelain", "-z")

    def add_raw(self, name: str, content: bytes) -> None:
        """Put a raw binary into the index as a machine without the driver does."""
        self.write(name, content)
        off = ("--literal-pathspecs", "-c", "filter.wtxt.process=", "-c", "filter.wtxt.clean=")
        self.git(*off, "-c", "filter.wtxt.required=false", "add", "--", name)

    def clone(self, name: str, *arguments: str) -> Repo:
        target = self.path.parent / name
        self.git("clone", "-q", *arguments, "--", str(self.path), str(target))
        return Repo(target)

    @property
    def repository(self) -> Repository:
        return Repository.discover(self.path)
