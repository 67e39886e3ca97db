"""What tests of threads share."""

from __future__ import annotations

import concurrent.futures
from typing import Any, NoReturn

import pytest


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no thread to give."""

    class Exhausted(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Exhausted)
