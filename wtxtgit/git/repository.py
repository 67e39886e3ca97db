"""A git repository: its paths, its configuration, and running git there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure, phrase
from wtxtgit.git import run
from wtxtgit.io.view import Buffer
from wtxtgit.version import STATE_FOLDER

TRUST_ROOT = "wtxtgit.trustRoot"
"""The key for the trust root: a commit, or a file of signers."""
STRICT = "wtxtgit.strict"
"""The key for whether warnings of checks and audits are errors."""
DRIVER = b"wtxt"
DETACHED_DRIVER = b"wtxt-detached"
"""The filter whose texts keep their data in the store; diff and merge are those of `wtxt`."""
FILTERS = frozenset({DRIVER, DETACHED_DRIVER})
"""The values of the attribute `filter` that mean our drivers."""
UNSET = b"unset"
UNSPECIFIED = b"unspecified"
"""The value that git prints for an attribute that no line sets, or that a line resets."""
_FACTS = {
    "objects": ("--git-path", "objects"),
    "hooks": ("--git-path", "hooks"),
    "shallow": ("--git-path", "shallow"),
    "MERGE_HEAD": ("--git-path", "MERGE_HEAD"),
    "index": ("--git-path", "index"),
    "object format": ("--show-object-format",),
    "is shallow": ("--is-shallow-repository",),
}
"""Questions that are asked together with those of `_PLACES`, because starting git is slow."""
_PLACES = ("--absolute-git-dir", "--git-common-dir", "--show-prefix", "--show-toplevel")
"""Git answers each with a line, and stops at the first without an answer: in a bare repository that
is the last one."""


_VALUELESS = b"\0"
"""Marks a key without a value, which means true, or an empty string. No value contains NUL."""
_BOOLEANS = {
    _VALUELESS: True, b"true": True, b"yes": True, b"on": True, b"1": True,
    b"false": False, b"no": False, b"off": False, b"0": False, b"": False,
}  # fmt: skip
_UNWRITTEN = re.compile(
    r"could not (?:lock|write) config file (.+): ([^:\n]+)"
    r"|failed to write new configuration file (.+)\.lock"
)
_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,17}")
_writes = 0


class Config:
    """The configuration that git obeys in a folder, read when first needed.

    One process lists all values, as they were written, whichever thread asks. What a plain spelling
    means is decided here; git is asked about others.
    """

    def __init__(self, cwd: Path | None) -> None:
        self._cwd = cwd
        self._values: dict[str, bytes] = {}
        self._read_at = -1
        self._lock = Lock()

    def get(self, key: str) -> str | None:
        """Return the effective value, which is the last one; None if the key is not set."""
        value = self._last(key)
        return None if value is None else os.fsdecode(value.removeprefix(_VALUELESS))

    def path(self, key: str) -> str | None:
        """Return a value that may be a path, in which git replaces a leading `~`."""
        value = self.get(key)
        if value is not None and value.startswith(("~", "%(")):
            return os.fsdecode(run.records(self._ask_git(key, "--type=path", "-z").stdout)[0])
        return value

    def is_true(self, key: str, *, default: bool = False) -> bool:
        """Return a boolean value as git understands it; `default` if the key is not set.

        Raises GitFailure if the value is not a boolean.
        """
        value = self._last(key)
        if value is None:
            return default
        # git-config(1), "boolean": git decides what other spellings mean, such as numbers.
        meaning = _BOOLEANS.get(value.lower())
        return self._ask_git(key, "--type=bool").stdout == b"true\n" if meaning is None else meaning

    def size(self, key: str, default: int) -> int:
        """Return a number of bytes, with git's suffixes (k, m, g); `default` if unset or
        invalid.
        """
        value = self._last(key)
        if value is None or _DECIMAL.fullmatch(value):
            return default if value is None else int(value)
        try:
            return int(self._ask_git(key, "--type=int", ok=(0, 128)).stdout)
        except ValueError:
            return default

    def _last(self, key: str) -> bytes | None:
        with self._lock:
            # Read again after each write of ours. What other processes write is seen by the next
            # command.
            if self._read_at != _writes:
                self._values = self._listed()
                self._read_at = _writes
        # Git lists keys in lower case, except for the middle part.
        section, _, rest = key.partition(".")
        middle, dot, last = rest.rpartition(".")
        return self._values.get(f"{section.lower()}.{middle}{dot}{last.lower()}")

    def _listed(self) -> dict[str, bytes]:
        values = {}
        for record in run.records(run.git("config", "--list", "-z", cwd=self._cwd)):
            name, equals, value = record.partition(b"\n")
            values[os.fsdecode(name)] = value if equals else _VALUELESS
        return values

    def _ask_git(self, key: str, *options: str, ok: Iterable[int] = (0,)) -> run.Result:
        return run.call("config", *options, "--get", key, cwd=self._cwd, ok=ok)


def values_in(key: str, *, scope: str, cwd: Path | None = None) -> list[str]:
    """Return all values of a key in one scope, in git's order: the last one is effective."""
    output = _in_scope(scope, "-z", "--get-all", key, cwd=cwd, ok=(0, 1))
    return [os.fsdecode(value) for value in run.records(output)]


def values_like(pattern: str, *, scope: str, cwd: Path | None = None) -> dict[str, list[str]]:
    """Return all values in one scope of the keys that match a regular expression of git's."""
    values: dict[str, list[str]] = {}
    output = _in_scope(scope, "-z", "--get-regexp", pattern, cwd=cwd, ok=(0, 1))
    for record in run.records(output):
        key, _, value = record.partition(b"\n")
        values.setdefault(os.fsdecode(key), []).append(os.fsdecode(value))
    return values


class Setting(NamedTuple):
    """A value that git obeys: its scope, as git names it, and the file that sets it, if any."""

    value: str
    scope: str
    file: Path | None


def settings_like(
    pattern: str, *, scope: str | None = None, cwd: Path | None = None
) -> dict[str, Setting]:
    """Return the values that git obeys of the keys that match a regular expression of git's.

    With `scope` only those in the file of that scope count, not in files that it includes.
    """
    only = () if scope is None else (f"--{scope}",)
    options = (*only, "--show-scope", "--show-origin", "-z", "--get-regexp", pattern)
    fields = run.records(run.call("config", *options, cwd=cwd, ok=(0, 1)).stdout)
    found = {}
    for where, origin, record in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        key, _, value = record.partition(b"\n")
        kind, _, path = origin.partition(b":")
        file = (cwd or Path.cwd()) / os.fsdecode(path) if kind == b"file" else None
        found[os.fsdecode(key)] = Setting(os.fsdecode(value), os.fsdecode(where), file)
    return found


def change_config(scope: str, *arguments: str | bytes, cwd: Path | None = None) -> None:
    """Run `git config` to write to one scope, or to `file=PATH`.

    Configuration that was read before is read again.
    """
    global _writes
    _in_scope(scope, *arguments, cwd=cwd)
    _writes += 1


def _in_scope(
    scope: str, *arguments: str | bytes, cwd: Path | None, ok: Iterable[int] = (0,)
) -> bytes:
    """Return what `git config` prints for one scope.

    Raises EnvironmentFailure, which says what is in the way, if its file can't be used.
    """
    command = ("config", f"--{scope}", *arguments)
    try:
        # In the language in which the reason is looked for.
        return run.call(*command, cwd=cwd, ok=ok, env={"LC_ALL": "C"}).stdout
    except run.GitFailure as failure:
        raise _unusable(cwd or Path.cwd(), failure) from None


def _unusable(cwd: Path, failure: run.GitFailure) -> EnvironmentFailure:
    words = os.fsdecode(failure.stderr)
    if "$HOME not set" in words:
        return EnvironmentFailure(
            "HOME is not set, so git has no global config",
            hint="export HOME=FOLDER, or use --local for this repository alone",
        )
    match = _UNWRITTEN.search(words)
    if match is None:
        return failure
    # Imported here: a filter that has nothing to complain about does without.
    import shlex

    from wtxtgit.io.files import shown

    file = cwd / (match[1] or match[3])
    lock = file.with_name(f"{file.name}.lock")
    if os.path.lexists(lock):
        return EnvironmentFailure(
            f"{shown(lock)} exists: another git process seems to be writing that file",
            hint=f"rm -- {shlex.quote(shown(lock))} removes it, if a git process crashed earlier",
        )
    hint = None
    if not file.parent.exists():
        hint = f"mkdir -p -- {shlex.quote(shown(file.parent))}"
    elif not os.access(file.parent, os.W_OK):
        hint = f"run it as a user who may write to {shown(file.parent)}"
    # Git gives no reason if it can't write on, as on a full disk.
    why = f": {phrase(match[2])}" if match[2] else ""
    return EnvironmentFailure(f"{shown(file)}: can't be written{why}", hint=hint)


class Repository:
    """A repository, and the place in it where the command was given.

    Paths are absolute. `top` is the work tree's top level, None for a bare repository. `prefix` is
    the path from `top` to the folder where the command was given, empty or with a slash at its end.
    `git_dir` is the worktree's own, `common_dir` is shared by all worktrees. `config` is read when
    first needed.

    Two are equal if they describe the same place. This is no dataclass because every hook loads
    this module, and importing `dataclasses` takes longer than git's answers.
    """

    def __init__(
        self,
        git_dir: Path,
        common_dir: Path,
        top: Path | None,
        prefix: bytes,
        facts: dict[str, bytes] | None = None,
    ) -> None:
        self.git_dir = git_dir
        self.common_dir = common_dir
        self.top = top
        self.prefix = prefix
        self.config = Config(self.home)
        self.cat_files: object = None
        """The running processes that readers of this repository share: `git.blobs.CatFiles`."""
        self.store: object = None
        """Its store, which they share too: `store.place.store_of`."""
        self.payload: object = None
        """The payload source that they share: `remotes.payload.on_demand.FetchedPayload`."""
        self._facts = facts or {}

    @property
    def _place(self) -> tuple[Path, Path, Path | None, bytes]:
        return self.git_dir, self.common_dir, self.top, self.prefix

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Repository) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    def __repr__(self) -> str:
        return f"Repository{self._place}"

    def __reduce__(self) -> tuple[object, ...]:
        # Another process has to start processes of its own.
        return Repository, (*self._place, self._facts)

    @classmethod
    def discover(cls, folder: Path | None = None) -> Repository:
        """Return the repository around `folder`; raises EnvironmentFailure if there is none."""
        repo = cls.find(folder)
        if repo is None:
            raise EnvironmentFailure(
                "not in a git repository", hint="change to a repository, or run git init"
            )
        return repo

    @classmethod
    def find(cls, folder: Path | None = None) -> Repository | None:
        """Return the repository around `folder`, None if there is none.

        Raises GitFailure if broken.
        """
        here = folder or Path.cwd()
        questions = [word for question in _FACTS.values() for word in question]
        result = run.call("rev-parse", *questions, *_PLACES, cwd=here, ok=(0, 128))
        answers = result.stdout.split(b"\n")
        # A path with a line break gives more lines.
        if result.code or len(answers) != len(_FACTS) + len(_PLACES) + 1 or not answers[-2]:
            return cls._find(here)
        facts = {
            name: os.fsencode(_path(answer, here)) if "--git-path" in _FACTS[name] else answer
            for name, answer in zip(_FACTS, answers, strict=False)
        }
        git_dir, common_dir, prefix, top = answers[len(_FACTS) : -1]
        if prefix:
            # GIT_INDEX_FILE is relative to the top level, whichever folder git is started in.
            del facts["index"]
        return cls(_path(git_dir, here), _path(common_dir, here), _path(top, here), prefix, facts)

    @classmethod
    def _find(cls, here: Path) -> Repository | None:
        """Find the repository with one question at a time, to learn which has no answer."""
        # Git's exit code is the same for "no repository" and other errors; only its message
        # differs.
        english = {"LC_ALL": "C"}
        answer = run.call("rev-parse", "--absolute-git-dir", cwd=here, env=english, ok=(0, 128))
        if answer.code:
            words = os.fsdecode(answer.stderr)
            if "not a git repository" in words:
                return None
            # Git ends with the command that is to be run, the path quoted.
            if "safe.directory" in words:
                command = words.strip().rpartition("\t")[2]
                raise EnvironmentFailure(
                    "git refuses the repository, since it belongs to another user",
                    hint=f"{command}, if you trust what is in it",
                )
            raise run.GitFailure(("rev-parse", "--absolute-git-dir"), answer.code, answer.stderr)
        git_dir = _path(answer.stdout, here)
        # GIT_WORK_TREE may name a work tree elsewhere, but there is none from inside the git
        # folder.
        top = run.call("rev-parse", "--show-toplevel", cwd=here, ok=(0, 128))
        inside = run.git("rev-parse", "--is-inside-work-tree", cwd=here).strip() == b"true"
        return cls(
            git_dir=git_dir,
            common_dir=_path(run.git("rev-parse", "--git-common-dir", cwd=here), here),
            top=_path(top.stdout, here) if top.code == 0 and top.stdout.strip() else None,
            prefix=_line(run.git("rev-parse", "--show-prefix", cwd=here)) if inside else b"",
        )

    @property
    def is_bare(self) -> bool:
        return self.top is None

    @property
    def worktree(self) -> Path:
        """The work tree's top level; raises EnvironmentFailure if there is none."""
        if self.top is None:
            raise EnvironmentFailure(
                "this needs a work tree, but there is none here (a bare repository, or .git itself)"
            )
        return self.top

    def check_worktree(self) -> None:
        """Raise EnvironmentFailure if there is no work tree."""
        _ = self.worktree

    @property
    def hooks_dir(self) -> Path:
        """The folder of the hooks that git runs, core.hooksPath included."""
        return self.git_path("hooks")

    def git_path(self, name: str) -> Path:
        """Return where git keeps a file of its own.

        `name` is `index` (GIT_INDEX_FILE included), `objects`, `hooks`, `shallow` or `MERGE_HEAD`.
        """
        return self.home / os.fsdecode(self._fact(name))

    @property
    def object_format(self) -> str:
        """The hash algorithm of object ids, as git names it: sha1 or sha256."""
        return self._fact("object format").decode("ascii", "backslashreplace")

    @property
    def is_shallow(self) -> bool:
        return self._fact("is shallow") != b"false"

    def _fact(self, name: str) -> bytes:
        if name not in self._facts:
            self._facts[name] = _line(self.git("rev-parse", *_FACTS[name]))
        return self._facts[name]

    @property
    def state_path(self) -> Path:
        """The folder of wtxtgit's own state in this repository, which may not exist."""
        return self.common_dir / STATE_FOLDER

    def state_dir(self) -> Path:
        """Return the folder of wtxtgit's own state.

        Created if missing, readable by this user only.
        """
        folder = self.state_path
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = phrase(error.strerror or "")
            raise EnvironmentFailure(f"{folder}: can't be created: {why}") from error
        return folder

    def git(
        self, *arguments: str | bytes, stdin: Buffer = b"", env: run.Environment | None = None
    ) -> bytes:
        """Run git at the top level, so that paths in and out are relative to it."""
        return run.git(*arguments, cwd=self.home, stdin=stdin, env=env)

    def call(
        self,
        *arguments: str | bytes,
        stdin: Buffer = b"",
        env: run.Environment | None = None,
        ok: tuple[int, ...],
    ) -> run.Result:
        """Run git at the top level; raises GitFailure unless its exit code is one of `ok`."""
        return run.call(*arguments, cwd=self.home, stdin=stdin, env=env, ok=ok)

    def stream(self, *arguments: str | bytes, env: run.Environment | None = None) -> run.GitStream:
        """Start git at the top level, to communicate with it while it runs."""
        return run.GitStream(*arguments, cwd=self.home, env=env)

    def has_own_attributes(self) -> bool:
        """Tell whether settings of this clone, its user or system can give paths attributes that
        gitattributes files of a tree don't.
        """
        named = self.config.get("core.attributesFile")
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - as git does it
        files = (
            self.common_dir / "info/attributes",
            self.home / (os.path.expanduser(named) if named else f"{home}/git/attributes"),  # noqa: PTH111
            Path("/etc/gitattributes"),
        )
        return self.config.is_true("core.ignoreCase") or any(file.is_file() for file in files)

    def attributes(
        self,
        paths: Iterable[bytes],
        names: Sequence[str],
        *,
        from_index: bool = False,
        index_file: Path | None = None,
    ) -> dict[bytes, dict[str, bytes]]:
        """Ask git for attributes of paths, which are relative to the top level.

        `from_index` uses the gitattributes files of the index instead of the work tree's;
        `index_file` is another index than the repository's. Values are as git prints them: a
        string, `set`, `unset` or `unspecified`.
        """
        stdin = run.joined(dict.fromkeys(paths))
        if not stdin:
            return {}
        cached = ("--cached",) if from_index else ()
        env = {"GIT_INDEX_FILE": str(index_file)} if index_file else None
        output = self.git("check-attr", *cached, "-z", "--stdin", *names, stdin=stdin, env=env)
        fields = run.records(output)
        values: dict[bytes, dict[str, bytes]] = {}
        for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
            values.setdefault(path, {})[name.decode("ascii")] = value
        return values

    def path_from_top(self, given: str) -> bytes:
        """Turn a path relative to this folder into one from the top level, which itself is `.`."""
        return os.fsencode(os.path.normpath(Path(os.fsdecode(self.prefix)) / given))

    def path_from_here(self, path: bytes) -> str:
        """Turn a path from the top level into one relative to this folder."""
        return os.path.relpath(os.fsdecode(path), os.fsdecode(self.prefix) or ".")

    def quoted(self, path: bytes) -> str:
        """Return a path relative to this folder, quoted for a shell, to be shown in a message."""
        # Imported here: a filter that has nothing to complain about does without.
        import shlex

        from wtxtgit.io.files import shown

        return shlex.quote(shown(Path(self.path_from_here(path))))

    def file(self, path: bytes) -> Path:
        """Return the work-tree file for a path from git."""
        return self.worktree / os.fsdecode(path)

    @property
    def here(self) -> Path:
        """The folder in the work tree where the command was given."""
        return self.worktree / os.fsdecode(self.prefix)

    @property
    def home(self) -> Path:
        """Where git is run: the top level, or the git folder of a bare repository."""
        return self.top or self.git_dir


def _line(output: bytes) -> bytes:
    return output.removesuffix(b"\n")


def _path(output: bytes, base: Path) -> Path:
    return Path(os.path.normpath(base / os.fsdecode(_line(output))))
