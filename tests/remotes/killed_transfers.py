"""What a command transfers that is killed and then run again, counted by a relay: tests.

With SIGKILL, together with all processes that it started, once so many bytes have passed.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.kit import Repo
from tests.kit.changes import is_nightly
from tests.remotes.servers import SOCKETS, Wire
from tests.remotes.transfers import told
from wtxtgit.store.store import Store

MIB = 1024 * 1024
SIZES = (4, 20)
"""The files' sizes in MiB; each has a pack of its own, of nine tenths of that."""
MOMENTS = (0.05, 0.5, 0.95) if is_nightly() else (0.5,)
"""The parts of what an undisturbed run transfers after which one is killed."""
PIECE = 8 * MIB
"""Most bytes that come or are sent twice, where a transfer is taken up."""
_COMMAND = (sys.executable, "-E", "-P", "-m", "wtxtgit")
_ATTRIBUTES = "*.npy filter=wtxt-detached diff=wtxt merge=wtxt -text\n"


@dataclass(frozen=True)
class Killing:
    """A server behind a relay.

    `place` has git settings by which a repository uses a place there, for each name another one;
    `writer` those by which it is written to, if that is another.
    """

    wire: Wire
    place: Callable[[str], Mapping[str, str]]
    writer: Callable[[str], Mapping[str, str]]


@pytest.mark.skipif(not SOCKETS.exists(), reason="there is no /proc here: run it on Linux")
class KilledTests:
    """Of a server that `killing`, a fixture, stands for."""

    twice_of_push = SIZES[-1] * MIB
    """Most bytes that a push sends twice: those of a pack, in one request."""

    @pytest.fixture
    def models(self, repo: Repo, driver: None) -> Repo:
        repo.write(".gitattributes", _ATTRIBUTES)
        for mib in SIZES:
            chance = np.random.default_rng(mib)
            values = chance.standard_normal(mib * MIB // 4, dtype=np.float32) * np.float32(0.02)
            content = io.BytesIO()
            np.save(content, values)
            repo.write(f"{mib}.npy", content.getvalue())
        repo.add()
        repo.commit()
        return repo

    def test_a_fetch(self, models: Repo, killing: Killing) -> None:
        use(models, killing.writer("fetched"))
        models.wtxtgit("push")
        clone = models.clone("clone", "--no-checkout")
        use(clone, killing.place("fetched"))
        wire = killing.wire
        wire.clear()
        assert run(clone, "fetch", "HEAD") == 0
        alone = wire.given
        for moment in MOMENTS:
            shutil.rmtree(clone.path / ".git/wtxt")
            wire.clear()
            assert killed(wire, int(moment * alone), clone, "fetch", "HEAD")
            assert run(clone, "fetch", "HEAD") == 0
            told(f"fetch, killed at {moment}: {(wire.given - alone) / MIB:.2f} MiB twice")
            assert wire.given <= alone + PIECE
            assert chunks_of(clone) == chunks_of(models)
            clone.wtxtgit("store", "verify")

    def test_a_push(self, models: Repo, killing: Killing) -> None:
        wire = killing.wire
        use(models, killing.place("alone"))
        wire.clear()
        assert run(models, "push") == 0
        alone = wire.sent
        for moment in MOMENTS[-2:]:
            use(models, killing.place(f"killed-{moment}"))
            wire.clear()
            assert killed(wire, int(moment * alone), models, "push")
            assert run(models, "push") == 0
            told(f"push, killed at {moment}: {(wire.sent - alone) / MIB:.2f} MiB twice")
            assert wire.sent <= alone + self.twice_of_push
        clone = models.clone("clone", "--no-checkout")
        use(clone, killing.place(f"killed-{MOMENTS[-1]}"))
        assert run(clone, "fetch", "HEAD") == 0
        assert chunks_of(clone) == chunks_of(models)


def use(repo: Repo, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        repo.git("config", key, value)


def run(repo: Repo, *words: str) -> int:
    return started(repo, *words).wait()


def started(repo: Repo, *words: str) -> subprocess.Popen[bytes]:
    command = [*_COMMAND, *words]
    out = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=repo.path, stdout=out, start_new_session=True)


def killed(wire: Wire, count: int, repo: Repo, *words: str) -> bool:
    """Run a command that is killed once so many bytes have passed; gives whether it was."""
    with wire.held(count) as is_over:
        process = started(repo, *words)
        is_over.wait()
        wire.wait_until_read()
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def chunks_of(repo: Repo) -> set[bytes]:
    own = Store(Path(repo.path, ".git/wtxt/store")).own
    opened = [own.opened(name) for name in own.names]
    return {
        pack.index.entry(row).name
        for pack in opened
        if pack is not None
        for row in range(pack.index.count)
    }
