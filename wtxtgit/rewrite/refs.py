"""The refs of a migration: choosing them, rewriting tags, and moving all together.

The former refs stay under `refs/wtxt/before/NUMBER/`, with a number for each migration.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.git import run
from wtxtgit.git.blobs import ObjectReader, check_oid
from wtxtgit.git.history import MAX_COMMIT
from wtxtgit.git.repository import Repository

BACKUP = "refs/wtxt/before"
_HEADS, _TAGS, _NOTES = "refs/heads/", "refs/tags/", "refs/notes/"
_STASH = "refs/stash"
_MOST_TAGGED = 64
"""How many tags of tags are followed."""
_ARMOR = re.compile(
    rb"^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SSH SIGNATURE|SIGNED MESSAGE)-----", re.MULTILINE
)
"""Where the signature of a tag begins: git's gpg-interface.c."""
_IS_NO_NAME = re.compile(r"\.\.|@\{(?!-\d)")
"""Part of a range, or of a reflog's entry; `@{-1}` is a branch. gitrevisions(7)."""
_SIGNATURES = (b"gpgsig", b"gpgsig-sha256", b"mergetag")


class ChosenRef(NamedTuple):
    """A ref, the object that it names, and the commit that this is or leads to."""

    name: str
    oid: str
    commit: str

    @property
    def is_tag_object(self) -> bool:
        return self.oid != self.commit


def chosen_refs(repo: Repository, names: Sequence[str], *, everything: bool) -> list[ChosenRef]:
    """Return the branches and tags that are named; or all; or the branch that is checked out.

    A tag of anything but a commit is left alone. With all, a detached HEAD is included. Raises
    UsageError for a name that is neither a branch nor a tag.
    """
    if everything:
        chosen = ["HEAD"] if _branch(repo) is None else []
        chosen += list_refs(repo, _HEADS, _TAGS)
    elif names:
        chosen = list(dict.fromkeys(_full_name(repo, name) for name in names))
    else:
        branch = _branch(repo)
        if branch is None:
            raise UsageError(
                "HEAD is on no branch", hint="name a branch, or --everything takes all"
            )
        chosen = [branch]
    questions = "".join(f"{name}\n{name}^{{commit}}\n" for name in chosen).encode()
    form = "--batch-check=%(objectname) %(objecttype)"
    lines = repo.git("cat-file", form, stdin=questions, env=run.TRUE_OBJECTS).splitlines()
    refs = []
    for name, (itself, commit) in zip(
        chosen, zip(lines[::2], lines[1::2], strict=True), strict=True
    ):
        if itself.endswith(b" missing") and everything:
            continue
        if not commit.endswith(b" commit"):
            if not everything and not names:
                raise EnvironmentFailure("no commits yet")
            if not everything:
                raise UsageError(f"{name} names no commit")
            continue
        refs.append(ChosenRef(name, _oid(itself), _oid(commit)))
    return refs


def list_refs(repo: Repository, *prefixes: str) -> list[str]:
    """Return the names of all refs under prefixes, except symbolic ones."""
    output = repo.git("for-each-ref", "--format=%(refname) %(symref)", *prefixes)
    pairs = (line.decode("utf-8", "surrogateescape").split(" ") for line in output.splitlines())
    return [name for name, symref in pairs if not symref]


def notes_refs(repo: Repository) -> list[ChosenRef]:
    """Return all notes refs."""
    names = list_refs(repo, _NOTES)
    questions = "".join(f"{name}\n" for name in names).encode()
    answers = repo.git("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=questions)
    pairs = zip(names, answers.splitlines(), strict=True)
    return [ChosenRef(n, _oid(line), _oid(line)) for n, line in pairs if line.endswith(b" commit")]


class Stash(NamedTuple):
    """An entry of the stash: its commit, that one's parents, and its line in `git stash list`.

    The first of the parents is the commit on which it was made.
    """

    oid: str
    parents: tuple[str, ...]
    message: str


def stashes(repo: Repository) -> list[Stash]:
    """Return the entries of the stash, newest first."""
    if repo.is_bare or not list_refs(repo, _STASH):
        return []
    form = "--format=%H%x00%P%x00%gs"
    output = repo.git("log", "-g", form, _STASH, "--", env=run.TRUE_OBJECTS)
    lines = output.decode("utf-8", "surrogateescape").splitlines()
    entries = (line.split("\0", 2) for line in lines)
    return [Stash(oid, tuple(parents.split()), message) for oid, parents, message in entries]


def stashes_on(repo: Repository, tips: Sequence[str]) -> list[Stash]:
    """Return the stash entries that were made on commits that tips reach."""
    beyond = "".join(f"^{tip}\n" for tip in tips)
    return [
        stash
        for stash in stashes(repo)
        if len(stash.parents) > 1
        and not repo.git(
            "rev-list", "-1", "--stdin", stdin=f"{stash.parents[0]}\n{beyond}".encode(),
            env=run.TRUE_OBJECTS,
        )
    ]  # fmt: skip


def add_stashes(repo: Repository, added: Sequence[Stash]) -> None:
    """Add entries, given newest first, to the stash; existing entries stay."""
    existing = {stash.oid for stash in stashes(repo)}
    for stash in reversed(added):
        if stash.oid not in existing:
            repo.git("stash", "store", "--quiet", "--message", stash.message, stash.oid)


def drop_stashes(repo: Repository, oids: Container[str]) -> None:
    """Remove entries from the stash."""
    numbered = list(enumerate(stashes(repo)))
    for number, stash in reversed(numbered):
        if stash.oid in oids:
            repo.git("stash", "drop", "--quiet", f"stash@{{{number}}}")


def refuse_partial(repo: Repository, tips: Iterable[str], *options: str) -> None:
    """Raise EnvironmentFailure if objects of the history are missing here.

    `options` are options of `git rev-list` that select the objects.
    """
    promised = repo.call(
        "config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$", ok=(0, 1)
    )
    if promised.code:
        return
    stdin = "".join(f"{tip}\n" for tip in tips).encode()
    output = repo.git("rev-list", "--objects", "--missing=print", *options, "--stdin", stdin=stdin)
    missing = sum(line.startswith(b"?") for line in output.splitlines())
    if missing:
        raise EnvironmentFailure(
            f"this is a partial clone: {missing} objects of the history are missing",
            hint="migrate in a full clone, made without --filter",
        )


class TagWriter:
    """Rewrites tags whose commits have changed; `signatures` counts those dropped by that."""

    def __init__(self, repo: Repository, commits: Mapping[str, str]) -> None:
        self._repo = repo
        self._commits = commits
        self.ids: dict[str, str] = {}
        self.signatures = 0

    def _chain(self, oid: str) -> tuple[list[tuple[str, bytes]], str]:
        """Return a tag and those to which it leads, as (id, content), and the last one's target."""
        chain = []
        with ObjectReader(self._repo, "tag") as tags:
            target = oid
            while target not in self.ids and target not in self._commits:
                content = tags.read(target, MAX_COMMIT)
                head = _head(content)
                chain.append((target, content))
                target = check_oid(head.get(b"object", b"").decode("ascii", "replace"))
                if head.get(b"type") != b"tag":
                    break
                if len(chain) > _MOST_TAGGED:
                    raise EnvironmentFailure(f"tag {oid}: more than {_MOST_TAGGED} tags of tags")
        return chain, target

    def signed(self, oid: str) -> set[str]:
        """Return those of a tag and the tags that it points to that have a signature; a rewritten
        one has none.
        """
        return {name for name, content in self._chain(oid)[0] if _unsigned(content) != content}

    def tag(self, oid: str) -> str:
        """Return the id of the rewritten tag; the same id if nothing in it changes."""
        chain, target = self._chain(oid)
        new = self.ids.get(target) or self._commits.get(target, target)
        for name, content in reversed(chain):
            if new != target:
                new = self._write(content, target, new)
                self.ids[name] = new
            else:
                new = name
            target = name
        return new

    def _write(self, content: bytes, before: str, after: str) -> str:
        unsigned = _unsigned(content)
        self.signatures += unsigned != content
        tag = unsigned.replace(b"object " + before.encode(), b"object " + after.encode(), 1)
        output = self._repo.git("hash-object", "-t", "tag", "-w", "--stdin", stdin=tag)
        return _oid(output)


def _unsigned(tag: bytes) -> bytes:
    """A tag without its signature."""
    head, between, message = tag.partition(b"\n\n")
    signed = _ARMOR.search(message)
    text = message if signed is None else message[: signed.start()]
    return without_signatures(head) + between + text


def without_signatures(head: bytes) -> bytes:
    """Return the head of a commit or tag without signatures, which would not fit the new one."""
    kept = []
    is_dropped = False
    for line in head.split(b"\n"):
        # A line that begins with a space continues the one before.
        if not line.startswith(b" "):
            is_dropped = line.partition(b" ")[0] in _SIGNATURES
        if not is_dropped:
            kept.append(line)
    return b"\n".join(kept)


def move_refs(
    repo: Repository,
    moves: Sequence[tuple[str, str, str]],
    backup: str,
    reason: str,
    kept: Sequence[Stash] = (),
) -> None:
    """Move refs, given as (name, before, after), all or none, and write a backup.

    The backup also has the entries of the stash that are `kept`. Raises EnvironmentFailure if a ref
    has moved in the meantime, or is locked.
    """
    lines = ["start"]
    lines += [f"create {backup}/stash/{n} {check_oid(e.oid)}" for n, e in enumerate(kept)]
    for name, before, after in moves:
        place = "HEAD" if name == "HEAD" else name.removeprefix("refs/")
        lines.append(f"create {backup}/{place} {check_oid(before)}")
        # A detached HEAD moves itself.
        lines += ["option no-deref"] if name == "HEAD" else []
        lines.append(f"update {name} {check_oid(after)} {check_oid(before)}")
    lines += ["prepare", "commit"]
    stdin = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    repo.git("update-ref", "-m", reason, "--stdin", stdin=stdin)


def next_backup(repo: Repository) -> str:
    """Return the place for the next backup."""
    names = list_refs(repo, f"{BACKUP}/")
    numbers = [name.removeprefix(f"{BACKUP}/").partition("/")[0] for name in names]
    return f"{BACKUP}/{1 + max((int(n) for n in numbers if n.isdecimal()), default=0)}"


def leading_to(repo: Repository, commits: Iterable[str], moved: Iterable[str]) -> list[str]:
    """Return refs that did not move and still lead to commits that were rewritten."""
    first = list(commits)
    if not first:
        return []
    contained = [f"--contains={oid}" for oid in first]
    output = repo.git("for-each-ref", "--format=%(refname)", *contained)
    names = set(output.decode("utf-8", "surrogateescape").splitlines())
    return sorted(n for n in names - {*moved} if not n.startswith((f"{BACKUP}/", _STASH)))


def _branch(repo: Repository) -> str | None:
    answer = repo.call("symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
    name = answer.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    return name or None


def _full_name(repo: Repository, name: str) -> str:
    options = ("--symbolic-full-name", "--verify", "--quiet", "--end-of-options")
    answer = repo.call("rev-parse", *options, name, ok=(0, 1, 128))
    full = answer.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    # Git also lists the branch on which they were made.
    if full.startswith((_HEADS, _TAGS)) and not _IS_NO_NAME.search(name):
        return full
    both = [prefix + name for prefix in (_HEADS, _TAGS)]
    if sorted(list_refs(repo, *both)) == both:
        raise UsageError(f"{name!a} is a branch and a tag", hint=f"write {both[0]} or {both[1]}")
    raise UsageError(f"{name!a} is neither a branch nor a tag of this repository")


def _head(content: bytes) -> dict[bytes, bytes]:
    lines = content.partition(b"\n\n")[0].split(b"\n")
    return {key: value for key, _, value in (line.partition(b" ") for line in lines)}


def _oid(line: bytes) -> str:
    return check_oid(line.split(b" ")[0].strip().decode("ascii", "replace"))
