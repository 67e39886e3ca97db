"""Hooks: installed without replacing hooks of others, and removed without a trace.

Each hook is a script of ours with an id line. If there is a foreign hook of the same name, it is
renamed, and runs first. Git runs the hooks of one folder, which core.hooksPath may change at any
time: ours are looked for in git's own folder, too, and in each one to which they were installed.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git.driver import Launcher, launcher_in
from wtxtgit.git.repository import Repository, change_config, values_in
from wtxtgit.io.files import failures, replace_file
from wtxtgit.io.view import write_all

NAMES = ("pre-commit", "pre-merge-commit", "pre-applypatch", "pre-push")
SENDING = "wtxtgit install --hooks makes git push send it too; without hooks, run wtxtgit push"
"""What is to be done where git push alone leaves payload behind."""
_FOLDERS = "wtxtgit.hooksFolder"
"""The key in a repository's config with each folder outside of git's to which hooks were installed.
"""
_MANAGED = ("lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml")
"""Files at the top level from which a manager of hooks takes what hooks run."""


@dataclass(frozen=True, slots=True)
class _Hook:
    """The hook of one name in a folder of hooks."""

    folder: Path
    name: str

    @property
    def file(self) -> Path:
        return self.folder / self.name

    @property
    def foreign(self) -> Path:
        """The path at which a foreign hook is kept."""
        return self.folder / f"{self.name}.before-wtxtgit"

    @property
    def ready(self) -> Path:
        """The path at which a hook is written before it is renamed to its own name."""
        return self.folder / f"{self.name}.new-wtxtgit"

    @property
    def id_line(self) -> bytes:
        return b"# wtxtgit-hook: %b\n" % self.name.encode("ascii")

    def exists(self) -> bool:
        return os.path.lexists(self.file)

    def is_ours(self) -> bool:
        """Tell whether the hook was installed by wtxtgit, by its id line."""
        return _is_ours(self.file, self.id_line)

    def template(self) -> tuple[bytes, bytes]:
        """Return the parts of the shipped script before and after the command."""
        call = b"exec wtxtgit hook " + self.name.encode("ascii")
        start, separator, end = _shipped(self.name).partition(call)
        if self.id_line not in start or not separator:
            raise EnvironmentFailure(f"the installed {self.name} hook is damaged")
        return start, end

    def is_as_written(self) -> bool:
        """Tell whether the installed hook differs from the shipped one only in the command."""
        start, end = self.template()
        with failures(self.file):
            script = self.file.read_bytes()
        # What a user added, or another version wrote, is not ours to remove.
        if not (script.startswith(start) and script.endswith(end)):
            return False
        call = os.fsdecode(script[len(start) : len(script) - len(end)])
        try:
            words = shlex.split(call)
        except ValueError:
            return False
        # Quoted exactly as a launcher quotes it, so it is one command, and nothing can follow its
        # words.
        spelled = shlex.join(words) == call
        return words[:1] == ["exec"] and words[-2:] == ["hook", self.name] and spelled

    def _call(self, script: bytes) -> re.Match[bytes] | None:
        """Find the command in a script of ours, also in one that was edited."""
        return re.search(rb"^exec (.+) hook %b(?=[ \n])" % self.name.encode("ascii"), script, re.M)

    def launcher(self) -> Launcher | None:
        """Return how the hook starts wtxtgit; None if it is not ours, or does not say."""
        if not self.is_ours():
            return None
        with failures(self.file):
            call = self._call(self.file.read_bytes())
        try:
            return launcher_in(shlex.split(os.fsdecode(call[1]))) if call else None
        except ValueError:
            return None

    def is_executable(self) -> bool:
        return os.access(self.file, os.X_OK)

    def renew(self, launcher: Launcher) -> bool:
        """Have a hook of ours start wtxtgit with this launcher; tell whether anything changed."""
        present = self.launcher()
        if present is None or (present == launcher and self.is_executable()):
            return False
        with failures(self.file):
            script = self.file.read_bytes()
            call = self._call(script)
            if call is not None:
                command = os.fsencode(launcher.command())
                self._write(script[: call.start(1)] + command + script[call.end(1) :])
                self.ready.replace(self.file)
        return call is not None

    def _write(self, script: bytes) -> None:
        replace_file(self.ready, lambda descriptor: write_all(descriptor, (script,)))
        # githooks(5): git ignores a hook that is not executable.
        self.ready.chmod(0o755)

    def check_unedited(self) -> None:
        if self.is_ours() and not self.is_as_written():
            quoted = _quoted(self.file)
            edited = _quoted(self.folder / f"{self.name}.edited")
            raise CheckError(
                f"{quoted} was edited, or comes from another version of wtxtgit",
                hint=f"mv -i -- {quoted} {edited} keeps it; then try again",
            )

    def check_place(self) -> None:
        self.check_unedited()
        # There is room for only one foreign hook beside ours; a second one would be lost.
        if self.exists() and not self.is_ours() and os.path.lexists(self.foreign):
            other = _quoted(self.foreign)
            raise CheckError(
                f"{_quoted(self.file)} is not from wtxtgit, and {other} already exists",
                hint=f"mv -i -- {other} {other}.old sets that one aside",
            )

    def install(self, launcher: Launcher) -> None:
        start, end = self.template()
        script = start + os.fsencode(f"exec {launcher.command()} hook {self.name}") + end
        with failures(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            is_foreign = self.exists() and not self.is_ours()
            try:
                self._write(script)
                if is_foreign:
                    self.file.rename(self.foreign)
                self.ready.replace(self.file)
            except BaseException:
                # Whatever failed, the user's own hook gets its name back.
                if is_foreign and not self.exists():
                    self.foreign.rename(self.file)
                self.ready.unlink(missing_ok=True)
                raise

    def uninstall(self) -> bool:
        """Remove the hook if it is ours, and restore the foreign one; tell whether anything
        changed.
        """
        has_foreign = os.path.lexists(self.foreign)
        # Ours may have been moved away, while the earlier hook is still set aside.
        if not (self.is_ours() or (has_foreign and not self.exists())):
            return False
        with failures(self.file):
            if has_foreign:
                self.foreign.replace(self.file)
            else:
                self.file.unlink()
        return True


def installed(repo: Repository) -> tuple[str, ...]:
    """Return the names of our hooks in the folder whose hooks git runs."""
    return tuple(hook.name for hook in _hooks(repo.hooks_dir) if hook.is_ours())


def launchers(repo: Repository) -> dict[Path, Launcher]:
    """Return how each of our hooks that git runs starts wtxtgit."""
    found = {hook.file: hook.launcher() for hook in _hooks(repo.hooks_dir)}
    return {file: launcher for file, launcher in found.items() if launcher is not None}


def ignored(repo: Repository) -> tuple[Path, ...]:
    """Return those of our hooks that git ignores because they are not executable."""
    hooks = _hooks(repo.hooks_dir)
    return tuple(hook.file for hook in hooks if hook.is_ours() and not hook.is_executable())


def bypassed(repo: Repository) -> tuple[Path, ...]:
    """Return our hooks in other folders than the one that git uses, if nothing there calls us."""
    elsewhere = (hook for folder in _folders(repo)[1:] for hook in _hooks(folder))
    return tuple(one.file for one in elsewhere if one.is_ours() and not calls_us(repo, one.name))


def replaced(repo: Repository) -> tuple[Path, ...]:
    """Return the hooks that git runs which others put in the place of ours, without calling us."""
    hooks = _hooks(repo.hooks_dir)
    # lefthook keeps what was there, and does not run it.
    asides = (_is_ours(hook.folder / f"{hook.name}.old", hook.id_line) for hook in hooks)
    if not any(hook.is_ours() for hook in hooks) and not any(asides):
        return ()
    return tuple(
        hook.file
        for hook in hooks
        if hook.is_executable() and not hook.is_ours() and not calls_us(repo, hook.name)
    )


def calls_us(repo: Repository, name: str) -> bool:
    """Tell whether git's hook of this name calls us: it is ours, or others call us from theirs."""
    hook = _Hook(repo.hooks_dir, name)
    if not hook.is_executable():
        return False
    # pre-commit runs the hook that was there before; husky runs the one beside its own folder.
    files = [hook.file, hook.folder / f"{name}.legacy", hook.folder.parent / name]
    if repo.top is not None:
        files += [repo.top / file for file in _MANAGED]
    call = re.compile(rb"wtxt(?:git)?['\"]? hook %b\b" % name.encode("ascii"))
    for file in files:
        with suppress(OSError):
            if call.search(file.read_bytes()):
                return True
    return False


def check_unedited(repo: Repository) -> None:
    """Raise CheckError if one of our hooks, in any folder, is not as install writes it."""
    for hook in _all(repo):
        hook.check_unedited()


def check_place(repo: Repository, *, force: bool = False) -> None:
    """Raise CheckError if installing the hooks would interfere with what others put there.

    That is a hook of ours that was edited, a second foreign hook of one name, or, unless `force`, a
    folder of hooks outside the repository.
    """
    folder = repo.hooks_dir
    # core.hooksPath may be shared by all repositories of a user, or be under version control.
    if not force and not folder.is_relative_to(repo.common_dir):
        is_shared = folder.is_relative_to(repo.home)
        where = "of the work tree" if is_shared else "outside this repository"
        raise CheckError(
            f"core.hooksPath is {_quoted(folder)}, a folder {where}",
            hint="call wtxtgit hook pre-commit from the pre-commit hook there, and so on, "
            "or wtxtgit install --hooks --force",
        )
    for hook in _hooks(folder):
        hook.check_place()


def install(repo: Repository, launcher: Launcher, *, force: bool = False) -> tuple[Path, ...]:
    """Install all hooks, or none, and return their paths.

    A foreign hook is renamed, and runs first.
    """
    check_place(repo, force=force)
    hooks = _hooks(repo.hooks_dir)
    _note(repo)
    added: list[_Hook] = []
    try:
        for hook in hooks:
            is_new = not hook.is_ours()
            hook.install(launcher)
            if is_new:
                added.append(hook)
    except BaseException:
        # All hooks or none: a few alone would let through what the others stop.
        for hook in added:
            hook.uninstall()
        raise
    return tuple(hook.file for hook in hooks)


def renew(repo: Repository, launcher: Launcher) -> tuple[Path, ...]:
    """Have all our hooks start wtxtgit with this launcher; return the paths of those that changed.

    None is added.
    """
    return tuple(hook.file for hook in _all(repo) if hook.renew(launcher))


def uninstall(repo: Repository) -> tuple[Path, ...]:
    """Remove our hooks and restore those before them; return the paths of the hooks concerned.

    Raises CheckError, with nothing removed, if a hook was edited.
    """
    check_unedited(repo)
    removed = tuple(hook.file for hook in _all(repo) if hook.uninstall())
    if values_in(_FOLDERS, scope="local", cwd=repo.home):
        change_config("local", "--unset-all", _FOLDERS, cwd=repo.home)
    return removed


def _note(repo: Repository) -> None:
    """Note the folder of hooks, by which `uninstall` finds it when core.hooksPath has changed."""
    noted = map(Path, values_in(_FOLDERS, scope="local", cwd=repo.home))
    known = [os.path.realpath(folder) for folder in (repo.common_dir / "hooks", *noted)]
    if os.path.realpath(repo.hooks_dir) not in known:
        folder = os.fsencode(repo.hooks_dir)
        change_config("local", "--add", _FOLDERS, folder, cwd=repo.home)


def _folders(repo: Repository) -> list[Path]:
    """Return each folder that may have hooks of ours, first the one whose hooks git runs."""
    noted = values_in(_FOLDERS, scope="local", cwd=repo.home)
    own = repo.common_dir / "hooks"
    found: dict[str, Path] = {}
    for folder in (repo.hooks_dir, own, *map(Path, noted)):
        # One folder may be named in several ways.
        found.setdefault(os.path.realpath(folder), folder)
    return list(found.values())


def _all(repo: Repository) -> list[_Hook]:
    return [hook for folder in _folders(repo) for hook in _hooks(folder)]


def _hooks(folder: Path) -> tuple[_Hook, ...]:
    return tuple(_Hook(folder, name) for name in NAMES)


def _is_ours(file: Path, id_line: bytes) -> bool:
    try:
        return id_line in file.read_bytes()
    except OSError:
        return False


def _shipped(name: str) -> bytes:
    """Read the shipped script of a hook.

    Raises EnvironmentFailure if it is missing from the installation.
    """
    package = files("wtxtgit")
    # A wheel has the hooks in the package, a source tree beside it.
    for place in (package / "share" / "hooks" / name, Path(str(package)).parent / "hooks" / name):
        if place.is_file():
            return place.read_bytes()
    raise EnvironmentFailure(f"the {name} hook is not part of this installation")


def _quoted(path: Path) -> str:
    return shlex.quote(os.fspath(path))
