"""Which file of a folder lists the files of a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from wtxtgit.checkpoint.folders import index_of
from wtxtgit.errors import InputError


class CountedName(str):
    """A name that counts how often its ending is looked at."""

    __slots__ = ()
    looks = 0

    def endswith(self, *args: Any) -> bool:
        CountedName.looks += 1
        return super().endswith(*args)


def test_names_are_gone_through_a_few_times_however_many_end_like_an_index() -> None:
    names = [CountedName(f"{number}.metadata.json") for number in range(500)]
    with pytest.raises(InputError, match="500 indexes"):
        index_of("folder", names)
    assert CountedName.looks < 50 * len(names)
