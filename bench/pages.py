"""How soon the HTML pages answer in a headless Chromium: from an input event to the next frame."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bench.measure import WTXTGIT, Against, BenchError, Place, Row, Sample, Subject, command, rows
from tests.browser.chromium import Tab, chromium, installed

TENSORS = 3000
NAME = "model.safetensors"
WORD = "layers.17. w"
RUNS = 5
"""At least so many, of what takes some hundredths of a second."""
_LIMIT = "100 ms"
_END, _DOWN, _ESCAPE, _ENTER = "\ue010", "\ue015", "\ue00c", "\ue007"
"""Keys, as WebDriver spells them."""
_WATCH = """
const [kind] = arguments;
window.answered = new Promise((done) => {
  addEventListener(kind, (event) => requestAnimationFrame(() => {
    // A task that is queued before the frame is made is done after it.
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now() - event.timeStamp);
    channel.port2.postMessage(0);
  }), { capture: true, once: true });
});
"""


def pages(place: Place, runs: int) -> list[Row]:
    """The slowest answer of each turn, on a page of each kind with 3,000 tensors.

    A turn of "filter" types a word letter by letter and takes it back, one of
    "sort" sorts by each column in both orders, one of "keys" goes to the last
    line and to the next ones.
    """
    try:
        installed()
    except AssertionError as error:
        raise BenchError(str(error)) from error
    made = _made(place)
    turns = {"filter": _filter, "sort": _sort, "keys": _keys}
    series: dict[str, list[Sample]] = {_LIMIT: [Sample(0.1)] * max(runs, RUNS)}
    with chromium(place.folder("chromium")) as tab:
        tab.emulate(width=1600, height=1000)
        for kind, page in made.items():
            for verb, turn in turns.items():
                # A page that was never touched in each turn, as whoever opens it has it.
                samples = []
                for _ in range(max(runs, RUNS)):
                    tab.open(page)
                    samples.append(Sample(max(turn(tab)) / 1000))
                series[f"{kind}, {verb}"] = samples
    subjects = [Subject(_LIMIT), *_subjects(series)]
    return rows(subjects, series)[1:]


def _subjects(names: Iterable[str]) -> Iterator[Subject]:
    for name in names:
        if name != _LIMIT:
            yield Subject(name, against=(Against(_LIMIT, 1),), note=f"{TENSORS:,} rows")


def _filter(tab: Tab) -> Iterator[float]:
    tab.find("#filter").click()
    for letter in WORD:
        yield _answer(tab, "input", letter)
    yield _answer(tab, "keydown", _ESCAPE)


def _sort(tab: Tab) -> Iterator[float]:
    buttons = tab.run("return document.querySelectorAll('.rows thead button').length")
    for n in range(buttons):
        tab.run("document.querySelectorAll('.rows thead button')[arguments[0]].focus()", n)
        for _ in range(2):
            yield _answer(tab, "click", _ENTER)


def _keys(tab: Tab) -> Iterator[float]:
    tab.run("document.querySelector('.rows tbody a').focus()")
    for key in (_DOWN, _END, _DOWN):
        yield _answer(tab, "keydown", key)


def _answer(tab: Tab, event: str, key: str) -> float:
    """Milliseconds from the event that a key press makes to the end of the frame that follows."""
    tab.run(_WATCH, event)
    tab.press(key)
    taken = tab.answered("answered.then(arguments[0])")
    return float(taken)


def _made(place: Place) -> dict[str, Path]:
    """A page of each kind, which the commands made."""
    repo = place.folder("pages")
    command(place, "git", "init", "-q", "-b", "main", repo)
    command(place, *WTXTGIT, "install", "--local", cwd=repo)
    command(place, *WTXTGIT, "track", NAME, cwd=repo)
    for number in (1, 2):
        rng = np.random.default_rng(number)
        names = (f"model.layers.{n // 10}.experts.{n % 10}.w" for n in range(TENSORS))
        save_file({name: rng.standard_normal((8, 6), np.float32) for name in names}, repo / NAME)
        command(place, "git", "add", ".", cwd=repo)
        command(place, "git", "commit", "-q", "-m", str(number), cwd=repo)
    asked = {
        "inspect": (NAME, "--html"),
        "diff": (f"HEAD~1:{NAME}", f"HEAD:{NAME}", "--html"),
        "review": ("HEAD~1...HEAD", "--format", "html", "-o"),
        "history": (NAME, "--html"),
    }
    made = {}
    for word, arguments in asked.items():
        made[word] = place.top / f"{word}.html"
        command(place, *WTXTGIT, word, *arguments, made[word], cwd=repo)
    shutil.rmtree(repo)
    return made
