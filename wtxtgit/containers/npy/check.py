"""Checks of npy files: what numpy does not write. Spec: `docs/spec/npy.md`, "Checks"."""

from __future__ import annotations

from wtxtgit.containers import npy_check
from wtxtgit.containers.npy.read import Npy
from wtxtgit.model.findings import Findings
from wtxtgit.model.tensor import ReadOptions


def check(
    container: Npy,
    options: ReadOptions,
) -> Findings:
    """Check everything in the file; there are no hashes."""
    findings = Findings()
    npy_check.check_array(container.header, container.stored, len(container.data), findings)
    return findings
