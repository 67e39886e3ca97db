"""Hints about the machine, its git, its keys and its limits, each followed in a shell:
`test_every_hint.py` has the table of all hints.
"""

from __future__ import annotations

import os
import shlex
import shutil
import venv
import zlib
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import pytest

from tests.e2e.hint_worlds import UP, World, commands, told
from tests.e2e.sealed import MODEL, Sealed, checkpoint, text
from tests.e2e.test_hints_of_remotes import bare, committed, there
from tests.kit import safetensors
from tests.kit.pasting import HERE, typed
from tests.kit.starts import compiled
from tests.remotes.servers import files
from tests.trust.peers import needs_agent, new_key
from wtxtgit.git.run import executable

pytestmark = [pytest.mark.slow, pytest.mark.true_start]

KIT = Path(__file__).parents[1] / "kit"
SOURCE = KIT.parents[1]
SEAL = f"wtxtgit seal --staged --key agent: -- {UP}{MODEL}"
AGENT = 'eval "$(ssh-agent)" >agent.pid'
ENDED = "trap 'ssh-agent -k >agent.pid' EXIT"


@pytest.fixture
def world(pastable: Sealed) -> World:
    return World(pastable.path)


class Finding:
    """What a command tells in a shell, and what of it is left when other lines were typed before.

    `hint` is the hint as it is told. `first` are lines that are typed before all others, `code` is
    the command's exit code. What `follow` makes is told with the hint that it stands beside in
    FOLLOWED.
    """

    def __init__(
        self,
        world: World,
        follow: Callable[[World], None],
        command: str,
        *first: str,
        code: int = 5,
    ) -> None:
        self._world, self._command, self._first = world, command, first
        said = typed(world, *first, command)
        self.hint, self.message = told(HINTS[follow], said)
        assert said[0] == code, said

    def ends(self, *lines: str, command: str = "", code: int = 0) -> str:
        """Type lines, then the command, or another one in its place; gives what is printed."""
        ended, out, err = typed(self._world, *self._first, *lines, command or self._command)
        assert self.message not in out + err
        assert ended == code, (out, err)
        return out + err


# Keys.


def an_agent(world: World) -> None:
    world.put(2.0)
    finding = Finding(world, an_agent, SEAL, "unset SSH_AUTH_SOCK")
    (start,) = commands(finding.hint)
    # The next step is a hint of its own.
    said = finding.ends(start, ENDED, code=5)
    assert "holds no ed25519 key" in said


def a_key_for_the_agent(world: World) -> None:
    world.put(2.0)
    new_key(world.path / HERE / "key")
    finding = Finding(world, a_key_for_the_agent, SEAL, AGENT, ENDED)
    (add,) = commands(finding.hint)
    finding.ends(add.replace("FILE", "key"))


def one_key_of_the_agent(world: World) -> None:
    world.put(2.0)
    for name in ("one", "two"):
        new_key(world.path / HERE / name)
    finding = Finding(world, one_key_of_the_agent, SEAL, AGENT, ENDED, "ssh-add one two")
    (lists,) = commands(finding.hint)
    chosen = SEAL.replace("agent:", '"agent:$(echo "$keys" | cut -d " " -f 2 | head -n 1)"')
    finding.ends(f'keys="$({lists})"', command=chosen)


def key_with_a_passphrase_of_openssh(world: World) -> None:
    world.put(2.0)
    new_key(world.path / HERE / "key", "ed25519", "secret")
    world.write(f"{HERE}/ask", "#!/bin/sh\necho secret\n").chmod(0o755)
    asks = "export SSH_ASKPASS=./ask SSH_ASKPASS_REQUIRE=force"
    by_file, follow = SEAL.replace("agent:", "./key"), key_with_a_passphrase_of_openssh
    finding = Finding(world, follow, by_file, AGENT, ENDED, asks, code=3)
    assert "--key agent:" in finding.hint
    finding.ends("ssh-add key", command=SEAL)
    world.git("reset", "-q")
    world.put(3.0)
    assert "ssh-keygen -p" in finding.hint
    finding.ends("ssh-keygen -p -P secret -N '' -f key")


# Programs.


def no_git(world: World) -> None:
    """To install it is to have it on PATH."""
    bare = "mkdir -p programs && PATH=$PWD/../../bin:$PWD/programs"
    finding = Finding(world, no_git, "wtxtgit status", bare)
    finding.ends(f"{shutil.which('ln')} -s {shlex.quote(executable())} programs/git")


def old_git(world: World) -> None:
    world.write(f"{HERE}/git", "#!/bin/sh\necho git version 2.30.9\n").chmod(0o755)
    typed(world, "wtxtgit install --local")
    finding = Finding(world, old_git, "wtxtgit doctor --json", "PATH=$PWD:$PATH", code=1)
    assert finding.hint == "install git 2.31 or later"
    finding.ends(f"ln -sf {shlex.quote(executable())} git")


def only_git_runs_it(world: World) -> None:
    world.write(f"{HERE}/new.safetensors", checkpoint(2.0))
    finding = Finding(world, only_git_runs_it, "wtxtgit filter-process </dev/null")
    (install,) = commands(finding.hint)
    finding.ends(install, command="git add .")
    assert world.blob(f"{HERE}/new.safetensors").startswith(b"WTXT")


def interpreter(world: World) -> Path:
    """An environment of its own, with all packages of this one but wtxtgit."""
    folder = world.path.parent / "environment"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    for one in Path(np.__file__).parents[1].iterdir():
        if "wtxtgit" not in one.name:
            (packages / one.name).symlink_to(one)
    return packages


def installed(packages: Path) -> str:
    """The line that puts wtxtgit into an environment, as `pip install --editable` does."""
    return f"echo {shlex.quote(str(SOURCE))} >{shlex.quote(str(packages / 'wtxtgit.pth'))}"


def not_installed(world: World) -> None:
    """It runs from its source alone, where git would not find it."""
    packages = interpreter(world)
    python = packages.parents[2] / "bin/python"
    command = f"{python} -m wtxtgit install --local"
    from_source = f"export PYTHONPATH={shlex.quote(str(SOURCE))}"
    finding = Finding(world, not_installed, command, from_source)
    assert str(python) in finding.hint
    finding.ends(installed(packages))


def broken_module(world: World) -> Path:
    """An environment with wtxtgit and a module that can't be loaded; gives that of the module."""
    packages = interpreter(world)
    typed(world, installed(packages))
    (packages / "msgpack").unlink()
    shutil.copytree(Path(msgpack.__file__).parent, packages / "msgpack")
    (packages / "msgpack/__init__.py").write_text("from msgpack import gone\n")
    return packages


def a_module_is_broken(world: World) -> None:
    packages = broken_module(world)
    command = f"{packages.parents[2]}/bin/python -m wtxtgit doctor --json"
    typed(world, "wtxtgit install --local")
    finding = Finding(world, a_module_is_broken, command, code=1)
    right = shlex.quote(str(Path(msgpack.__file__)))
    finding.ends(f"cp {right} {shlex.quote(str(packages / 'msgpack'))}")


def a_module_can_not_be_loaded(world: World) -> None:
    program = f"{broken_module(world).parents[2]}/bin/python -m wtxtgit"
    world.write(f"{HERE}/x.safetensors", checkpoint(2.0))
    command = f"{program} convert x.safetensors x.aero"
    finding = Finding(world, a_module_can_not_be_loaded, command)
    (lists,) = commands(finding.hint)
    listed = typed(world, lists.replace("wtxtgit", program, 1))[1]
    assert "msgpack" in listed
    assert "install wtxtgit again for this interpreter" in listed


# Git's configuration.


def no_home(world: World) -> None:
    unset = "unset HOME XDG_CONFIG_HOME GIT_CONFIG_GLOBAL"
    for verb in ("install", "uninstall"):
        finding = Finding(world, no_home, f"wtxtgit {verb}", unset)
        assert finding.message == "HOME is not set, so git has no global config"
        finding.ends(command=f"wtxtgit {verb} --local")
        (export,) = commands(finding.hint)
        finding.ends(export.replace("FOLDER", "$PWD"))


def no_folder_for_the_config(world: World) -> None:
    elsewhere = 'export GIT_CONFIG_GLOBAL="$PWD/no folder/config"'
    finding = Finding(world, no_folder_for_the_config, "wtxtgit install", elsewhere)
    assert finding.message.endswith(
        "/no folder/config: can't be written: no such file or directory"
    )
    finding.ends(finding.hint)


def a_config_that_a_crash_left_locked(world: World) -> None:
    lock = world.path / ".git/config.lock"
    for command in ("install --local", "store use file:///nowhere", "uninstall --local"):
        lock.touch()
        finding = Finding(world, a_config_that_a_crash_left_locked, f"wtxtgit {command}")
        assert finding.message.startswith(f"{lock} exists: ")
        (remove,) = commands(finding.hint)
        finding.ends(remove)


def repository_of_another_user(world: World) -> None:
    if typed(world, f"chown -R {100_000 + os.getpid()} ..")[0]:
        pytest.skip("only root gives files to somebody else")
    finding = Finding(world, repository_of_another_user, "wtxtgit status")
    (trusts,) = commands(finding.hint)
    finding.ends(trusts)


# Processes, and what they may use.


def a_lock_that_a_crash_left(world: World) -> None:
    """Git is killed while it has the index locked."""
    typed(world, "wtxtgit install --local")
    typed(world, "GIT_EDITOR='kill -KILL $PPID;' git commit -a --allow-empty")
    world.write(MODEL, checkpoint(2.0))
    finding = Finding(world, a_lock_that_a_crash_left, f"wtxtgit add {UP}{MODEL}")
    (remove,) = commands(finding.hint)
    finding.ends(remove)


def clock_beyond_all_records(world: World) -> None:
    library = compiled(KIT / "clock.c", ("-shared", "-fPIC"), ("-shared", "-fPIC", "-ldl"))
    if library is None:
        pytest.skip("there is no C compiler to make another clock with")
    world.put(2.0)
    wrong = f"export LD_PRELOAD={library} WTXTGIT_TEST_CLOCK={9000 * 31_556_952}"
    command = f"wtxtgit seal --staged -- {UP}{MODEL}"
    finding = Finding(world, clock_beyond_all_records, command, wrong)
    (shows,) = commands(finding.hint)
    assert int(typed(world, wrong, f"{shows} +%Y")[1]) > 9999
    finding.ends("WTXTGIT_TEST_CLOCK=0")


def no_more_threads(world: World) -> None:
    world.write("x.safetensors", checkpoint(2.0))
    least, user = "ulimit -Su 1", ""
    if os.geteuid() == 0:
        # The limit does not hold root: a user of no other process takes it, who may read files.
        may = "+dac_override,+dac_read_search"
        user = f"--reuid={100_000 + os.getpid()} --inh-caps={may} --ambient-caps={may}"
        user = f"setpriv --clear-groups {user} "
    if typed(world, f"{user}true")[0]:
        pytest.skip("this system lets root start nothing as another user")
    with files(world.path) as host:
        # A limit of one process: the shell itself has to become it.
        command = f"exec {user}wtxtgit verify http://{host}/x.safetensors"
        finding = Finding(world, no_more_threads, command, least)
        (shows,) = commands(finding.hint)
        assert typed(world, least, shows)[1] == "1\n"
        finding.ends('ulimit -Su "$(ulimit -Hu)"')


def no_more_address_space_for_a_library(world: World) -> None:
    world.write(f"{HERE}/x.safetensors", checkpoint(2.0))
    command = "wtxtgit verify x.safetensors"
    # How much Python itself takes is not the same everywhere, nor in every run.
    limits = [f"ulimit -Sv {number}" for number in range(30_000, 110_000, 8_000)]
    told_at = [one for one in limits if "map segment" in typed(world, one, command)[2]]
    least = told_at[len(told_at) // 2]
    # Doctor then finds that no driver is set up: with one it would need more room.
    doctor = "cd ../.. && wtxtgit doctor --json"
    for told_by, code, then in ((command, 5, 0), (doctor, 1, 1)):
        finding = Finding(world, no_more_address_space_for_a_library, told_by, least, code=code)
        said = finding.ends('ulimit -Sv "$(ulimit -Hv)"', code=then)
        assert "ADVICE" not in said + finding.message


def no_more_address_space(world: World) -> None:
    """Values in columns are put into rows with all of them at hand."""
    head = b"{'descr': '<f4', 'fortran_order': True, 'shape': (4096, 8192), }"
    head = b"\x93NUMPY\1\0v\0" + head.ljust(117) + b"\n"
    with world.write(f"{HERE}/x.npy", head).open("r+b") as file:
        file.truncate(len(head) + (128 << 20))
    least = "ulimit -Sv 180000"
    finding = Finding(world, no_more_address_space, "wtxtgit convert x.npy x.safetensors", least)
    (shows,) = commands(finding.hint)
    assert typed(world, least, shows)[1] == "180000\n"
    finding.ends('ulimit -Sv "$(ulimit -Hv)"')


def no_room_in_the_temporary_folder(world: World) -> None:
    world.write("x.safetensors", safetensors(*[0.0] * 30_000))
    apart = "unshare --user --map-root-user --mount"
    if typed(world, f"{apart} mount -t tmpfs -o size=64k small .")[0]:
        pytest.skip("this system mounts no small disk for a user")
    first = (
        # All that follows is done where mounts concern nobody else.
        f'[ "$APART" ] || APART=1 exec {apart} bash -c "$BASH_EXECUTION_STRING"',
        "mkdir -p small",
        "mount -t tmpfs -o size=64k small small",
        "export TMPDIR=$PWD/small",
    )
    with files(world.path) as host:
        command = f"wtxtgit verify http://{host}/x.safetensors"
        finding = Finding(world, no_room_in_the_temporary_folder, command, *first)
        (chooses,) = commands(finding.hint)
        finding.ends(chooses.replace("FOLDER", ".."))


# What git has.


def loose(world: World, name: str) -> Path:
    oid = world.git("rev-parse", name).decode().strip()
    return world.path / ".git/objects" / oid[:2] / oid[2:]


def another(world: World, name: str, content: bytes) -> str:
    """Put other content in the place of an object; gives its id."""
    kind = world.git("cat-file", "-t", name).strip()
    path = loose(world, name)
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"%b %d\0%b" % (kind, len(content), content)))
    return path.parent.name + path.name


def fsck_lists(world: World, follow: Callable[[World], None], command: str, oid: str) -> None:
    finding = Finding(world, follow, command)
    _, out, err = typed(world, finding.hint)
    assert oid in out + err


def another_tree(world: World) -> None:
    oid = another(world, "HEAD^{tree}", world.git("cat-file", "tree", "HEAD:.wtxt"))
    fsck_lists(world, another_tree, "wtxtgit audit", oid)


def another_blob(world: World) -> None:
    oid = another(world, f"HEAD:{MODEL}", text(2.0))
    fsck_lists(world, another_blob, f"wtxtgit restore HEAD:{UP}{MODEL} -o x", oid)


def damaged_blob(world: World) -> None:
    path = loose(world, f"HEAD:{MODEL}")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-20])
    oid = path.parent.name + path.name
    fsck_lists(world, damaged_blob, f"wtxtgit restore HEAD:{UP}{MODEL} -o x", oid)


def missing_commit(world: World) -> None:
    world.generation(2.0)
    path = loose(world, "HEAD^")
    path.unlink()
    oid = path.parent.name + path.name
    fsck_lists(world, missing_commit, "wtxtgit migrate export --everything", oid)


# What others do meanwhile, and what a clone lacks.


def with_an_unneeded_pack(world: World) -> None:
    """Send data of a commit that no branch has any more."""
    world.git("clone", "-q", "--bare", "--", str(world.path), str(bare(world)))
    world.git("remote", "add", "origin", bare(world).as_uri())
    committed(world)
    assert world.said("store", "use", there(world).as_uri())[0] == 0
    assert world.said("push")[0] == 0
    world.git("reset", "-q", "--hard", "HEAD^")
    world.git("reflog", "expire", "--expire=now", "--all")
    world.git("update-ref", "-d", "ORIG_HEAD")
    (world.path / HERE).mkdir()
    for pack in there(world).iterdir():
        os.utime(pack, (0, 0))


def refs_that_change_meanwhile(world: World) -> None:
    """Somebody pushes a branch once the refs were listed."""
    with_an_unneeded_pack(world)
    pushed = shlex.quote(str(bare(world) / "refs/heads/new"))
    script = f'#!/bin/sh\ngit-upload-pack "$@"\n[ -e {pushed} ] || echo {world.head} >{pushed}\n'
    world.write("serve", script).chmod(0o755)
    world.git("config", "remote.origin.uploadpack", str(world.path / "serve"))
    command = "wtxtgit store prune --remote --force"
    finding = Finding(world, refs_that_change_meanwhile, command)
    assert finding.hint == "run it again"
    assert "1 pack" in finding.ends()


def a_clone_that_lacks_files(world: World) -> None:
    with_an_unneeded_pack(world)
    world.git("--git-dir", str(bare(world)), "config", "uploadpack.allowFilter", "true")
    lacking = ("--filter=blob:none", "--no-checkout")
    world.git("clone", "-q", *lacking, "--", bare(world).as_uri(), str(world.path / "part"))
    command = "wtxtgit store prune --remote"
    part = f"git config wtxtgit.store {shlex.quote(there(world).as_uri())}"
    finding = Finding(world, a_clone_that_lacks_files, f"cd ../part && {part} && {command}")
    assert finding.hint == "run it in a complete clone"
    finding.ends(command=command)


FOLLOWED = [
    ('eval "$(ssh-agent)" starts one', an_agent),
    ("ssh-add FILE adds a key", a_key_for_the_agent),
    (
        "ssh-add -l lists fingerprints; agent:SHA256:... chooses a key",
        one_key_of_the_agent,
    ),
    (
        "ssh-add it and use --key agent:, or remove the passphrase with ssh-keygen -p",
        key_with_a_passphrase_of_openssh,
    ),
    ("install git 2.31 or later", no_git),
    ("install git {} or later", old_git),
    ("wtxtgit install sets up git, which alone runs this command", only_git_runs_it),
    ("install it for the interpreter {}", not_installed),
    ("install wtxtgit again for this interpreter", a_module_is_broken),
    ("wtxtgit doctor lists what is broken", a_module_can_not_be_loaded),
    (
        "wtxtgit doctor --fix removes the lock, if no process holds it",
        a_lock_that_a_crash_left,
    ),
    ("rm -- {} removes it, if a git process crashed earlier", a_config_that_a_crash_left_locked),
    ("export HOME=FOLDER, or use --local for this repository alone", no_home),
    ("mkdir -p -- {}", no_folder_for_the_config),
    ("{}, if you trust what is in it", repository_of_another_user),
    ("date shows what it says; set it to the right time", clock_beyond_all_records),
    ("ulimit -u shows how many a user may have", no_more_threads),
    ("ulimit -v shows how much address space a process may use", no_more_address_space),
    (
        "ulimit -v shows how much address space a process may use",
        no_more_address_space_for_a_library,
    ),
    ("export TMPDIR=FOLDER chooses another folder", no_room_in_the_temporary_folder),
    ("run it again", refs_that_change_meanwhile),
    ("run it in a complete clone", a_clone_that_lacks_files),
    ("git fsck --full", another_tree),
    ("git fsck --full", another_blob),
    ("git fsck --full", damaged_blob),
    ("git fsck --full", missing_commit),
]
HINTS = {follow: hint for hint, follow in FOLLOWED}


@needs_agent
@pytest.mark.parametrize("follow", HINTS, ids=[follow.__name__ for follow in HINTS])
def test_it_ends_what_it_speaks_of(follow: Callable[[World], None], world: World) -> None:
    follow(world)
