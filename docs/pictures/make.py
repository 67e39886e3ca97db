"""The pictures of the pages: `make pictures`. Terminals by rich, pages by a headless Chromium.

They show a branch that tunes the last layer of a small model, and breaks two of its tensors.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

import wtxtgit
from tests.browser.chromium import SCREENSHOTS, chromium

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
COLUMNS = 132
_ELSEWHERE = re.compile(r"\s*@font-face \{.*?\}|<!-- Generated.*?-->", re.DOTALL)
"""What rich's SVG would fetch from elsewhere, or only names."""


def _shell(command: str, folder: Path) -> str:
    """What a terminal shows of a command."""
    controller, terminal = pty.openpty()
    names = ("HOME", "PATH", "TERM", "COLUMNS", "GIT_CONFIG_NOSYSTEM", "GIT_PAGER")
    values = (folder.parent, f"{BIN}:{os.environ['PATH']}", "xterm-256color", COLUMNS, 1, "cat")
    environment = dict(zip(names, map(str, values), strict=True))
    words = ["sh", "-c", f"stty cols {COLUMNS} 2>/dev/null; {command}"]
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(controller)
    if process.returncode:
        raise SystemExit(f"{command}:\n{shown.decode()}")
    return shown.decode().replace("\r\n", "\n")


def _terminal(name: str, command: str, folder: Path) -> None:
    """Write what a terminal shows of a command as a picture."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text("$ " + command, "bold"))
        # Progress is not what the picture is about.
        console.print(Text.from_ansi(_shell(f"{command} 2> /dev/null", folder)))
        svg = console.export_svg(title="", unique_id=name)
    drawn = _ELSEWHERE.sub("", svg).replace("Fira Code", "monospace")
    (HERE / f"{name}.svg").write_text(drawn)


def _page(name: str, page: Path, width: int, height: int) -> None:
    """Write the top of a page as a picture."""
    profile = page.parent / "chromium"
    profile.mkdir()
    with chromium(profile) as tab:
        tab.emulate(width=width, height=height)
        tab.open(page)
        tab.run("document.documentElement.style.scrollbarWidth = 'none'")
        tab.screenshot(name)
    shutil.copy(SCREENSHOTS / f"{name}.png", HERE)


def _train(path: Path, step: int) -> None:
    """A small model of four layers, or the same after another step."""
    rng = np.random.default_rng(7)
    weights = {"embed.weight": rng.standard_normal((256, 64), "f4")}
    for layer in range(4):
        for part in ("q", "k", "v", "o"):
            values = rng.standard_normal((64, 64), "f4") / 8
            weights[f"layers.{layer}.attn.{part}_proj.weight"] = values
        weights[f"layers.{layer}.mlp.weight"] = rng.standard_normal((128, 64), "f4") / 8
    if step == 2:
        for part in ("q", "k", "v", "o"):
            values = weights[f"layers.3.attn.{part}_proj.weight"]
            values += rng.standard_normal(values.shape, "f4") * 0.005
        weights["layers.3.attn.v_proj.weight"][:] = 0
        weights["layers.3.mlp.weight"][17, 5] = np.nan
    wtxtgit.dump(weights, path)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        folder.mkdir()
        _shell(
            "git config --global user.name Alice; git config --global user.email a@example.com;"
            "git config --global init.defaultBranch main; git init -q;"
            "wtxtgit install --local --hooks; wtxtgit track '*.safetensors';"
            "wtxtgit key new --name alice --no-passphrase; wtxtgit signers add a@example.com alice",
            folder,
        )
        for step, name in ((1, "main"), (2, "tuned")):
            _shell(f"git checkout -q -B {name}", folder)
            _train(folder / "model.safetensors", step)
            _shell(f"git add . && wtxtgit seal --staged && git commit -q -m 'step {step}'", folder)
        _shell("git config wtxtgit.trustRoot main", folder)
        _terminal("diff", "git diff main -- model.safetensors", folder)
        _terminal("review", "wtxtgit review main", folder)
        page = folder / "review.html"
        _shell("wtxtgit review main --format html -o review.html", folder)
        _page("review-page", page, 1000, 500)


if __name__ == "__main__":
    main()
