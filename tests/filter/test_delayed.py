"""Texts that wait for payload: in groups, whatever a remote does."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.kit import safetensors, text_of
from tests.text.naive_detached import detached
from wtxtgit.errors import RemoteUnavailable
from wtxtgit.filter.delayed import DelayedSmudges, index_of_detached

TEXTS = {
    b"%d" % number: detached(text_of(safetensors(*range(number, number + 40_000))))[0]
    for number in range(3)
}


class _Fetched:
    """Payload of which nothing is at hand, or all once it is asked for."""

    def __init__(self, want: Callable[[], None] = lambda: None) -> None:
        self._want = want
        self.wanted: list[set[bytes]] = []
        self.lacks = None

    def has(self, names: Iterable[bytes]) -> set[bytes]:
        return set().union(*self.wanted).intersection(names)

    def want(self, names: Iterable[bytes]) -> None:
        self.wanted.append(set(names))
        self._want()


class Waiting:
    """Smudges whose payload is `fetched`, if it can be."""

    def __init__(self, fetched: _Fetched | None) -> None:
        self.smudges = DelayedSmudges(lambda: fetched, lambda: None)  # type: ignore[arg-type, return-value]
        self._held = fetched or _Fetched()

    def takes(self, path: bytes, text: bytes | memoryview) -> bool:
        view = memoryview(text)
        indexed = index_of_detached(view, lambda: self._held)  # type: ignore[arg-type, return-value]
        return self.smudges.takes(path, view, indexed)


def taken(delayed: DelayedSmudges) -> dict[bytes, bytes]:
    """Ask for what is ready until there is no more, as git does."""
    found = {}
    while paths := delayed.available():
        for path in paths:
            text = delayed.take(path)
            assert text is not None
            found[path] = bytes(text)
            delayed.done(path)
    return found


def test_all_that_is_lacking_comes_in_one_go() -> None:
    fetched = _Fetched()
    waiting = Waiting(fetched)
    delayed = waiting.smudges
    assert all(waiting.takes(path, text) for path, text in TEXTS.items())
    assert delayed.take(b"0") is None
    assert taken(delayed) == TEXTS
    assert (len(fetched.wanted), delayed.why) == (1, None)
    # What is at hand need not wait; another command of the same git may have more that must.
    assert not any(waiting.takes(path, text) for path, text in TEXTS.items())
    fetched.wanted = []
    assert waiting.takes(b"later", TEXTS[b"1"])
    assert taken(delayed) == {b"later": TEXTS[b"1"]}


@pytest.mark.parametrize("error", [RemoteUnavailable("git+origin: is gone"), OSError("full")])
def test_what_does_not_come_is_ready_all_the_same(error: Exception) -> None:
    def fail() -> None:
        raise error

    fetched = _Fetched(fail)
    waiting = Waiting(fetched)
    delayed = waiting.smudges
    for path, text in TEXTS.items():
        assert waiting.takes(path, text)
    assert taken(delayed) == TEXTS
    # Asked once: the others would fail as well, after a while.
    assert len(fetched.wanted) == 1
    assert delayed.why is not None
    assert str(error) in delayed.why
    assert not waiting.takes(b"again", TEXTS[b"1"])


def test_what_need_not_wait() -> None:
    text = memoryview(TEXTS[b"0"])
    assert not Waiting(None).takes(b"m", text)
    waiting = Waiting(_Fetched())
    assert not waiting.takes(b"m", text_of(safetensors(1.0)))
    assert not waiting.takes(b"m", b"anything")
    # One that breaks a rule says nothing of chunks.
    assert not waiting.takes(b"m", text[:-9])
    assert waiting.smudges.available() == []
