"""`wtxtgit doctor`."""

from __future__ import annotations

import click

from wtxtgit.cli.output import print_json, print_line, print_table


@click.command()
@click.option("--fix", is_flag=True, help="Mend what can be mended, then check again.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(fix: bool, as_json: bool) -> int:
    """Find what is set up wrong, here and on this machine.

    Checks git, Python, the driver and that it starts; in a repository also
    attributes, line endings, raw binaries, files that stand as text, and
    whether they are too large for forges or for git as it is set.
    --fix sets the config, completes attributes, stages raw binaries as text,
    writes files that stand as text, and sets core.bigFileThreshold and
    pack.windowMemory of this repository where files are over them (uninstall
    puts them back). Exit code 1 if an error is left.

    \b
    wtxtgit doctor
    wtxtgit doctor --fix
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import doctor as ops
    from wtxtgit.setup.diagnosis import Level

    repo = Repository.find()
    found = ops.repair(repo, settings()) if fix else ops.examine(repo)
    if as_json:
        print_json(found.as_dict())
        return 0 if found.ok else 1
    for line in found.repaired:
        print_line(f"mended: {line}")
    print_table(("", "check", "found"), [(str(c.level), c.name, c.message) for c in found.checks])
    for check in found.checks:
        if check.level is not Level.OK and check.fix:
            print_line(f"{check.name}: {check.fix}")
    if not fix and any(c.fixable and c.level is not Level.OK for c in found.checks):
        print_line("wtxtgit doctor --fix mends what it can")
    return 0 if found.ok else 1
