"""What somebody may have changed in a file beside its tensors: a review names and flags it.

Each pair of files is in two variants: as it is, and under a change of the weights, since whatever
is told only of files that differ in nothing else can be hidden so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.containers import aero_files as aero
from tests.containers import fold_files as fold
from tests.containers import samples
from tests.containers.aero_files import Chunk
from tests.kit import Repo, text_of
from tests.review.repos import reviewed
from wtxtgit.report.review import Reviewed, Risk

pytestmark = pytest.mark.slow

OTHER_WEIGHTS = bytes(7 * n % 251 for n in range(400))


def aero_file(
    weights: bytes = aero.WEIGHTS,
    *more: Chunk,
    shard: dict[str, Any] | None = None,
    entries: list[dict[str, Any]] | None = None,
    **header: Any,
) -> bytes:
    listed = entries or [aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], 200, 200)]
    chunks = [aero.tidx(*listed), aero.shard(weights, **(shard or {})), *more]
    return aero.file(chunks, **header)


def hashed(weights: bytes, of: bytes) -> list[dict[str, Any]]:
    """Tensors of which the second has the hash of other bytes."""
    digests = [aero.digest(weights[:200]).hex(), aero.digest(of[200:]).hex()]
    return [
        aero.entry("a", [50], 0, 200, hash_b3=digests[0]),
        aero.entry("b", [5, 10], 200, 200, hash_b3=digests[1]),
    ]


def fold_file(
    noise: bytes = fold.NOISE, notes: bytes = b'{"a":1}', *more: tuple[str, bytes, bytes]
) -> bytes:
    item = samples.tensor_item("F32", [125, 2], 0, 1000)
    model = samples.safetensors({"w": item}, noise)
    return fold.built(("model", b"STEN", model), ("notes", b"JSON", notes), *more)


Made = Callable[[bool], bytes]
"""Makes a file, with other weights if so asked."""


def of_aero(*more: Chunk, **options: Any) -> Made:
    return lambda other: aero_file(OTHER_WEIGHTS if other else aero.WEIGHTS, *more, **options)


def of_fold(
    edit: Callable[[dict[str, Any]], object] | None = None,
    notes: bytes = b'{"a":1}',
    *more: tuple[str, bytes, bytes],
) -> Made:
    def made(other: bool) -> bytes:
        file = fold_file(bytes(reversed(fold.NOISE)) if other else fold.NOISE, notes, *more)
        return fold.edited(file, edit) if edit else file

    return made


def put(made: Made, offset: int, layout: str, value: object) -> Made:
    return lambda other: aero.changed(made(other), offset, layout, value)


def paged(weights: bytes) -> Chunk:
    return aero.phsh("weights.shard0", 128, aero.pages(weights, 128))


CASES: dict[str, tuple[Made, Made, set[Risk]]] = {
    "reserved bytes of the header.aero": (
        of_aero(), of_aero(reserved=b"secret"), {Risk.DAMAGED},
    ),
    "reserved bytes of the table of contents.aero": (
        of_aero(), put(of_aero(), 100, "<I", 7), {Risk.DAMAGED},
    ),
    "a chunk's reserved field.aero": (of_aero(), of_aero(shard={"reserved": 7}), {Risk.DAMAGED}),
    "flags of the file.aero": (of_aero(), of_aero(flags=5), {Risk.DAMAGED}),
    "a stale hash.aero": (of_aero(), of_aero(shard={"digest": bytes(range(32))}), {Risk.DAMAGED}),
    "a hash that is gone.aero": (of_aero(), of_aero(shard={"digest": bytes(32)}), {Risk.PART}),
    "a tensor's stale hash.aero": (
        lambda _: aero_file(entries=hashed(aero.WEIGHTS, aero.WEIGHTS)),
        lambda _: aero_file(OTHER_WEIGHTS, entries=hashed(OTHER_WEIGHTS, aero.WEIGHTS)),
        {Risk.DAMAGED},
    ),
    "stale pages.aero": (
        of_aero(paged(aero.WEIGHTS)), of_aero(paged(bytes(400))), {Risk.DAMAGED},
    ),
    "two tensors of one name.aero": (
        of_aero(),
        of_aero(entries=[aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], 200, 200),
                         aero.entry("b", [5, 10], 0, 200)]),
        {Risk.DAMAGED},
    ),
    "tensors that share bytes.aero": (
        of_aero(),
        of_aero(entries=[aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], 0, 200)]),
        {Risk.PART, Risk.HIDDEN},
    ),
    "a stale sha256.fold": (
        of_fold(), of_fold(lambda index: index["chunks"][0].update(sha256="0" * 64)),
        {Risk.DAMAGED},
    ),
    "another root of hashes.fold": (
        of_fold(), of_fold(lambda index: index.update(merkle_root="0" * 64)), {Risk.DAMAGED},
    ),
}  # fmt: skip
"""By name and ending: the file before, the file after, and the risks that it has at least."""


def variants() -> dict[str, tuple[bytes, bytes, set[Risk]]]:
    files = {}
    for name, (before, after, wanted) in CASES.items():
        files[name] = before(False), after(False), wanted
        files[f"under other weights, {name}"] = before(False), after(True), wanted
    return files


HONEST: dict[str, tuple[bytes, bytes]] = {
    "a.aero": (
        of_aero(paged(aero.WEIGHTS), ihsh=True)(False),
        of_aero(paged(OTHER_WEIGHTS), ihsh=True, uuid=bytes(16))(True),
    ),
    "a.fold": (of_fold()(False), of_fold(notes=b'{"a":2}')(True)),
}
"""Files that a writer saved again, with other weights."""


def reviews(repo: Repo, files: dict[str, tuple[bytes, bytes]]) -> dict[str, Reviewed]:
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


def test_each_is_flagged(repo: Repo) -> None:
    cases = variants()
    found = reviews(repo, {name: (before, after) for name, (before, after, _) in cases.items()})
    missed = {
        name: wanted - {flag.risk for flag in found[name].flags}
        for name, (_, _, wanted) in cases.items()
    }
    assert {name: risks for name, risks in missed.items() if risks} == {}


def test_what_a_writer_saves_again_is_not(repo: Repo) -> None:
    found = reviews(repo, HONEST)
    assert {name: one.flags for name, one in found.items()} == dict.fromkeys(HONEST, ())


def test_a_problem_that_the_base_had_is_not_told_again(repo: Repo) -> None:
    stale = {"digest": bytes(range(32))}
    made = of_aero(shard=stale)
    (one,) = reviews(repo, {"a.aero": (made(False), made(True))}).values()
    assert one.flags == ()


def test_a_new_file_with_a_stale_hash(repo: Repo) -> None:
    repo.track("*")
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    repo.write("a.aero", text_of(of_aero(shard={"digest": bytes(range(32))})(False)))
    repo.add()
    repo.commit("new")
    (one,) = (one for one in reviewed(repo).artifacts if one.path == b"a.aero")
    (flag,) = (flag for flag in one.flags if flag.risk is Risk.DAMAGED)
    assert flag.message.startswith('wtxtgit verify: chunk "weights.shard0", byte ')
