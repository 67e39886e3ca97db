"""Hints that name a package, followed in environments that lack it, with pip itself."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NOBODY = "127.0.0.1:1"
"""Where nobody listens."""
HTTP = "http" + "://"
_FAR_FROM_ITS_DATA = """
git init -q repo
cd repo
wtxtgit install --local
wtxtgit track --detached '*.safetensors'
cp ../x x.safetensors
git add .
rm -r .git/wtxt/store
"""
_HINT = re.compile(r"^wtxtgit: hint: (.*)$", re.MULTILINE)
_LOCAL = ("--host", "127.0.0.1", "--no-dashboard")


@dataclass(frozen=True)
class Environment:
    """An environment with pip, and with what `packages` are."""

    folder: Path
    variables: dict[str, str]

    @classmethod
    def made(cls, folder: Path, dist: Path, *packages: str | Path) -> Environment:
        venv.create(folder, with_pip=True)
        # pip's own settings stay: they may name an index. The wheel is found as it is there.
        found = f"{dist} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        variables = {**os.environ, "PIP_FIND_LINKS": found, "PIP_NO_COMPILE": "1"}
        variables["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        one = cls(folder, variables)
        one.call("pip", "install", "-q", *map(str, packages))
        return one

    def call(self, *command: str) -> None:
        done = self.run(*command)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def hint(self, *command: str) -> str | None:
        """What a command that fails says last; None if it says nothing."""
        found = _HINT.findall(self.run(*command).stderr)
        return found[-1] if found else None

    @contextmanager
    def started(self, *command: str, until: str) -> Iterator[str]:
        """A server that runs meanwhile; gives the line with which it says that it is ready."""
        with subprocess.Popen(
            command, cwd=self.folder, env=self.variables, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            said = []
            try:
                for line in process.stderr:
                    said.append(line)
                    if until in line:
                        threading.Thread(target=process.stderr.read, daemon=True).start()
                        yield "".join(said)
                        return
                sys.exit(f"{' '.join(command)} ended: {''.join(said)}")
            finally:
                process.kill()


def follow(wheel: Path, top: Path) -> None:
    """Have each told, run what it says, and see that it is told no more."""
    here = Environment.made(top / "here", wheel.parent, wheel)
    (here.folder / "x").write_bytes(_checkpoint())
    of_dask = (
        ("wtxtgit", "verify", f"{HTTP}{NOBODY}/x"),
        ("wtxtgit", "verify", "x", "--scheduler", f"tcp://{NOBODY}"),
    )
    here.call("bash", "-ec", _FAR_FROM_ITS_DATA)
    of_stream = [
        ("bash", "-c", f"cd repo && git config wtxtgit.store {url} && wtxtgit fetch")
        for url in (f"{HTTP}{NOBODY}/x", f"oci://{NOBODY}/x/y")
    ]
    _ends(here, "pip install 'wtxtgit[stream]'", of_stream)
    _ends(here, "pip install 'wtxtgit[dask]'", of_dask)
    _workers(here, top, wheel)


def _checkpoint() -> bytes:
    size = 1 << 20
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(size)


def _ends(env: Environment, wanted: str, commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        if (told := env.hint(*command)) != wanted:
            sys.exit(f"{' '.join(command)}: the hint is {told!r}, not {wanted!r}")
    env.call("bash", "-c", wanted)
    for command in commands:
        if env.hint(*command) == wanted:
            sys.exit(f"{' '.join(command)}: {wanted} does not end what it speaks of")


def _workers(here: Environment, top: Path, wheel: Path) -> None:
    """Of a machine that has Dask alone, as one of a cluster that serves others, too."""
    there = Environment.made(top / "there", wheel.parent, "dask[distributed]")
    with there.started("dask", "scheduler", *_LOCAL, "--port", "0", until="Scheduler at") as said:
        found = re.search(r"tcp://\S+", said)
        assert found
        worker = ("dask", "worker", found[0], "--no-nanny", *_LOCAL)
        command = ("wtxtgit", "verify", "x", "--scheduler", found[0])
        with there.started(*worker, until="Registered to"):
            told = here.hint(*command) or ""
        wanted = re.fullmatch(r"(pip install 'wtxtgit\[dask\]==\S+') on their machines", told)
        if wanted is None:
            sys.exit(f"the hint about workers without wtxtgit is {told!r}")
        there.call("bash", "-c", wanted[1])
        with there.started(*worker, until="Registered to"):
            if (again := here.hint(*command)) is not None:
                sys.exit(f"{wanted[1]} does not end what it speaks of, but leads to {again!r}")
