"""Everything that an AERO file says of its own bytes, checked.

What upstream readers refuse although nothing is lost is a warning.
Spec: `docs/spec/aero.md`, "What is checked".
"""

from __future__ import annotations

from wtxtgit.containers.aero import (
    content_rules,
    control,
    integrity,
    manifest,
    placement,
    tensor_rules,
)
from wtxtgit.containers.aero.content import Allowance
from wtxtgit.containers.aero.read import Aero
from wtxtgit.model.reading import Findings, ReadOptions


def check(container: Aero, options: ReadOptions) -> Findings:
    """Check structure, limits and hashes; raises nothing."""
    elsewhere = manifest.lists_no_shards(container)
    found = check_file(container, options, shards_elsewhere=elsewhere)
    if elsewhere and container.entries:
        found.warn(
            "structure",
            f"{len(container.entries)} tensors are in other files, which are not looked at",
            offset=container.header.toc_offset,
            field="shard_id",
        )
    return found


def check_file(aero: Aero, options: ReadOptions, *, shards_elsewhere: bool) -> Findings:
    """Check a file that may be the index of a set, whose weight shards are in other files."""
    found = Findings()
    allowance = Allowance(len(aero.data), options)
    control.check(aero, found)
    placement.check(aero, found)
    manifest.check(aero, found)
    tensor_rules.check(aero, found, shards_elsewhere=shards_elsewhere)
    integrity.check(aero, found, allowance)
    content_rules.check(aero, found, allowance)
    return found
