"""Bytes on the wire between wtxtgit and a server, counted by a relay: a class of tests.

What the server's protocol says beside the payload counts too: requests, headers, lists, and the
indexes of packs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.remotes.places import fetched, holds, pushed, text
from tests.remotes.servers import Wire
from tests.remotes.test_fetched_parts import needed, with_rows_changed
from tests.store.chunks import added, weights
from wtxtgit.remotes.payload.place import PackPlace
from wtxtgit.store.store import Store

COUNT = 256
"""Chunks of 16 KiB of f32 in a version."""


@dataclass(frozen=True)
class Remote:
    """A place behind a relay, and the one that is written to, if that is another."""

    wire: Wire
    place: PackPlace
    writer: PackPlace


def told(what: str) -> None:
    """Say what was transferred, in bytes: `pytest -s` shows it."""
    print(f"\n{what}")


class TransferTests:
    """Of a server that `remote`, a fixture, stands for."""

    def test_ten_versions_with_one_hundredth_of_the_rows_changed(
        self, remote: Remote, own: Path, tmp_path: Path
    ) -> None:
        versions = with_rows_changed(COUNT, 0.01, 10)
        sent = self.send(remote, own, versions)
        need = needed(own, versions[-1])
        given = self.fetch(remote, tmp_path / "fresh", versions[-1])
        told(f"1% of rows, the last of ten: {given / need:.3f} of {need}")
        assert given <= 1.1 * need
        first = self.fetch(remote, tmp_path / "other", versions[0])
        second = self.fetch(remote, tmp_path / "other", versions[1])
        told(f"1% of rows, the second: {second / first:.4f}, and sent {sent[1]} of {sent[0]}")
        assert second <= 0.02 * first
        assert sent[1] <= 0.02 * sent[0]

    def test_ten_versions_with_a_tenth_changed_as_a_block(
        self, remote: Remote, own: Path, tmp_path: Path
    ) -> None:
        versions = [weights(COUNT)]
        for number in range(1, 10):
            at = (number * 71) % (COUNT - COUNT // 10)
            block = weights(COUNT // 10, seed=100 + number)
            before = versions[-1]
            versions.append([*before[:at], *block, *before[at + len(block) :]])
        self.send(remote, own, versions)
        need = needed(own, versions[-1])
        given = self.fetch(remote, tmp_path / "fresh", versions[-1])
        told(f"10% as a block, the last of ten: {given / need:.3f} of {need}")
        assert given <= 1.1 * need

    def send(self, remote: Remote, own: Path, versions: list[list[bytes]]) -> list[int]:
        """Push one version after the other; gives the bytes that each sent."""
        sent = []
        for number, version in enumerate(versions):
            added(Store(own), version, before=versions[number - 1] if number else ())
            remote.wire.clear()
            assert not pushed(own, remote.writer, text(version)).lacking
            sent.append(remote.wire.sent)
        return sent

    def fetch(self, remote: Remote, store: Path, version: list[bytes]) -> int:
        """Fetch a version; gives the bytes that came."""
        remote.wire.clear()
        assert not fetched(store, remote.place, text(version)).lacking
        assert holds(store, version)
        return remote.wire.given

    @pytest.fixture
    def own(self, tmp_path: Path) -> Path:
        return tmp_path / "versions"
