"""What tests of threads share."""

from __future__ import annotations

from typing import NoReturn

import pytest

from wtxtgit.io import workers


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no thread to give."""

    def start(_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers.Thread, "start", start)
