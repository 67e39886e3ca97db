"""`wtxtgit inspect`."""

from __future__ import annotations

import click

from wtxtgit.cli import environment
from wtxtgit.cli.output import print_json, print_line, print_table, size


@click.command()
@click.argument("target", metavar="FILE|REV:PATH")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(target: str, as_json: bool) -> int:
    """Show the tensors and parts of a checkpoint, or of a text.

    REV:PATH takes the file as it was in a commit.

    \b
    wtxtgit inspect model.safetensors
    wtxtgit inspect HEAD~3:model.fold --json
    """
    from wtxtgit.ops.inspect import inspect as op

    found = op(target, threads=environment.threads())
    if as_json:
        print_json(found.as_dict())
        return 0
    print_line(f"{found.path}: {found.format}, {size(found.size)}")
    if found.reason is not None:
        whole = found.stored_as == "opaque" and "stored whole" not in found.reason
        print_line(f"stored whole: {found.reason}" if whole else f"note: {found.reason}")
    if found.tensors:
        print_line()
        print_table(
            ("tensor", "array", "dtype", "shape", "size", "sha256"),
            [
                (
                    t.name,
                    t.array or "",
                    t.dtype,
                    _shape(t.shape),
                    size(t.size),
                    t.sha256[:12] if t.size and t.sha256 else "",
                )
                for t in found.tensors
            ],
            right=("size",),
        )
    others = [part for part in found.parts if part.kind != "tensor"]
    if others:
        print_line()
        print_table(
            ("offset", "size", "part", "name"),
            [(str(p.offset), size(p.size), p.array or p.kind, p.name or "") for p in others],
            right=("offset", "size"),
        )
    return 0


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) if shape else "scalar"
