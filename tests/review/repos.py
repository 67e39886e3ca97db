"""Checkpoints in repositories, as texts, and reviews of their branches."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.kit import Repo, text_of
from wtxtgit.chain.reader import Facts
from wtxtgit.report.review import Review, Reviewed, Risk
from wtxtgit.review.review import ReviewRequest, review

DTYPES = {"<f4": "F32", "<f8": "F64", "<f2": "F16", "<i8": "I64"}
MODEL = "model.safetensors"


def file(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    held = b""
    for name, value in tensors.items():
        array = np.asarray(value)
        span = [len(held), len(held) + array.nbytes]
        word = DTYPES[array.dtype.str]
        header[name] = {"dtype": word, "shape": list(array.shape), "data_offsets": span}
        held += array.tobytes()
    spelled = json.dumps(header).encode()
    spelled += b" " * (-len(spelled) % 8)
    return struct.pack("<Q", len(spelled)) + spelled + held


def weights(layers: int = 6, **changes: Any) -> dict[str, Any]:
    """Layers of two tensors each; `changes` are by name, with `__` for a dot."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for layer in range(layers):
        made[f"layers.{layer}.q"] = rng.standard_normal((40, 25)).astype("f4")
        made[f"layers.{layer}.k"] = rng.standard_normal((40, 25)).astype("f4")
    made["head"] = rng.standard_normal((40, 25)).astype("f4")
    return made | {name.replace("__", "."): value for name, value in changes.items()}


def put(repo: Repo, tensors: Mapping[str, Any], name: str | bytes = MODEL) -> None:
    """Stage a checkpoint."""
    repo.write(name, text_of(file(tensors)))
    repo.git("--literal-pathspecs", "add", "--", name)


def started(repo: Repo, tensors: Mapping[str, Any] | None = None) -> Repo:
    """A repository whose main has a checkpoint, and whose branch `topic` is checked out."""
    repo.track("*.safetensors")
    put(repo, weights() if tensors is None else tensors)
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    return repo


def reviewed(repo: Repo, asked: str | None = "main...topic", **options: Any) -> Review:
    """Review in this process."""
    here = repo.repository
    return review(here, ReviewRequest(asked, **options), Facts(here, 1), threads=1)


def reviews(repo: Repo, files: Mapping[str, tuple[bytes, bytes]]) -> dict[str, Reviewed]:
    """The review of a branch that changes all of these files."""
    repo.track("*")
    for number, branch in enumerate(("main", "topic")):
        for name, sides in files.items():
            repo.write(name, text_of(sides[number]))
        repo.add()
        repo.commit(branch)
        if not number:
            repo.git("checkout", "-q", "-b", "topic")
    return {one.path.decode(): one for one in reviewed(repo).artifacts}


def only(found: Review) -> Reviewed:
    (one,) = found.artifacts
    return one


def risks(one: Reviewed) -> set[Risk]:
    """Its risks, but for that of all that is not sealed."""
    return {flag.risk for flag in one.flags} - {Risk.UNSEALED}
