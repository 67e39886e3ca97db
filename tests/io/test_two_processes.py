"""Tasks that two processes share: the same results whatever becomes of the other one.

Each runs in a process of its own: the one that runs the tests has threads.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import os
from wtxtgit.io.two_processes import can_be_forked, results

here = os.getpid()
SIZES = [0, 1, 100_000, 3 * 2**20, 2**21, 2**21 + 1, 5] * 6

def content(number):
    return bytes([number % 251]) * SIZES[number]

def made(number):
    data = memoryview(content(number))
    return data[:7], data[7:]

def tasks(task=made):
    for number in range(len(SIZES)):
        yield lambda number=number: task(number)

assert can_be_forked()
"""
CHECK = """
for number, blocks in enumerate(results(lambda: tasks(task))):
    assert b"".join(blocks) == content(number), number
assert number == len(SIZES) - 1
"""
FAILING = """
given = []
try:
    for blocks in results(lambda: tasks(task)):
        given.append(b"".join(blocks))
except KeyError as error:
    (failed,) = error.args
    print(failed, len(given), given == [content(number) for number in range(failed)])
"""
ENDED = """
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("alone")
"""
WITHOUT_OTHER = """
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if os.getuid() == 0:
    # The limit is none for root.
    os.setresuid(65534, 65534, 65534)
try:
    os.fork() or os._exit(0)
except BlockingIOError:
    print("alone")
"""


def run(script: str) -> str:
    argv = (sys.executable, "-c", HEAD + script)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


FAILS = """
def task(number):
    assert os.getpid() == here
    return made(number)
"""
IS_KILLED = """
def task(number):
    if number == 5 and os.getpid() != here:
        os.kill(os.getpid(), 9)
    return made(number)
"""


@pytest.mark.parametrize("task", ["task = made", FAILS, IS_KILLED])
def test_the_results_are_those_of_one_process(task: str) -> None:
    run(f"{task}\n{CHECK}")


def test_both_work() -> None:
    script = """
who = [bytes(blocks[0]) for blocks in results(
    lambda: (lambda: (memoryview(b"%d" % os.getpid()),) for _ in range(64)))]
print(len(who), len({*who, b"%d" % here}))
"""
    assert run(script) == "64 2\n"


def test_an_error_of_what_is_done_ahead_is_raised_in_its_turn() -> None:
    """The other process goes on only once this one has failed at a later task."""
    script = """
wait, go = os.pipe()

def task(number):
    if number == 2 and os.getpid() != here:
        os.read(wait, 1)
    if number == 6:
        os.write(go, b"1")
        raise KeyError(number)
    return made(number)
"""
    assert run(f"{script}\n{FAILING}") == "6 6 True\n"


def test_an_error_is_raised_in_its_turn_and_the_other_process_ends() -> None:
    script = """
def task(number):
    if number == 9:
        raise KeyError(number)
    return made(number)
"""
    assert run(f"{script}\n{FAILING}\n{ENDED}") == "9 9 True\nalone\n"


def test_who_stops_early_leaves_no_process() -> None:
    script = """
shared = results(tasks)
next(shared)
shared.close()
"""
    assert run(f"{script}\n{ENDED}") == "alone\n"


def test_ended_processes_are_not_kept_for_who_started_them() -> None:
    ignored = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    run(f"{ignored}\ntask = made\n{CHECK}")


def test_no_other_process_is_to_be_had() -> None:
    assert run(f"{WITHOUT_OTHER}\ntask = made\n{CHECK}") == "alone\n"


# Descriptors 0 to 2 are open, so there are none for a pipe, or for half of what it takes.
LIMITS = [
    ("RLIMIT_NOFILE", "3"),
    ("RLIMIT_NOFILE", "5"),
    ("RLIMIT_AS", "2**22 + 4096 * int(open('/proc/self/statm').read().split()[0])"),
]


@pytest.mark.parametrize(("name", "limit"), LIMITS, ids=["pipe", "other-pipe", "memory"])
def test_there_is_nothing_to_share_results_with(name: str, limit: str) -> None:
    script = f"""
import resource
SIZES = [5, 1000] * 6
before = resource.getrlimit(resource.{name})
resource.setrlimit(resource.{name}, ({limit}, before[1]))
task = made
{CHECK}
resource.setrlimit(resource.{name}, before)
print("first free:", os.dup(0))
"""
    assert run(script) == "first free: 3\n"


SENDS = """
import signal
forked = os.fork

def fork():
    process = forked()
    if {who}:
        os.kill(os.getpid(), signal.SIGINT)
    return process

os.fork = fork
task = made
try:
{check}
except KeyboardInterrupt:
    print("interrupted", os.getpid() == here)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("alone", os.getpid() == here)
"""


@pytest.mark.parametrize(
    ("who", "said"),
    [("process == 0", "alone True\n"), ("process", "interrupted True\nalone True\n")],
    ids=["other", "own"],
)
def test_a_signal_right_after_the_fork(who: str, said: str) -> None:
    check = CHECK.replace("\n", "\n    ")
    assert run(SENDS.format(who=who, check=check)) == said
