"""Commands that send, prune and fetch what a training has written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.torture.cases.places import REMOTE, RING, SENT, Killed, Place
from tests.torture.cases.starts import MODEL, plain
from wtxtgit.stream import Snapshots, targets

_BRANCH = f"git:../{REMOTE}#snapshots"


def trained(place: Place, folder: str, to: Sequence[targets.Target] = ()) -> None:
    """A ring of some generations, texts and deltas."""
    plain(place)
    weights = np.zeros((4096, 16), "<f4")
    with Snapshots(place.repo / folder, keep=9, full_every=3, policy="all", to=to) as snapshots:
        for number in range(5):
            weights[number] += 1
            snapshots.publish({"w": weights}, pin=number == 1)


def ring(place: Place) -> None:
    trained(place, RING)


def ring_outside(place: Place) -> None:
    trained(place, f"../{RING}")


def ring_and_branch(place: Place) -> None:
    """A ring, and a repository beside it."""
    trained(place, RING)
    place.git("init", "-q", "--bare", f"../{REMOTE}")


def refused(place: Place) -> None:
    """A ring whose target took nothing, and would now: a file was in its place."""
    (place.top / SENT).touch()
    trained(place, RING, [targets.Folder(place.top / SENT)])
    (place.top / SENT).unlink()


def sent(place: Place) -> None:
    """A folder that has all generations, and a file that is to be replaced."""
    trained(place, RING, [targets.Folder(place.top / SENT)])


RINGS = (
    Killed("ring push --to", ring, ("ring", "push", RING, "--to", f"../{SENT}")),
    Killed("ring push: branch", ring_and_branch, ("ring", "push", RING, "--to", _BRANCH)),
    Killed("ring retry", refused, ("ring", "retry", RING)),
    Killed("ring prune", ring_outside, ("ring", "prune", f"../{RING}", "--keep", "2")),
    Killed("ring prune GEN", ring, ("ring", "prune", RING, "1"), over=2),
    Killed("pull", sent, ("pull", f"../{SENT}"), over=2),
    Killed("pull -o", sent, ("pull", f"../{SENT}", "-o", MODEL)),
)
