"""`wtxtgit log`."""

from __future__ import annotations

import click

from wtxtgit.cli.output import print_json, print_table
from wtxtgit.report.figures import size

_HASH_SHOWN = 12
_OID_SHOWN = 10


@click.command()
@click.argument("path", type=click.Path())
@click.argument("revision", default="HEAD", metavar="[REV]")
@click.option(
    "--trust-root",
    metavar="COMMIT|FILE",
    help="Where trust starts, as for audit. Default: config wtxtgit.trustRoot.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the generations as JSON.")
def log(path: str, revision: str, trust_root: str | None, as_json: bool) -> None:
    """List the sealed generations of the checkpoint at PATH, the newest first.

    Each with the commit that brought it, the size of the blob there, who
    signed it, and what an audit finds of its place in the chain. What the
    content is, audit says.

    \b
    wtxtgit log model.fold
    wtxtgit log model.fold v1.0 --json
    """
    from wtxtgit.chain import log as ops
    from wtxtgit.git.config import effective
    from wtxtgit.git.repository import Repository

    repo = Repository.discover()
    root = effective("wtxtgit.trustRoot", cwd=repo.home) if trust_root is None else trust_root
    found = ops.log(repo, path, revision=revision, trust_root=root)
    if as_json:
        print_json({"generations": [generation.as_dict() for generation in found]})
        return
    rows = [
        (
            str(generation.gen),
            generation.ts,
            generation.build,
            ", ".join(generation.signers) or "none",
            generation.sha256_all.hex()[:_HASH_SHOWN],
            (generation.commit or "")[:_OID_SHOWN],
            "" if generation.size is None else size(generation.size),
            generation.verdict,
        )
        for generation in found
    ]
    columns = ("gen", "time", "build", "signers", "hash", "commit", "size", "verdict")
    print_table(columns, rows, right=("gen", "size"), split=4)
