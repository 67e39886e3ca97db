"""Several ranks of one training on one ring: parts, what makes them whole, and where they go."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stream.rings import KEY
from wtxtgit.api.functions import load
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, UsageError
from wtxtgit.remotes.folder import Folder
from wtxtgit.stream import upkeep
from wtxtgit.stream.delivery import attempt
from wtxtgit.stream.emission import EmissionOptions, Emitter, SnapshotRequest
from wtxtgit.stream.index import GenerationIndex, IndexPart
from wtxtgit.stream.log import Log, entry
from wtxtgit.stream.overview import RankedState, read_ring
from wtxtgit.stream.pull import pull
from wtxtgit.stream.ranks import PartName, Rank, World, index_gen, part_of
from wtxtgit.stream.ring import Ring, RingBusy
from wtxtgit.stream.state import Delivery, DeliveryState, read_state
from wtxtgit.text.arrays import NumpyArray, NumpyType
from wtxtgit.text.digest import SignatureState
from wtxtgit.trust.age import recipients
from wtxtgit.trust.age.identities import parse_file

WORLD = 3


def weights(gen: int, rank: int) -> dict[str, np.ndarray]:
    own = np.zeros((1 << 14, 4), "<f4")
    own[: gen + 1] = gen + 10 * rank
    return {f"layer{rank}.w": own, "step": np.full(2, gen, "<i8")}


def arrays(gen: int, rank: int) -> list[NumpyArray]:
    return [
        NumpyArray(name, NumpyType(one.dtype.str, one.itemsize), one.shape, one.data.cast("B"))
        for name, one in sorted(weights(gen, rank).items())
    ]


class Training:
    """The ranks of a training in this process: each emits what it is told to, when it is."""

    def __init__(
        self,
        folder: Path,
        target: Path | None = None,
        options: EmissionOptions | None = None,
        keep: int = 2,
    ) -> None:
        self.folder = folder
        self.target = None if target is None else Folder(target)
        self.keep = keep
        self.rings = [Ring(folder, rank=rank) for rank in Rank(0, WORLD).all()]
        labels = [self.target.label] if self.target else []
        options = options or EmissionOptions()
        self.emitters = [Emitter(ring, options, labels) for ring in self.rings]

    def emit(self, gen: int, *ranks: int, prune: bool = True) -> None:
        for rank in ranks or range(WORLD):
            ring = self.rings[rank]
            request = SnapshotRequest(gen, "2026-01-31T12:00:00Z")
            ring.emitted(self.emitters[rank].emit(request, arrays(gen, rank)))
            if prune:
                ring.prune(self.keep)

    def gens(self, rank: int) -> list[int]:
        return [one.gen for one in self.rings[rank].state.generations]

    def close(self) -> None:
        for ring in self.rings:
            ring.close()


def ring_of(folder: Path) -> RankedState:
    found = read_ring(folder)
    assert isinstance(found, RankedState)
    return found


def whole(folder: Path) -> list[int]:
    return [one.gen for one in ring_of(folder).generations if one.is_whole]


def send(folder: Path, also: Sequence[str] = ()) -> list[DeliveryState]:
    return [one.state for one in upkeep.push(folder, Folder, also)]


def assert_pulled(out: Path, gen: int) -> None:
    with np.load(out) as found:
        assert set(found) == {"layer0.w", "layer1.w", "layer2.w", "step"}
        for rank in range(WORLD):
            for name, array in weights(gen, rank).items():
                assert np.array_equal(found[name], array), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "exp1"


def test_a_generation_counts_when_all_parts_are_there(folder: Path, tmp_path: Path) -> None:
    training = Training(folder, tmp_path / "target")
    training.emit(5, 2, 0)
    assert whole(folder) == []
    (incomplete,) = ring_of(folder).generations
    assert incomplete.missing == (1,)
    assert not (folder / "gen-000005.index").exists()
    training.emit(5, 1)
    training.close()
    assert whole(folder) == [5]
    names = {"gen-000005.0-of-3.wtxt", "gen-000005.1-of-3.wtxt", "gen-000005.2-of-3.wtxt"}
    assert {path.name for path in folder.glob("gen-*")} == names | {"gen-000005.index"}
    assert upkeep.check_ring(folder).ok
    assert set(send(folder)) == {DeliveryState.DELIVERED}
    pulled = pull(Folder(tmp_path / "target"), None, tmp_path / "a.npz")
    assert (pulled.gen, pulled.follows, len(pulled.parts or ())) == (5, None, 3)
    assert_pulled(tmp_path / "a.npz", 5)


def test_a_target_gets_the_index_last(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    training = Training(folder, target)
    training.emit(1)
    training.emit(2, 0, 1)
    training.close()
    rings = [Ring(folder, rank=rank) for rank in Rank(0, WORLD).all()]
    for ring in rings:
        # What is not whole is not sent.
        for generation, one in list(ring.under_way(str(target))):
            assert generation.gen == 1
            assert not list(target.glob("*.index"))
            outcome = attempt(ring, generation, one, Folder(target))
            last = ring.rank.number == WORLD - 1
            assert outcome is (DeliveryState.DELIVERED if last else DeliveryState.SENT)
        assert ring.waits_for_ranks(str(target)) == (ring.rank.number < WORLD - 1)
        ring.close()
    assert {path.name for path in target.iterdir()} == {
        path.name for path in folder.glob("gen-000001.*")
    }
    # The others only have to note it, also where the last one has pruned the generation since.
    with Ring(folder, rank=Rank(2, WORLD)) as ring:
        ring.prune(0)
    assert not (folder / "gen-000001.index").exists()
    assert send(folder) == [DeliveryState.DELIVERED] * 2
    assert read_state(folder, Rank(0, WORLD)).counts.delivered == 1


def test_a_target_that_refuses_an_index_is_told(folder: Path, tmp_path: Path) -> None:
    training = Training(folder, tmp_path / "target")
    training.emit(1)
    training.close()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "gen-000001.index").write_bytes(b"another ring's")
    assert set(send(folder)) == {DeliveryState.REFUSED}
    with pytest.raises(InputError, match="not the index of a generation"):
        pull(Folder(tmp_path / "target"), None, tmp_path / "a.npz")
    (tmp_path / "target" / "gen-000001.index").unlink()
    done = [one.state for one in upkeep.retry(folder, Folder)]
    assert set(done) == {DeliveryState.DELIVERED}


IDENTITY = pyrage.x25519.Identity.generate()
WHOM = (recipients.parse(str(IDENTITY.to_public()), "here"),)


@pytest.mark.parametrize(
    "options",
    [
        EmissionOptions(full_every=3, key=KEY, hmac_key=b"secret"),
        EmissionOptions(full_every=3, recipients=WHOM, build="abc+1"),
        EmissionOptions(wsum=True, key=KEY),
    ],
    ids=["deltas", "encrypted", "pending"],
)
def test_all_that_a_text_may_be(options: EmissionOptions, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    training = Training(folder, target, options, keep=9)
    for gen in range(4):
        training.emit(gen)
    training.close()
    is_encrypted = bool(options.recipients)
    identities = parse_file(str(IDENTITY).encode(), "here") if is_encrypted else ()
    assert upkeep.check_ring(folder, identities=identities).ok
    assert set(send(folder)) == {DeliveryState.DELIVERED}
    key = options.key
    for gen in range(4):
        out = tmp_path / f"{gen}.npz"
        pulled = pull(
            Folder(target),
            gen,
            out,
            public_keys=[] if key is None else [key.public_key],
            require_signed=key is not None,
            identities=identities,
        )
        assert_pulled(out, gen)
        assert pulled.follows == (gen - 1 if gen and not options.wsum else None)
        assert pulled.signature is (SignatureState.ABSENT if key is None else SignatureState.VALID)
    if is_encrypted:
        assert all(b"layer" not in path.read_bytes() for path in folder.iterdir())
    if options.full_every > 1:
        assert len(list(target.glob("*.wtxtdelta*"))) == 2 * WORLD
    pull(Folder(target), 2, tmp_path / "2.wtxt", identities=identities)
    text = load(tmp_path / "2.wtxt")
    assert (text.meta.gen, text.meta.build) == (2, options.build)
    assert np.array_equal(text["layer1.w"], weights(2, 1)["layer1.w"])


def test_what_a_delta_is_put_on_is_sent_though_it_never_was_whole(
    folder: Path, tmp_path: Path
) -> None:
    training = Training(folder, tmp_path / "target", EmissionOptions(full_every=4), keep=1)
    training.emit(1, 0, 1)
    training.emit(2)
    training.close()
    assert training.gens(0) == [1, 2]
    assert training.gens(2) == [2]
    assert whole(folder) == [2]
    assert set(send(folder)) == {DeliveryState.DELIVERED}
    pull(Folder(tmp_path / "target"), None, tmp_path / "a.npz")
    assert_pulled(tmp_path / "a.npz", 2)


def test_what_another_rank_has_lost_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    label = str(tmp_path / "target")
    training = Training(folder, tmp_path / "target")
    training.emit(1, 0, 1)
    ring = training.rings[0]
    assert ring.waits_for_ranks(label, looks_closely=True)
    training.rings[2].failed(1, "no space left")
    assert not ring.waits_for_ranks(label, looks_closely=True)
    training.emit(2, 0, 1)
    assert ring.waits_for_ranks(label, looks_closely=True)
    training.close()


@given(st.data())
def test_an_index_has_one_spelling(data: st.DataObject) -> None:
    parts = tuple(
        IndexPart(rank, f"gen-000001.{rank}-of-2.wtxt", 9, bytes(32), bytes(32), bytes(32))
        for rank in range(2)
    )
    content = bytearray(GenerationIndex(1, parts).content())
    assert GenerationIndex.parse(bytes(content), "x") == GenerationIndex(1, parts)
    place = data.draw(st.integers(0, len(content) - 1))
    inserted = data.draw(st.binary(max_size=3))
    rest = content[place + data.draw(st.integers(0, 2)) :]
    changed = bytes(content[:place]) + inserted + bytes(rest)
    if changed != content:
        with pytest.raises(InputError):
            GenerationIndex.parse(changed, "x")


def test_numbers_of_an_index_are_sizes() -> None:
    zeros = "00" * 32
    fields = {"sha256": zeros, "sha256_all": zeros, "this": zeros}
    lines = [entry("generation", gen=1, world=2)]
    for rank in range(2):
        file = f"gen-000001.{rank}-of-2.wtxt"
        lines.append(entry("part", rank=rank, file=file, size=-9, **fields))
    with pytest.raises(InputError):
        GenerationIndex.parse(b"".join(line.line() for line in lines), "x")


def test_ranks_keep_the_same_generations(folder: Path) -> None:
    training = Training(folder)
    for gen in range(5):
        training.emit(gen)
    for ring in training.rings:
        ring.prune(2)
    assert [training.gens(rank) for rank in range(WORLD)] == [[3, 4]] * WORLD
    assert whole(folder) == [3, 4]
    training.close()


def test_the_last_whole_one_stays_while_newer_ones_may_become_whole(folder: Path) -> None:
    training = Training(folder, keep=1)
    training.emit(1)
    for gen in (2, 3, 4):
        training.emit(gen, 0, 1, prune=False)
    # Rank 2 is at work on 2, and was never asked for the others.
    requests = Log(folder / "requests.2-of-3")
    requests.append(entry("requested", gen=2, ts="x"))
    training.emit(5, 0, 1)
    assert training.gens(0) == training.gens(1) == [1, 2, 5]
    # 2 becomes whole: neither 1 nor what is older than 2 is needed then.
    training.emit(2, 2)
    assert whole(folder) == [1, 2] or whole(folder) == [2]
    training.emit(5, 2)
    training.emit(6)
    for ring in training.rings:
        ring.prune(1)
    assert [training.gens(rank) for rank in range(WORLD)] == [[6]] * WORLD
    assert whole(folder) == [6]
    requests.close()
    training.close()


def test_what_can_not_become_whole_any_more_goes(folder: Path) -> None:
    training = Training(folder, keep=5)
    training.emit(1, 0, 2)
    training.emit(2, 1)
    assert [training.gens(rank) for rank in range(WORLD)] == [[1], [2], [1]]
    training.emit(3)
    for ring in training.rings:
        ring.prune(5)
    assert [training.gens(rank) for rank in range(WORLD)] == [[3]] * WORLD
    training.close()


def test_prune_by_hand_is_of_all_ranks_or_none(folder: Path, tmp_path: Path) -> None:
    training = Training(folder, keep=9)
    for gen in (1, 2):
        training.emit(gen)
    training.emit(3, 0)
    training.rings[1].delivery(1, Delivery(str(tmp_path / "target")))
    training.close()
    with pytest.raises(UsageError, match="generation 1 can't be removed"):
        upkeep.prune(folder, None, [1])
    assert whole(folder) == [1, 2]
    with pytest.raises(UsageError, match="no generation 7"):
        upkeep.prune(folder, None, [7])
    assert upkeep.prune(folder, None, [2, 3]) == [2, 3]
    assert whole(folder) == [1]
    assert {path.name for path in folder.glob("gen-000002*")} == set()


def test_an_index_that_found_no_space_is_written_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(folder)

    def full(path: Path, content: bytes) -> None:
        raise EnvironmentFailure(f"{path.name}: {os.strerror(errno.ENOSPC).lower()}")

    with monkeypatch.context() as patch:
        patch.setattr("wtxtgit.stream.ring.write_once", full)
        training.emit(1)
    assert "gen-000001.index: no space left" in caplog.text
    assert whole(folder) == []
    assert ring_of(folder).generations[0].missing == ()
    training.emit(2)
    assert whole(folder) == [1, 2]
    training.close()


def test_an_index_is_made_by_whoever_takes_the_ring_next(folder: Path) -> None:
    training = Training(folder)
    training.emit(1)
    content = (folder / "gen-000001.index").read_bytes()
    training.close()
    (folder / "gen-000001.index").unlink()
    Ring(folder, rank=Rank(1, WORLD)).close()
    assert (folder / "gen-000001.index").read_bytes() == content


def test_a_name_is_of_one_content(folder: Path, tmp_path: Path) -> None:
    training = Training(folder, tmp_path / "target")
    for rank, ring in enumerate(training.rings):
        values = np.full(3, min(rank, 1), "<f4")
        one = NumpyArray("shared.\u00fc", NumpyType("<f4", 4), (3,), values.data.cast("B"))
        request = SnapshotRequest(1, "2026-01-31T12:00:00Z")
        ring.emitted(training.emitters[rank].emit(request, [one]))
    training.close()
    send(folder)
    with pytest.raises(InputError, match=r"'shared.\xfc' of rank 0 differs from that of rank 1"):
        pull(Folder(tmp_path / "target"), None, tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()


def test_a_part_passes_for_nothing_else(folder: Path, tmp_path: Path) -> None:
    """Neither for a checkpoint, nor for another rank's, nor for one of another ring."""
    target, other = tmp_path / "target", tmp_path / "other"
    for ring, place in ((folder, target), (tmp_path / "exp2", other)):
        training = Training(ring, place)
        training.emit(1)
        training.close()
        send(ring)
    index = (target / "gen-000001.index").read_bytes()
    part = "gen-000001.1-of-3.wtxt"
    lines = index.splitlines(keepends=True)
    of_other = (other / "gen-000001.index").read_bytes().splitlines(keepends=True)

    def refused(error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            pull(Folder(target), None, tmp_path / "a.npz")
        assert not (tmp_path / "a.npz").exists()

    own = (target / part).read_bytes()
    (target / part).write_bytes((other / part).read_bytes())
    refused(InputError, "SHA-256")
    (target / "gen-000001.index").write_bytes(b"".join((*lines[:2], of_other[2], lines[3])))
    refused(CheckError, "parts of more than one ring")
    (target / part).write_bytes(own)
    for made_up in (index[:-1], b"".join(lines[:3]), b"", index.replace(b"rank=2", b"rank=1")):
        (target / "gen-000001.index").write_bytes(made_up)
        refused(InputError, "not the index of a generation")
    (target / "gen-000002.index").write_bytes(index)
    refused(CheckError, "is the index of generation 1")
    (target / "gen-000002.index").unlink()
    (target / "gen-000001.index").unlink()
    refused(InputError, "no generations")
    (target / "gen-000001.wtxt").write_bytes(own)
    refused(CheckError, "is the part of rank 1-of-3")
    (target / "gen-000001.index").write_bytes(index)
    refused(CheckError, "both whole and in parts")
    (target / "gen-000001.wtxt").unlink()
    (target / part).unlink()
    refused(InputError, f"has no {part}")


def test_a_ring_has_one_number_of_ranks(folder: Path, tmp_path: Path) -> None:
    Ring(folder, rank=Rank(1, 4)).close()
    for rank, words in (
        (Rank(), "of 4 ranks, not of 1"),
        (Rank(1, 3), "4 ranks, not of 3"),
    ):
        with pytest.raises(UsageError, match=words):
            Ring(folder, rank=rank)
    Ring(tmp_path / "alone").close()
    with pytest.raises(UsageError, match="a ring of 1 rank, not of 4"):
        Ring(tmp_path / "alone", rank=Rank(0, 4))
    (folder / "world").write_bytes(b"world size=4 name=0 crc32c=00000000\n")
    with pytest.raises(InputError, match="does not say how many ranks"):
        Ring(folder, rank=Rank(1, 4))
    for number, world in ((-1, 2), (2, 2), (0, 0), (0, 70_000)):
        with pytest.raises(UsageError, match=r"rank is|world is"):
            Rank(number, world)


def test_a_rank_has_one_process(folder: Path) -> None:
    with Ring(folder, rank=Rank(1, 2)), Ring(folder, rank=Rank(0, 2)):
        with pytest.raises(RingBusy, match="is using rank 1 of this ring"):
            Ring(folder, rank=Rank(1, 2))
        with pytest.raises(RingBusy):
            upkeep.prune(folder, 1, [])


@pytest.mark.parametrize(
    "name",
    [
        "gen-000001.wtxt",
        "gen-1000000.3-of-4.wtxt.age",
        "gen-000002.0-of-65536.from-000001.wtxtdelta",
    ],
)
def test_names_of_parts(name: str) -> None:
    part = PartName.parse(name)
    assert part is not None
    assert str(part) == name
    assert part_of(World(4, "0" * 16).build("a+b", Rank(3, 4))) == ("a+b", Rank(3, 4), "0" * 16)


@pytest.mark.parametrize(
    "name",
    [
        "gen-000001.0-of-1.wtxt",
        "gen-000001.4-of-4.wtxt",
        "gen-000001.01-of-4.wtxt",
        "gen-000001.0-of-70000.wtxt",
        "gen-0000001.wtxt",
        "gen-000001.from-000000.wtxt",
        "gen-000001.wtxtdelta",
        "gen-000001.index",
        "../gen-000001.wtxt",
    ],
)
def test_no_names_of_parts(name: str) -> None:
    assert PartName.parse(name) is None
    assert index_gen(name) == (1 if name == "gen-000001.index" else None)
