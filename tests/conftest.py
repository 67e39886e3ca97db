"""An isolated home, real git, and repositories to work in."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings

from wtxtgit.git import run
from wtxtgit.git.config import Launcher
from wtxtgit.git.repository import Repository

# Timings are never judged, and what is tried is the same in every run, so that a
# failure is one of the change at hand; WTXTGIT_EXPLORE=1 looks for new cases.
EXPLORE = "WTXTGIT_EXPLORE"
settings.register_profile("wtxtgit", deadline=None, derandomize=not os.environ.get(EXPLORE))
settings.load_profile("wtxtgit")

LAUNCHER = Launcher((sys.executable, "-E", "-P", "-m", "wtxtgit"))
ATTRIBUTES = "filter=wtxt diff=wtxt merge=wtxt -text"

_CONFIG = """\
[user]
\tname = A U Thor
\temail = author@example.com
[init]
\tdefaultBranch = main
[protocol "file"]
\tallow = always
[commit]
\tgpgSign = false
"""


def safetensors(*values: float, name: str = "w") -> bytes:
    """Make a safetensors file of one float32 tensor."""
    data = struct.pack(f"<{len(values)}f", *values)
    header = {name: {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}}
    spelled = json.dumps(header, separators=(",", ":")).encode()
    spelled += b" " * (-len(spelled) % 8)
    return struct.pack("<Q", len(spelled)) + spelled + data


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
            env={**os.environ, **(env or {})},
            check=False,
        )
        assert done.returncode in ok, (done.args, done.returncode, done.stdout, done.stderr)
        return done

    def git(self, *arguments: str | bytes, **options: object) -> bytes:
        return self.run(run.executable(), *arguments, **options).stdout  # type: ignore[arg-type]

    def wtxtgit(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        return self.run(*LAUNCHER.arguments, *arguments, **options)  # type: ignore[arg-type]

    def write(self, name: str | bytes, content: bytes | str) -> Path:
        file = self.path / os.fsdecode(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def add(self, *names: str | bytes) -> None:
        self.git("add", "--", *(names or (".",)))

    def commit(self, message: str = "c", *arguments: str) -> str:
        self.git("commit", "-q", "--allow-empty", "-m", message, *arguments)
        return self.git("rev-parse", "HEAD").decode().strip()

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


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with a user and nothing else configured."""
    # The factory's own folders are numbered by looking at all that there are: in thousands
    # of tests that takes milliseconds each.
    folder = Path(mkdtemp(dir=homes))
    for name in [name for name in os.environ if name.startswith(("GIT_", "WTXTGIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / ".local/state"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_ATTR_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TERMINAL_PROMPT", "0")
    (folder / ".gitconfig").write_text(_CONFIG)
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """An empty repository, without the driver."""
    folder = tmp_path / "repo"
    folder.mkdir()
    made = Repo(folder)
    made.git("init", "-q")
    return made


@pytest.fixture
def driver(home: Path) -> None:
    """The driver in the global config, as install sets it."""
    for key, value in LAUNCHER.values().items():
        run.git("config", "--global", key, value, cwd=home)


@pytest.fixture
def tracked(repo: Repo, driver: None) -> Repo:
    """A repository with the driver and model.safetensors, tracked and committed."""
    repo.track("*.safetensors")
    repo.write("model.safetensors", safetensors(1.0, 2.0, 3.0))
    repo.add()
    repo.commit()
    return repo


@pytest.fixture
def command() -> Path:
    """The installed command's path."""
    return Path(sys.executable).with_name("wtxtgit")
