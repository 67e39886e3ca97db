"""What several commands start from: checkpoints, keys and signers in a repository."""

from __future__ import annotations

from collections.abc import Mapping

from tests.kit import ATTRIBUTES, safetensors
from tests.torture.cases.places import Place

MODEL, OTHER = "model.safetensors", "sub/other.safetensors"
OLD, NEW = safetensors(*range(3000)), safetensors(*range(1, 3001))
KEY = ("--key", "alice")


def plain(place: Place) -> None:
    """A commit with two checkpoints."""
    place.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n".encode())
    place.write(MODEL, OLD)
    place.write(OTHER, OLD)
    place.call("add", ".")
    place.commit()


def changed(place: Place) -> None:
    plain(place)
    place.write(MODEL, NEW)
    place.write("new.safetensors", NEW)
    place.write("plain", b"not filtered")


def missing(place: Place) -> None:
    plain(place)
    (place.repo / MODEL).unlink()
    (place.repo / OTHER).write_bytes(place.git("cat-file", "blob", f"HEAD:{OTHER}"))
    place.git("update-index", "-q", "--refresh", ok=None)


def missing_and_new(place: Place) -> None:
    missing(place)
    place.write("new.safetensors", NEW)


def texts(place: Place) -> None:
    changed(place)
    place.call("emit", MODEL, "-o", "model.wtxt")
    place.call("emit", OTHER, "-o", "other.wtxt")


def damaged(place: Place) -> None:
    """A text with a wrong character is committed, and stands in the work tree."""
    plain(place)
    text = bytearray(place.git("cat-file", "blob", f"HEAD:{MODEL}"))
    at = text.index(b"\nch ix=0")
    at = text.index(b"\n", at + 1) + 20
    text[at] = ord("A") if text[at] != ord("A") else ord("B")
    (place.top / "damaged").write_bytes(text)
    oid = place.git("hash-object", "-w", "--no-filters", "../damaged").decode().strip()
    place.git("update-index", "--cacheinfo", f"100644,{oid},{MODEL}")
    place.git("commit", "-q", "--no-verify", "-m", "damaged")
    (place.repo / MODEL).unlink()
    place.git("checkout", "--", MODEL)


def branches(place: Place) -> None:
    """Two branches that change rows of one tensor that are far from each other."""
    diverge(place, {"topic": (10, -1.0), "main": (2000, -1.0)})


def conflict(place: Place) -> None:
    """Two branches that change the same row, and their merge."""
    diverge(place, {"topic": (10, -1.0), "main": (10, -2.0)})
    place.git("merge", "-q", "topic", ok=(1,))


def diverge(place: Place, rows: Mapping[str, tuple[int, float]]) -> None:
    plain(place)
    place.git("branch", "base")
    values = list(map(float, range(3000)))
    for branch, (row, value) in rows.items():
        place.git("checkout", "-q", "-B", branch, "base")
        place.write(MODEL, safetensors(*values[:row], value, *values[row + 1 :]))
        place.call("add", MODEL)
        place.commit()


def keys(place: Place) -> None:
    plain(place)
    for name in ("alice", "bob"):
        place.call("key", "new", "--name", name, "--no-passphrase")


def signers(place: Place) -> None:
    keys(place)
    for name in ("alice", "bob"):
        place.call("signers", "add", f"{name}@example.com", name)
    place.commit()


def unsealed(place: Place) -> None:
    signers(place)
    place.write(MODEL, NEW)
    place.call("add", MODEL)


def sealed(place: Place) -> None:
    unsealed(place)
    place.call("seal", "--staged", *KEY)
    place.commit()
    place.write(MODEL, OLD)
    place.call("add", MODEL)
