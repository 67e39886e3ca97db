"""Revisions, commits in order, and which commits descend from which.

Everything is read from the commits themselves: replaced objects and the commit graph file are not
used. Shallow clones and grafts can't be bypassed in this way; `refuse_altered` detects them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import CatFiles, ObjectReader, check_oid
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import MODE_FOLDER, MODE_SUBMODULE, ChosenPaths, TreeEntry, TreeReader

MAX_COMMIT = 64 * 1024 * 1024
"""Most bytes of a commit object that are read: far more than any message has."""

REVISIONS_HINT = "git log --oneline --all lists the commits of this repository"
_TRUE = ("-c", "core.commitGraph=false")
_FIELDS = "--format=tformat:%H %T %P"
# This line precedes each commit; the option that omits it came with git 2.33.
_HEADER = b"commit "
# Bounded to valid dates: a commit object may contain anything.
_WHEN = re.compile(
    rb"(?P<seconds>[0-9]{1,11}) (?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3])(?P<minutes>[0-5][0-9])"
)


class Commit(NamedTuple):
    """A commit: object ids of itself, its parents in order, and its tree."""

    oid: str
    parents: tuple[str, ...]
    tree: str


class AlteredHistory(EnvironmentFailure):
    """Replacements, grafts or a shallow clone make git show another history than the commits
    have.
    """


class CommitReader(ObjectReader):
    """Reads commits by id from one running process; a context manager."""

    def __init__(self, repo: Repository) -> None:
        super().__init__(repo, "commit")

    def commit(self, oid: str) -> Commit:
        """Read a commit; raises EnvironmentFailure if there is none with that id."""
        header, _, _ = self._parts(oid)
        tree, *more = [line.partition(b" ") for line in header.split(b"\n")]
        parents = []
        # Only lines at the beginning count: a signature further down may quote a commit.
        for key, _, value in more:
            if key != b"parent":
                break
            parents.append(_oid(value))
        if tree[0] != b"tree":
            raise EnvironmentFailure(f"commit {oid} does not begin with its tree")
        return Commit(oid, tuple(parents), _oid(tree[2]))

    def subject(self, oid: str) -> str:
        """Return the first paragraph of a commit's message as one line, as git shows it."""
        _, _, message = self._parts(oid)
        paragraph, _, _ = message.lstrip(b"\n").partition(b"\n\n")
        return b" ".join(paragraph.split(b"\n")).decode("utf-8", "backslashreplace").strip()

    def author(self, oid: str) -> tuple[str, str]:
        """Return the author's name and date (RFC 3339); both empty if the commit has none."""
        header, _, _ = self._parts(oid)
        for line in header.split(b"\n"):
            if not line.startswith(b"author "):
                continue
            # The last two words are seconds and time zone; the name may contain any characters.
            person, *when = line.removeprefix(b"author ").rsplit(b" ", 2)
            name = person.rpartition(b" <")[0] or person
            return name.decode("utf-8", "backslashreplace").strip(), _date(when)
        return "", ""

    def content(self, oid: str) -> tuple[bytes, bytes]:
        """Return a commit's headers, without the newline at their end, and its message."""
        header, _, message = self._parts(oid)
        return header, message

    def _parts(self, oid: str) -> tuple[bytes, bytes, bytes]:
        return self.read(oid, MAX_COMMIT).partition(b"\n\n")


def _date(words: Sequence[bytes]) -> str:
    """Return the date of `[seconds, zone]`, such as `+0200`, in RFC 3339; empty if invalid."""
    match = _WHEN.fullmatch(b" ".join(words))
    if match is None:
        return ""
    # Imported here: hooks, for example, need no dates.
    from datetime import datetime, timedelta, timezone

    minutes = 60 * int(match["hours"]) + int(match["minutes"])
    zone = timezone(timedelta(minutes=-minutes if match["sign"] == b"-" else minutes))
    return datetime.fromtimestamp(int(match["seconds"]), zone).isoformat()


def commits(
    repo: Repository,
    tips: Iterable[str],
    excluded: Iterable[str] = (),
    *,
    first_parent: bool = False,
    touching: Sequence[bytes] | None = None,
) -> list[Commit]:
    """List the commits that `tips` reach and `excluded` do not, parents before their children.

    All are object ids of commits, or of tags of commits. `first_parent` follows only the first
    parent of a merge; the listed commits still have all their parents. `touching` are pathspecs: a
    commit is left out if none of its parents differs from it there. They are ignored if they are
    too long for git's command line (`run.fit`). Git may leave out a commit whose tree is out of
    order, so no decision of trust may depend on a commit's not being listed. Raises
    EnvironmentFailure for an invalid id.
    """
    # Only ids: a name could begin with a dash, or point elsewhere by now.
    revisions = [*map(check_oid, tips), *("^" + check_oid(oid) for oid in excluded)]
    if not revisions:
        return []
    paths: list[str | bytes] = []
    if touching is not None and run.fit(touching):
        paths = ["--full-history", "--", *touching]
    output = repo.git(
        *_TRUE,
        "rev-list",
        # Parents first, regardless of dates, which committers choose.
        "--topo-order",
        "--reverse",
        *(("--first-parent",) if first_parent else ()),
        _FIELDS,
        "--stdin",
        *paths,
        stdin="".join(f"{line}\n" for line in revisions).encode("ascii"),
        env=run.TRUE_OBJECTS,
    )
    lines = (line for line in output.splitlines() if not line.startswith(_HEADER))
    return [_parse(line) for line in lines]


class CommitGraph:
    """The commits that some tips reach and `base` does not, listed by git once.

    Later questions need no process. The commits that `base` reaches are not listed, since there may
    be far more of them.
    """

    def __init__(self, repo: Repository, base: str | None, tips: Iterable[str] = ()) -> None:
        self.base = base
        self._repo = repo
        self._tips: list[str] = []
        self._commits: dict[str, Commit] = {}
        self._above: set[str] = set()
        """Commits that descend from the base."""
        self.add(tips)

    def add(self, tips: Iterable[str]) -> None:
        """List the commits that these tips reach as well; raises as `commits` does."""
        new = [tip for tip in dict.fromkeys(tips) if tip not in self._commits and tip != self.base]
        if not new:
            return
        below = self._tips if self.base is None else [self.base, *self._tips]
        # New commits go last: no commit that was listed before descends from them.
        for commit in commits(self._repo, new, below):
            self._commits[commit.oid] = commit
            if any(oid == self.base or oid in self._above for oid in commit.parents):
                self._above.add(commit.oid)
        self._tips += new

    def listed(self, tips: Iterable[str], excluded: Iterable[str] = ()) -> list[Commit]:
        """Return the commits that `tips` reach and `excluded` do not, parents before children."""
        tips, excluded = list(tips), list(excluded)
        self.add([*tips, *excluded])
        chosen = self._reached(tips) - self._reached(excluded)
        return [commit for commit in self._commits.values() if commit.oid in chosen]

    def reaches_base(self, tip: str) -> bool:
        """Tell whether a tip is the base, or descends from it."""
        self.add([tip])
        return tip == self.base or tip in self._above

    def descends(self, tip: str, ancestor: str) -> bool:
        """Tell whether `tip` is `ancestor`, or descends from it."""
        self.add([tip])
        if ancestor == self.base:
            return self.reaches_base(tip)
        if ancestor in self._commits:
            return ancestor in self._reached([tip])
        return is_ancestor(self._repo, ancestor, tip)

    def _reached(self, tips: Iterable[str]) -> set[str]:
        reached: set[str] = set()
        waiting = list(tips)
        while waiting:
            oid = waiting.pop()
            if oid in self._commits and oid not in reached:
                reached.add(oid)
                waiting += self._commits[oid].parents
        return reached


def count(repo: Repository, tip: str) -> int:
    """Count the commits that a commit reaches, itself included."""
    return int(repo.git(*_TRUE, "rev-list", "--count", check_oid(tip), env=run.TRUE_OBJECTS))


def head(repo: Repository) -> Commit | None:
    """Return the commit that HEAD is at; None before the first commit.

    Raises EnvironmentFailure if HEAD names a commit that can't be read.
    """
    parsed = repo.call("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
    if parsed.code:
        return None
    with CommitReader(repo) as reader:
        return reader.commit(parsed.stdout.decode("ascii", "backslashreplace").strip())


class Head:
    """The commit at HEAD, read once when first needed, for commands that don't move it."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo

    @cached_property
    def commit(self) -> Commit | None:
        """The commit, as `head` gives it."""
        return head(self.repo)


def next_parents(at: Head) -> list[str]:
    """Return the parents that a commit made now would have: HEAD, and the commits being merged.

    Empty before the first commit.
    """
    repo, commit = at.repo, at.commit
    if commit is None:
        return []
    file = repo.git_path("MERGE_HEAD")
    merged = file.read_text("ascii", "backslashreplace").split() if file.is_file() else []
    return list(dict.fromkeys([commit.oid, *map(check_oid, merged)]))


def is_ancestor(repo: Repository, ancestor: str, descendant: str) -> bool:
    """Tell whether `ancestor` is reached from `descendant`, or is the same commit."""
    arguments = ("merge-base", "--is-ancestor", "--", ancestor, descendant)
    return repo.call(*_TRUE, *arguments, env=run.TRUE_OBJECTS, ok=(0, 1)).code == 0


def merge_base(repo: Repository, one: str, other: str) -> str | None:
    """Return a best common ancestor of two commits; None if they have none."""
    arguments = ("merge-base", "--", check_oid(one), check_oid(other))
    answer = repo.call(*_TRUE, *arguments, env=run.TRUE_OBJECTS, ok=(0, 1))
    return None if answer.code else _oid(answer.stdout.strip())


def merge_bases(repo: Repository, one: str, other: str) -> list[str]:
    """Return all best common ancestors of two commits."""
    arguments = ("merge-base", "--all", "--", check_oid(one), check_oid(other))
    answer = repo.call(*_TRUE, *arguments, env=run.TRUE_OBJECTS, ok=(0, 1))
    return [_oid(line) for line in answer.stdout.splitlines()]


def between(repo: Repository, ancestor: str, descendant: str) -> list[str]:
    """List the commits on the paths from `ancestor` (excluded) to `descendant` (included).

    Parents come before their children. Empty if `descendant` does not descend from `ancestor`.
    """
    revisions = f"{check_oid(descendant)}\n^{check_oid(ancestor)}\n".encode("ascii")
    arguments = ("rev-list", "--topo-order", "--reverse", "--ancestry-path", "--stdin")
    output = repo.git(*_TRUE, *arguments, stdin=revisions, env=run.TRUE_OBJECTS)
    return [_oid(line) for line in output.splitlines()]


def first_with(repo: Repository, tips: Iterable[str], blob: str) -> str | None:
    """Return the oldest commit that introduced a blob, of those that tips reach; None if there
    is none.
    """
    command = (*_TRUE, "log", "--format=%H", "-m", "--no-renames", "--no-patch")
    condition = f"--find-object={check_oid(blob)}"
    output = repo.git(*command, condition, *map(check_oid, tips), "--", env=run.TRUE_OBJECTS)
    commits = output.split()
    return _oid(commits[-1]) if commits else None


def refuse_altered(repo: Repository) -> None:
    """Raise AlteredHistory if the repository is shallow, or has replaced objects or grafts."""
    reasons = []
    hint = None
    if repo.is_shallow:
        reasons.append("the clone is shallow")
        hint = "git fetch --unshallow"
    if repo.git("for-each-ref", "--count=1", "--format=%(refname)", "refs/replace/"):
        reasons.append("objects are replaced (refs/replace/)")
    # gitrepository-layout(5): git still obeys this file, long after it was deprecated.
    if os.path.lexists(repo.common_dir / "info" / "grafts"):
        reasons.append("commits are grafted (info/grafts)")
    if reasons:
        raise AlteredHistory("the history is not whole: " + ", ".join(reasons), hint=hint)


def tips(repo: Repository) -> list[str]:
    """List the commits of branches and tags, each once; tags of other objects are left out."""
    refs = repo.git(
        "for-each-ref", "--format=%(objectname)^{commit}", "refs/heads/", "refs/tags/",
        env=run.TRUE_OBJECTS,
    )  # fmt: skip
    answers = repo.git("cat-file", "--batch-check=%(objectname)", stdin=refs, env=run.TRUE_OBJECTS)
    oids = (line for line in answers.splitlines() if not line.endswith(b" missing"))
    return list(dict.fromkeys(_oid(line) for line in oids))


def shallow_boundary(repo: Repository) -> frozenset[str]:
    """Return the commits whose parents a shallow clone leaves out."""
    try:
        file = repo.git_path("shallow")
        return frozenset(map(check_oid, file.read_text("ascii", "backslashreplace").split()))
    except FileNotFoundError:
        return frozenset()


def nothing(repo: Repository) -> Commit:
    """Return a commit without files that stands for no commit, as in a push to an empty remote.

    Its id is all zeros, which no object has; its tree is the empty one, which git knows without an
    object.
    """
    tree = hashlib.new(repo.object_format, b"tree 0\0", usedforsecurity=False).hexdigest()
    return Commit("0" * len(tree), (), tree)


def default_branch(repo: Repository) -> str | None:
    """Return the remote-tracking branch of upstream's default branch, as
    `refs/remotes/origin/main`.

    If the remote's HEAD is unknown here, as in a clone of a repository that was empty, this is the
    remote's only branch; None if it has none, or several.
    """
    remote = upstream(repo)
    if remote is None:
        return None
    answer = repo.call("symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD", ok=(0, 1, 128))
    if answer.code:
        branches = remote_branches(repo, remote)
        return branches[0] if len(branches) == 1 else None
    branch = os.fsdecode(answer.stdout).removesuffix("\n")
    if repo.call("show-ref", "--verify", "--quiet", "--", branch, ok=(0, 1)).code:
        return None
    return branch


def remote_branches(repo: Repository, remote: str) -> list[str]:
    """List the remote-tracking branches of a remote, as `refs/remotes/origin/main`."""
    output = repo.git("for-each-ref", "--format=%(refname)", f"refs/remotes/{remote}/")
    return os.fsdecode(output).splitlines()


def upstream(repo: Repository) -> str | None:
    """Return the remote of the current branch, else the only remote, else `origin`; None if
    none.
    """
    remotes = os.fsdecode(repo.git("remote")).splitlines()
    branch = repo.call("symbolic-ref", "--quiet", "HEAD", ok=(0, 1)).stdout.removesuffix(b"\n")
    if branch:
        answer = repo.git("for-each-ref", "--format=%(upstream:remotename)", branch)
        remote = os.fsdecode(answer).removesuffix("\n")
        if remote in remotes:
            return remote
    if len(remotes) == 1:
        return remotes[0]
    return "origin" if "origin" in remotes else None


def _parse(line: bytes) -> Commit:
    oid, tree, *parents = (_oid(word) for word in line.split())
    return Commit(oid, tuple(parents), tree)


def _oid(word: bytes) -> str:
    return check_oid(word.decode("ascii", "backslashreplace"))


def changing(
    repo: Repository, commits: Sequence[Commit], paths: Collection[bytes], reader: CommitReader
) -> dict[bytes, list[int]]:
    """Return, for each path, the numbers of the commits in which it differs from a parent.

    Numbers are positions in `commits`. Raises EnvironmentFailure if a parent is missing.
    """
    numbers: dict[bytes, list[int]] = {path: [] for path in paths}
    tree_of = {commit.oid: commit.tree for commit in commits}
    chosen = ChosenPaths.of(paths)
    with TreeReader(repo) as trees:
        for number, commit in enumerate(commits):
            for parent in commit.parents:
                if parent not in tree_of:
                    tree_of[parent] = reader.commit(parent).tree
            parent_trees: set[str | None] = {tree_of[parent] for parent in commit.parents} or {None}
            changes = (trees.between(tree, commit.tree, chosen) for tree in parent_trees)
            for path in {change.path for some in changes for change in some} & numbers.keys():
                numbers[path].append(number)
    return numbers


_OF_HEAD = re.compile(r"HEAD(?![\w/.-])")
_NAMED = (
    "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD",
)  # fmt: skip
_KINDS = {MODE_FOLDER: "tree", MODE_SUBMODULE: "commit"}
"""Git's names for the kinds of entries that are not blobs."""


def listing(repo: Repository, tree: str, *paths: bytes) -> list[TreeEntry]:
    """List all files of a tree, given by its object id, or those at `paths` only.

    Links and submodules are included. Raises EnvironmentFailure as TreeReader does; use a
    TreeReader for more than one question.
    """
    with TreeReader(repo) as trees:
        return list((trees.at(tree, paths) if paths else trees.listing(tree)).values())


def resolve(repo: Repository, revision: str) -> str:
    """Return the object id that a revision names; raises EnvironmentFailure if there is none."""
    oid = find(repo, revision)
    if oid is None:
        raise _absent(repo, revision, "nothing")
    return oid


def _absent(repo: Repository, revision: str, what: str) -> EnvironmentFailure:
    """Return the error for a revision that does not exist, as HEAD before the first commit."""
    if _OF_HEAD.match(revision) and find(repo, "HEAD") is None:
        return EnvironmentFailure("no commits yet")
    return EnvironmentFailure(f"{revision!r} names {what} in this repository", hint=REVISIONS_HINT)


def find(repo: Repository, revision: str) -> str | None:
    """Return the object id that a revision names; None if it names nothing."""
    parsed = repo.call(
        "rev-parse", "--verify", "--quiet", "--end-of-options", revision, ok=(0, 1, 128)
    )
    return None if parsed.code else parsed.stdout.decode("ascii").strip()


def refs_named(repo: Repository, name: str) -> list[str]:
    """Return the refs that a name may mean, the one that git takes first: gitrevisions(7)."""
    full = [name] if name.startswith("refs/") else [form.format(name) for form in _NAMED]
    output = repo.git("for-each-ref", "--format=%(refname)", *full)
    refs = {*output.decode("utf-8", "surrogateescape").splitlines()}
    return [ref for ref in full if ref in refs]


def resolve_commit(repo: Repository, revision: str) -> str:
    """Return the id of the commit that a revision names; raises EnvironmentFailure.

    Asks the running `git cat-file`, so it starts no process of its own.
    """
    # Each line is one question.
    if "\n" not in revision:
        with CatFiles.of(repo).lend("--batch-check") as stream:
            stream.ask(os.fsencode(revision) + b"^{commit}\n")
            match stream.stdout.readline().split():
                # For a name that is unknown git prints `REVISION missing`.
                case [oid, b"commit", size] if size.isdigit():
                    return _oid(oid)
    raise _absent(repo, revision, "no commit")


def resolve_tree(repo: Repository, revision: str) -> str:
    """Return the tree id of a commit or tree that a revision names; raises EnvironmentFailure."""
    try:
        commit = resolve_commit(repo, revision)
    except EnvironmentFailure:
        resolve(repo, revision)
        return resolve(repo, revision + "^{tree}")
    with CommitReader(repo) as commits:
        return commits.commit(commit).tree


def resolve_blob(repo: Repository, name: str) -> str:
    """Return the object id of the blob REV:PATH; raises EnvironmentFailure."""
    oid, kind = resolve_path(repo, name)
    if kind != "blob":
        raise EnvironmentFailure(f"{name!r} names a {kind}, not a file")
    return oid


def resolve_path(repo: Repository, name: str) -> tuple[str, str]:
    """Return the object id of what REV:PATH names, and git's word for its kind.

    Raises EnvironmentFailure if it names nothing.
    """
    revision, path = _cut(name)
    path = None if path is None else path.rstrip("/")
    if not revision or not path:
        # A path of the index (`:PATH`), or no path at all.
        oid = resolve(repo, name)
        return oid, repo.git("cat-file", "-t", oid).decode("ascii").strip()
    with TreeReader(repo) as trees:
        entry = trees.standing(resolve_tree(repo, revision), os.fsencode(path)).entry
    if entry is None:
        raise EnvironmentFailure(
            f"{revision!r} has no {path!r}",
            hint=f"git ls-tree -r --full-tree --name-only {shlex.quote(revision)} lists its files",
        )
    return entry.oid, _KINDS.get(entry.mode, "blob")


def names_in(repo: Repository, tree: str) -> list[str]:
    """List the names of the files, links included, in one folder, given by its tree's id."""
    with TreeReader(repo) as trees:
        return [os.fsdecode(name) for name in trees.names(tree)]


def _cut(name: str) -> tuple[str, str | None]:
    """Split REV:PATH at the colon that git uses.

    Colons within braces don't count: gitrevisions(7).
    """
    depth = 0
    for at, letter in enumerate(name):
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= bool(depth)
        elif letter == ":" and not depth:
            return name[:at], name[at + 1 :]
    return name, None


def unreferenced_blobs(repo: Repository) -> list[str]:
    """Return the blobs to which no ref and no index refers: of dropped stashes, of commits that
    were amended, and those that were staged or stored and never committed.

    Where objects are damaged or missing, blobs that something refers to may be among them.
    """
    ok = tuple(range(129))
    # Of a partial clone nothing is fetched for this.
    options = (
        "--missing=allow-any",
        "--objects",
        "--no-object-names",
        "--all",
        "--indexed-objects",
    )
    referenced = set(repo.call("rev-list", *options, ok=ok).stdout.split())
    check = "--batch-check=%(objecttype) %(objectname)"
    listed = repo.call("cat-file", "--batch-all-objects", "--unordered", check, ok=ok).stdout
    words = (line.split(b" ") for line in listed.splitlines())
    return [oid.decode("ascii") for kind, oid in words if kind == b"blob" and oid not in referenced]
