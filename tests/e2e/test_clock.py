"""A clock that stands wrong, or goes backwards: all goes on, and nothing depends on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors
from tests.kit.starts import TRUE_START, compiled
from wtxtgit.text.ledger import read

pytestmark = [pytest.mark.slow, pytest.mark.true_start]
YEAR = 31_556_952
NAME = "model.safetensors"
KEY = ("--key", "alice")


@pytest.fixture(scope="module")
def library() -> Path:
    """What gives a process another time."""
    source = Path(__file__).parents[1] / "kit/clock.c"
    made = compiled(source, ("-shared", "-fPIC"), ("-shared", "-fPIC", "-ldl"))
    if made is None:
        pytest.skip("there is no C compiler to make another clock with")
    return made


@pytest.fixture
def in_years(
    repo: Repo, driver: None, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], None]:
    """Has all that starts from then on, git too, in so many years."""
    repo.track("*.safetensors")
    repo.wtxtgit("key", "new", "--name", "alice", "--no-passphrase")
    monkeypatch.setenv(TRUE_START, "1")
    monkeypatch.setenv("LD_PRELOAD", str(library))

    def shift(years: int) -> None:
        monkeypatch.setenv("WTXTGIT_TEST_CLOCK", str(years * YEAR))

    return shift


def changed(repo: Repo, value: float) -> bytes:
    content = safetensors(*[value] * 1000)
    repo.write(NAME, content)
    return content


def years_of(repo: Repo) -> list[int]:
    records = read(repo.blob(f"{NAME}.wsum")).ledger.records
    return [int(record.meta.ts[:4]) for record in records]


def test_a_clock_that_goes_backwards_and_beyond_2262(
    repo: Repo, in_years: Callable[[int], None]
) -> None:
    for number, years in enumerate((0, 4000, -50)):
        in_years(years)
        content = changed(repo, number + 0.5)
        if number % 2:
            repo.wtxtgit("add", NAME)
        else:
            repo.add(NAME)
        repo.wtxtgit("seal", *KEY, NAME)
        repo.git("add", f"{NAME}.wsum")
        # By the clock of before, too, other tests run these.
        for command in (("check", "--staged"), ("store", "prune"), ("doctor",)) if number else ():
            repo.wtxtgit(*command, ok=(0, 1))
        # Git itself takes no date beyond 2099 for a commit's.
        in_years(0)
        repo.commit()
        in_years(years)
        (repo.path / NAME).unlink()
        repo.wtxtgit("checkout", NAME)
        assert (repo.path / NAME).read_bytes() == content
        (repo.path / NAME).unlink()
        repo.git("checkout", "--", NAME)
        assert (repo.path / NAME).read_bytes() == content
        assert repo.status() == b""
    # No record is of a time before the last one.
    first, *others = years_of(repo)
    assert [year - first for year in others] == pytest.approx([4000, 4000], abs=1)


def test_a_year_that_no_record_can_hold(repo: Repo, in_years: Callable[[int], None]) -> None:
    in_years(9000)
    changed(repo, 1.0)
    repo.wtxtgit("add", NAME)
    refused = repo.wtxtgit("seal", *KEY, NAME, ok=(5,))
    assert refused.stderr.decode().splitlines() == [
        "wtxtgit: error: the system's clock is set beyond the year 9999, which no record can hold",
        "wtxtgit: hint: date shows what it says; set it to the right time",
    ]
    assert b".wsum" not in repo.git("ls-files")


def test_files_from_beyond_2262(repo: Repo, in_years: Callable[[int], None]) -> None:
    """Their times have more bits than a signed number of 64."""
    for years in (0, 300):
        in_years(years)
        for name in ("a.safetensors", "b.safetensors"):
            repo.write(name, safetensors(*[float(years)] * 1000))
            os.utime(repo.path / name, (10_000_000_000, 10_000_000_000))
        repo.wtxtgit("add", "a.safetensors")
        repo.add("b.safetensors")
        assert repo.wtxtgit("status", "--json").returncode == 0
        repo.commit()
        assert repo.status() == b""
