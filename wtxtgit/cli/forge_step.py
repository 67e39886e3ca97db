"""What a command prints and leaves for a forge: SARIF, or a step of a GitHub workflow."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wtxtgit.cli import environment
from wtxtgit.cli.output import print_json, write_json
from wtxtgit.report.forges import ForgeReport, outputs, sarif, workflow_commands
from wtxtgit.version import __version__

if TYPE_CHECKING:
    from wtxtgit.model.plain import JsonObject


def print_findings(
    form: str,
    findings: ForgeReport,
    report: JsonObject,
    summary: Callable[[], str],
    show: Callable[[], None],
) -> None:
    """Print findings in a form of a forge: SARIF for code scanning, or a step of a workflow.

    A step prints annotations, then what `show` prints. The runner gets summary, outputs and JSON.
    """
    if form == "sarif":
        print_json(sarif(findings, __version__))
        return
    for line in workflow_commands(findings):
        print(line)
    with _plain_lines():
        show()
    _hand_over(findings, report, summary())


@contextmanager
def _plain_lines() -> Iterator[None]:
    """Keep the runner from reading commands in what is printed: `##[` is one anywhere in a line."""
    # Nobody who writes a message can know the word that starts commands again.
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}")
    try:
        yield
    finally:
        print(f"::{word}::")


def _hand_over(findings: ForgeReport, report: JsonObject, summary: str) -> None:
    """Append to the files for the step's summary and outputs, if the runner has any."""
    if (file := environment.path(environment.STEP_SUMMARY)) is not None:
        _append(file, summary)
    if (file := environment.path(environment.STEP_OUTPUT)) is not None:
        values = outputs(findings)
        if (folder := environment.path(environment.JOB_FOLDER)) is not None:
            values["json"] = _write_json(findings.command, report, folder)
        _append(file, "".join(f"{name}={value}\n" for name, value in values.items()))


def _append(file: Path, text: str) -> None:
    # Names that are no UTF-8 must not end the step.
    with file.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
        stream.write(text)


def _write_json(command: str, report: JsonObject, folder: Path) -> str:
    descriptor, name = tempfile.mkstemp(".json", f"wtxtgit-{command}-", folder)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        write_json(report, stream.write)
    return name
