"""What tests of threads share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest

from wtxtgit.text import parallel


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no thread to give."""

    class Exhausted(ThreadPoolExecutor):
        def submit(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Exhausted)
