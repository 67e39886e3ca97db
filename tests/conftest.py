"""An isolated home, real git, and repositories to work in."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings

from tests.kit import CONFIG, LAUNCHER, Repo, changes, safetensors
from tests.kit.starts import PYTHON, TRUE_START, WTXTGIT, served
from tests.kit.templates import Templates
from wtxtgit.cli.boundary import COLLECTED
from wtxtgit.git import run

# Timings are never judged, and what is tried is the same in every run, so that a
# failure is one of the change at hand; WTXTGIT_EXPLORE=1 looks for new cases.
EXPLORE = "WTXTGIT_EXPLORE"
_EXPLORES = bool(os.environ.get(EXPLORE))
settings.register_profile(
    "wtxtgit", max_examples=100 if _EXPLORES else 30, deadline=None, derandomize=not _EXPLORES
)
settings.load_profile("wtxtgit")

_CONFIG = f"""\
{CONFIG}[commit]
\tgpgSign = false
"""


# A shell has what it starts in the background ignore the one, nohup the other, and so would all
# that tests start.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage, which would look at all tests again and again.

    They stay to the end, so it leaves them aside from then on, too, and looks as seldom as it does
    in commands.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of which a sample is enough, unless one is asked for by name."""
    if config.getoption("keyword") or any("::" in str(one) for one in config.args):
        return
    marked = [(item, item.get_closest_marker("sampled")) for item in items]
    left = [
        item for item, mark in marked if mark and not changes.is_chosen(*mark.args, item.nodeid)
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in {*left}]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many mutants ran, and why, where there were some."""
    passed = terminalreporter.getreports("passed")
    if any("test_many_mutants" in report.nodeid for report in passed):
        for line in changes.told([*changes.PACKAGES, changes.TEXT, changes.TRUST]):
            terminalreporter.write_line(line)
        for line in changes.told_of_sampled():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def _forked_starts() -> Iterator[None]:
    """Processes of the command are forked from one that has imported it."""
    with served():
        yield


@pytest.fixture(scope="session", autouse=True)
def _nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs outside of a test finds a home where nothing is, and may leave nothing there."""
    folder = tmp_path_factory.mktemp("nobody")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
        patch.setenv("XDG_STATE_HOME", str(folder / ".local/state"))
        yield
    left = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    assert left == [], "a fixture or a process of the whole session wrote into its home"


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def home(homes: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A home of its own, with a user and nothing else configured."""
    # The factory's own folders are numbered by looking at all that there are: in thousands
    # of tests that takes milliseconds each.
    folder = Path(mkdtemp(dir=homes))
    for name in [name for name in os.environ if name.startswith(("GIT_", "WTXTGIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / ".local/state"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_ATTR_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TERMINAL_PROMPT", "0")
    if request.node.get_closest_marker("true_start"):
        monkeypatch.setenv(TRUE_START, "1")
    else:
        # What `install` writes down, which tests call in this process too.
        monkeypatch.setattr(sys, "executable", PYTHON)
    (folder / ".gitconfig").write_text(_CONFIG)
    return folder


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def repo(templates: Templates, tmp_path: Path) -> Repo:
    """An empty repository, without the driver."""
    return Repo(templates.copy("empty", _make_empty, tmp_path / "repo"))


def _make_empty(folder: Path) -> None:
    folder.mkdir()
    Repo(folder).git("init", "-q")
    # Git's examples would be copied each time.
    for example in (folder / ".git/hooks").glob("*.sample"):
        example.unlink()


@pytest.fixture(scope="session")
def driver_config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What git writes for the driver: made once, each of its settings is a process."""
    file = tmp_path_factory.mktemp("driver") / "config"
    for key, value in LAUNCHER.values().items():
        run.git("config", "--file", os.fsencode(file), key, value)
    return file.read_text()


@pytest.fixture
def driver(home: Path, driver_config: str) -> None:
    """The driver in the global config, as install sets it."""
    with (home / ".gitconfig").open("a") as file:
        file.write(driver_config)


@pytest.fixture
def tracked(repo: Repo, driver: None) -> Repo:
    """A repository with the driver and model.safetensors, tracked and committed."""
    repo.track("*.safetensors")
    repo.write("model.safetensors", safetensors(1.0, 2.0, 3.0))
    repo.add()
    repo.commit()
    return repo


@pytest.fixture
def command() -> Path:
    """The installed command's path."""
    return WTXTGIT
