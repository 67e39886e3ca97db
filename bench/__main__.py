"""`make bench`: measure, and write `bench/out/`.

Data is generated from seeds in a scratch folder, which is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import (
    audit,
    cluster,
    compare,
    containers,
    detached,
    doubling,
    epochs,
    git,
    growth,
    many,
    migrations,
    packing,
    pages,
    protocol,
    snapshots,
    start,
    stores,
    text,
    verbs,
)  # fmt: skip
from bench.chart import chart
from bench.measure import BenchError, Place, Row
from bench.plan import Figures
from bench.report import Report, machine, markdown, rewritten, tables
from wtxtgit.io.workers import default_threads

OUT = Path(__file__).parent / "out"
DOCS = Path(__file__).parents[1] / "docs"
START_RUNS = 15
"""At least so many runs of what takes some hundredths of a second."""

Part = Callable[[Place, argparse.Namespace], list[Row]]

PARTS: dict[str, Part] = {
    "start": lambda place, o: start.starts(place, max(o.runs, START_RUNS)),
    "library": lambda place, o: text.library(place, o.size, o.runs),
    "steps": lambda place, o: text.steps(place, o.size, o.runs),
    "text": lambda place, o: text.commands(place, o.size, o.runs),
    "containers": lambda place, o: containers.checks(place, o.size, o.runs),
    "diff": lambda place, o: compare.diffs(place, o.size, o.runs),
    "delta": lambda place, o: compare.deltas(place, o.size, o.runs),
    "merge": lambda place, o: compare.merges(place, o.size, o.runs),
    "protocol": lambda place, o: protocol.filters(place, o.size, o.runs),
    "git": lambda place, o: git.adds_and_checkouts(place, o.size, o.runs),
    "detached": lambda place, o: detached.adds_and_checkouts(place, o.size, o.runs),
    "many": lambda place, o: many.files(place, (1000, 5000), o.runs),
    "verbs": lambda place, o: verbs.verbs(place, o.size, o.runs),
    "packing": lambda place, o: packing.packs(place, o.size),
    "growth": lambda place, o: growth.versions(place, o.size),
    "beside": lambda place, o: growth.beside(place, o.size),
    "epochs": lambda place, o: epochs.packed(place, o.size),
    "store": lambda place, o: stores.versions(place, o.size),
    "git-diff": lambda place, o: compare.git_diffs(place, o.size, o.runs),
    "git-diff-many": lambda place, o: compare.git_diff_of_many(place, 100, o.runs),
    "reviews": lambda place, o: compare.reviews(place, o.size, o.runs),
    "pages": lambda place, o: pages.pages(place, o.runs),
    "audit": lambda place, o: audit.audits(place, o.commits, o.runs),
    "long-history": lambda place, _: audit.long_history(place),
    "doubling": lambda place, o: doubling.doublings(place, o.runs),
    "migrate": lambda place, _: migrations.migrations(place),
    "snapshots": lambda place, o: snapshots.trainings(place, o.size, o.runs),
    "cluster": lambda place, o: cluster.verifications(place, o.size, o.runs),
    "big-text": lambda place, o: text.commands(place, o.big, o.runs) if o.big else [],
    "big-git": lambda place, o: git.adds_and_checkouts(place, o.big, o.runs) if o.big else [],
    "big-detached": lambda place, o: (
        detached.adds_and_checkouts(place, o.big, o.runs, bf16=False) if o.big else []
    ),
}
"""In the order in which they are measured and told."""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.update_docs:
            update_docs(DOCS, OUT / "bench.json")
        else:
            report = measured(options)
            write(OUT, report)
            return 1 if report.failed else 0
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def measured(options: argparse.Namespace) -> Report:
    """Measure the parts that are asked for; what is done is told on standard error."""
    # Data of some gigabytes is not left behind when the run is ended from outside.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    wanted = options.only or list(PARTS)
    parts: dict[str, list[Row]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="wtxtgit-bench-", dir=options.scratch) as folder:
        place = Place(Path(folder))
        for name in ("home", "tmp"):
            place.folder(name)
        for name, part in PARTS.items():
            if name in wanted:
                print(f"bench: {name}", file=sys.stderr, flush=True)
                try:
                    parts[name] = part(place, options)
                except (BenchError, OSError, subprocess.SubprocessError) as error:
                    # What the others took so long to find is kept.
                    failed[name] = str(error)
                    print(f"bench: {name}: {error}", file=sys.stderr)
        imports = start.imports(place) if "start" in wanted else {}
    asked = {key: getattr(options, key) for key in ("size", "big", "commits", "runs", "only")}
    asked["threads"] = default_threads()
    return Report(machine(), asked, parts, imports, failed)


def write(out: Path, report: Report) -> None:
    """Print the tables, and write them, the record and the chart."""
    tables = markdown(report)
    print(tables)
    out.mkdir(exist_ok=True)
    (out / "bench.md").write_text(tables)
    (out / "bench.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    (out / "bench.svg").write_text(chart(report.parts))


def update_docs(docs: Path, record: Path) -> None:
    """Put the last run's tables into the pages, and what is planned with them."""
    if not record.exists():
        raise BenchError(f"{record} is not there, make bench writes it")
    report = Report.from_dict(json.loads(record.read_text()))
    if report.options["only"] or report.failed:
        raise BenchError("the last run measured some parts only, the pages want all of one run")
    figures = Figures.of(report.parts, report.options["threads"], report.options["commits"])
    pages = {"performance.md": tables(report), "scale.md": figures.tables()}
    made = {
        docs / name: rewritten((docs / name).read_text(), found) for name, found in pages.items()
    }
    for page, content in made.items():
        page.write_text(content)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="of one checkpoint")
    parser.add_argument(
        "--big", type=int, default=1024, metavar="MIB", help="of the big one; 0: not at all"
    )
    parser.add_argument("--commits", type=int, default=1000, metavar="N", help="for the audit")
    parser.add_argument("--runs", type=_runs, default=3, metavar="N", help="of each thing")
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="where to keep up to 15 GiB of data meanwhile"
    )
    parser.add_argument(
        "--update-docs", action="store_true",
        help="write the last run's tables into docs/, measure nothing",
    )  # fmt: skip
    return parser


def _runs(word: str) -> int:
    if int(word) < 1:
        raise ValueError
    return int(word)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
