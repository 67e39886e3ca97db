from __future__ import annotations

from pathlib import Path

import pytest

from tests.git.histories import History, new_repo
from tests.kit import Repo
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git import history
from wtxtgit.git.history import AlteredHistory, Commit, CommitGraph, CommitReader


def oids(commits: list[Commit]) -> list[str]:
    return [commit.oid for commit in commits]


@pytest.fixture
def made(repo: Repo) -> dict[str, str]:
    """Two roots, a branch, an octopus merge of all, and one more."""
    make = History(repo)
    made = {"root": make.commit({b"a": b"1"})}
    made["other root"] = make.commit({b"z": b"1"})
    made["one"] = make.commit({b"a": b"2"}, [made["root"]])
    made["side"] = make.commit({b"b": b"1"}, [made["root"]])
    made["side two"] = make.commit({b"b": b"2"}, [made["side"]])
    made["merge"] = make.commit({b"a": b"3"}, [made["one"], made["side two"], made["other root"]])
    made["tip"] = make.commit({b"a": b"4"}, [made["merge"]])
    repo.git("update-ref", "refs/heads/main", made["tip"])
    return made


def test_parents_come_before_children_with_trees(repo: Repo, made: dict[str, str]) -> None:
    found = history.commits(repo.repository, [made["tip"]])
    assert sorted(oids(found)) == sorted(made.values())
    place = {commit.oid: i for i, commit in enumerate(found)}
    for commit in found:
        assert all(place[parent] < place[commit.oid] for parent in commit.parents)
        tree = repo.git("rev-parse", commit.oid + "^{tree}").decode().strip()
        parents = repo.git("rev-parse", commit.oid + "^@").decode().split()
        assert commit == Commit(commit.oid, tuple(parents), tree)
    with CommitReader(repo.repository) as reader:
        assert [reader.commit(commit.oid) for commit in found] == found


def test_first_parents_keep_all_their_parents(repo: Repo, made: dict[str, str]) -> None:
    found = history.commits(repo.repository, [made["tip"]], first_parent=True)
    assert oids(found) == [made[name] for name in ("root", "one", "merge", "tip")]
    assert found[2].parents == (made["one"], made["side two"], made["other root"])


def test_ranges(repo: Repo, made: dict[str, str]) -> None:
    found = history.commits(repo.repository, [made["tip"]], [made["one"], made["side"]])
    assert set(oids(found)) == {made[n] for n in ("other root", "side two", "merge", "tip")}
    # What the excluded commit reaches through any parent is excluded.
    line = history.commits(repo.repository, [made["tip"]], [made["merge"]], first_parent=True)
    assert oids(line) == [made["tip"]]
    side = history.commits(repo.repository, [made["side two"]], [made["tip"]], first_parent=True)
    assert side == []
    assert history.commits(repo.repository, []) == []


def test_ids_are_ids(repo: Repo, made: dict[str, str]) -> None:
    for name in ("--all", "main", "^" + made["tip"], made["tip"][:12], made["tip"] + "\n--all"):
        with pytest.raises(EnvironmentFailure, match="not an object id"):
            history.commits(repo.repository, [name])
    with pytest.raises(EnvironmentFailure):
        history.commits(repo.repository, ["1" * 40])
    with CommitReader(repo.repository) as reader, pytest.raises(EnvironmentFailure, match="commit"):
        reader.commit(History(repo).tree({b"a": b"1"}))


def test_a_message_says_nothing_of_parents(repo: Repo, made: dict[str, str]) -> None:
    lines = f"commit {made['one']}\nparent {made['one']}\n\nparent {made['one']}\n"
    quoting = History(repo).commit({b"a": b"1"}, [made["root"]], lines)
    (found,) = history.commits(repo.repository, [quoting], [made["root"]])
    assert found.parents == (made["root"],)
    with CommitReader(repo.repository) as reader:
        assert reader.commit(quoting) == found


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_head(tmp_path: Path, kind: str) -> None:
    repo = new_repo(tmp_path / "r", kind)
    assert history.head(repo.repository) is None
    oid = repo.commit()
    assert history.head(repo.repository) == history.commits(repo.repository, [oid])[0]
    (repo.path / ".git/HEAD").write_text("0" * (len(oid) - 1) + "1\n")
    with pytest.raises(EnvironmentFailure, match="no commit"):
        history.head(repo.repository)


def test_ancestors(repo: Repo, made: dict[str, str]) -> None:
    repository = repo.repository
    assert history.is_ancestor(repository, made["side"], made["tip"])
    assert history.is_ancestor(repository, made["tip"], made["tip"])
    assert not history.is_ancestor(repository, made["tip"], made["side"])
    assert not history.is_ancestor(repository, made["one"], made["side"])
    with pytest.raises(EnvironmentFailure):
        history.is_ancestor(repository, "--independent", made["side"])


@pytest.mark.parametrize(
    "base",
    [
        "merge",
        *(pytest.param(one, marks=pytest.mark.slow) for one in (None, "root", "one", "other root")),
    ],
)
def test_a_graph_says_what_git_says(repo: Repo, made: dict[str, str], base: str | None) -> None:
    make = History(repo)
    made["beside"] = make.commit({b"c": b"1"}, [made["side"]])
    made["alone"] = make.commit({b"d": b"1"})
    start = None if base is None else made[base]
    below = [] if start is None else [start]
    graph = CommitGraph(repo.repository, start, [made["side two"]])
    # Later tips are listed as they are asked for.
    for tip in made.values():
        for excluded in ([], [made["side"]], [made["one"], made["alone"]]):
            listed = oids(graph.listed([tip], excluded))
            expected = oids(history.commits(repo.repository, [tip], [*below, *excluded]))
            assert sorted(listed) == sorted(expected)
            for commit in graph.listed([tip], excluded):
                inside = [parent for parent in commit.parents if parent in listed]
                assert all(listed.index(one) < listed.index(commit.oid) for one in inside)
        for other in made.values():
            assert graph.descends(tip, other) == history.is_ancestor(repo.repository, other, tip)
        if start is not None:
            assert graph.reaches_base(tip) == history.is_ancestor(repo.repository, start, tip)
        assert history.count(repo.repository, tip) == len(history.commits(repo.repository, [tip]))


def test_what_names_a_commit(repo: Repo, made: dict[str, str]) -> None:
    repo.git("tag", "-a", "-m", "t", "v1", made["one"])
    names = {"HEAD": "tip", "main~1": "merge", "v1": "one", "v1^{tag}": "one",
             made["one"][:12]: "one", "HEAD~1^2": "side two"}  # fmt: skip
    for name, wanted in names.items():
        assert history.resolve_commit(repo.repository, name) == made[wanted], name
    for name in ("nothing", "HEAD:a", "HEAD^{tree}", "", "-h", "--all", "x commit 5", "main\nmain",
                 "f" * 40):  # fmt: skip
        with pytest.raises(EnvironmentFailure, match="names no commit"):
            history.resolve_commit(repo.repository, name)


def test_commits_between(repo: Repo, made: dict[str, str]) -> None:
    between = history.between(repo.repository, made["root"], made["merge"])
    assert set(between) == {made[n] for n in ("one", "side", "side two", "merge")}
    assert between[-1] == made["merge"]
    line = history.between(repo.repository, made["side"], made["merge"])
    assert line == [made["side two"], made["merge"]]
    assert history.between(repo.repository, made["one"], made["side two"]) == []


def test_a_whole_history_is_taken(repo: Repo, made: dict[str, str]) -> None:
    history.refuse_altered(repo.repository)


def test_a_shallow_clone_is_refused(repo: Repo, made: dict[str, str]) -> None:
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", "../shallow")
    with pytest.raises(AlteredHistory, match="shallow") as caught:
        history.refuse_altered(Repo(repo.path.parent / "shallow").repository)
    assert caught.value.hint == "git fetch --unshallow"
    assert caught.value.exit_code == 5


def test_replaced_objects_are_refused_and_not_read(repo: Repo, made: dict[str, str]) -> None:
    before = history.commits(repo.repository, [made["tip"]])
    repo.git("replace", made["merge"], made["root"])
    assert len(repo.git("rev-list", made["tip"]).split()) == 2
    with pytest.raises(AlteredHistory, match="refs/replace"):
        history.refuse_altered(repo.repository)
    assert history.commits(repo.repository, [made["tip"]]) == before
    assert history.is_ancestor(repo.repository, made["side"], made["tip"])
    with CommitReader(repo.repository) as reader:
        assert len(reader.commit(made["merge"]).parents) == 3


def test_grafts_are_refused_also_from_a_linked_worktree(repo: Repo, made: dict[str, str]) -> None:
    repo.git("worktree", "add", "-q", "../linked", made["tip"])
    (repo.path / ".git/info/grafts").write_text(f"{made['tip']}\n")
    for folder in (repo.path, repo.path.parent / "linked"):
        with pytest.raises(AlteredHistory, match="graft"):
            history.refuse_altered(Repo(folder).repository)


@pytest.mark.slow
def test_a_commit_graph_is_not_believed(repo: Repo, made: dict[str, str]) -> None:
    before = history.commits(repo.repository, [made["tip"]])
    repo.git("commit-graph", "write", "--reachable")
    (graph,) = (repo.path / ".git/objects/info").glob("commit-graph")
    content = bytearray(graph.read_bytes())
    tree = bytes.fromhex(before[-1].tree)
    graph.chmod(0o644)
    graph.write_bytes(content.replace(tree, bytes.fromhex(before[0].tree)))
    said = repo.git("rev-list", "-1", "--format=%T", made["tip"]).decode().split()[-1]
    assert said == before[0].tree
    assert history.commits(repo.repository, [made["tip"]]) == before


def test_the_default_branch(repo: Repo, made: dict[str, str]) -> None:
    assert history.default_branch(repo.repository) is None
    clone = repo.clone("clone")
    assert history.default_branch(clone.repository) == "refs/remotes/origin/main"
    clone.git("remote", "rename", "origin", "team/up")
    clone.git("remote", "add", "origin", "../nowhere")
    # The branch here follows the other remote.
    assert history.default_branch(clone.repository) == "refs/remotes/team/up/main"
    clone.git("checkout", "-q", "--detach")
    assert history.default_branch(clone.repository) is None
    clone.git("remote", "remove", "origin")
    assert history.default_branch(clone.repository) == "refs/remotes/team/up/main"
    clone.git("update-ref", "-d", "refs/remotes/team/up/main")
    assert history.default_branch(clone.repository) is None


def test_the_default_branch_that_nobody_told(repo: Repo, tmp_path: Path) -> None:
    """The clone of an empty repository has no HEAD of its remote."""
    repo.git("init", "-q", "--bare", str(tmp_path / "forge.git"))
    clone = Repo(tmp_path / "forge.git").clone("clone")
    assert history.default_branch(clone.repository) is None
    clone.commit("first")
    clone.git("push", "-q", "origin", "HEAD")
    clone.git("remote", "set-head", "origin", "--delete")
    assert history.default_branch(clone.repository) == "refs/remotes/origin/main"
    clone.git("push", "-q", "origin", "HEAD:topic")
    assert history.default_branch(clone.repository) is None


def test_where_branches_left_each_other(repo: Repo, made: dict[str, str]) -> None:
    here = repo.repository
    assert history.merge_base(here, made["one"], made["side two"]) == made["root"]
    assert history.merge_base(here, made["tip"], made["side"]) == made["side"]
    assert history.merge_base(here, made["root"], made["other root"]) is None
    with pytest.raises(EnvironmentFailure):
        history.merge_base(here, "main", made["root"])


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        (b"one line", "one line"),
        (b"\n\nlate\n\nbody\n", "late"),
        (b"two\nlines\n\nbody", "two lines"),
        (b"", ""),
        (b"no utf-8 \xff", "no utf-8 \\xff"),
        (b"  blanks \n", "blanks"),
    ],
)
def test_subjects(message: bytes, subject: str, repo: Repo) -> None:
    tree = repo.git("mktree").decode().strip()
    commit = b"tree %s\nauthor A <a@e> 0 +0000\ncommitter A <a@e> 0 +0000\n\n" % tree.encode()
    made = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=commit + message)
    with CommitReader(repo.repository) as reader:
        assert reader.subject(made.decode().strip()) == subject
