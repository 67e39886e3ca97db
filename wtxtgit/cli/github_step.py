"""What a step of a GitHub workflow leaves: annotations, a summary, outputs, a report."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wtxtgit.cli import environment
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.github import outputs, workflow_commands
from wtxtgit.report.markdown import summary


def annotate(report: AuditReport) -> None:
    """Print the findings as annotations."""
    for line in workflow_commands(report):
        print(line)


@contextmanager
def plain_lines() -> Iterator[None]:
    """Print lines in which a runner looks for no commands: `##[` is one anywhere in a line."""
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}")
    try:
        yield
    finally:
        print(f"::{word}::")


def hand_over(report: AuditReport) -> None:
    """Add to the step's summary and outputs, as far as a runner gave files for them."""
    if (file := environment.step_summary()) is not None:
        _append(file, summary(report))
    if (file := environment.step_output()) is not None:
        values = outputs(report)
        if (folder := environment.job_folder()) is not None:
            values["json"] = _write_json(report, folder)
        _append(file, "".join(f"{name}={value}\n" for name, value in values.items()))


def _append(file: Path, text: str) -> None:
    with file.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


def _write_json(report: AuditReport, folder: Path) -> str:
    descriptor, name = tempfile.mkstemp(".json", "wtxtgit-audit-", folder)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        json.dump(report.as_dict(), stream, indent=2)
        stream.write("\n")
    return name
