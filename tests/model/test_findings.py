"""What checks found: kept up to a number, counted beyond it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.fuzz.many import tiny_arrays, tiny_changes, tiny_chunks
from wtxtgit.checkpoint.verify import demands, verify_data
from wtxtgit.model.findings import Findings, Problem, Problems, total
from wtxtgit.text.delta.index import check as check_delta
from wtxtgit.text.verify import verify

MOST = Problems.MOST


def of(kind: str, *lines: int) -> list[Problem]:
    return [Problem(kind, "is wrong", line=line) for line in lines]


def test_what_is_beyond_a_number_is_counted() -> None:
    found = Problems(of("crc32c", *range(MOST + 2000)))
    *kept, rest = found
    assert kept == of("crc32c", *range(MOST))
    assert (rest.kind, rest.more, str(rest)) == ("crc32c", 2000, "and 2,000 more (crc32c)")
    assert (len(found), total(found)) == (MOST + 1, MOST + 2000)
    assert found[0].line == 0
    assert found[-1] == rest


def test_of_each_kind_the_first_one_is_kept() -> None:
    found = Problems(of("crc32c", *range(MOST + 1)) + of("root", 4, 5, 6))
    assert [(p.kind, p.line, p.more) for p in found[MOST:]] == [
        ("root", 4, None),
        ("crc32c", None, 1),
        ("root", None, 2),
    ]


def test_counts_are_summed() -> None:
    member = Findings()
    for _ in range(MOST + 10):
        member.error("is wrong", "name")
    together = Findings()
    for _ in range(3):
        together.add(member.of_member())
    assert total(together.errors) == 3 * (MOST + 10)
    assert len(together.errors) == MOST + 1


def test_none_are_left_out_of_as_many() -> None:
    found = Problems(of("crc32c", *range(MOST)))
    assert found == of("crc32c", *range(MOST))
    assert found != of("crc32c", *range(1, MOST))
    assert not Problems()


@pytest.mark.parametrize("make", [tiny_arrays, tiny_chunks])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_text_in_which_all_is_wrong(make: Callable[[int], bytes], threads: int) -> None:
    report = verify(memoryview(make(1501)), threads=threads)
    counts: Counter[str] = Counter()
    for problem in report.problems:
        counts[problem.kind] += problem.more or 1
    arrays = 1501 if make is tiny_arrays else 1
    assert counts == {
        "crc32c": 1501, "chunk_sha256": 1501, "array_sha256": arrays,
        "root": 1, "merkle": 1,
    }  # fmt: skip
    # What is nearest to the damage comes first, and what is wrong with all of it stands there too.
    first, second = report.problems[:2]
    assert (first.kind, second.kind, first.line) == ("crc32c", "chunk_sha256", second.line)
    asked = demands()
    verdict = verify_data("w.wtxt", memoryview(make(1501)), asked, threads=threads)
    assert total(verdict.errors) == sum(counts.values())
    assert "more" in verdict.as_dict()["errors"][-1]
    assert "more" not in verdict.as_dict()["errors"][0]


def test_a_delta_in_which_all_is_wrong() -> None:
    report = check_delta(memoryview(tiny_changes(1500)))
    counts = Counter({p.kind: p.more or 1 for p in report.problems if p.more})
    assert counts == {"crc32c": 1000, "chunk_sha256": 1000}
    assert total(report.problems) == 3000
