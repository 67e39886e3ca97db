"""MLCP: metadata that System.Text.Json reads into the original's classes, and what it throws at."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.containers import samples
from tests.data import fixture
from wtxtgit.containers import any_format
from wtxtgit.containers.mlcp import dotnet
from wtxtgit.containers.mlcp.read import Mlcp

FULL = fixture("mlcp/three_shards_full_a.checkpoint")


def opened() -> Mlcp:
    container = any_format.read(memoryview(FULL))
    assert isinstance(container, Mlcp)
    return container


def with_text(text: str) -> bytes:
    """The file with this text as its metadata."""
    container, raw = opened(), text.encode()
    start, end = container.metadata_start, container.header_end
    return FULL[: start - 4] + len(raw).to_bytes(4, "little") + raw + FULL[end:]


def edited(edit: Callable[[dict[str, Any]], object]) -> bytes:
    metadata = json.loads(json.dumps(opened().metadata))
    edit(metadata)
    return with_text(json.dumps(metadata))


def errors(data: bytes) -> list[tuple[str | None, str]]:
    found = any_format.check(memoryview(data))
    return [(error.field, error.message) for error in found.errors]


@pytest.mark.parametrize(
    "text",
    [
        *("2024-05-17", "2024-05-17T09:08", "2024-05-17T09:08Z", "2024-05-17T09:08+14:00"),
        *("2024-05-17T09:08:07", "2024-05-17T09:08:07Z", "2024-05-17T09:08:07-03"),
        *("2024-05-17T09:08:07.1", "2024-05-17T09:08:07.1234567Z", "2024-02-29T23:59:59.9-00:00"),
        *("2024-05-17T09:08:07.1234567890123456+01:30", "0001-01-01T00:00:00", "9999-12-31T23:59"),
        *("0001-01-01T14:00+14:00", "9999-12-31T09:59-14:00"),
    ],
)
def test_times_that_are_read(text: str) -> None:
    assert dotnet.is_time(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2024", "2024-05", "2024-5-17", "24-05-17", "2024-05-17 09:08:07", "2024/05/17"),
        *("2024-05-17T", "2024-05-17T09", "2024-05-17t09:08", "2024-05-17T09:08z"),
        *("2024-05-17T9:08:07", "2024-05-17T09:08:7", "2024-05-17T09:08:07.", " 2024-05-17"),
        *("2024-05-17T09:08:07.12345678901234567", "2024-05-17T09:08:07Z ", "2024-05-17Z"),
        *("2024-05-17T24:00:00", "2024-05-17T09:60:00", "2024-05-17T09:08:60", "2024-13-01"),
        *("2023-02-29", "2024-04-31", "2024-00-10", "2024-01-00", "0000-01-01", "2024-05-17\n"),
        *("2024-05-17T09:08:07+15:00", "2024-05-17T09:08:07+14:01", "2024-05-17T09:08:07+1:00"),
        *("2024-05-17T09:08:07+01:60", "2024-05-17T09:08:07+0100", "2024-05-17T09:08:07+"),
        *("0001-01-01T13:59+14:00", "9999-12-31T10:00-14:00", "٢٠٢٤-05-17"),
    ],
)
def test_times_that_are_not(text: str) -> None:
    assert not dotnet.is_time(text)
    assert errors(edited(lambda value: value.update(timestamp=text))) == [
        ("timestamp", "timestamp is not a time")
    ]


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        (lambda m: m.update(timestamp=None), "timestamp is not a time"),
        (lambda m: m.update(worldSize=2**31), "worldSize is not a 32-bit integer"),
        (lambda m: m.update(worldSize=3.0), "worldSize is not a 32-bit integer"),
        (lambda m: m.update(ddpRank=True), "ddpRank is not a 32-bit integer"),
        (lambda m: m.update(ddpRank=None), "ddpRank is not a 32-bit integer"),
        (lambda m: m.update(format=1), "format is not a string"),
        (lambda m: m.update(customFields=[]), "customFields is not an object"),
        (lambda m: m.update(training=[]), "training is not an object"),
        (lambda m: m["training"].update(step=2**63), "training.step is not a 64-bit integer"),
        (lambda m: m["training"].update(learningRate="1"), "learningRate is not a number"),
        (
            lambda m: m["shardingStrategy"].update(precision="x"),
            "shardingStrategy differs from sharding",
        ),
        (lambda m: m["shards"][1].update(rank="1"), "shards[1].rank is not a 32-bit integer"),
        (
            lambda m: m["shards"][1].update(fileSize=0.5),
            "shards[1].fileSize is not a 64-bit integer",
        ),
        (lambda m: m["shards"][1].update(checksum=7), "shards[1].checksum is not a string"),
    ],
)
def test_members_of_another_type(edit: Any, where: str) -> None:
    [(_, message)] = errors(edited(edit))
    assert where in message


@pytest.mark.parametrize("path", [(), ("shards", 0), ("training",)])
def test_a_member_under_another_name_is_passed_over(path: tuple[Any, ...]) -> None:
    def at(metadata: Any) -> dict[str, Any]:
        for key in path:
            metadata = metadata[key]
        assert isinstance(metadata, dict)
        return metadata

    for name in at(json.loads(json.dumps(opened().metadata))):

        def rename(metadata: dict[str, Any], name: str = name) -> None:
            at(metadata)[name[:-1] + "~"] = at(metadata).pop(name)

        assert any("is missing, and" in message for _, message in errors(edited(rename)))
        # Later versions may have more, and a writer of another kind less.
        assert errors(edited(lambda m: at(m).update(later=1))) == []


def test_what_hides_a_member() -> None:
    text = json.dumps(opened().metadata)
    twice = text.replace('"format":', '"worldSize": 3, "format":', 1)
    [(field, message)] = errors(with_text(twice))
    assert field == "metadata"
    assert message.startswith("metadata repeats a key at byte ")


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", '"\\ud800"', '{"\\udfff": 1}'])
def test_values_that_are_no_json_for_dotnet(value: str) -> None:
    text = json.dumps(opened().metadata).replace('"beta1": 0.9', f'"beta1": {value}')
    [(field, _)] = errors(with_text(text))
    assert field == "metadata"


def test_strings_of_dotnet() -> None:
    """Lengths in groups of seven bits: five at most, of 31 bits together; more than are needed."""
    body = with_text(json.dumps(opened().metadata))
    assert body[4:10] == b"\x051.0.0"
    for length in (b"\x85\x00", b"\x85\x80\x80\x80\x00"):
        assert errors(body[:4] + length + body[5:]) == []
    for length in (b"\x85\x80\x80\x80\x08", b"\x85\x80\x80\x80\x80\x00", b"\x06"):
        assert errors(body[:4] + length + body[5:]) != []


def test_metadata_of_other_writers_may_be_short() -> None:
    assert errors(samples.mlcp({"version": "1.0.0"})) == []
