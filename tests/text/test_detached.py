"""Detached texts: vectors, a second implementation, and the way from a text and back."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from typing import Any

import pytest

import wtxtgit
from tests.data import DATA, valid_cases
from tests.text import edge_detached
from tests.text.edge_texts import Arr, Text
from tests.text.naive_detached import detached, judge
from tests.text.reading import read_text
from wtxtgit.errors import MENDS_STORE, CheckError, InputError, TextError
from wtxtgit.io.view import ByteView
from wtxtgit.text.detached import attached
from wtxtgit.text.verify import TextReport, verify
from wtxtgit.text.write import TextWriter

CASES = json.loads((DATA / "detached.json").read_bytes())["cases"]
FOLDER = DATA / "detached"


class Chunks:
    """A payload of given chunks; those of `damaged` names can't be read."""

    def __init__(self, chunks: Iterable[bytes], damaged: Iterable[bytes] = ()) -> None:
        self.chunks = {sha256(chunk).digest(): chunk for chunk in chunks}
        self.damaged = set(damaged)

    def want(self, names: Iterable[bytes]) -> None:
        pass

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        return {name for name in names if name in self.chunks}

    def read_all(self, names: Sequence[bytes], size: int) -> memoryview | None:
        return None

    def states(self, names: Sequence[bytes]) -> Mapping[bytes, int]:
        return {}

    def read(self, name: bytes) -> ByteView:
        if name in self.damaged:
            raise InputError("the chunk is damaged")
        return memoryview(self.chunks[name])


def found(text: bytes, payload: Chunks, **given: Any) -> tuple[set[str], str | None]:
    report = verify(memoryview(text), payload=payload, **given)
    state = report.payload
    return {problem.kind for problem in report.problems}, None if state is None else str(state)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
class TestVectors:
    def test_the_text_is_what_the_spec_makes(self, case: dict[str, Any]) -> None:
        name = case["file"].removeprefix("detached/").removesuffix(".wtxt")
        made = edge_detached.made()[name]
        assert case == made.record(name)
        assert (DATA / case["file"]).read_bytes() == made.text

    def test_the_verdict(self, case: dict[str, Any]) -> None:
        text = (DATA / case["file"]).read_bytes()
        chunks = [(FOLDER / "payload" / name).read_bytes() for name in case["at_hand"]]
        given: dict[str, Any] = {}
        if "hmac_key" in case:
            given["hmac_key"] = bytes.fromhex(case["hmac_key"])
        if "public_keys" in case:
            given["public_keys"] = [bytes.fromhex(key) for key in case["public_keys"]]
        expected = set(case["kinds"]), case["payload"]
        assert found(text, Chunks(chunks), **given) == expected
        by_names = {sha256(chunk).hexdigest(): chunk for chunk in chunks}
        assert judge(text, by_names) == expected


def test_the_manifest_names_every_vector_once() -> None:
    files = sorted(f"detached/{path.name}" for path in FOLDER.glob("*.wtxt"))
    assert sorted(case["file"] for case in CASES) == files
    assert sorted(edge_detached.made()) == sorted(path.stem for path in FOLDER.glob("*.wtxt"))
    used = {name for case in CASES for name in case["at_hand"]}
    assert used == {path.name for path in (FOLDER / "payload").iterdir()}


@pytest.mark.parametrize(
    "case", [c for c in valid_cases() if b"\nroot_pending " not in c.text], ids=lambda c: c.file
)
def test_a_valid_text_has_one_detached_text(case: Any) -> None:
    kept: dict[bytes, bytes] = {}
    snapshot = read_text(case.text, **case.given).snapshot
    writer = TextWriter(
        snapshot,
        detached=True,
        keep=lambda names, data, size, _item, _array, _first: kept.update(
            (name, bytes(data[k * size : (k + 1) * size])) for k, name in enumerate(names)
        ),
    )
    text = b"".join(writer.stream())
    expected, payload = detached(case.text)
    assert text == expected
    assert writer.size == len(text)
    assert {name.hex(): chunk for name, chunk in kept.items()} == payload
    given = case.given
    whole = verify(memoryview(text), payload=Chunks(kept.values()), **given)
    attached = verify(memoryview(case.text), **given)
    assert (whole.problems, whole.payload) == ([], "complete")
    assert facts(whole) == facts(attached)


def facts(report: TextReport) -> tuple[object, ...]:
    return (
        report.sha256_all,
        report.merkle_this,
        report.fastxor,
        report.signature,
        report.authenticated,
        report.layout,
    )


def test_a_pending_text_has_none() -> None:
    snapshot = read_text(wtxtgit.dumps({"a": [1.0]})).snapshot
    with pytest.raises(TextError, match="pending"):
        TextWriter(replace(snapshot, pending=True), detached=True)


WORLDS = (
    Text((Arr("a", bytes(3)), Arr("b", b"x" * 4096), Arr("c", b"y" * 4097))),
    Text((Arr("a", edge_detached.pattern(4200), rows=(2000, 1, "on")), Arr("b", b""))),
    Text((Arr("w", edge_detached.pattern(5000), idx=False), Arr("x", b"", "f32", (0,)))),
    Text((Arr("p", b"q" * 4100, rows=(4100, 1, "on")), Arr("q", b"q" * 4100, "i16"))),
)


def edits(text: bytes, choose: random.Random) -> Iterator[bytes]:
    """The text, each line of it left out, twice, or elsewhere, and some characters changed."""
    yield text
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        before, after = lines[:i], lines[i + 1 :]
        for changed in ([*before, *after], [*before, line, line, *after]):
            yield b"".join(changed)
        if not line.startswith(b"ch ") and len(line) == 79:
            continue
        for _ in range(3):
            at = choose.randrange(len(line))
            other = choose.choice(b"0123456789abcdef =\n")
            yield b"".join([*before, line[:at] + bytes([other]) + line[at + 1 :], *after])
    yield text[:-1]
    yield text + b"\n"


@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_both_implementations_say_the_same(number: int) -> None:
    choose = random.Random(number)  # noqa: S311 - the same in every run
    text, payload = detached(WORLDS[number].bytes)
    names = sorted(payload)
    subsets = [s for count in range(len(names) + 1) for s in combinations(names, count)]
    told = 0
    for edited in edits(text, choose):
        for subset in subsets if edited == text else [choose.choice(subsets)]:
            at_hand = {name: payload[name] for name in subset}
            ours, state = found(edited, Chunks(at_hand.values()))
            theirs, wanted = judge(edited, at_hand)
            # What else is known of a text whose reading stopped, and times that are none, is
            # not in the second one.
            if theirs & {"syntax", "structure"} or ours & {"syntax", "structure"}:
                assert ours & {"syntax", "structure"} == theirs & {"syntax", "structure"}, edited
                continue
            assert (ours, state) == (theirs, wanted), edited
            told += 1
    assert told > 10


class TestPayload:
    TEXT, PAYLOAD = detached(edge_detached.TEXT.bytes)

    def test_a_damaged_chunk_is_told_by_its_place(self) -> None:
        name, *_ = self.PAYLOAD
        chunks = Chunks(self.PAYLOAD.values(), [bytes.fromhex(name)])
        report = verify(memoryview(self.TEXT), payload=chunks)
        (problem,) = report.problems
        assert (problem.kind, problem.array, problem.chunk) == ("payload", "c", 0)
        assert problem.line == self.TEXT[: self.TEXT.rindex(name.encode())].count(b"\n") + 1
        assert (report.payload, report.sha256_all) == ("partly", None)

    @pytest.mark.parametrize("name", ["a b.wtxt", None])
    def test_one_that_is_damaged_after_it_was_verified(self, name: str | None) -> None:
        """The hint speaks of the store, whatever the file is."""
        chunks = Chunks(self.PAYLOAD.values())
        report = verify(memoryview(self.TEXT), payload=chunks)
        chunks.damaged = set(chunks.chunks)
        with pytest.raises(CheckError, match="the chunk is damaged") as told:
            list(attached(memoryview(self.TEXT), report.index, report.layout, name=name))
        assert told.value.message.startswith("a b.wtxt: line ") == (name is not None)
        assert told.value.hint == MENDS_STORE

    def test_a_text_that_claims_very_much_takes_no_room(self) -> None:
        count = 10**18
        head, _, tail = self.TEXT.partition(b"arr name=c")
        for field in (b"shape=%d", b"bytes=%d", b"len=%d"):
            tail = tail.replace(field % 4097, field % count, 1)
        tail = tail.replace(b"lines=72", b"lines=%d" % -(-count // 57), 1)
        tail = tail.replace(b"rows_per_chunk=65536", b"rows_per_chunk=%d" % count, 1)
        report = verify(memoryview(head + b"arr name=c" + tail))
        assert (report.index.stop, report.payload) == (None, "absent")
        report = verify(
            memoryview(head + b"arr name=c" + tail), payload=Chunks(self.PAYLOAD.values())
        )
        assert "chunk_sha256" in {problem.kind for problem in report.problems}

    def test_keys_are_asked_of_the_payload(self) -> None:
        made = edge_detached.made()["hmac"]
        key = bytes.fromhex(dict(made.given)["hmac_key"])
        report = verify(memoryview(made.text), payload=Chunks(made.payload), hmac_key=key)
        assert report.authenticated
        other = verify(memoryview(made.text), payload=Chunks(made.payload), hmac_key=b"other")
        assert [problem.kind for problem in other.problems] == ["hmac"]
        without = verify(memoryview(made.text), hmac_key=key)
        assert not without.authenticated
        assert without.lacks_payload
