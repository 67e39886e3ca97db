"""Build the source package and of it the wheel, install each in a fresh environment, and use it;
then follow the hints that name a package.

Run by `make wheel`, after `make man`; with a folder as argument both packages are there afterwards.
Fails loudly if the wheel lacks what it has to hold or if the installed commands do not work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import package_hints
import yaml

PROJECT = Path(__file__).parents[2]
MAN = PROJECT / "build" / "man"
SAMPLE = PROJECT / "tests/data/fixtures/plain/pair_v1.safetensors"
HELD = (
    "wtxtgit/report/html/templates/page.css",
    "wtxtgit/report/html/templates/review.html",
    "wtxtgit/report/html/templates/page.js",
    "wtxtgit/share/gitattributes.template",
    "wtxtgit/share/hooks/pre-applypatch",
    "wtxtgit/share/hooks/pre-commit",
    "wtxtgit/share/hooks/pre-merge-commit",
    "wtxtgit/share/hooks/pre-push",
    "wtxtgit/py.typed",
)


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> bytes:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, check=False)
    if done.returncode:
        shown = " ".join(map(str, command))
        said = (done.stdout + done.stderr).decode(errors="replace")
        sys.exit(f"{shown} ended with {done.returncode}:\n{said}")
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="wtxtgit-wheel-") as folder:
        top = Path(folder)
        dist = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else top / "dist"
        # The wheel is built from the source package: that has all it takes.
        run(sys.executable, "-m", "build", "--outdir", dist, PROJECT, cwd=PROJECT)
        (wheel,) = dist.glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        pages = {Path(name).name for name in names if "/share/man/man1/" in name}
        missing = [name for name in HELD if name not in names]
        missing += {page.name for page in MAN.glob("*.1")} - pages
        foreign = [name for name in names if not name.startswith("wtxtgit")]
        if missing or foreign:
            sys.exit(f"the wheel lacks {missing} and holds {foreign}")

        home = top / "home"
        home.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
        (source,) = dist.glob("*.tar.gz")
        tasks = [partial(use, package, top / package.name, env) for package in (wheel, source)]
        tasks += [partial(run_install_step, top, env), partial(package_hints.follow, wheel, top)]
        # Beside one another: each mostly waits for pip.
        with ThreadPoolExecutor(len(tasks)) as pool:
            for done in [pool.submit(task) for task in tasks]:
                done.result()
        print(f"{wheel.name} and {source.name}: installed and used")


def use(package: Path, folder: Path, env: dict[str, str]) -> None:
    """Install a package with pip in an environment of its own, and put a checkpoint into git."""
    repo, made = folder / "repo", folder / "env"
    venv.create(made)
    bin_dir = made / "bin"
    pip = [sys.executable, "-m", "pip", "--python", bin_dir / "python", "install"]
    run(*pip, "-q", "--disable-pip-version-check", "--no-compile", package, cwd=folder)
    for program in ("wtxtgit", "git-wtxt"):
        run(bin_dir / program, "--version", cwd=folder, env=env)
    # Beside the environment's programs, where man looks for the pages of those.
    if not (made / "share/man/man1/wtxtgit-seal.1").is_file():
        sys.exit(f"{package.name}: the man pages were not installed")

    env = {**env, "PATH": f"{bin_dir}:{env['PATH']}"}
    run("git", "init", "-q", repo, cwd=folder, env=env)
    run("git", "wtxt", "install", cwd=repo, env=env)
    run("git", "wtxt", "track", "*.safetensors", cwd=repo, env=env)
    model = repo / "model.safetensors"
    model.write_bytes(SAMPLE.read_bytes())
    run("git", "add", ".", cwd=repo, env=env)
    stored = run("git", "cat-file", "blob", ":model.safetensors", cwd=repo, env=env)
    if not stored.startswith(b"WTXT 1\n"):
        sys.exit(f"{package.name}: git stores {stored[:32]!r} instead of a text")
    model.unlink()
    run("git", "checkout", "--", "model.safetensors", cwd=repo, env=env)
    if model.read_bytes() != SAMPLE.read_bytes():
        sys.exit(f"{package.name}: the checkout differs from the file that was added")


def run_install_step(top: Path, env: dict[str, str]) -> None:
    """Install as the action does, from its own folder."""
    steps = yaml.safe_load((PROJECT / "action.yml").read_text())["runs"]["steps"]
    (script,) = [step["run"] for step in steps if step["name"] == "Install wtxtgit"]
    temp = top / "runner"
    temp.mkdir()
    # A name that the interpreter would look for in the folder where it is started.
    (temp / "venv.py").write_text("raise SystemExit('taken from the checkout')\n")
    told = {"RUNNER_TEMP": str(temp), "GITHUB_ACTION_PATH": str(PROJECT)}
    run("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script, cwd=temp,
        env={**os.environ, "PATH": env["PATH"], **told})  # fmt: skip
    run(temp / "wtxtgit/bin/python", "-I", "-m", "wtxtgit", "audit", "--help", cwd=temp, env=env)


if __name__ == "__main__":
    main()
