"""Tables, the record, the chart, and the documentation's page: `bench.report`, `bench.chart`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.__main__ import DOCS, PARTS, main, update_docs
from bench.chart import chart, used
from bench.measure import MIB, BenchError, Ratio, Row
from bench.report import Report, markdown, rewritten, said, table
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
    page = rewritten(PAGE, report())
    assert "old" not in page
    assert page.index("prose") < page.index("| write |") < page.index("| wtxtgit add |")
    assert page.endswith("<!-- end -->\nafter\n")
    assert rewritten(page, report()) == page


def test_a_page_and_a_run_have_the_same_parts() -> None:
    with pytest.raises(BenchError, match="other parts than were measured: git"):
        rewritten(PAGE.replace("<!-- bench: git -->", ""), report())
    with pytest.raises(BenchError, match="other parts than were measured: merge"):
        rewritten(PAGE + "<!-- bench: merge -->\n<!-- end -->\n", report())


def test_the_documentation_has_a_place_for_every_part() -> None:
    placed = re.findall("<!-- bench: (.*?) -->", DOCS.read_text())
    assert sorted(placed) == sorted([*PARTS, "machine", "imports"])


def test_the_documentation_takes_a_whole_run_only(tmp_path: Path) -> None:
    page, record = tmp_path / "page.md", tmp_path / "bench.json"
    page.write_text(PAGE)
    with pytest.raises(BenchError, match="make bench writes it"):
        update_docs(page, record)
    for partial in (report(only=["git"]), report(failed={"merge": "no room"})):
        record.write_text(json.dumps(partial.as_dict()))
        with pytest.raises(BenchError, match="some parts only"):
            update_docs(page, record)
    assert page.read_text() == PAGE
    record.write_text(json.dumps(report().as_dict()))
    update_docs(page, record)
    assert page.read_text() == rewritten(PAGE, report())


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
