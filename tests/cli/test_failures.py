"""What goes wrong outside: every failure is one message, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import Command, Done
from tests.data import FIXTURES, VECTORS
from tests.kit import Repo, safetensors
from tests.kit.open_files import open_files
from tests.kit.refusals import REFUSED, is_possible, refuse

MODEL = FIXTURES / "plain" / "pair_v1.safetensors"
TEXT = VECTORS / "valid" / "layout_safetensors.wtxt"
NATIVE = VECTORS / "valid" / "row_blocking_2d.wtxt"
BIG = 400 * 1024 * 1024


def refused(done: Done, code: int) -> str:
    assert (done.code, done.out) == (code, b"")
    return done.complaint()


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"junk that is longer than sixteen bytes", b'a"b\x00\x1b\xff\n', "é層".encode()],
)
def test_restore_quotes_the_start_of_what_is_no_text(content: bytes, wtxtgit: Command) -> None:
    (wtxtgit.folder / "f.wtxt").write_bytes(content)
    shown = ascii(content[:16].decode("latin-1"))[1:-1].replace('"', '\\"')
    told = f'it starts with "{shown}"' if content else "it is empty"
    assert told in refused(wtxtgit("restore", "f.wtxt", "-o", "out"), 3)
    assert wtxtgit.names() == ["f.wtxt"]


@pytest.mark.parametrize("content", [b"x", b"junk that is longer than sixteen bytes"])
def test_verify_quotes_the_start_of_what_is_unknown(content: bytes, wtxtgit: Command) -> None:
    (wtxtgit.folder / "f").write_bytes(content)
    done = wtxtgit("verify", "f")
    assert (done.code, done.err) == (3, "")
    assert b'"%b"' % content[:16] in done.out


@pytest.mark.parametrize("magic", [b"WTXT 2\n", b"WTXT", b"wtxt 1\n", b"WTXT-DELTA 1 x\n"])
def test_another_magic_is_no_text(magic: bytes, wtxtgit: Command) -> None:
    (wtxtgit.folder / "f.wtxt").write_bytes(magic)
    done = wtxtgit("restore", "f.wtxt")
    assert done.code in (1, 3)
    done.complaint()
    assert wtxtgit.names() == ["f.wtxt"]


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect"])
def test_a_file_that_is_not_there(command: str, wtxtgit: Command) -> None:
    done = wtxtgit(command, "missing.wtxt")
    assert refused(done, 3) == "missing.wtxt: no such file or directory"


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect", "convert", "diff"])
def test_a_name_that_is_empty_is_none(command: str, wtxtgit: Command) -> None:
    """As of a variable of a script that was never set; it is not the current folder."""
    assert refused(wtxtgit(command, "", "x.npz"), 2) == "a file is expected, not an empty name"


@pytest.mark.parametrize(
    "arguments",
    [
        *(("seal",), ("log",), ("history",), ("status",), ("add",), ("checkout",), ("resolve",)),
        *(("repack",), ("reseal",), ("recover",), ("finalize",), ("attach",), ("taridx", "ls")),
        *(("ring", "ls"), ("convert", NATIVE), ("emit", NATIVE, "-o"), ("cat", NATIVE, "w", "-o")),
        *(("verify", NATIVE, "--wsum"), ("delta", "make", NATIVE, NATIVE, "-o")),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_an_empty_name_stands_for_no_folder(arguments: tuple[str, ...], wtxtgit: Command) -> None:
    """`seal ""` would seal all that is there."""
    assert refused(wtxtgit(*arguments, ""), 2) == "a file is expected, not an empty name"


@pytest.mark.skipif(not is_possible(), reason="this system's calls are not known: run it on Linux")
@pytest.mark.parametrize("command", ["add", "status", "seal"])
def test_a_file_in_a_repository_that_may_not_be_read(command: str, tracked: Repo) -> None:
    """It is no matter of usage."""
    name = "model.safetensors"
    tracked.write(name, safetensors(2.0)).chmod(0)
    done = tracked.wtxtgit(command, name, env={REFUSED: "rights"}, ok=[5])
    assert f"{name}: permission denied" in done.stderr.decode()


def test_a_number_is_called_one(wtxtgit: Command) -> None:
    said = refused(wtxtgit("history", "x", "-n", "many"), 2)
    assert said == "invalid value for '-n': 'many' is not a valid integer"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("restore", MODEL, "-o", "x"), f"{MODEL}: not a WTXT text, but a file (safetensors)"),
        (
            ("repack", NATIVE, "--compression", "none"),
            f"{NATIVE}: texts have no compression to change",
        ),
        (("convert", "empty", "x.npz"), "empty: not a known checkpoint: file is empty"),
        (("convert", "other", "x.npz"), "other: not a known checkpoint: file has no known magic"),
        (("convert", NATIVE, "x.npz"), f"{NATIVE}: a text of arrays, not of a checkpoint file"),
    ],
)
def test_another_kind_of_file_is_told(
    arguments: tuple[str | Path, ...], said: str, wtxtgit: Command
) -> None:
    (wtxtgit.folder / "empty").touch()
    (wtxtgit.folder / "other").write_bytes(b"other")
    assert refused(wtxtgit(*arguments), 3) == said


NO_SET = "a folder without an index that lists a checkpoint's files"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("verify", NO_SET),
        ("emit", "is a directory"),
        ("restore", "is a directory"),
        ("inspect", NO_SET),
    ],
)
def test_a_folder_is_no_file(command: str, said: str, wtxtgit: Command) -> None:
    (wtxtgit.folder / "d.wtxt").mkdir()
    assert refused(wtxtgit(command, "d.wtxt"), 3) == f"d.wtxt: {said}"


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect"])
def test_a_path_below_a_file_is_no_file(command: str, wtxtgit: Command) -> None:
    (wtxtgit.folder / "f").touch()
    assert refused(wtxtgit(command, "f/x.wtxt"), 3) == "f/x.wtxt: not a directory"


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect"])
def test_a_name_with_control_characters_is_escaped(command: str, wtxtgit: Command) -> None:
    assert "a\\x1b\\x0ab.wtxt: no such" in refused(wtxtgit(command, "a\x1b\nb.wtxt"), 3)


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect"])
def test_a_name_that_is_not_utf8_is_shown(command: str, wtxtgit: Command) -> None:
    name = os.fsdecode(b"\xff\xfe.wtxt")
    assert "no such file" in refused(wtxtgit(command, name), 3)
    (wtxtgit.folder / name).write_bytes(TEXT.read_bytes())
    options = ["-o", "out"] if command in ("emit", "restore") else []
    done = wtxtgit(command, name, *options)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command", [["emit", MODEL], ["restore", TEXT], ["restore", NATIVE]])
@pytest.mark.parametrize("place", ["f/out.npz", "missing/out.npz", "d.npz"])
def test_an_output_that_can_not_be_made_leaves_nothing(
    command: list[str], place: str, wtxtgit: Command
) -> None:
    (wtxtgit.folder / "f").touch()
    (wtxtgit.folder / "d.npz").mkdir()
    done = wtxtgit(*command, "-o", place)
    assert done.code in (3, 5)
    assert place in refused(done, done.code)
    assert wtxtgit.names() == ["d.npz", "f"]
    assert [p.name for p in (wtxtgit.folder / "d.npz").iterdir()] == []


def without_rights(wtxtgit: Command, *arguments: str | Path) -> Done:
    """Run the command with no right beyond those that files give."""
    refusal = partial(refuse, "rights")
    return wtxtgit(*arguments, env={REFUSED: "rights"}, preexec_fn=refusal)


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect"])
def test_a_file_that_may_not_be_read(command: str, wtxtgit: Command) -> None:
    path = wtxtgit.folder / "secret.wtxt"
    path.write_bytes(TEXT.read_bytes())
    path.chmod(0)
    done = without_rights(wtxtgit, command, "secret.wtxt")
    assert refused(done, 5) == "secret.wtxt: permission denied"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["emit", "restore"])
def test_a_folder_that_may_not_be_written(command: str, wtxtgit: Command) -> None:
    (wtxtgit.folder / "in.wtxt").write_bytes(TEXT.read_bytes())
    (wtxtgit.folder / "in.wtxt").chmod(0o644)
    (wtxtgit.folder / "locked").mkdir(mode=0o555)
    done = without_rights(wtxtgit, command, "in.wtxt", "-o", "locked/out")
    assert refused(done, 5) == "locked/out: permission denied"
    assert [p.name for p in (wtxtgit.folder / "locked").iterdir()] == []


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="there is no /dev/full here: run it on Linux"
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["emit", MODEL],
        ["restore", TEXT, "-o", "-"],
        ["verify", TEXT],
        ["verify", "--json", TEXT],
        ["inspect", MODEL],
        ["clean"],
        ["--help"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1])),
)
def test_a_full_disk_behind_standard_output(arguments: list[str], wtxtgit: Command) -> None:
    with Path("/dev/full").open("wb") as full:
        done = wtxtgit(*arguments, stdin=b"content", stdout=full)
    assert done.code == 5
    assert "no space left on device" in done.complaint()


def left_alone() -> None:
    """A parent that waits for none of its children, which inherit that."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def test_a_parent_that_ignores_its_children_hides_no_failure_of_git(repo: Repo) -> None:
    """The system then keeps no exit codes, and Python takes every one for 0."""
    repo.commit()
    command = Command(repo.path, repo.path.parent)
    done = command("inspect", "missing:file", preexec_fn=left_alone)
    assert "'missing' names nothing in this repository" in refused(done, 5)


def limited() -> None:
    """A disk that takes 4,096 bytes a file and no more."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize(
    "command", [["emit", MODEL], ["restore", "in.wtxt"], ["restore", NATIVE]], ids=lambda c: c[0]
)
def test_a_disk_that_fills_up_leaves_nothing(
    command: list[str], threads: str, wtxtgit: Command
) -> None:
    assert wtxtgit("emit", MODEL, "-o", "in.wtxt").code == 0
    (wtxtgit.folder / "out.npz").write_bytes(b"what was there before")
    done = wtxtgit(*command, "-o", "out.npz", env={"WTXTGIT_THREADS": threads}, preexec_fn=limited)
    assert refused(done, 5) == "out.npz: file too large"
    assert wtxtgit.names() == ["in.wtxt", "out.npz"]
    assert (wtxtgit.folder / "out.npz").read_bytes() == b"what was there before"


@pytest.mark.parametrize(
    "arguments",
    [
        ["emit", MODEL],
        ["restore", TEXT, "-o", "-"],
        ["verify", "--json", NATIVE],
        ["inspect", MODEL],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_reader_that_was_never_there(arguments: list[str], wtxtgit: Command) -> None:
    end, start = os.pipe()
    os.close(end)
    try:
        done = wtxtgit(*arguments, stdout=start)
    finally:
        os.close(start)
    assert (done.code, done.err) == (128 + signal.SIGPIPE, "")


def test_a_reader_that_leaves_after_one_byte(wtxtgit: Command) -> None:
    # More than a pipe has room for, or the command may have ended before the reader leaves.
    big_file(wtxtgit.folder, size=8 * 1024 * 1024)
    end, start = os.pipe()
    process = wtxtgit.start("emit", "big", stdout=start)
    os.close(start)
    assert os.read(end, 1) == b"W"
    os.close(end)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    "arguments", [["emit", MODEL], ["verify", TEXT], ["restore", TEXT, "-o", "-"]]
)
def test_standard_output_that_was_closed_before(arguments: list[str], wtxtgit: Command) -> None:
    done = wtxtgit(*arguments, preexec_fn=lambda: os.close(1))
    assert done.code == 5
    done.complaint()


def test_standard_error_that_was_closed_before(wtxtgit: Command) -> None:
    done = wtxtgit("verify", "missing", preexec_fn=lambda: os.close(2))
    assert (done.code, done.out, done.err) == (3, b"", "")


def big_file(folder: Path, name: str = "big", size: int = BIG) -> Path:
    """A large file that takes no room."""
    path = folder / name
    with path.open("wb") as file:
        file.truncate(size)
    return path


def until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "the command ended before it was interrupted"
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_file_is_written_takes_it_back(
    number: signal.Signals, wtxtgit: Command
) -> None:
    big_file(wtxtgit.folder)
    (wtxtgit.folder / "out.wtxt").write_bytes(b"what was there before")
    process = wtxtgit.start("emit", "big", "-o", "out.wtxt", stdout=subprocess.PIPE)

    def written() -> bool:
        # A file without a name, which the process has open: not our child, which asked for it.
        for _, link, name in open_files():
            with contextlib.suppress(OSError):
                if name.startswith(f"{wtxtgit.folder}/#") and link.stat().st_blocks:
                    return True
        return False

    until(written, process)
    # Twice, as impatient people do: the second one comes while the first is obeyed.
    process.send_signal(number)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    done = Done(process.returncode, out, err.decode())
    assert refused(done, 128 + number)
    assert wtxtgit.names() == ["big", "out.wtxt"]
    assert (wtxtgit.folder / "out.wtxt").read_bytes() == b"what was there before"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_pipe_is_written_ends_the_command(
    number: signal.Signals, wtxtgit: Command
) -> None:
    # More than a pipe has room for, or the command may have ended before the signal.
    big_file(wtxtgit.folder)
    process = wtxtgit.start("emit", "big", stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"W"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    done = Done(process.returncode, b"", err.decode())
    assert done.code == 128 + number
    done.complaint()


STUCK = """
import os, signal, sys
from wtxtgit.cli import boundary

def command():
    os.set_blocking(1, False)
    try:
        while True:
            os.write(1, bytes(4096))
    except BlockingIOError:
        os.set_blocking(1, True)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), int(sys.argv[1])))
    # Again and again: Python does not notice one that comes just before a call that waits.
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
    sys.stdout.write("what is left")
    sys.stdout.flush()

sys.exit(boundary.run(command))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_whose_output_nobody_reads(
    number: signal.Signals, wtxtgit: Command
) -> None:
    end, start = os.pipe()
    try:
        done = wtxtgit(prefix=[sys.executable, "-c", STUCK, str(int(number))], stdout=start)
    finally:
        os.close(start)
        os.close(end)
    assert done.code == 128 + number
    done.complaint()


FOREIGN = """
import os, sys
from wtxtgit.cli import boundary

def command():
    try:
        os.kill(os.getpid(), int(sys.argv[1]))
        while True:
            pass
    except BaseException:
        raise RuntimeError("what a callback raised") from None

sys.exit(boundary.run(command))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_code_that_makes_an_error_of_its_own_of_it(
    number: signal.Signals, wtxtgit: Command
) -> None:
    done = wtxtgit(prefix=[sys.executable, "-c", FOREIGN, str(int(number))])
    assert done.code == 128 + number
    done.complaint()


FOLD = FIXTURES / "fold/pair_zstd3_v1.fold"
OUTPUTS = {
    "emit": ("emit", FOLD),
    "restore": ("restore", "text.wtxt"),
    "make": ("delta", "make", FOLD, FIXTURES / "fold/pair_zstd3_v2.fold"),
    "repack": ("repack", FOLD, "--compression", "none"),
    "recover": ("recover", "--ecc", FIXTURES / "fold/none_rs16_flipped_a.fold"),
    "merge": ("merge-file", FOLD, FOLD, FIXTURES / "fold/pair_zstd3_v2.fold"),
    "build": ("taridx", "build", *sorted((FIXTURES / "taridx/enforced_a").glob("*.tar"))),
}


@pytest.mark.parametrize("arguments", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_may_be_a_pipe_or_a_device(
    wtxtgit: Command, arguments: tuple[str | Path, ...]
) -> None:
    assert wtxtgit("emit", FOLD, "-o", "text.wtxt").code == 0
    done = wtxtgit(*arguments, "-o", "file")
    assert done.code == 0
    content = (wtxtgit.folder / "file").read_bytes()
    assert wtxtgit(*arguments, "-o", "/dev/null").code == 0
    fifo = wtxtgit.folder / "fifo"
    os.mkfifo(fifo)
    with (wtxtgit.folder / "copy").open("wb") as copy:
        reader = subprocess.Popen(["cat", fifo], stdout=copy)
        assert wtxtgit(*arguments, "-o", "fifo").code == 0
        assert reader.wait(timeout=60) == 0
    assert (wtxtgit.folder / "copy").read_bytes() == content
    assert fifo.is_fifo()
    piped = wtxtgit(*arguments, "-o", "/dev/stdout", prefix=wtxtgit.argv())
    assert (piped.code, piped.out[: len(content)]) == (0, content)


def test_standard_output_that_is_a_file_is_written_on(wtxtgit: Command) -> None:
    out = wtxtgit.folder / "out"
    for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        out.write_bytes(b"before ")
        with out.open("ab") as file:
            argv = wtxtgit.argv("emit", FOLD, "-o", path)
            subprocess.run(argv, stdout=file, check=True, timeout=60, **wtxtgit.options())
        assert out.read_bytes() == b"before " + wtxtgit("emit", FOLD).out


@pytest.mark.parametrize("size", [4 * 1024 * 1024, 40 * 1024 * 1024], ids=["shorter", "longer"])
def test_a_file_that_changes_while_it_is_read_ends_the_command(size: int, wtxtgit: Command) -> None:
    path = wtxtgit.folder / "model"
    with path.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    process = wtxtgit.start("emit", "model", stdout=subprocess.PIPE)
    assert process.stdout is not None
    # It waits for us to read on, and has not read the file's end for the last time.
    assert process.stdout.read(1) == b"W"
    os.truncate(path, size)
    _, err = process.communicate(timeout=60)
    done = Done(process.returncode, b"", err.decode())
    assert done.code == 5
    assert "while it was read" in done.complaint()


@pytest.mark.parametrize("command", ["emit", "verify", "inspect", "restore"])
def test_a_file_that_can_not_be_read_is_named(command: str, wtxtgit: Command) -> None:
    # Nothing is mapped at its beginning: reading it fails as a broken disk does.
    done = wtxtgit(command, "/proc/self/mem", *(["-o", "out"] if command == "restore" else []))
    assert refused(done, 5) == "/proc/self/mem: input/output error"
    assert wtxtgit.names() == []


def test_a_pipe_and_a_device_are_read_to_their_end(wtxtgit: Command) -> None:
    fifo = wtxtgit.folder / "fifo"
    os.mkfifo(fifo)
    writer = subprocess.Popen(["sh", "-c", f"cat '{MODEL}' > '{fifo}'"])
    done = wtxtgit("emit", "fifo")
    assert writer.wait() == 0
    assert done.out == wtxtgit("emit", MODEL).out
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert wtxtgit("emit", "/dev/null").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["no-such-command"], 2),
        (["verify"], 2),
        (["emit"], 2),
        (["emit", "a", "b"], 2),
        (["restore"], 2),
        (["restore", "name-without-ending"], 2),
        (["inspect"], 2),
        (["verify", "--no-such-option", "x"], 2),
        (["clean", "a", "b"], 2),
        (["filter-process", "x"], 2),
    ],
)
def test_a_wrong_call_is_a_usage_error(arguments: list[str], code: int, wtxtgit: Command) -> None:
    done = wtxtgit(*arguments)
    assert done.code == code
    assert "Traceback" not in done.err
    if arguments:
        done.complaint()
    assert wtxtgit.names() == []


@pytest.mark.parametrize("command", ["verify", "emit", "restore", "inspect", "clean", "smudge"])
def test_help_is_given_on_standard_output(command: str, wtxtgit: Command) -> None:
    done = wtxtgit(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"Usage: wtxtgit " + command.encode())


@pytest.mark.parametrize(
    "path", sorted((VECTORS / "invalid").glob("*.wtxt"))[::12], ids=lambda path: path.name
)
def test_a_damaged_text_is_smudged_as_it_is_with_a_warning(path: Path, wtxtgit: Command) -> None:
    content = path.read_bytes()
    done = wtxtgit("smudge", "model.fold", stdin=content)
    assert (done.code, done.out) == (0, content)
    if content.startswith(b"WTXT "):
        lines = done.err.splitlines()
        assert lines[0].startswith("wtxtgit: warning: model.fold: ")
        assert all(line.startswith("wtxtgit: ") for line in lines)
