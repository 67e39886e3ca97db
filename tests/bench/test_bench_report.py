"""Tables, the record, the chart, and the documentation's page: `bench.report`, `bench.chart`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import DOCS, PARTS, main, update_docs
from bench.chart import chart, used
from bench.measure import MIB, BenchError, Ratio, Row
from bench.plan import Figures
from bench.report import Report, markdown, rewritten, said, table, tables
from bench.start import longest

MET = Ratio("git-lfs add", "time", 1.1, 1.25)
MISSED = Ratio("two passes", "rate", 0.5, 0.95)
BEYOND = Ratio("cat", "beyond", 0.7, 0.5)
BARE = Ratio("raw git add", "time", 0.15, None)


def row(name: str, *ratios: Ratio, note: str = "") -> Row:
    return Row(name, (2.0, 1.0), 1.0, 1.5, 170.66, 3 * MIB, MIB, ratios, note)


def report(*, only: list[str] | None = None, failed: dict[str, str] | None = None) -> Report:
    parts = {"git": [row("wtxtgit add", MET, BARE)], "library": [row("write", MISSED)]}
    options = {"size": 256, "big": 1024, "commits": 10, "runs": 3, "only": only}
    return Report("a machine", options, parts, {"wtxtgit --help": [("typing", 2.51)]}, failed or {})


def test_a_table() -> None:
    lines = table([row("wtxtgit add", MET, BARE, note="256 MiB")]).splitlines()
    assert lines[0] == ("|  | best s | median s | MB/s | ratio | memory MiB | anonymous MiB |  |")
    assert lines[2] == (
        "| wtxtgit add | 1.000 | 1.500 | 171 | 1.10 of git-lfs add (at most 1.25: met); "
        "0.15 of raw git add | 3 | 1 | 256 MiB |"
    )


def test_cells_break_no_table() -> None:
    lines = table([row("a|b\nc <i>", note="\\|")]).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| a\\|b c &lt;i> |")
    assert lines[2].endswith("| \\\\\\| |")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (MISSED, "0.50 of the rate of two passes (at least 0.95: missed)"),
        (BEYOND, "0.70 s per 256 MiB beyond cat (at most 0.5: missed)"),
        (BARE, "0.15 of raw git add"),
    ],
)
def test_a_ratio_in_words(ratio: Ratio, words: str) -> None:
    assert said(ratio) == words


def test_all_parts_are_told() -> None:
    told = markdown(report())
    assert told.startswith("a machine. Files of 256 MiB and 1024 MiB; at least 3 runs of each.\n")
    assert [line for line in told.splitlines() if line.startswith("#")] == [
        "## git",
        "## library",
        "## imports",
    ]
    assert "| wtxtgit --help | typing 2.5 |" in told


def test_a_part_that_failed_says_why() -> None:
    assert "## merge\n\nfailed: no room on &lt;disk>\n" in markdown(
        report(failed={"merge": "no room on\n<disk>"})
    )


def test_the_record_is_read_back() -> None:
    record = json.loads(json.dumps(report().as_dict()))
    assert record["parts"]["git"][0]["ratios"][0] == {
        "floor": "git-lfs add",
        "kind": "time",
        "value": 1.1,
        "target": 1.25,
        "met": True,
    }
    assert record["parts"]["library"][0]["ratios"][0]["met"] is False
    assert record["parts"]["git"][0]["ratios"][1]["met"] is None
    assert Report.from_dict(record) == report()


PAGE = """# Performance
<!-- bench: machine -->
old
<!-- end -->
prose
<!-- bench: library -->
<!-- end -->
<!-- bench: git -->
| old |
<!-- end -->
<!-- bench: imports -->
<!-- end -->
after
"""


def test_the_page_is_filled_and_its_prose_kept() -> None:
    page = rewritten(PAGE, tables(report()))
    assert "old" not in page
    assert page.index("prose") < page.index("| write |") < page.index("| wtxtgit add |")
    assert page.endswith("<!-- end -->\nafter\n")
    assert rewritten(page, tables(report())) == page


def test_a_page_and_a_run_have_the_same_parts() -> None:
    with pytest.raises(BenchError, match="other parts than were measured: git"):
        rewritten(PAGE.replace("<!-- bench: git -->", ""), tables(report()))
    with pytest.raises(BenchError, match="other parts than were measured: merge"):
        rewritten(PAGE + "<!-- bench: merge -->\n<!-- end -->\n", tables(report()))


def planned() -> Report:
    """A run with all that a plan wants."""
    added = replace(row("wtxtgit add"), rate=200.0, median=1.0, stored=210 * 10**6)
    grown = replace(row("git gc, texts"), rate=100.0, median=10.0, stored=114 * 10**6)
    parts = {
        "git": [added],
        "growth": [grown],
        "cluster": [replace(row("verify files here"), rate=400.0)],
        "audit": [
            replace(row("audit --no-cache"), rate=160.0),
            replace(row("audit, again"), median=2.5),
        ],
    }
    options = {**report().options, "commits": 1000, "threads": 2}
    return replace(report(), parts=parts, options=options)


def test_what_a_plan_puts_in() -> None:
    found = Figures.of(planned().parts, 2, 1000)
    assert found.w == 200e6
    assert found.v == 200e6
    assert found.a == 80e6
    assert found.c == pytest.approx(0.0025)
    assert found.p == pytest.approx(1.05)
    # 10 versions of 100 MB took 114: the first 105, each of the other nine 1.
    assert found.d == pytest.approx(0.01)


def test_what_follows_from_it() -> None:
    made = Figures.of(planned().parts, 2, 1000).tables()
    assert "| w | bytes of files that `wtxtgit add` takes in a second, two cores | 0.20 GB |" in (
        made["figures"].splitlines()
    )
    assert "| on disk, one version | p F | 105 TB |" in made["files"]
    assert "| F / w | 139 hours |" in made["files"]
    assert "| 33 minutes of work; B = 10 GB/s: 2.78 hours |" in made["files"]
    assert "| 10^6 c | 42 minutes |" in made["commits"]


def test_a_plan_wants_all_that_it_follows_from() -> None:
    for part in planned().parts:
        parts = {name: rows for name, rows in planned().parts.items() if name != part}
        with pytest.raises(BenchError, match=f"of the part '{part}'"):
            Figures.of(parts, 2, 1000)


def test_the_documentation_has_a_place_for_every_part() -> None:
    placed = re.findall("<!-- bench: (.*?) -->", (DOCS / "performance.md").read_text())
    assert sorted(placed) == sorted([*PARTS, "machine", "imports"])
    placed = re.findall("<!-- bench: (.*?) -->", (DOCS / "scale.md").read_text())
    assert sorted(placed) == sorted(Figures.of(planned().parts, 2, 1000).tables())


def test_the_documentation_takes_a_whole_run_only(tmp_path: Path) -> None:
    places = [*planned().parts, "machine", "imports"]
    pages = {
        tmp_path / "performance.md": "".join(
            f"<!-- bench: {p} -->\n<!-- end -->\n" for p in places
        ),
        tmp_path / "scale.md": (DOCS / "scale.md").read_text(),
    }
    record = tmp_path / "bench.json"
    for page, text in pages.items():
        page.write_text(text)
    with pytest.raises(BenchError, match="make bench writes it"):
        update_docs(tmp_path, record)
    for options, failed in (({"only": ["git"]}, {}), ({}, {"merge": "no room"})):
        run = replace(planned(), options=planned().options | options, failed=failed)
        record.write_text(json.dumps(run.as_dict()))
        with pytest.raises(BenchError, match="some parts only"):
            update_docs(tmp_path, record)
    assert {page: page.read_text() for page in pages} == pages
    record.write_text(json.dumps(planned().as_dict()))
    update_docs(tmp_path, record)
    assert (tmp_path / "performance.md").read_text() == rewritten(
        pages[tmp_path / "performance.md"], tables(planned())
    )
    assert "139 hours" in (tmp_path / "scale.md").read_text()


def test_the_chart_shows_what_has_a_target() -> None:
    parts = {"git": [row("wtxtgit add", MET, BARE), row("git checkout", BEYOND)]}
    drawn = ET.fromstring(chart(parts))  # noqa: S314
    names = "{http://www.w3.org/2000/svg}"
    bars = [bar for bar in drawn.iter(f"{names}rect") if bar.get("class") != "back"]
    assert [bar.get("class") for bar in bars] == ["met", "missed"]
    line = float(next(drawn.iter(f"{names}line")).get("x1") or 0)
    ends = [float(bar.get("x") or 0) + float(bar.get("width") or 0) for bar in bars]
    assert ends[0] < line < ends[1]
    told = [text.text for text in drawn.iter(f"{names}text")]
    assert "git: wtxtgit add" in told
    assert "1.10 of git-lfs add (at most 1.25: met)" in told


def test_names_are_text_in_the_chart() -> None:
    hostile = 'a <script>alert("1")</script> & b'
    drawn = chart({"p": [row(hostile, Ratio(hostile, "time", 1.0, 2.0))]})
    assert "<script" not in drawn
    told = [text.text or "" for text in ET.fromstring(drawn).iter()]  # noqa: S314
    assert f"p: {hostile}" in told


def test_a_bar_too_long_is_cut_off_and_says_so() -> None:
    drawn = chart({"p": [row("a", Ratio("f", "time", 50.0, 1.0))]})
    assert "50.0 of the target" in drawn
    width = max(float(found) for found in re.findall('width="([0-9.]+)"', drawn))
    assert width == 960


@pytest.mark.parametrize(
    ("ratio", "share"),
    [
        (Ratio("f", "time", 1.0, 2.0), 0.5),
        (Ratio("f", "rate", 1.9, 0.95), 0.5),
        (Ratio("f", "beyond", -3.0, 0.5), 0.0),
    ],
)
def test_the_share_of_a_target(ratio: Ratio, share: float) -> None:
    assert used(ratio) == pytest.approx(share)


def test_the_longest_imports() -> None:
    profile = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:       120 |        120 |   zipimport\n"
        "import time:      2510 |       4000 |     typing\n"
        "something else\n"
    )
    assert longest(profile) == [("typing", 2.51), ("zipimport", 0.12)]


def test_a_part_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "nothing"])
    assert ended.value.code == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
