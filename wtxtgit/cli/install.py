"""`wtxtgit install` and `wtxtgit uninstall`."""

from __future__ import annotations

import os

import click

from wtxtgit.cli.boundary import warn
from wtxtgit.cli.output import print_json, print_line
from wtxtgit.errors import UsageError

_SHOWN = 20


@click.command()
@click.option(
    "--global",
    "everywhere",
    is_flag=True,
    help="Set up all your repositories (the default).",
)
@click.option("--local", is_flag=True, help="Set up this repository alone.")
@click.option("--hooks", is_flag=True, help="Install the hooks in this repository too.")
@click.option("--force", is_flag=True, help="Replace values that another tool has set.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def install(everywhere: bool, local: bool, hooks: bool, force: bool, as_json: bool) -> None:
    """Set git up: the filter, the merge driver, tensor names in diffs.

    In a repository, tracked files that stand as text in the work tree are
    written again as what they are; files that were changed stay as they are.

    \b
    wtxtgit install                  for all repositories
    wtxtgit install --local --hooks  for this one, with its hooks
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import install as ops

    scope = _scope(everywhere, local)
    done = ops.install(
        scope=scope,
        with_hooks=hooks,
        force=force,
        repo=Repository.find(),
        settings=settings(),
    )
    if as_json:
        print_json(done.as_dict())
        return
    what = "set up" if done.keys else "already set up"
    print_line(f"{what} in the {done.scope} config: git starts {done.command}")
    for key, value in done.replaced.items():
        print_line(f"replaced {key}, which was {value}")
    for hook in done.hooks:
        print_line(f"hook: {hook}")
    if done.files.written:
        print_line(f"written again from text: {_names(done.files.written)}")
    if done.files.changed:
        warn(
            f"left as they are, changed since the last commit: {_names(done.files.changed)}",
            "git checkout -- PATH drops the change and restores the file",
        )
    if done.files.left:
        warn(
            f"still text in the work tree: {_names(done.files.left)}",
            "wtxtgit verify PATH tells whether the text is damaged",
        )


@click.command()
@click.option(
    "--global",
    "everywhere",
    is_flag=True,
    help="Take back the global config (the default).",
)
@click.option("--local", is_flag=True, help="Take back this repository's config.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def uninstall(everywhere: bool, local: bool, as_json: bool) -> None:
    """Take back exactly what install did, and this repository's hooks.

    Settings of git that `doctor --fix` made for this repository are put back.
    Files of the work tree stay the binaries that they are. From then on git
    checks tracked files out as text, which `wtxtgit restore` still reads.

    \b
    wtxtgit uninstall
    wtxtgit uninstall --local
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import install as ops

    done = ops.uninstall(scope=_scope(everywhere, local), repo=Repository.find())
    if as_json:
        print_json(done.as_dict())
        return
    if done.keys:
        print_line(f"removed from the {done.scope} config: {', '.join(done.keys)}")
    else:
        print_line(f"nothing of wtxtgit is in the {done.scope} config")
    for key, value in done.foreign.items():
        print_line(f"left {key}, which is not ours: {value}")
    for hook in done.hooks:
        print_line(f"removed the hook: {hook}")
    for key in done.settings:
        print_line(f"put back {key} of this repository")


def _scope(everywhere: bool, local: bool) -> str:
    if everywhere and local:
        raise UsageError("--global and --local exclude each other")
    return "local" if local else "global"


def _names(paths: tuple[bytes, ...]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(os.fsdecode(path) for path in paths[:_SHOWN]) + more
