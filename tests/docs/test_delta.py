"""docs/delta.md and docs/spec/delta.md: their commands, tables and bytes."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.data import fixture_path
from tests.docs.pages import blocks, lines, prose, spans, tables
from tests.docs.shell import assert_as_shown, run, steps
from tests.docs.test_spec import WTXT, printed_text
from tests.kit import Repo
from tests.text.deltas import applied, made
from wtxtgit.text.delta.index import check
from wtxtgit.text.verify import verify

PAGE, SPEC = "docs/delta.md", "docs/spec/delta.md"
EXAMPLE = "A worked example in bytes"
MODEL = "model.safetensors"
V1, V2 = (fixture_path(f"plain/pair_v{n}.safetensors") for n in (1, 2))


def printed() -> tuple[bytes, bytes]:
    """The example's bound and plain delta."""
    found = [block.text.encode("ascii") for block in blocks(SPEC, "", EXAMPLE)]
    assert len(found) == 2
    return found[0], found[1]


class TestThePage:
    def test_no_block_is_left_out(self) -> None:
        found = Counter(block.section for block in blocks(PAGE, "console"))
        assert found == {"Send": 1, "Apply": 2, "With git": 1}

    @pytest.mark.slow
    def test_sending_and_applying(self, tmp_path: Path) -> None:
        shutil.copy(V1, tmp_path / MODEL)
        shutil.copy(V2, tmp_path / "next.safetensors")
        assert_as_shown(run(steps(*blocks(PAGE, "console", "Send")), tmp_path))
        sent = tmp_path / "next.safetensors.wtxtdelta"
        content = sent.read_bytes()
        assert content.isascii()
        longest = re.search(r"no line exceeds (\d+) characters", prose(PAGE, "Send"))
        assert longest
        assert 200 < max(map(len, content.splitlines())) <= int(longest[1])

        (tmp_path / "next.safetensors").unlink()
        done = run(steps(*blocks(PAGE, "console", "Apply")), tmp_path)
        assert_as_shown(done)
        assert (tmp_path / "next.safetensors").read_bytes() == V2.read_bytes()
        assert not (tmp_path / "again.safetensors").exists()

    @pytest.mark.slow
    def test_with_git(self, tracked: Repo) -> None:
        tracked.write(MODEL, V1.read_bytes())
        tracked.commit("one", "-a")
        tracked.write(MODEL, V2.read_bytes())
        tracked.commit("two", "-a")
        tracked.git("checkout", "-q", "HEAD~1", "--", MODEL)
        assert_as_shown(run(steps(*blocks(PAGE, "console", "With git")), tracked.path))
        assert (tracked.path / MODEL).read_bytes() == V2.read_bytes()

    @pytest.mark.parametrize(
        ("pattern", "by"),
        [
            (rb"\n", b"\r\n"),
            (rb"\n[^\n]*\n\Z", b"\n"),
            (rb"\n([^\n]{70})", rb"\n\1\n"),
            (rb"=", b"=3D"),
        ],
        ids=["line ends", "cut off", "wrapped", "quoted-printable"],
    )
    def test_what_mail_programs_do_is_found(
        self, pattern: bytes, by: bytes, tmp_path: Path
    ) -> None:
        shutil.copy(V1, tmp_path / MODEL)
        shutil.copy(V2, tmp_path / "next.safetensors")
        run(steps(*blocks(PAGE, "console", "Send")), tmp_path)
        delta = (tmp_path / "next.safetensors.wtxtdelta").read_bytes()
        damaged = re.sub(pattern, by, delta)
        assert damaged != delta
        report = check(memoryview(damaged))
        assert not report.ok
        assert any(problem.line is not None for problem in report.problems)


class TestTheExample:
    def test_the_bound_delta(self) -> None:
        bound, _ = printed()
        base = printed_text(WTXT)
        target = applied(base, bound)
        assert made(base, target) == bound
        assert verify(memoryview(target)).ok
        said = prose(SPEC, EXAMPLE)
        for text in (bound, target):
            digest = hashlib.sha256(text).hexdigest()
            assert f"{len(text)} bytes (SHA-256 `{digest}`)" in said

    def test_the_target_is_put_together_as_it_says(self) -> None:
        bound, _ = printed()
        base = printed_text(WTXT).splitlines(keepends=True)
        delta = bound.splitlines(keepends=True)
        (idx,) = [line for line in base if line.startswith(b"idx ")]
        target = b"".join([base[0], *delta[1:5], idx, *delta[5:9], b"endwtxt\n"])
        assert "line 1 of the base, lines 2 to 5 of the delta" in prose(SPEC, EXAMPLE)
        assert "lines 6 to 9" in prose(SPEC, EXAMPLE)
        assert applied(printed_text(WTXT), bound) == target

    def test_the_plain_delta(self) -> None:
        bound, plain = printed()
        base = printed_text(WTXT)
        said = prose(SPEC, EXAMPLE)
        assert f"{len(plain)} bytes (SHA-256 `{hashlib.sha256(plain).hexdigest()}`)" in said
        (options,) = [s for line in lines(SPEC, EXAMPLE) for s in line.spans if "--ts" in s]
        _, ts, _, build = options.split()
        assert applied(base, plain, ts=ts, build=build) == applied(base, bound)
        assert made(base, applied(base, bound), plain=True) == plain

    def test_the_table(self) -> None:
        position = 0
        (table,) = tables(SPEC, EXAMPLE)
        printed_lines = printed()[0].splitlines(keepends=True)
        for number, (row, line) in enumerate(zip(table, printed_lines, strict=True), 1):
            assert [int(cell) for cell in row[:3]] == [number, position, len(line)]
            assert spans(row[3]) == []
            position += len(line)


def test_the_grammar_names_the_lines_that_are_there() -> None:
    (block,) = blocks(SPEC, "abnf", "Grammar")
    for line in ("WTXT-DELTA 2 base_sha256_all=", "arr name=", "del name=", "enddelta"):
        assert f'"{line}"' in block.text
    rules = set(re.findall(r"^([a-z-]+) +=", block.text, re.MULTILINE))
    assert rules == {"delta", "delta-line", "plain", "bound", "block", "removed"}


def test_the_plain_forms_table_speaks_of_every_field() -> None:
    (table,) = tables(SPEC, "The plain form")
    named = [name for row in table for name in spans(row[0])]
    assert set(named) >= {
        *("gen", "ts", "build", "merkle_prev", "hmac", "cap", "schema", "host", "cuda"),
        *("salt", "idx", "sign", "audit", "sha256"),
    }
