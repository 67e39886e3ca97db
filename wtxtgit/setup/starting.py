"""Checks and repairs of how git starts wtxtgit: the driver's configuration, and the hooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.filter.process import FilterSettings
from wtxtgit.git import driver, remotes
from wtxtgit.git.repository import Repository, Setting, change_config, settings_like
from wtxtgit.setup import hooks, install, leftovers, track
from wtxtgit.setup.diagnosis import CheckResult, Level, listed, shown
from wtxtgit.setup.hooks import SENDING


def configured(repo: Repository | None) -> CheckResult:
    """Check that all of the driver's keys are set, and by wtxtgit."""
    now = install.effective(cwd=_home(repo))
    foreign = {
        key: one for key, one in now.items() if one.value and not driver.is_ours(key, one.value)
    }
    missing = dict.fromkeys(key for key in driver.KEYS if key not in now)
    if foreign:
        return CheckResult(
            "driver",
            Level.ERROR,
            f"not set by wtxtgit: {', '.join(foreign)}",
            _driver_hint(repo, foreign, " --force"),
        )
    if missing:
        problem = "is not set up" if not now else f"lacks {', '.join(missing)}"
        hint = _driver_hint(repo, missing)
        return CheckResult("driver", Level.ERROR, f"the driver {problem}", hint, fixable=True)
    return CheckResult("driver", Level.OK, "the filter, diff and merge drivers are set up")


def _home(repo: Repository | None) -> Path | None:
    return repo.home if repo else None


def _driver_places(
    repo: Repository | None, wrong: Mapping[str, Setting | None]
) -> tuple[dict[str, Path], bool]:
    """Return where keys with a wrong value, or none, are to be mended.

    These are the files in which a value has to go, because git obeys it whatever install sets; and
    whether install is to set the repository's own config.
    """
    obstacles = {}
    local = install.effective(scope="local", cwd=repo.home) if repo else {}
    for key, setting in wrong.items():
        if setting is None or setting.file is None:
            continue
        own = local.get(key)
        if setting.scope == "global":
            own = install.effective(scope="global", cwd=_home(repo)).get(key)
        # The config of one worktree, or a file that is included below what install writes.
        if setting.scope == "worktree" or (own and own.file != setting.file):
            obstacles[key] = setting.file
    return obstacles, bool(local)


def _driver_hint(
    repo: Repository | None, wrong: Mapping[str, Setting | None], force: str = ""
) -> str:
    """Return the commands after which git obeys what install sets for these keys."""
    if told := [key for key, one in wrong.items() if one is not None and one.file is None]:
        return f"leave out git -c and GIT_CONFIG_COUNT, which set {', '.join(told)}"
    obstacles, is_local = _driver_places(repo, wrong)
    removing = "".join(
        f"git config --file {shown(os.fsencode(file))} --unset-all {key} && "
        for key, file in obstacles.items()
    )
    return f"{removing}wtxtgit install{' --local' if is_local else ''}{force}"


def starts(repo: Repository | None) -> CheckResult:
    """Check that every launcher in the configured commands starts: if a diff driver fails, so
    does `git diff`.
    """
    broken = _unstartable(repo)
    if broken:
        (message, *_) = broken.values()
        settings = install.effective(cwd=_home(repo))
        hint = _driver_hint(repo, {key: settings[key] for key in broken})
        return CheckResult("start", Level.ERROR, message, hint, fixable=True)
    return CheckResult("start", Level.OK, "the filter and the drivers start and answer")


def _unstartable(repo: Repository | None) -> dict[str, str]:
    """Return the keys whose command does not start, and why."""
    now = install.effective(cwd=_home(repo))
    launchers = {
        key: driver.launcher_of(key, now[key].value) for key in driver.COMMANDS if key in now
    }
    why = {one: _start_error(one) for one in dict.fromkeys(launchers.values()) if one is not None}
    return {key: error for key, one in launchers.items() if one and (error := why[one])}


def _start_error(launcher: driver.Launcher) -> str | None:
    """Return why a launcher does not start; None if it does."""
    try:
        install.check_start(launcher.command(driver.COMMANDS["filter.wtxt.process"]))
    except EnvironmentFailure as error:
        return error.message
    return None


def hook(repo: Repository) -> CheckResult:
    """Check that git runs the hooks that were installed, that they start, and that data is sent."""
    if broken := _broken_hooks(repo):
        file, why = next(iter(broken.items()))
        return CheckResult(
            "hook",
            Level.ERROR,
            f"{listed([leftovers.shown_from(repo, file)])} does not start: {why}",
            "wtxtgit doctor --fix",
            fixable=True,
            paths=_shown_files(repo, broken),
        )
    if ignored := hooks.ignored(repo):
        return CheckResult(
            "hook",
            Level.WARN,
            f"not executable, so git ignores it: {listed(_shown_files(repo, ignored))}",
            "wtxtgit doctor --fix",
            fixable=True,
            paths=_shown_files(repo, ignored),
        )
    if bypassed := hooks.bypassed(repo):
        where = shown(os.fsencode(repo.hooks_dir))
        return _bypassed(repo, bypassed, f"bypassed, since core.hooksPath is {where}")
    if replaced := hooks.replaced(repo):
        return _bypassed(repo, replaced, "in place of ours, and does not call wtxtgit")
    installed = hooks.installed(repo)
    if (
        not hooks.calls_us(repo, "pre-push")
        and any(one.detached for one in track.list_patterns(repo).patterns)
        and remotes.names(repo)
    ):
        return CheckResult(
            "hook", Level.WARN, "git push sends detached texts without their data", SENDING
        )
    missing = [name for name in hooks.NAMES if name not in installed]
    if not installed:
        return CheckResult(
            "hook", Level.OK, "no hooks are installed; wtxtgit install --hooks adds them"
        )
    if missing:
        names = ", ".join(missing)
        return CheckResult("hook", Level.OK, f"no hook {names}; wtxtgit install --hooks adds it")
    return CheckResult("hook", Level.OK, f"the hooks are installed: {', '.join(installed)}")


def _broken_hooks(repo: Repository) -> dict[Path, str]:
    """Return our hooks whose command does not start, and why."""
    launchers = hooks.launchers(repo)
    why = {one: _start_error(one) for one in dict.fromkeys(launchers.values())}
    return {file: error for file, one in launchers.items() if (error := why[one])}


def _bypassed(repo: Repository, files: Sequence[Path], what: str) -> CheckResult:
    folder = repo.hooks_dir
    is_local = bool(install.effective(scope="local", cwd=repo.home))
    hint = (
        f"wtxtgit install{' --local' if is_local else ''} --hooks --force puts ours "
        f"there too, and keeps those of others; or call wtxtgit hook {files[0].name} from the "
        f"{files[0].name} hook there, and so on"
    )
    if os.path.lexists(folder) and not folder.is_dir():
        (setting,) = settings_like(r"^core\.hookspath$", cwd=repo.home).values()
        hint = f"git config --{setting.scope} --unset-all core.hooksPath"
    return CheckResult(
        "hook",
        Level.WARN,
        f"{what}: {listed(_shown_files(repo, files))}",
        hint,
        paths=_shown_files(repo, files),
    )


def _shown_files(repo: Repository, files: Iterable[Path]) -> tuple[bytes, ...]:
    return tuple(leftovers.shown_from(repo, file) for file in files)


def fix_driver(repo: Repository | None, settings: FilterSettings | None = None) -> list[str]:
    """Set what `configured` and `starts` tell of; return what was done."""
    now = install.effective(cwd=_home(repo))
    broken = {key: now[key] for key in _unstartable(repo)}
    obstacles, is_local = _driver_places(repo, broken)
    for key, file in obstacles.items():
        change_config(f"file={file}", "--unset-all", key, cwd=_home(repo))
    installed = install.install(
        scope="local" if is_local else "global",
        with_hooks=False,
        force=False,
        repo=repo,
        settings=settings,
    )
    return [
        *(f"removed {key} from {shown(os.fsencode(file))}" for key, file in obstacles.items()),
        *(f"set {key} in the {installed.scope} config" for key in installed.keys),
        *(f"the hook {shown(os.fsencode(file))} starts wtxtgit" for file in installed.hooks),
    ]


def fix_hooks(repo: Repository | None) -> list[str]:
    """Have all hooks of ours start this installation; return what was done."""
    renewed = hooks.renew(repo, install.find_launcher()) if repo else ()
    return [f"the hook {shown(os.fsencode(file))} starts wtxtgit" for file in renewed]
