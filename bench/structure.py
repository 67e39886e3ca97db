"""`make structure`: how much of the code a reader has to know, counted.

- circles: modules that import one another, straight or around, and modules whose
  import leads back to themselves through the packages that they are in;
- formats from outside: imports of one container format by anything but the
  registry of formats;
- class names that mean several things;
- modules that the four journeys of `docs/architecture.md` enter: functions of them
  run, or classes are made, from a command's start to its end;
- modules, lines and statements.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp
import numpy as np

import wtxtgit
from bench.measure import PYTHON, WTXTGIT, BenchError, Place
from bench.start import GREETING

PACKAGE = Path(wtxtgit.__file__).parent
FORMATS = f"{PACKAGE.name}.containers"
REGISTRY = f"{FORMATS}.registry"

_TRACER = """
import inspect, json, sys, threading
entered, walked, importing = {}, {}, 0
def trace(frame, event, _):
    global importing
    name, code = frame.f_globals.get("__name__", ""), frame.f_code
    if code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and name.startswith("wtxtgit"):
        entered.setdefault(name)
        # Not what runs only so that a module can be imported, bodies of classes among it.
        if not importing and code.co_flags & inspect.CO_OPTIMIZED:
            walked.setdefault(name)
out, sys.argv = sys.argv[1], ["wtxtgit", *sys.argv[2:]]
threading.setprofile(trace)
sys.setprofile(trace)
from wtxtgit.__main__ import main
try:
    main()
finally:
    sys.setprofile(None)
    with open(out, "w") as file:
        loaded = sum(name.startswith("wtxtgit") for name in sys.modules)
        json.dump([sorted(entered), list(walked), loaded], file)
"""


@dataclass(frozen=True)
class Journey:
    """The modules of which a command runs functions or makes classes, and how many it loads.

    `walked` are those of which it runs functions, in the order in which it comes to them.
    """

    entered: tuple[str, ...]
    walked: tuple[str, ...]
    loaded: int

    @property
    def rooms(self) -> str:
        """Which rooms the modules entered are in, most of them first."""
        counts = Counter(f"{name}.".split(".")[1] or name for name in self.entered)
        return ", ".join(f"{room} {count}" for room, count in counts.most_common())


@dataclass(frozen=True)
class Structure:
    """What the code is like; names are those of modules and classes."""

    modules: int
    lines: int
    statements: int
    circles: tuple[str, ...]
    formats_from_outside: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]]
    journeys: Mapping[str, Journey]


def structure() -> Structure:
    """Read the package, and take the four journeys."""
    files = sorted(PACKAGE.rglob("*.py"))
    sources = [file.read_text("utf-8") for file in files]
    by_file = dict(zip(files, sources, strict=True))
    graph = grimp.build_graph(PACKAGE.name, cache_dir=None)
    return Structure(
        modules=len(files),
        lines=sum(source.count("\n") for source in sources),
        statements=sum(isinstance(n, ast.stmt) for s in sources for n in ast.walk(ast.parse(s))),
        circles=tuple(sorted({*in_circles(graph), *in_circles(with_packages(by_file))})),
        formats_from_outside=tuple(sorted(formats_from_outside(graph))),
        class_names=shared_class_names(by_file),
        journeys=journeys(),
    )


def in_circles(graph: grimp.ImportGraph) -> Iterator[str]:
    """Modules from which imports lead back to themselves, those within functions included."""
    for module in graph.modules:
        if any(
            module in graph.find_upstream_modules(imported) | {imported}
            for imported in graph.find_modules_directly_imported_by(module)
        ):
            yield module


def with_packages(sources: Mapping[Path, str]) -> grimp.ImportGraph:
    """What runs when a module is imported: its packages, and its imports outside of functions."""
    names = {_module_name(file): source for file, source in sources.items()}
    graph = grimp.ImportGraph()
    for name in names:
        graph.add_module(name)
    for name, source in names.items():
        imported: set[str] = set()
        for node in _at_import(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        if imported:  # a module that needs nothing needs nothing of its packages either
            imported |= {package for package in names if name.startswith(f"{package}.")}
        for other in imported & names.keys():
            graph.add_import(importer=name, imported=other)
    return graph


def _module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs of a module when it is imported: not functions, nor what types alone need."""
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not is_for_types and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _at_import(child)


def formats_from_outside(graph: grimp.ImportGraph) -> Iterator[str]:
    """Imports of a format's package by modules that are neither in it nor the registry."""
    packages = {m for m in graph.find_children(FORMATS) if graph.find_children(m)}
    for package in packages:
        for module in {package} | graph.find_descendants(package):
            for importer in graph.find_modules_that_directly_import(module):
                inside = importer == package or importer.startswith(f"{package}.")
                if not inside and importer != REGISTRY:
                    yield f"{importer} -> {module}"


def shared_class_names(sources: Mapping[Path, str]) -> dict[str, tuple[str, ...]]:
    """Names, leading underscores aside, that classes of several modules have."""
    places: dict[str, list[str]] = {}
    for file, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                places.setdefault(name, []).append(str(file.relative_to(PACKAGE)))
    return {name: tuple(where) for name, where in sorted(places.items()) if len(where) > 1}


def journeys() -> dict[str, Journey]:
    """Take each journey, in a repository made for it."""
    with tempfile.TemporaryDirectory(prefix="wtxtgit-structure-") as folder:
        place = Place(Path(folder))
        for name in ("home", "tmp", "repository"):
            place.folder(name)
        return _journeys(place)


def _journeys(place: Place) -> dict[str, Journey]:
    repository = place.top / "repository"

    def run(*command: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            command, cwd=repository, env=place.env, input=stdin, capture_output=True, check=False
        )
        if done.returncode:
            raise BenchError(f"{' '.join(command)}: {done.stderr.decode()}")
        return done.stdout

    def taken(*arguments: str, stdin: bytes = b"") -> Journey:
        out = place.top / "entered.json"
        run(PYTHON, "-c", _TRACER, str(out), *arguments, stdin=stdin)
        entered, walked, loaded = json.loads(out.read_text())
        return Journey(tuple(entered), tuple(walked), loaded)

    run("git", "init", "-q", "-b", "main")
    run(*WTXTGIT, "install")
    run(*WTXTGIT, "track", "*.safetensors")
    run(*WTXTGIT, "key", "new", "--name", "key", "--no-passphrase")
    run(*WTXTGIT, "signers", "add", "a@example.com", "key")
    base, ours, theirs = (_checkpoint(changed) for changed in (None, 0, 1))
    for content in (base, ours):
        (repository / "m.safetensors").write_bytes(content)
        run("git", "add", "-A")
        run(*WTXTGIT, "seal", "--staged")
        run("git", "commit", "-q", "-m", "generation")
    root = run("git", "rev-list", "--max-parents=0", "HEAD").decode().strip()
    for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
        (place.top / f"{name}.safetensors").write_bytes(content)
        (place.top / f"{name}.wtxt").write_bytes(run(*WTXTGIT, "clean", stdin=content))
    texts = [str(place.top / f"{name}.wtxt") for name in ("base", "ours", "theirs")]
    files = [str(place.top / f"{name}.safetensors") for name in ("base", "ours")]
    return {
        "clean": taken("filter-process", stdin=GREETING + _request(base)),
        "audit": taken("audit", "--no-cache", "--trust-root", root),
        "merge": taken("merge-driver", *texts, "7", "m.safetensors"),
        "diff": taken("diff", *files),
    }


def _request(content: bytes) -> bytes:
    """What git asks of a filter when a file is added: gitattributes(5)."""
    packets = b"command=clean\n", b"pathname=m.safetensors\n", None, content, None
    return b"".join(b"0000" if p is None else b"%04x%b" % (len(p) + 4, p) for p in packets)


def _checkpoint(changed: int | None) -> bytes:
    """A safetensors file of two tensors, one of them with a row of its own."""
    values = np.random.default_rng(0).normal(size=(2, 64, 64)).astype("<f4")
    if changed is not None:
        values[changed, 3] += 1
    spans = {
        name: [n * values[0].nbytes, (n + 1) * values[0].nbytes] for n, name in enumerate("ab")
    }
    header = json.dumps(
        {n: {"dtype": "F32", "shape": [64, 64], "data_offsets": s} for n, s in spans.items()}
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + values.tobytes()


def main() -> None:
    found = structure()
    print(f"{found.modules} modules, {found.lines} lines, {found.statements} statements")
    for title, names in (
        ("in circles of imports", found.circles),
        ("formats imported from outside", found.formats_from_outside),
        (
            "class names of several modules",
            [f"{name}: {', '.join(where)}" for name, where in found.class_names.items()],
        ),
    ):
        print(f"{title}: {len(names)}")
        for name in names:
            print(f"    {name}")
    for name, journey in found.journeys.items():
        count = f"{len(journey.entered)} modules entered"
        print(f"{name}: {count}, {journey.loaded} loaded: {journey.rooms}")
        if "-v" in sys.argv:
            print("    " + " ".join(journey.entered))


if __name__ == "__main__":
    main()
