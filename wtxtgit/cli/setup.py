"""`wtxtgit install`, `uninstall`, `track`, `untrack` and `doctor`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import note, warn
from wtxtgit.cli.options import completed, discover
from wtxtgit.cli.output import is_printed, print_json, print_line, print_table, progress
from wtxtgit.errors import UsageError, WtxtgitError

if TYPE_CHECKING:
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup.track import Tracking


_SHOWN = 20
_LARGE_SHOWN = 10
"""Files over a limit that are told of."""


@click.command()
@click.option(
    "--global",
    "everywhere",
    is_flag=True,
    help="Set up all your repositories (the default).",
)
@click.option("--local", is_flag=True, help="Set up only this repository.")
@click.option("--hooks", is_flag=True, help="Install the hooks in this repository too.")
@click.option("--force", is_flag=True, help="Replace values that another tool has set.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def install(everywhere: bool, local: bool, hooks: bool, force: bool, as_json: bool) -> None:
    """Set up git: the filter, the merge driver, and diffs that name tensors.

    In a repository, it also restores tracked files that are still text in the work
    tree. Files that you changed are left alone.

    \b
    wtxtgit install                  for all repositories
    wtxtgit install --local --hooks  for this one, with its hooks
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import install as setup_install

    scope = _scope(everywhere, local)
    repo = Repository.find()
    done = setup_install.install(
        scope=scope,
        with_hooks=hooks,
        force=force,
        repo=repo,
        settings=settings(repo),
    )
    if is_printed(done, as_json):
        return
    what = "set up" if done.keys else "already set up"
    print_line(f"{what} in the {done.scope} config: git runs {done.command}")
    for key, value in done.replaced.items():
        print_line(f"replaced {key}, which was {value}")
    for hook in done.hooks:
        print_line(f"hook: {hook}")
    if done.files.written:
        print_line(f"restored from text: {_names(done.files.written)}")
    if done.files.changed:
        warn(
            f"left alone, changed since the last commit: {_names(done.files.changed)}",
            "git stash push -- PATH sets the change aside and restores the file",
        )
    if done.files.left:
        warn(
            f"still text in the work tree: {_names(done.files.left)}",
            "wtxtgit status shows which lack their data; wtxtgit verify PATH shows damage",
        )


@click.command()
@click.option(
    "--global",
    "everywhere",
    is_flag=True,
    help="Undo the global config (the default).",
)
@click.option("--local", is_flag=True, help="Undo this repository's config.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def uninstall(everywhere: bool, local: bool, as_json: bool) -> None:
    """Undo exactly what install did, and remove this repository's hooks.

    Git settings that `doctor --fix` changed in this repository get their old values
    back. Files in the work tree stay as they are. From then on git checks out tracked
    files as text, which `wtxtgit restore` still turns into files.

    \b
    wtxtgit uninstall
    wtxtgit uninstall --local
    """
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import install as setup_install

    done = setup_install.uninstall(scope=_scope(everywhere, local), repo=Repository.find())
    if is_printed(done, as_json):
        return
    if done.keys:
        print_line(f"removed from the {done.scope} config: {', '.join(done.keys)}")
    else:
        print_line(f"nothing to remove from the {done.scope} config")
    for key, value in done.foreign.items():
        print_line(f"left {key}, which wtxtgit did not set: {value}")
    for hook in done.hooks:
        print_line(f"removed the hook: {hook}")
    for key in done.settings:
        print_line(f"put back {key} of this repository")
    from wtxtgit.setup.diagnosis import arguments, arguments_here, listed

    if done.texts:
        warn(
            f"git has the text of these files, and a checkout writes it: {listed(done.texts)}",
            f"git add --renormalize -- {arguments_here(discover(), done.texts)}, then commit",
        )
    if done.patterns:
        warn(
            "files are still tracked here: without the filter, git checks them out as text, and "
            "reports them as changed when they are written",
            f"wtxtgit untrack {arguments(done.patterns)}, and follow its hints",
        )


def _scope(everywhere: bool, local: bool) -> str:
    if everywhere and local:
        raise UsageError("--global and --local cannot be combined")
    return "local" if local else "global"


def _names(paths: tuple[bytes, ...]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(os.fsdecode(path) for path in paths[:_SHOWN]) + more


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", type=click.Path())
@click.option(
    "--detached",
    is_flag=True,
    help="Keep the data of larger arrays in the repository's store, outside git's history.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def track(patterns: tuple[str, ...], detached: bool, as_json: bool) -> None:
    """Keep files that match PATTERN as text in git.

    Writes a line for each pattern to .gitattributes in this folder. Patterns follow
    gitattributes(5); quote them for the shell. Without a pattern, lists the tracked
    patterns. With --detached, git stores only a text of hashes, about 0.25% of the file's
    size.

    \b
    wtxtgit track '*.safetensors' '*.fold'
    wtxtgit track --detached '*.gguf'
    git add .gitattributes model.safetensors
    """
    from wtxtgit.errors import counted
    from wtxtgit.setup import track as setup_track
    from wtxtgit.setup.diagnosis import arguments_here, listed, shown
    from wtxtgit.setup.hooks import SENDING, calls_us
    from wtxtgit.setup.sizes import MAX_DIFF_LINES

    repo = discover()
    if not patterns:
        _list(repo, as_json)
        return
    done = setup_track.track(repo, list(map(os.fsencode, patterns)), detached=detached)
    if is_printed(done, as_json):
        return
    _print(done, "tracking", "already tracked")
    follows = done.consequences
    if follows.raw:
        names = arguments_here(repo, follows.raw)
        warn(
            f"committed as raw binary: {listed(follows.raw)}",
            f"git add --renormalize -- {names} stages them as text for the next commit",
        )
    if follows.pointers:
        warn(
            f"committed as pointers of git-lfs: {listed(follows.pointers)}",
            f"{setup_track.pull_hint(repo, follows.pointers)} stages the files as text for the "
            f"next commit",
        )
    if follows.of_lfs:
        include = " ".join(f"--include {pattern}" for pattern in map(shown, follows.of_lfs))
        note(
            f"git-lfs tracked {listed(follows.of_lfs)}: its line in .gitattributes stays, but "
            f"the new line below it wins",
            # An import wants everything to be committed.
            f"git add -- .gitattributes, then git commit, then wtxtgit migrate import --from-lfs "
            f"{include} converts earlier commits too",
        )
    if follows.other_form:
        note(
            f"stored in their old form until they are added again: {listed(follows.other_form)}",
            f"{setup_track.form_hint(repo, follows.other_form)}, with .gitattributes in one commit",
        )
    for odd in follows.odd[:_LARGE_SHOWN]:
        warn(f"{listed([odd.path])}: {odd.message}")
    if len(follows.odd) > _LARGE_SHOWN:
        warn(f"{len(follows.odd) - _LARGE_SHOWN} more files are odd; --json lists them")
    for large in follows.sizes[:_LARGE_SHOWN]:
        warn(f"{listed([large.path])}: {large.message}")
    if follows.over_forges:
        note(
            f"{counted(follows.over_forges, 'text')} may be refused by forges",
            f"wtxtgit track --detached {_one(done)} keeps the data in the store, and only hashes "
            f"(0.25%) in git",
        )
    if detached and not calls_us(repo, "pre-push"):
        note("git push sends the texts without their data", SENDING)
    if len(follows.sizes) > _LARGE_SHOWN:
        warn(f"{len(follows.sizes) - _LARGE_SHOWN} more files are too large; --json lists them")
    if follows.settings:
        keys = ", ".join(f"{key}={value}" for key, value in follows.settings.items())
        note(
            f"git packs such files better with {keys}",
            "wtxtgit doctor --fix sets that for this repository",
        )
    if follows.long:
        note(
            f"pull requests may not show a diff of {counted(follows.long, 'file')}: forges show "
            f"none over {MAX_DIFF_LINES:,} lines",
            "wtxtgit review BASE...HEAD shows what changed in the weights",
        )


@click.command()
@click.argument(
    "patterns",
    nargs=-1,
    required=True,
    metavar="PATTERN...",
    shell_complete=completed("patterns"),
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def untrack(patterns: tuple[str, ...], as_json: bool) -> None:
    """Stop tracking PATTERN in .gitattributes of this folder.

    Earlier commits do not change. To store the files as plain binaries from the next
    commit on, stage .gitattributes first, because git uses the staged attributes.
    Refused if a file or its data is missing, as in a sparse checkout.

    \b
    wtxtgit untrack '*.fold'
    git add -A -- .gitattributes
    git add --renormalize -- '*.fold'
    """
    from wtxtgit.setup import track as setup_track

    repo = discover()
    done = setup_track.untrack(repo, [os.fsencode(pattern) for pattern in patterns])
    if is_printed(done, as_json):
        return
    _print(done, "no longer tracking", "not tracked here")
    if done.consequences.texts:
        from wtxtgit.setup.diagnosis import arguments_here, listed

        texts = done.consequences.texts
        warn(
            f"still text in git until they are added again: {listed(texts)}",
            "git add -A -- .gitattributes, then git add --renormalize -- "
            f"{arguments_here(repo, texts)}, then commit",
        )


def _one(done: Tracking) -> str:
    """The pattern that was asked for; of several, somebody has to choose."""
    from wtxtgit.setup.diagnosis import arguments

    every = (*done.changed, *done.unchanged)
    return arguments(every) if len(every) == 1 else "PATTERN"


def _print(done: Tracking, changed: str, unchanged: str) -> None:
    for pattern in done.changed:
        print_line(f"{changed} {os.fsdecode(pattern)}")
    for pattern in done.unchanged:
        print_line(f"{unchanged}: {os.fsdecode(pattern)}")


def _list(repo: Repository, as_json: bool) -> None:
    from wtxtgit.setup import track as setup_track

    tracked = setup_track.list_patterns(repo)
    if as_json:
        print_json(tracked)
    elif tracked.patterns:
        rows = [
            (
                os.fsdecode(item.pattern),
                "detached" if item.detached else "text",
                os.fsdecode(item.file),
            )
            for item in tracked.patterns
        ]
        print_table(("pattern", "as", "in"), rows)
    else:
        print_line("no tracked patterns; wtxtgit track '*.safetensors' tracks one")


@click.command()
@click.option("--fix", is_flag=True, help="Fix what can be fixed, then check again.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(fix: bool, as_json: bool) -> int:
    """Find setup problems in this repository and on this machine.

    Checks git, Python, and that the driver is set up and starts. In a repository it
    also checks hooks, attributes, line endings, raw binaries, locks that a killed git
    left, files that are still text in the work tree, and files too large for forges or
    for git's settings. --fix sets the config, mends hooks, completes attributes, stages
    raw binaries as text, removes locks that no process holds, restores files that are
    still text, and raises this repository's core.bigFileThreshold and pack.windowMemory
    where files exceed them (uninstall restores both). The exit code is 1 if errors
    remain.

    \b
    wtxtgit doctor
    wtxtgit doctor --fix
    """
    from wtxtgit.cli.plumbing import settings
    from wtxtgit.git.repository import Repository
    from wtxtgit.setup import doctor as setup_doctor
    from wtxtgit.setup.diagnosis import Level

    repo = Repository.find()
    # Repairs run programs that may ask for something.
    with progress("checking", None, noun="check", waits=not fix) as advance:
        diagnosis = (
            setup_doctor.repair(repo, settings(repo), _mend, advance)
            if fix
            else setup_doctor.examine(repo, advance)
        )
    if as_json:
        print_json(diagnosis)
        return 0 if diagnosis.ok else 1
    if repo is None:
        note("not in a git repository, so only this machine's set-up was checked")
    for line in diagnosis.mended:
        print_line(f"mended: {line}")
    print_table(
        ("", "check", "found"), [(str(c.level), c.name, c.message) for c in diagnosis.checks]
    )
    todo = [one for one in diagnosis.checks if one.level is not Level.OK and one.fix]
    if todo:
        print_line()
    for check in todo:
        print_line(f"{check.name}: {check.fix}")
    if not fix and any(c.fixable and c.level is not Level.OK for c in diagnosis.checks):
        print_line("wtxtgit doctor --fix fixes what it can")
    return 0 if diagnosis.ok else 1


def _mend(repo: Repository, path: bytes) -> bool:
    """Stage what a damaged text was, where all of it can be recovered."""
    from wtxtgit.checkpoint.recover_tracked import put_back

    try:
        return put_back(repo, path, threads=environment.threads()).text is not None
    except WtxtgitError:
        # What is left is told by the examination that follows.
        return False
