"""Hooks: installed without replacing hooks of others, and removed without a trace.

Each hook is a script of ours with an id line. If there is a foreign hook of the same name, it is
renamed, and runs first.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from wtxtgit.errors import CheckError, EnvironmentFailure
from wtxtgit.git.driver import Launcher
from wtxtgit.git.repository import Repository
from wtxtgit.io.files import failures, replace_file
from wtxtgit.io.view import write_all

NAMES = ("pre-commit", "pre-merge-commit", "pre-applypatch", "pre-push")
SENDING = "wtxtgit install --hooks makes git push send it too; without hooks, run wtxtgit push"
"""What is to be done where git push alone leaves payload behind."""


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
        try:
            return self.id_line in self.file.read_bytes()
        except OSError:
            return False

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
            raise CheckError(
                f"{_quoted(self.file)} is not from wtxtgit, and {_quoted(self.foreign)} already "
                f"exists",
                hint="remove the one that you do not need",
            )

    def install(self, launcher: Launcher) -> None:
        start, end = self.template()
        script = start + os.fsencode(f"exec {launcher.command()} hook {self.name}") + end
        with failures(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            is_foreign = self.exists() and not self.is_ours()
            try:
                replace_file(self.ready, lambda descriptor: write_all(descriptor, (script,)))
                # githooks(5): git ignores a hook that is not executable.
                self.ready.chmod(0o755)
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
    """Return the names of our hooks that are installed."""
    return tuple(hook.name for hook in _hooks(repo) if hook.is_ours())


def sends_data(repo: Repository) -> bool:
    """Tell whether git push sends payload: by our hook, or by another one that calls it."""
    file = _Hook(repo.hooks_dir, "pre-push").file
    with suppress(OSError):
        return b"hook pre-push" in file.read_bytes()
    return False


def check_unedited(repo: Repository) -> None:
    """Raise CheckError if one of our hooks is not as install writes it."""
    for hook in _hooks(repo):
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
    for hook in _hooks(repo):
        hook.check_place()


def install(repo: Repository, launcher: Launcher, *, force: bool = False) -> tuple[Path, ...]:
    """Install all hooks, or none, and return their paths.

    A foreign hook is renamed, and runs first.
    """
    check_place(repo, force=force)
    hooks = _hooks(repo)
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


def uninstall(repo: Repository) -> tuple[Path, ...]:
    """Remove our hooks and restore those before them; return the paths of the hooks concerned.

    Raises CheckError, with nothing removed, if a hook was edited.
    """
    check_unedited(repo)
    return tuple(hook.file for hook in _hooks(repo) if hook.uninstall())


def _hooks(repo: Repository) -> tuple[_Hook, ...]:
    folder = repo.hooks_dir
    return tuple(_Hook(folder, name) for name in NAMES)


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
