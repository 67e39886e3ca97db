"""What holds for every target, as a class of tests with a fixture `target`."""

from __future__ import annotations

import hashlib
import os

import pytest

from wtxtgit.errors import EnvironmentFailure, InputError, RemoteRefused, UsageError
from wtxtgit.io.view import BLOCK, PIECE, mapped
from wtxtgit.remotes.target import Outgoing, RangedTarget, Target, outgoing

TEXT = b"WTXT/1.1 gen=1\n"
SECRET = "pass-word-of-a-test"  # noqa: S105
"""Given to targets as their credential; no test may find it in what they say."""


def file(name: str, content: bytes = TEXT) -> Outgoing:
    return outgoing(name, memoryview(content))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fetched(target: Target, name: str, content: bytes = TEXT) -> bytes:
    return bytes(mapped(target.get(name, sha256(content))))


def names(target: Target, prefix: str = "") -> list[str]:
    return [stored.name for stored in target.list(prefix)]


class TargetTests:
    """Run by each kind of target on a place of its own, empty at first."""

    def test_what_was_put_is_there(self, target: Target) -> None:
        large = os.urandom(2 * PIECE + BLOCK + 1)
        files = [file("b.wtxt"), file("b.wtxt.wsum", b""), file("a.bin", large)]
        assert names(target) == []
        assert not target.has("b.wtxt", sha256(TEXT))
        assert list(target.put(files, about={"gen": "1", "root": "ab" * 32})) == [
            "b.wtxt",
            "b.wtxt.wsum",
            "a.bin",
        ]
        assert [(stored.name, stored.nbytes) for stored in target.list()] == [
            ("a.bin", len(large)),
            ("b.wtxt", len(TEXT)),
            ("b.wtxt.wsum", 0),
        ]
        assert names(target, "b") == ["b.wtxt", "b.wtxt.wsum"]
        assert fetched(target, "a.bin", large) == large
        assert fetched(target, "b.wtxt.wsum", b"") == b""
        for stored in target.list():
            assert stored.sha256 in (None, sha256(bytes(mapped(target.get(stored.name)))))
        assert target.has("b.wtxt", sha256(TEXT))
        assert not target.has("b.wtxt", sha256(b"other"))
        # Again, and with something more: only that is delivered.
        assert list(target.put(files)) == []
        assert list(target.put([*files, file("c")])) == ["c"]
        assert names(target) == ["a.bin", "b.wtxt", "b.wtxt.wsum", "c"]

    def test_another_content(self, target: Target) -> None:
        target.put([file("x", b"first"), file("y", b"y")])
        with pytest.raises(RemoteRefused, match="already has x, with different content"):
            target.put([file("w", b"w"), file("x", b"second")])
        # Nothing of that call.
        assert names(target) == ["x", "y"]
        assert fetched(target, "x", b"first") == b"first"
        assert list(target.put([file("x", b"second"), file("y", b"y")], replace=True)) == ["x"]
        assert fetched(target, "x", b"second") == b"second"
        assert names(target) == ["x", "y"]

    def test_a_content_that_is_not_of_its_digest(self, target: Target) -> None:
        large = b"x" * (PIECE + 1)
        for content in (b"some", large):
            with pytest.raises(InputError, match="does not match"):
                target.put([Outgoing("x", memoryview(content), sha256(b"other"))])
        assert names(target) == []
        target.put([file("x", b"some")])
        with pytest.raises(InputError, match="does not match"):
            target.get("x", sha256(b"other"))

    def test_what_is_not_there(self, target: Target) -> None:
        with pytest.raises(InputError, match="has no gone"):
            target.get("gone")
        target.put([file("here")])
        with pytest.raises(InputError, match="has no gone"):
            target.get("gone")
        assert names(target, "gone") == []

    def test_names_that_can_not_be(self, target: Target) -> None:
        for name in ("", ".", "..", "../x", "a/../b", "/a", "a/", ".git", "a b", "a\n", "é"):
            with pytest.raises(UsageError):
                target.put([file(name)])
            with pytest.raises(UsageError):
                target.get(name)
        with pytest.raises(UsageError, match="given twice"):
            target.put([file("x"), file("x")])
        with pytest.raises(UsageError):
            target.put([file("x"), file("x/y")])
        with pytest.raises(UsageError, match="not a SHA-256"):
            target.put([Outgoing("x", memoryview(b""), "0")])
        assert names(target) == []

    def test_it_shows_no_secret(self, target: Target) -> None:
        assert SECRET not in repr(target) + str(target) + target.label


def refused(error: BaseException) -> str:
    """The words of a failure that is told, and tells no secret."""
    assert isinstance(error, EnvironmentFailure)
    told = f"{error} {error.hint} {error!r}"
    assert SECRET not in told
    return told


class RangedTests:
    """Run by each kind of target that gives parts of files, beside `TargetTests`."""

    def test_parts_of_a_file(self, target: RangedTarget) -> None:
        content = os.urandom(PIECE + 100)
        target.put([file("x", content)])
        spans = [(50, 60), (0, 1), (PIECE - 5, len(content)), (0, len(content))]
        given = [bytes(mapped(part)) for part in target.ranges("x", spans)]
        assert given == [content[start:stop] for start, stop in spans]
        assert isinstance(target, RangedTarget)

    def test_parts_that_are_not_there(self, target: RangedTarget) -> None:
        target.put([file("x", b"some")])
        parts = target.ranges("x", [(0, 2), (2, 5)])
        assert bytes(mapped(next(parts))) == b"so"
        with pytest.raises(InputError):
            next(parts)
        with pytest.raises(InputError):
            list(target.ranges("gone", [(0, 1)]))
