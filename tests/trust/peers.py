"""OpenSSH's own programs, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None,
    reason="ssh-keygen is not installed: apt install openssh-client",
)
needs_agent = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("ssh-agent", "ssh-add", "ssh-keygen")),
    reason="ssh-agent, ssh-add or ssh-keygen is not installed: apt install openssh-client",
)


def keygen(*arguments: str | Path, stdin: bytes = b"", ok: bool = True) -> bytes:
    """Run ssh-keygen; gives its standard output."""
    done = subprocess.run(["ssh-keygen", *arguments], input=stdin, capture_output=True, check=False)
    assert (done.returncode == 0) == ok, done
    return done.stdout


def new_key(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> Path:
    """Let ssh-keygen make a key with the comment `a b@c`."""
    keygen("-q", "-t", kind, "-N", passphrase, "-C", "a b@c", "-f", path, *more)
    return path
