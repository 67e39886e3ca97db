"""Snapshots from outside: a training, its worker, the ring, and targets."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stream.rings import filled, proved
from wtxtgit.api.functions import load
from wtxtgit.errors import RemoteRefused, RemoteUnavailable, UsageError
from wtxtgit.io.view import ByteView
from wtxtgit.remotes.folder import Folder
from wtxtgit.remotes.target import Outgoing, StoredFile, Target
from wtxtgit.setup.keys import new, users_keyring
from wtxtgit.stream import Snapshots
from wtxtgit.stream.delivery import DeliveryLimits
from wtxtgit.stream.ranks import Rank
from wtxtgit.stream.ring import Ring, RingBusy
from wtxtgit.stream.snapshots import SnapshotsBehind, SnapshotsFailed
from wtxtgit.stream.state import DeliveryState, read_state
from wtxtgit.text.digest import SignatureState
from wtxtgit.trust.openssh import generate
from wtxtgit.trust.signing import SeedKey

pytestmark = pytest.mark.slow


def state(value: float = 1.0, size: int = 8) -> dict[str, Any]:
    return {"layer": {"w": np.full((size, 4), value, "<f4"), "b": np.arange(3, dtype="<f4")}}


@dataclass(frozen=True)
class Switched:
    """A folder that is there while a file says so; to be had by the worker, too."""

    folder: Path
    switch: Path

    @property
    def label(self) -> str:
        return str(self.folder)

    def put(
        self,
        files: Sequence[Outgoing],
        *,
        about: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sequence[str]:
        match self.switch.read_text():
            case "down":
                raise RemoteUnavailable("the place is down")
            case "refuses":
                raise RemoteRefused("you may not")
        return Folder(self.folder).put(files, replace=replace)

    def get(self, name: str, sha256: str | None = None) -> ByteView:
        raise NotImplementedError

    def list(self, prefix: str = "") -> Sequence[StoredFile]:
        raise NotImplementedError

    def has(self, name: str, sha256: str) -> bool:
        raise NotImplementedError


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "exp1"


@pytest.fixture
def switched(tmp_path: Path) -> Switched:
    (tmp_path / "switch").write_text("up")
    return Switched(tmp_path / "target", tmp_path / "switch")


@contextlib.contextmanager
def stopped_worker(snapshots: Snapshots) -> Iterator[None]:
    """Within, the worker does nothing."""
    worker = snapshots.worker_process
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def test_what_is_published_is_in_the_ring(ring: Path) -> None:
    with Snapshots(ring, build="abc123") as snapshots:
        assert snapshots.publish(state(1.0), gen=500, audit={"loss": 0.25}) == 500
        snapshots.flush()
        assert snapshots.publish(state(2.0), audit={"note": "a b"}) == 501
    weights = proved(ring)
    assert list(weights) == [500, 501]
    assert np.array_equal(weights[500]["layer.w"], state(1.0)["layer"]["w"])
    assert np.array_equal(weights[501]["layer.w"], state(2.0)["layer"]["w"])
    assert weights[500].snapshot.audit == "loss=0.25"
    assert weights[501].snapshot.audit == 'note="a b"'
    assert weights[500].snapshot.meta.build == "abc123"


def test_the_loop_may_change_its_arrays_at_once(ring: Path) -> None:
    weights = state(1.0)
    with Snapshots(ring) as snapshots, stopped_worker(snapshots):
        snapshots.publish(weights)
        weights["layer"]["w"][:] = 9
    assert np.all(proved(ring)[0]["layer.w"] == 1)


def test_without_a_copy_the_arrays_are_read_later(ring: Path) -> None:
    weights = state(1.0)
    with Snapshots(ring) as snapshots:
        snapshots.publish(weights, copy=False)
        snapshots.flush()
        weights["layer"]["w"][:] = 9
    assert np.all(proved(ring)[0]["layer.w"] == 1)


def test_what_has_not_begun_is_dropped_for_what_is_newer(ring: Path) -> None:
    with Snapshots(ring) as snapshots:
        snapshots.publish(state(0))
        snapshots.flush()
        with stopped_worker(snapshots):
            for number in range(1, 6):
                snapshots.publish(state(number))
        snapshots.flush()
        assert "dropped" in str(snapshots)
    weights = proved(ring)
    # One of the others may have been under way when the next one came: which one, the threads say.
    assert {0, 5} <= set(weights)
    assert len(weights) <= 3
    assert np.all(weights[5]["layer.w"] == 5)
    counts = read_state(ring).counts
    assert counts.emitted + counts.dropped == 6


def test_one_with_a_pin_is_not_dropped(ring: Path) -> None:
    with Snapshots(ring, keep=1) as snapshots, stopped_worker(snapshots):
        for number in range(5):
            snapshots.publish(state(number), pin=number == 2)
    assert {2, 4} <= set(proved(ring))


def test_a_full_disk_does_not_end_the_loop(ring: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, also of what could be written all the same."""
    with Snapshots(ring) as snapshots:
        usual = os.write

        def full(descriptor: int, content: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", full)
            assert snapshots.publish(state()) == 0
            patch.setattr(os, "write", usual)
            snapshots.flush()
    assert "no space left" in caplog.text
    assert list(proved(ring)) == [0]


def test_a_line_says_how_it_stands(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Snapshots(ring, live=True, policy="all") as snapshots:
        for number in range(3):
            snapshots.publish(state(number))
            snapshots.flush()
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.rstrip().rpartition("\r")[2] == "generation 2, 0 waiting, 3 in the ring"


def test_of_several_ranks_all_keep_the_same_ones(ring: Path) -> None:
    """However each of them drops, since none knows what another one does."""
    with Snapshots(ring, rank=1, world=2) as snapshots, stopped_worker(snapshots):
        for gen in range(500, 10_500, 500):
            snapshots.publish(state(gen), gen=gen)
        with pytest.raises(UsageError, match="gen is missing"):
            snapshots.publish(state())
    gens = [one.gen for one in read_state(ring, Rank(1, 2)).generations]
    # 16 and 20 times 500, and at most one that was under way when the next one came.
    assert {8000, 10_000} <= set(gens)
    assert len(gens) <= 3


def test_all_of_them_where_that_is_wanted(ring: Path) -> None:
    with Snapshots(ring, policy="all") as snapshots, stopped_worker(snapshots):
        for number in range(6):
            snapshots.publish(state(number))
    assert list(proved(ring)) == list(range(6))


def test_a_queue_has_an_end(ring: Path) -> None:
    with (
        Snapshots(ring, policy="all", queue_bytes=2000) as snapshots,
        stopped_worker(snapshots),
    ):
        # At most five of them fit, and one may be under way.
        for number in range(3):
            snapshots.publish(state(number))
        with pytest.raises(SnapshotsBehind, match="queue_bytes=2000"):
            snapshots.publish(state(9, size=1000))
    weights = proved(ring)
    assert list(weights) == list(range(len(weights)))


def test_deltas_where_they_are_smaller(ring: Path) -> None:
    weights = state(1.0, size=1 << 16)
    with Snapshots(ring, full_every=3) as snapshots:
        for number in range(7):
            weights["layer"]["w"][number] = number
            snapshots.publish(weights)
            snapshots.flush()
    generations = read_state(ring).generations
    assert [one.base for one in generations] == [None, 0, 0, None, 3, 3, None]
    assert [one.kind for one in generations[:2]] == ["text", "delta"]
    assert generations[1].size < generations[0].size / 3
    weights = proved(ring)
    assert weights[5]["layer.w"][5, 0] == 5
    assert weights[4]["layer.w"][5, 0] == 1


def test_the_last_ones_are_kept_and_what_they_need(ring: Path) -> None:
    weights = state(1.0, size=1 << 14)
    with Snapshots(ring, keep=2, full_every=4) as snapshots:
        for number in range(7):
            weights["layer"]["w"][number] = number
            snapshots.publish(weights, pin=number == 1)
            snapshots.flush()
    assert list(proved(ring)) == [0, 1, 4, 5, 6]


def test_as_many_are_kept_as_are_wanted(ring: Path) -> None:
    filled(ring, None)
    with Ring(ring) as opened:
        assert opened.prune(7) == []
        assert opened.prune(2) == [2]


def test_signed_and_authenticated(ring: Path) -> None:
    key = SeedKey("alice", generate("alice"))
    with Snapshots(ring, sign=key, hmac_key=b"secret", full_every=2) as snapshots:
        for number in range(2):
            weights = state(1.0, size=1 << 14)
            weights["layer"]["w"][number] = 2
            snapshots.publish(weights)
            snapshots.flush()
    weights = proved(ring)
    salts = set()
    for gen in (0, 1):
        report = weights[gen].report
        assert report.signature is SignatureState.UNKNOWN_KEY
        salts |= {array.salt for array in weights[gen].snapshot.arrays}
    assert len(salts) == 6
    assert all(salts)
    loaded = load(ring / "gen-000000.wtxt", hmac_key=b"secret", public_keys=[key.public_key])
    assert loaded.report.signature is SignatureState.VALID


def test_the_key_may_be_named(ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    facts = new(users_keyring(os.environ), "alice", None)
    with Snapshots(ring, sign="alice") as snapshots:
        snapshots.publish(state())
    assert proved(ring)[0].report.keyid == facts.keyid
    with pytest.raises(UsageError, match='no key "bob"'):
        Snapshots(ring, sign="bob")


def test_a_text_and_its_wsum(ring: Path, tmp_path: Path) -> None:
    with Snapshots(ring, wsum=True, to=[Folder(tmp_path / "target")]) as snapshots:
        snapshots.publish(state())
        snapshots.publish(state(2.0))
    proved(ring)
    names = {path.name for path in (tmp_path / "target").iterdir()}
    assert {"gen-000001.wtxt", "gen-000001.wtxt.root.wsum"} <= names


def test_numbers_grow(ring: Path) -> None:
    with Snapshots(ring) as snapshots:
        snapshots.publish(state(), gen=7)
        with pytest.raises(
            UsageError, match="generation 7 can't be published: the ring is already at 7"
        ):
            snapshots.publish(state(), gen=7)
    with Snapshots(ring) as snapshots:
        with pytest.raises(UsageError):
            snapshots.publish(state(), gen=3)
        assert snapshots.publish(state()) == 8
    proved(ring)
    with pytest.raises(UsageError, match="closed"):
        snapshots.publish(state())


def test_one_training_a_ring(ring: Path) -> None:
    with Snapshots(ring) as snapshots:
        with pytest.raises(RingBusy, match=f"process {snapshots.worker_process} is using"):
            Snapshots(ring)
        snapshots.publish(state())
    with Snapshots(ring):
        pass


def test_a_value_that_can_not_be_published_costs_nothing(ring: Path) -> None:
    with Snapshots(ring) as snapshots:
        with pytest.raises(UsageError, match='"f" is a builtin'):
            snapshots.publish({"f": print})
        with pytest.raises(UsageError, match='"f" is an object, not'):
            snapshots.publish({"f": object()})
        with pytest.raises(UsageError, match="given by name, in a mapping, not as int"):
            snapshots.publish(5)  # type: ignore[arg-type]
        assert snapshots.publish(state()) == 0
    assert read_state(ring).counts.dropped == 0


def test_what_is_no_target_is_refused_before_a_worker_starts(ring: Path) -> None:
    with pytest.raises(UsageError, match=r"^to takes targets, not '/backup'") as refused:
        Snapshots(ring, to=["/backup"])  # type: ignore[list-item]
    assert refused.value.hint == "targets.Folder('/backup') is one"
    assert not ring.exists()


def test_a_worker_that_is_killed_is_started_again(ring: Path) -> None:
    with Snapshots(ring, full_every=3) as snapshots:
        for number in range(4):
            snapshots.publish(state(number))
            os.kill(snapshots.worker_process, signal.SIGKILL)
            snapshots.flush()
    weights = proved(ring)
    assert list(weights) == [0, 1, 2, 3]


def test_what_was_dropped_is_counted_once(ring: Path) -> None:
    """Also where the worker that was told of it is killed, and the next one is told again."""
    with Ring(ring) as opened:
        for _ in range(2):
            opened.passed_over([1, 2])
        opened.passed_over([2, 3])
    assert read_state(ring).counts.dropped == 3


def test_what_can_not_be_written_is_told(ring: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "wtxtgit.stream")
    snapshots = Snapshots(ring, rows_per_chunk=1)
    # More chunks than a text can number.
    for weights in (state(), {"w": np.zeros(1_000_001, "u1")}, state()):
        snapshots.publish(weights)
        snapshots.flush()
    with pytest.raises(SnapshotsFailed, match=r"generation 1 is not in the ring: .*1000001 chunks"):
        snapshots.close()
    assert "generation 1: " in caplog.text
    assert list(proved(ring)) == [0, 2]
    assert list(read_state(ring).failed) == [1]


def test_an_error_of_the_loop_is_the_one_that_is_raised(ring: Path) -> None:
    snapshots = Snapshots(ring, rows_per_chunk=1)
    snapshots.publish({"w": np.zeros(1_000_001, "u1")})
    with pytest.raises(ZeroDivisionError), snapshots:
        raise ZeroDivisionError


def test_targets_get_each_generation_once(ring: Path, tmp_path: Path) -> None:
    targets: list[Target] = [Folder(tmp_path / "a"), Folder(tmp_path / "b")]
    with Snapshots(ring, to=targets) as snapshots:
        for number in range(3):
            snapshots.publish(state(number))
            snapshots.flush()
    for name in ("a", "b"):
        for file in (ring / "gen-000000.wtxt", ring / "gen-000002.wtxt"):
            assert (tmp_path / name / file.name).read_bytes() == file.read_bytes()
    assert read_state(ring).counts.delivered == 6


def test_a_target_that_is_down_gets_them_later(
    ring: Path, switched: Switched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wtxtgit.stream")
    switched.switch.write_text("down")
    up = Folder(tmp_path / "up")
    with Snapshots(ring, keep=1, to=[switched, up]) as snapshots:
        for number in range(4):
            snapshots.publish(state(number))
            snapshots.flush()
    assert "4 generations have not been sent yet: wtxtgit ring push" in caplog.text
    # Kept until they are sent, however many were to be kept.
    assert list(proved(ring)) == [0, 1, 2, 3]
    (first, second) = read_state(ring).generations[0].deliveries
    assert {first.state, second.state} == {DeliveryState.QUEUED, DeliveryState.DELIVERED}
    assert not switched.folder.exists()
    switched.switch.write_text("up")
    with Snapshots(ring, keep=1, to=[switched, up]) as snapshots:
        snapshots.publish(state(9))
    assert len(list(switched.folder.iterdir())) == 5
    assert read_state(ring).counts.delivered == 10
    assert list(proved(ring))[-1] == 4


def test_a_target_that_refuses_is_told_of(ring: Path, switched: Switched) -> None:
    switched.switch.write_text("refuses")
    with Snapshots(ring, keep=1, to=[switched]) as snapshots:
        snapshots.publish(state())
        snapshots.flush()
        snapshots.publish(state())
    generations = read_state(ring).generations
    assert [one.deliveries[0].state for one in generations] == [DeliveryState.REFUSED] * 2
    assert generations[0].deliveries[0].why == "you may not"


def test_what_waits_for_too_long_is_given_up(ring: Path, switched: Switched) -> None:
    switched.switch.write_text("down")
    limits = DeliveryLimits(nbytes=3000)
    with Snapshots(ring, keep=1, to=[switched], limits=limits) as snapshots:
        for number in range(5):
            snapshots.publish(state(number))
            snapshots.flush()
    found = read_state(ring)
    assert found.counts.expired >= 2
    assert sum(one.size for one in found.generations) < 6000
    assert list(proved(ring))[-1] == 4


TRAINING = """
import os, signal, sys
import numpy as np
from wtxtgit.stream.snapshots import Snapshots
with Snapshots(sys.argv[1]) as snapshots:
    weights = {"w": np.ones(4, "<f4")}
    snapshots.publish(weights, gen=1)
    snapshots.flush()
    os.kill(snapshots.worker_process, signal.SIGSTOP)
    for gen in range(2, 6):
        snapshots.publish(weights, gen=gen)
    print(snapshots.worker_process, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("also", [True, False], ids=["both", "training"])
def test_requests_that_died_with_their_process_are_named(
    ring: Path, also: bool, caplog: pytest.LogCaptureFixture
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, ring], stdout=subprocess.PIPE, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    worker = int(done.stdout)
    end = os.pidfd_open(worker)
    os.kill(worker, signal.SIGKILL if also else signal.SIGCONT)
    assert select.select([end], [], [], 30)[0]
    os.close(end)
    caplog.set_level(logging.WARNING, "wtxtgit.stream")
    with Snapshots(ring) as snapshots:
        lost = snapshots.lost
        assert snapshots.publish({"w": np.ones(4, "<f4")}) == 6
    weights = proved(ring)
    # The worker finishes what it was given.
    assert set(weights) | set(lost) | {6} >= {1, 5, 6}
    assert not set(weights) & set(lost)
    assert (5 in lost) != (5 in weights)
    assert 5 in lost or not also
    assert ("lost with the process that published them" in caplog.text) == bool(lost)
    assert set(read_state(ring).lost) == set(lost)


def test_a_forked_process_does_not_keep_the_worker_alive(ring: Path) -> None:
    with Snapshots(ring) as snapshots:
        worker = snapshots.worker_process
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        snapshots.publish(state())
    assert not Path(f"/proc/{worker}").exists()
    os.close(reading)
    os.close(writing)
    os.waitpid(child, 0)


def test_no_secret_is_shown(ring: Path) -> None:
    key = SeedKey("alice", generate("alice"))
    with Snapshots(ring, sign=key, hmac_key=b"very secret") as snapshots:
        worker = snapshots.worker_process
        argv = Path(f"/proc/{worker}/cmdline").read_bytes()
        environ = Path(f"/proc/{worker}/environ").read_bytes()
        snapshots.publish(state())
        shown = repr(snapshots.__dict__).encode()
    logs = b"".join(path.read_bytes() for path in ring.iterdir())
    for place in (argv, environ, shown, logs):
        assert b"very secret" not in place
        assert key.secret.seed not in place


def test_a_state_is_told_as_data(ring: Path) -> None:
    with Snapshots(ring) as snapshots:
        snapshots.publish(state())
        snapshots.flush()
        told = json.loads(json.dumps(snapshots.state().as_dict()))
    assert told["last"] == 0
    assert told["counts"]["emitted"] == 1
    (generation,) = told["generations"]
    assert generation["file"] == "gen-000000.wtxt"
    assert generation["merkle_this"] == told["head"]
