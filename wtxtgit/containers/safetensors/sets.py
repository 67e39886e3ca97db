"""Models in several safetensors files: with an index, or by the numbers in their names.

Spec: `docs/spec/safetensors.md`, "Sharded models" and "Numbered shards".
"""

from __future__ import annotations

from wtxtgit.containers.format import FileSet, OpenMember
from wtxtgit.containers.safetensors import numbered, sharded
from wtxtgit.io.view import ByteView


def is_index(data: ByteView) -> bool:
    """Whether a JSON file is an index of safetensors files, judged by its first bytes."""
    return sharded.is_index(data) or numbered.is_index(data)


def read(data: ByteView, open_member: OpenMember) -> FileSet:
    """Read an index; raises FormatError. `open_member` opens its files when they are needed."""
    if numbered.is_index(data):
        return numbered.read(data, open_member)
    return sharded.read(data, open_member)
