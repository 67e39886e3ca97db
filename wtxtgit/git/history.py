"""History: what revisions name, commits in order, and what descends from what.

All is read from the commits themselves: no replaced object, and no commit
graph that lies in the repository next to them. A shallow file and grafts
can't be passed over that way: `refuse_altered` looks for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import run
from wtxtgit.git.blobs import CatFiles, ObjectReader, check_oid
from wtxtgit.git.repository import Repository
from wtxtgit.git.trees import MODE_FOLDER, MODE_SUBMODULE, ChosenPaths, TreeEntry, TreeReader

MAX_COMMIT = 64 * 1024 * 1024
"""Bytes of a commit object that are read: far more than any message has."""

_TRUE = ("-c", "core.commitGraph=false")
_FIELDS = "--format=tformat:%H %T %P"
# This line comes before each commit; the option that leaves it out came with git 2.33.
_HEADER = b"commit "
# Within what a date can be: a commit may say anything.
_WHEN = re.compile(
    rb"(?P<seconds>[0-9]{1,11}) (?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3])(?P<minutes>[0-5][0-9])"
)


class Commit(NamedTuple):
    """A commit: object ids of itself, its parents in order, and its tree."""

    oid: str
    parents: tuple[str, ...]
    tree: str


class AlteredHistory(EnvironmentFailure):
    """The repository shows another history than its commits tell."""


class CommitReader(ObjectReader):
    """Commits by their ids, from one running process; a context manager."""

    def __init__(self, repo: Repository) -> None:
        super().__init__(repo, "commit")

    def commit(self, oid: str) -> Commit:
        """Read a commit; raises EnvironmentFailure where there is none of that id."""
        header, _, _ = self._parts(oid)
        tree, *others = [line.partition(b" ") for line in header.split(b"\n")]
        parents = []
        # Those of the header's beginning alone: a signature further down may quote a commit.
        for key, _, value in others:
            if key != b"parent":
                break
            parents.append(_oid(value))
        if tree[0] != b"tree":
            raise EnvironmentFailure(f"commit {oid} does not begin with its tree")
        return Commit(oid, tuple(parents), _oid(tree[2]))

    def subject(self, oid: str) -> str:
        """Give the first paragraph of a commit's message as one line, as git shows it."""
        _, _, message = self._parts(oid)
        paragraph, _, _ = message.lstrip(b"\n").partition(b"\n\n")
        return b" ".join(paragraph.split(b"\n")).decode("utf-8", "backslashreplace").strip()

    def author(self, oid: str) -> tuple[str, str]:
        """Give the author's name, and when that was (RFC 3339); empty where a commit has none."""
        header, _, _ = self._parts(oid)
        for line in header.split(b"\n"):
            if not line.startswith(b"author "):
                continue
            # The last two words are seconds and a time zone; a name may have any characters.
            person, *when = line.removeprefix(b"author ").rsplit(b" ", 2)
            name = person.rpartition(b" <")[0] or person
            return name.decode("utf-8", "backslashreplace").strip(), _date(when)
        return "", ""

    def content(self, oid: str) -> tuple[bytes, bytes]:
        """Give a commit's headers, without the newline at their end, and its message."""
        header, _, message = self._parts(oid)
        return header, message

    def _parts(self, oid: str) -> tuple[bytes, bytes, bytes]:
        return self.read(oid, MAX_COMMIT).partition(b"\n\n")


def _date(words: Sequence[bytes]) -> str:
    """`[seconds, +0200]` as a date; empty for what is none."""
    found = _WHEN.fullmatch(b" ".join(words))
    if found is None:
        return ""
    # Not for those who ask for no date: hooks among them.
    from datetime import datetime, timedelta, timezone

    minutes = 60 * int(found["hours"]) + int(found["minutes"])
    zone = timezone(timedelta(minutes=-minutes if found["sign"] == b"-" else minutes))
    return datetime.fromtimestamp(int(found["seconds"]), zone).isoformat()


def commits(
    repo: Repository,
    tips: Iterable[str],
    excluded: Iterable[str] = (),
    *,
    first_parent: bool = False,
    touching: Sequence[bytes] | None = None,
) -> list[Commit]:
    """List what `tips` reach and `excluded` do not, parents before their children.

    All are object ids of commits, or of tags of commits. `first_parent`
    follows merges to their first parent alone; the commits still have all
    of their parents. `touching` are pathspecs: then commits are left out that
    have there what all of their parents have, unless git takes no pathspecs
    that long (`run.fit`). Git may leave out one whose tree is out of order,
    so nothing that is trusted may depend on a commit's not being listed.
    Raises EnvironmentFailure for an id that is none.
    """
    # Ids alone: a name could begin with a dash, or mean something else by now.
    asked = [*map(check_oid, tips), *("^" + check_oid(oid) for oid in excluded)]
    if not asked:
        return []
    paths: list[str | bytes] = []
    if touching is not None and run.fit(touching):
        paths = ["--full-history", "--", *touching]
    output = repo.git(
        *_TRUE,
        "rev-list",
        # Parents first, whatever the dates say: those are the committer's to choose.
        "--topo-order",
        "--reverse",
        *(("--first-parent",) if first_parent else ()),
        _FIELDS,
        "--stdin",
        *paths,
        stdin="".join(f"{line}\n" for line in asked).encode("ascii"),
        env=run.TRUE_OBJECTS,
    )
    lines = (line for line in output.splitlines() if not line.startswith(_HEADER))
    return [_parse(line) for line in lines]


class CommitGraph:
    """The commits that some tips reach and `base` does not, listed by git once.

    What is asked of them afterwards needs no process. The commits that `base`
    reaches are not listed: there may be far more of them.
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
        """List the commits that these tips reach as well; raises what `commits` does."""
        new = [tip for tip in dict.fromkeys(tips) if tip not in self._commits and tip != self.base]
        if not new:
            return
        below = self._tips if self.base is None else [self.base, *self._tips]
        # What is new comes last: nothing that was listed before descends from it.
        for commit in commits(self._repo, new, below):
            self._commits[commit.oid] = commit
            if any(oid == self.base or oid in self._above for oid in commit.parents):
                self._above.add(commit.oid)
        self._tips += new

    def listed(self, tips: Iterable[str], excluded: Iterable[str] = ()) -> list[Commit]:
        """The commits that `tips` reach and `excluded` do not, parents before their children."""
        tips, excluded = list(tips), list(excluded)
        self.add([*tips, *excluded])
        wanted = self._reached(tips) - self._reached(excluded)
        return [commit for commit in self._commits.values() if commit.oid in wanted]

    def reaches_base(self, tip: str) -> bool:
        """Tell whether a tip is the base, or descends from it."""
        self.add([tip])
        return tip == self.base or tip in self._above

    def descends(self, tip: str, ancestor: str) -> bool:
        """Tell whether a commit is another one, or descends from it."""
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
    """Read the commit that HEAD is at, None before the first one.

    Raises EnvironmentFailure where HEAD names a commit that can't be read.
    """
    parsed = repo.call("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
    if parsed.code:
        return None
    with CommitReader(repo) as reader:
        return reader.commit(parsed.stdout.decode("ascii", "backslashreplace").strip())


class Head:
    """HEAD of a repository, read once, when first asked for: for commands that don't move it."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo

    @cached_property
    def commit(self) -> Commit | None:
        """The commit, as `head` gives it."""
        return head(self.repo)


def next_parents(at: Head) -> list[str]:
    """Give the parents that a commit made now has: HEAD, and what is being merged.

    None before the first commit.
    """
    repo, commit = at.repo, at.commit
    if commit is None:
        return []
    file = repo.git_path("MERGE_HEAD")
    merged = file.read_text("ascii", "backslashreplace").split() if file.is_file() else []
    return list(dict.fromkeys([commit.oid, *map(check_oid, merged)]))


def is_ancestor(repo: Repository, ancestor: str, descendant: str) -> bool:
    """Tell whether a commit is reached from another, or is that one."""
    arguments = ("merge-base", "--is-ancestor", "--", ancestor, descendant)
    return repo.call(*_TRUE, *arguments, env=run.TRUE_OBJECTS, ok=(0, 1)).code == 0


def merge_base(repo: Repository, one: str, other: str) -> str | None:
    """Give the best common ancestor of two commits, one of several; None where there is none."""
    arguments = ("merge-base", "--", check_oid(one), check_oid(other))
    answer = repo.call(*_TRUE, *arguments, env=run.TRUE_OBJECTS, ok=(0, 1))
    return None if answer.code else _oid(answer.stdout.strip())


def between(repo: Repository, ancestor: str, descendant: str) -> list[str]:
    """List the commits that descend from one and that another one is or descends from.

    Parents before their children: `ancestor` is not among them, `descendant`
    is the last. None where it does not descend from `ancestor`.
    """
    asked = f"{check_oid(descendant)}\n^{check_oid(ancestor)}\n".encode("ascii")
    arguments = ("rev-list", "--topo-order", "--reverse", "--ancestry-path", "--stdin")
    output = repo.git(*_TRUE, *arguments, stdin=asked, env=run.TRUE_OBJECTS)
    return [_oid(line) for line in output.splitlines()]


def first_with(repo: Repository, tips: Iterable[str], blob: str) -> str | None:
    """The oldest commit that tips reach and that brought a blob; None where none is listed."""
    asked = (*_TRUE, "log", "--format=%H", "-m", "--no-renames", "--no-patch")
    found = f"--find-object={check_oid(blob)}"
    output = repo.git(*asked, found, *map(check_oid, tips), "--", env=run.TRUE_OBJECTS)
    commits = output.split()
    return _oid(commits[-1]) if commits else None


def refuse_altered(repo: Repository) -> None:
    """Raise AlteredHistory where the repository is shallow, or has replaced objects or grafts."""
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
    """List the commits that branches and tags are at, each once; tags of anything else aside."""
    listed = repo.git(
        "for-each-ref", "--format=%(objectname)^{commit}", "refs/heads/", "refs/tags/",
        env=run.TRUE_OBJECTS,
    )  # fmt: skip
    answers = repo.git(
        "cat-file", "--batch-check=%(objectname)", stdin=listed, env=run.TRUE_OBJECTS
    )
    oids = (line for line in answers.splitlines() if not line.endswith(b" missing"))
    return list(dict.fromkeys(_oid(line) for line in oids))


def shallow_boundary(repo: Repository) -> frozenset[str]:
    """Give the commits whose parents a shallow clone leaves out."""
    try:
        file = repo.git_path("shallow")
        return frozenset(map(check_oid, file.read_text("ascii", "backslashreplace").split()))
    except FileNotFoundError:
        return frozenset()


def default_branch(repo: Repository) -> str | None:
    """Name the upstream's default branch here, as `refs/remotes/origin/main`.

    Where nobody told which it is, as in the clone of a repository that
    was empty, the only branch that it has. None where there is none, or several.
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
    """List the branches of a remote as they are known here, as `refs/remotes/origin/main`."""
    listed = repo.git("for-each-ref", "--format=%(refname)", f"refs/remotes/{remote}/")
    return os.fsdecode(listed).splitlines()


def upstream(repo: Repository) -> str | None:
    """Name the remote of the branch that is checked out, else the only remote, else `origin`."""
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
    """List, for each path, the numbers of commits that have something else there than a parent.

    Raises EnvironmentFailure for a parent that is not there.
    """
    numbers: dict[bytes, list[int]] = {path: [] for path in paths}
    of = {commit.oid: commit.tree for commit in commits}
    chosen = ChosenPaths.of(paths)
    with TreeReader(repo) as trees:
        for number, commit in enumerate(commits):
            for parent in commit.parents:
                if parent not in of:
                    of[parent] = reader.commit(parent).tree
            before: set[str | None] = {of[parent] for parent in commit.parents} or {None}
            changes = (trees.between(tree, commit.tree, chosen) for tree in before)
            for path in {change.path for some in changes for change in some} & numbers.keys():
                numbers[path].append(number)
    return numbers


_KINDS = {MODE_FOLDER: "tree", MODE_SUBMODULE: "commit"}
"""Git's kinds of what stands at a path and is no blob."""


def listing(repo: Repository, tree: str, *paths: bytes) -> list[TreeEntry]:
    """List all files of a tree, given by its object id, or those at `paths` alone.

    Links and submodules are among them. Raises EnvironmentFailure as a
    TreeReader does, which is for who asks more than once.
    """
    with TreeReader(repo) as trees:
        return list((trees.at(tree, paths) if paths else trees.listing(tree)).values())


def resolve(repo: Repository, revision: str) -> str:
    """Give the object id that a revision names; raises EnvironmentFailure."""
    oid = find(repo, revision)
    if oid is None:
        raise EnvironmentFailure(f"{revision!r} names nothing in this repository")
    return oid


def find(repo: Repository, revision: str) -> str | None:
    """Give the object id that a revision names, None where it names nothing."""
    parsed = repo.call(
        "rev-parse", "--verify", "--quiet", "--end-of-options", revision, ok=(0, 1, 128)
    )
    return None if parsed.code else parsed.stdout.decode("ascii").strip()


def resolve_commit(repo: Repository, revision: str) -> str:
    """Give the object id of the commit that a revision names; raises EnvironmentFailure.

    Asked of the process that objects are asked of, so it takes none of its own.
    """
    # A line is one question.
    if "\n" not in revision:
        with CatFiles.of(repo).lent("--batch-check") as stream:
            stream.ask(os.fsencode(revision) + b"^{commit}\n")
            match stream.stdout.readline().split():
                # What names nothing is said so: `REVISION missing`.
                case [oid, b"commit", size] if size.isdigit():
                    return _oid(oid)
    raise EnvironmentFailure(f"{revision!r} names no commit in this repository")


def resolve_tree(repo: Repository, revision: str) -> str:
    """Give the object id of a commit's or tree's tree; raises EnvironmentFailure."""
    resolve(repo, revision)
    try:
        commit = resolve_commit(repo, revision)
    except EnvironmentFailure:
        return resolve(repo, revision + "^{tree}")
    with CommitReader(repo) as commits:
        return commits.commit(commit).tree


def resolve_blob(repo: Repository, name: str) -> str:
    """Give the object id of a blob, named as REV:PATH; raises EnvironmentFailure."""
    oid, kind = resolve_path(repo, name)
    if kind != "blob":
        raise EnvironmentFailure(f"{name!r} names a {kind}, not a file")
    return oid


def resolve_path(repo: Repository, name: str) -> tuple[str, str]:
    """Give the object id of what REV:PATH names, and git's word for its kind.

    Raises EnvironmentFailure where it names nothing.
    """
    revision, path = _cut(name)
    path = None if path is None else path.rstrip("/")
    if not revision or not path:
        # Of the index, or no path at all.
        oid = resolve(repo, name)
        return oid, repo.git("cat-file", "-t", oid).decode("ascii").strip()
    with TreeReader(repo) as trees:
        entry = trees.standing(resolve_tree(repo, revision), os.fsencode(path)).entry
    if entry is None:
        raise EnvironmentFailure(f"{name!r} names nothing in this repository")
    return entry.oid, _KINDS.get(entry.mode, "blob")


def names_in(repo: Repository, tree: str) -> list[str]:
    """List the names of the files in one folder, given by its tree's id; links are among them."""
    with TreeReader(repo) as trees:
        return [os.fsdecode(name) for name in trees.names(tree)]


def _cut(name: str) -> tuple[str, str | None]:
    """Cut REV:PATH where git does, which passes over what stands in braces; see gitrevisions(7)."""
    depth = 0
    for at, letter in enumerate(name):
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= bool(depth)
        elif letter == ":" and not depth:
            return name[:at], name[at + 1 :]
    return name, None
