"""Doctor: checks whether everything that wtxtgit relies on is in order, and repairs.

Each check looks at one thing and returns one finding, with advice.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module, metadata

from wtxtgit.containers import any_format, registry
from wtxtgit.errors import (
    ADDRESS_SPACE,
    EnvironmentFailure,
    WtxtgitError,
    counted,
    lacks_room,
    why_unloaded,
)
from wtxtgit.filter.process import FilterSettings
from wtxtgit.filter.status import (
    FileStatus,
    State,
    StoredForms,
    filtered_here_alone,
    status,
    stored_forms,
    tracked,
    unfiltered_texts,
)
from wtxtgit.git import index, locks, run, staging, work_tree
from wtxtgit.git.attributes import FILE_NAME, quote
from wtxtgit.git.index import TreeEntry
from wtxtgit.git.repository import DRIVER, FILTERS, UNSET, Repository
from wtxtgit.git.store.reader import blob_heads, without_blob
from wtxtgit.git.trees import MODE_LINK
from wtxtgit.io.files import view_file
from wtxtgit.io.progress import Progress, expect, finish_file
from wtxtgit.remotes.payload import branch_data
from wtxtgit.setup import diagnosis, install, leftovers, sizes, starting, track
from wtxtgit.setup.diagnosis import (
    CheckResult,
    Diagnosis,
    Level,
    arguments,
    arguments_here,
    counted_files,
    distinct,
    listed,
    shown,
)
from wtxtgit.text import grammar

MODULES = {
    "numpy": "numpy",
    "click": "click",
    "isal": "isal.isal_zlib",
    "pybase64": "pybase64",
    "crc32c": "crc32c",
    "pynacl": "nacl.signing",
    "blake3": "blake3",
    "xxhash": "xxhash",
    "zstandard": "zstandard",
    "msgpack": "msgpack",
    "pyrage": "pyrage",
    "pygit2": "pygit2",
    "reedsolo": "reedsolo",
    "rich": "rich.console",
    "jinja2": "jinja2",
    "markupsafe": "markupsafe",
    "cryptography": "cryptography.hazmat.primitives.ciphers.aead",
}
"""Distributions that wtxtgit needs, and a module of each that shows that it works."""
LFS_DRIVER = b"lfs"
"""The filter of git-lfs in gitattributes files."""
_HOUR = 3600

if sys.version_info < (3, 14):
    MODULES["backports.zstd"] = "backports.zstd"


_Check = Callable[[], Sequence[CheckResult]]
"""Runs one check, or several that need the same facts."""


def examine(repo: Repository | None, progress: Progress | None = None) -> Diagnosis:
    """Check the installation, and the repository if there is one.

    `progress` counts checks as files.
    """
    configured = _result_or_error("driver", lambda: starting.configured(repo))
    pending: list[_Check] = [
        _guarded_check("git", _git_version),
        _guarded_check("python", _modules),
        lambda: [configured],
    ]
    # The driver is not started if it is not set up, or was set up by somebody else.
    if configured.level is Level.OK:
        pending.append(_guarded_check("start", lambda: starting.starts(repo)))
    if repo is not None and not repo.is_bare:
        pending += _repository_checks(repo)
    expect(progress, None, len(pending))
    checks: list[CheckResult] = []
    for check in pending:
        checks += check()
        finish_file(progress)
    return Diagnosis(tuple(checks))


def repair(
    repo: Repository | None,
    settings: FilterSettings | None = None,
    mend: Callable[[Repository, bytes], bool] = lambda *_: False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Mend what can be mended without losing anything, then examine again.

    `mend(repo, path)` stages the mended text of a damaged file, and returns whether it could.
    `progress` counts checks, as in `examine`.
    """
    actions: list[str] = []
    fix_driver = partial(starting.fix_driver, settings=settings)
    repairs: dict[str, Callable[[Repository | None], list[str]]] = {
        "driver": fix_driver,
        "start": fix_driver,
        "attributes": _fix_attributes,
        "raw-binary": _fix_raw,
        "work-tree": partial(_fix_work_tree, settings=settings, mend=mend),
        "leftovers": _fix_leftovers,
        "locks": _fix_locks,
        "hook": starting.fix_hooks,
        "deltas": _fix_settings,
        "memory": _fix_settings,
    }
    # In the order of the checks: later repairs rely on the driver.
    for check in examine(repo, progress).checks:
        if check.fixable and check.level is not Level.OK:
            actions += repairs[check.name](repo)
    return Diagnosis(examine(repo, progress).checks, tuple(actions))


def _result_or_error(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    try:
        return check()
    except WtxtgitError as error:
        return CheckResult(name, Level.ERROR, error.message, error.hint)


def _guarded_check(name: str, check: Callable[[], CheckResult]) -> _Check:
    return lambda: [_result_or_error(name, check)]


def _git_version() -> CheckResult:
    version = run.version()
    shown_version = ".".join(map(str, version))
    if version < run.MIN_VERSION:
        minimum = ".".join(map(str, run.MIN_VERSION))
        return CheckResult(
            "git", Level.ERROR, f"git {shown_version} is too old", f"install git {minimum} or later"
        )
    return CheckResult("git", Level.OK, f"git {shown_version}")


def _modules() -> CheckResult:
    versions, broken = [], []
    has_room = True
    for distribution, module in MODULES.items():
        try:
            import_module(module)
            versions.append(f"{distribution} {metadata.version(distribution)}")
        # Of any kind: libraries raise exceptions of their own if they lack something.
        except Exception as error:  # noqa: BLE001
            broken.append(f"{distribution} ({why_unloaded(error)})")
            has_room = has_room and not lacks_room(error)
    if broken:
        return CheckResult(
            "python",
            Level.ERROR,
            f"can't be imported: {', '.join(broken)}",
            "install wtxtgit again for this interpreter" if has_room else ADDRESS_SPACE,
        )
    return CheckResult("python", Level.OK, ", ".join(versions))


def _repository_checks(repo: Repository) -> list[_Check]:
    try:
        entries = tracked(repo)
    except EnvironmentFailure as error:
        failed = CheckResult("repository", Level.ERROR, error.message, error.hint)
        return [lambda: [failed]]
    # Computed once, by whichever check comes first: this looks at every file.
    files = cache(lambda: status(repo).files)
    forms = cache(lambda: stored_forms(repo, entries))
    return [
        # First, since other checks may write, which removes leftovers.
        _guarded_check("leftovers", lambda: _leftovers(repo)),
        _guarded_check("locks", lambda: _locks(repo)),
        _guarded_check("blobs", lambda: _blobs(repo, entries)),
        _guarded_check("attributes", lambda: _attributes(repo, entries)),
        _guarded_check("eol", lambda: _line_endings(repo)),
        _guarded_check("nested", lambda: _overridden(repo, entries)),
        _guarded_check("lfs-pointer", lambda: _pointers(repo, forms())),
        _guarded_check("raw-binary", lambda: _raw(repo, entries, forms())),
        _guarded_check("unfiltered", lambda: _unfiltered(repo)),
        _guarded_check("here-alone", lambda: _here_alone(repo, entries)),
        _guarded_check("links", lambda: _links(repo)),
        _guarded_check("form", lambda: _forms(repo, forms())),
        _guarded_check("work-tree", lambda: _work_tree(repo, files())),
        lambda: _size_checks(repo, entries),
        _guarded_check("compression", lambda: _compression(repo, files())),
        _guarded_check("hook", lambda: starting.hook(repo)),
        lambda: _data_checks(repo),
    ]


def _attributes(repo: Repository, entries: Sequence[TreeEntry]) -> CheckResult:
    others, is_repaired = track.beside(repo)
    if others:
        files = arguments_here(repo, others)
        return CheckResult(
            "attributes",
            Level.WARN,
            f"files beside checkpoints go through the filter, too: {listed(others)}",
            f"wtxtgit doctor --fix, then git add --renormalize -- {files}, then commit"
            if is_repaired
            else f"git check-attr -a -- {arguments_here(repo, others[:1])} shows them",
            fixable=is_repaired,
            paths=tuple(others),
        )
    if incomplete := track.incomplete_lines(repo):
        first = incomplete[0]
        return CheckResult(
            "attributes",
            Level.ERROR,
            f"{shown(first.file)}: the line for {shown(first.pattern)} lacks an attribute",
            f"{_cd_to(repo, posixpath.dirname(first.file))}"
            f"wtxtgit track{' --detached' if first.detached else ''} -- {shown(first.pattern)}",
            fixable=True,
        )
    paths = [entry.path for entry in entries]
    values = repo.attributes(paths, ("text", "eol", "diff", "merge"))
    converted = [path for path in dict.fromkeys(paths) if values[path]["text"] != UNSET]
    if converted:
        return CheckResult(
            "attributes",
            Level.ERROR,
            f"git may convert line endings of {listed(converted)}",
            "put -text on the last gitattributes line that matches, or track the pattern again",
            paths=tuple(converted),
        )
    plain = [
        path
        for path in dict.fromkeys(paths)
        if not values[path]["diff"] == values[path]["merge"] == DRIVER
    ]
    if plain:
        return CheckResult(
            "attributes",
            Level.WARN,
            f"without diff=wtxt and merge=wtxt: {listed(plain)}",
            "a later gitattributes line unsets them",
            paths=tuple(plain),
        )
    if absent := _absent_attributes(repo, entries):
        patterns = arguments([b"/" + path for path in absent])
        return CheckResult(
            "attributes",
            Level.WARN,
            f"outside the sparse checkout, so git merges without the driver: {listed(absent)}",
            # Outside of cone mode git takes patterns at the top level alone.
            f"{_cd_to(repo, b'')}git sparse-checkout add {patterns}",
            paths=tuple(absent),
        )
    return CheckResult("attributes", Level.OK, f"-text is set for {counted_files(entries)}")


def _cd_to(repo: Repository, folder: bytes) -> str:
    """Return the `cd` that must precede a command whose patterns are relative to `folder`.

    Returns "" if none is needed.
    """
    path = repo.path_from_here(folder or b".")
    return "" if path == "." else f"cd {shown(os.fsencode(path))} && "


def _absent_attributes(repo: Repository, entries: Sequence[TreeEntry]) -> list[bytes]:
    """List the gitattributes files outside a sparse checkout that apply to files inside it.

    Git otherwise reads such a file from the index, but not while it merges.
    """
    present = [entry.path for entry in entries if not entry.skipped]
    left_out = (entry.path for entry in index.entries(repo) if entry.skipped)
    names = [path for path in left_out if path.rpartition(b"/")[2] == FILE_NAME.encode()]
    folders = {name: name[: -len(FILE_NAME)] for name in names}
    return [name for name in names if any(path.startswith(folders[name]) for path in present)]


def _line_endings(repo: Repository) -> CheckResult:
    """Check that our text files have `eol=lf` if git is set to convert line endings."""
    # Those patterns of the companion lines that are file endings; the others name our own folder.
    suffixes = tuple(
        pattern.removeprefix(b"*") for pattern, _ in track.COMPANIONS if pattern[:1] == b"*"
    )
    paths = [
        entry.path
        for entry in index.entries(repo)
        if entry.is_file and entry.path.endswith(suffixes)
    ]
    converts = (repo.config.get("core.autocrlf") or "false").lower()
    values = repo.attributes(paths, ("text", "eol"))
    unsafe = [
        path
        for path in dict.fromkeys(paths)
        if values[path]["eol"] != b"lf" and values[path]["text"] != UNSET
    ]
    if unsafe:
        risky = converts not in ("false", "no", "off", "0")
        return CheckResult(
            "eol",
            Level.ERROR if risky else Level.WARN,
            f"without eol=lf: {listed(unsafe)} (core.autocrlf is {converts})",
            "add the lines of gitattributes.template for *.wtxt, *.wtxtdelta and *.wsum",
            paths=tuple(unsafe),
        )
    return CheckResult(
        "eol", Level.OK, f"no conversion of line endings (core.autocrlf is {converts})"
    )


def _overridden(repo: Repository, entries: Sequence[TreeEntry]) -> CheckResult:
    filtered = {entry.path for entry in entries}
    overridden: list[bytes] = []
    # Git accepts these only on its command line.
    for pathspecs in run.batches(map(_pathspec, track.list_patterns(repo).patterns)):
        matched = run.records(repo.git("ls-files", "-z", "--", *pathspecs))
        overridden += [path for path in matched if path not in filtered]
    # Symbolic links and submodules match a pattern too, but never go through a filter.
    files = {entry.path for entry in index.entries(repo) if entry.is_file}
    overridden = sorted(
        {path for path in overridden if path in files and not track.is_beside(path)}
    )
    if overridden:
        return CheckResult(
            "nested",
            Level.WARN,
            f"tracked by a pattern, but other attributes win: {listed(overridden)}",
            f"git check-attr -a -- {arguments_here(repo, overridden[:1])} shows them",
            paths=tuple(overridden),
        )
    return CheckResult("nested", Level.OK, "no attributes override a tracked pattern")


def _raw(repo: Repository, entries: Sequence[TreeEntry], forms: StoredForms) -> CheckResult:
    raw = [entry.path for entry in forms.raw]
    # Staging a file that was edited since would stage the edits too: that is for the user to
    # decide.
    if raw:
        unedited = set(_unedited_raw(repo, forms))
        edited = [path for path in raw if path not in unedited]
        skipped = f"; --fix skips {listed(edited)}, which differ from the index" if edited else ""
        return CheckResult(
            "raw-binary",
            Level.ERROR,
            f"committed as raw binary: {listed(raw)}",
            f"git add --renormalize -- {arguments_here(repo, raw)}, then commit{skipped}",
            fixable=bool(unedited),
            paths=tuple(raw),
        )
    return CheckResult("raw-binary", Level.OK, f"{counted_files(entries)}, none is raw binary")


def _pointers(repo: Repository, forms: StoredForms) -> CheckResult:
    """Check for git-lfs pointers committed in place of texts: no text can be made of a pointer."""
    pointers = distinct(forms.pointers)
    if pointers:
        return CheckResult(
            "lfs-pointer",
            Level.ERROR,
            f"committed as git-lfs pointers, not as files: {listed(pointers)}",
            f"{track.pull_hint(repo, pointers)}, then commit",
            paths=tuple(pointers),
        )
    others = [entry.path for entry in index.entries(repo) if entry.is_file]
    drivers = repo.attributes(others, ("filter",))
    if kept := sum(drivers[path]["filter"] == LFS_DRIVER for path in dict.fromkeys(others)):
        return CheckResult(
            "lfs-pointer",
            Level.OK,
            f"git-lfs keeps {counted(kept, 'file')} here, which wtxtgit does not track; "
            f"wtxtgit migrate info shows what they would take as text",
        )
    return CheckResult("lfs-pointer", Level.OK, "no file that wtxtgit tracks is a git-lfs pointer")


def _unfiltered(repo: Repository) -> CheckResult:
    """Check for texts that lost their filter because their file was renamed or their pattern
    untracked.
    """
    texts = [entry.path for entry in unfiltered_texts(repo, index.entries(repo))]
    if others := [path for path in texts if track.is_beside(path)]:
        first = arguments_here(repo, others[:1])
        head = work_tree.file_head(repo.file(others[0])) or b""
        restored = ""
        if grammar.is_text(head):
            kept = arguments_here(repo, [others[0] + b".text"])
            restored = f"mv -i -- {first} {kept} && wtxtgit restore -o {first} -- {kept} && "
        return CheckResult(
            "unfiltered",
            Level.WARN,
            f"stands beside checkpoints, and is text in git: {listed(others)}",
            f"{restored}git add --renormalize -- {first}, then commit",
            paths=tuple(others),
        )
    if texts:
        files = arguments_here(repo, texts)
        return CheckResult(
            "unfiltered",
            Level.WARN,
            f"text in git without a pattern, so a checkout leaves it as text: {listed(texts)}",
            f"{_cd_to(repo, b'')}wtxtgit track -- {arguments(texts)}, or git add --renormalize "
            f"-- {files} to store a plain file; then commit",
            paths=tuple(texts),
        )
    return CheckResult("unfiltered", Level.OK, "all texts have their filter")


def _here_alone(repo: Repository, entries: Sequence[TreeEntry]) -> CheckResult:
    """Check for files whose filter only this clone's own settings name."""
    alone = distinct(filtered_here_alone(repo, entries, track.own_filtered(repo)))
    if alone:
        return CheckResult(
            "here-alone",
            Level.WARN,
            f"only core.ignoreCase or attributes of this clone have them filtered, elsewhere they "
            f"are texts: {listed(alone)}",
            f"{track.here_alone_hint(repo, alone)}, then commit",
            paths=tuple(alone),
        )
    return CheckResult("here-alone", Level.OK, "other clones filter the same files")


def _links(repo: Repository) -> CheckResult:
    """Check for links that git puts through the filter where they are plain files: git only looks
    at the attributes of their paths.
    """
    links = [entry for entry in index.entries(repo) if entry.mode == MODE_LINK]
    heads = blob_heads(repo, [link.oid for link in links]) if links else {}
    texts = distinct(link for link in links if grammar.is_text(heads[link.oid].head))
    if texts:
        first = arguments_here(repo, texts[:1])
        return CheckResult(
            "links",
            Level.ERROR,
            f"links whose target became a text, in a clone without links: {listed(texts)}",
            f"git log --oneline -- {first} lists commits; git stash push -- {first} && "
            f"git checkout COMMIT -- {first} takes the link of one",
            paths=tuple(texts),
        )
    drivers = repo.attributes([link.path for link in links], ("filter",))
    filtered = distinct(one for one in links if drivers[one.path]["filter"] in FILTERS)
    if filtered and not repo.config.is_true("core.symlinks", default=True):
        lines = " ".join(
            shlex.quote(os.fsdecode(quote(b"/" + path)) + " -filter") for path in filtered
        )
        return CheckResult(
            "links",
            Level.WARN,
            f"links are plain files here (core.symlinks), which git add makes texts: "
            f"{listed(filtered)}",
            f"{_cd_to(repo, b'')}printf '\\n%s\\n' {lines} >> .gitattributes, then git add -- "
            f":/.gitattributes, then commit",
            paths=tuple(filtered),
        )
    return CheckResult("links", Level.OK, "no link goes through the filter")


def _forms(repo: Repository, forms: StoredForms) -> CheckResult:
    """Check whether texts are in the form, whole or detached, that their attributes ask for."""
    other = distinct(forms.other_form)
    if other:
        return CheckResult(
            "form",
            Level.WARN,
            f"whole although attributes say detached, or vice versa: {listed(other)}",
            f"{track.form_hint(repo, other)}, then commit",
            paths=tuple(other),
        )
    return CheckResult("form", Level.OK, "texts are whole or detached as their attributes say")


def _work_tree(repo: Repository, files: Sequence[FileStatus]) -> CheckResult:
    corrupt = [file.path for file in files if file.state is State.CORRUPT]
    if corrupt:
        first = arguments_here(repo, corrupt[:1])
        return CheckResult(
            "work-tree",
            Level.ERROR,
            f"damaged text: {listed(corrupt)}",
            f"wtxtgit recover -- {first} shows what can be mended, and other versions that git "
            f"has; git stash push -- {first} && git checkout COMMIT -- {first} restores an older "
            f"version",
            fixable=True,
            paths=tuple(corrupt),
        )
    texts = [file.path for file in files if file.state is State.TEXT]
    if texts:
        return CheckResult(
            "work-tree",
            Level.WARN,
            f"still text in the work tree: {listed(texts)}",
            "wtxtgit install writes the files again",
            fixable=True,
            paths=tuple(texts),
        )
    detached = [file.path for file in files if file.state is State.DETACHED]
    if detached:
        return CheckResult(
            "work-tree",
            Level.WARN,
            f"detached texts without their data: {listed(detached)}",
            "wtxtgit fetch fetches their data, and writes the files",
            paths=tuple(detached),
        )
    return CheckResult("work-tree", Level.OK, "the work tree holds binaries")


def _leftovers(repo: Repository) -> CheckResult:
    from wtxtgit.git.cut_off import FINISHES, cut_off

    files = [leftovers.shown_from(repo, path) for path in leftovers.find(repo)]
    if files:
        return CheckResult(
            "leftovers",
            Level.WARN,
            f"left behind by a killed wtxtgit: {listed(files)}",
            "wtxtgit doctor --fix removes it",
            fixable=True,
            paths=tuple(files),
        )
    if cut_off(repo) is not None:
        return CheckResult(
            "leftovers",
            Level.WARN,
            "a migration was interrupted: refs have moved, but index and work tree have not",
            FINISHES,
        )
    return CheckResult("leftovers", Level.OK, "no files left behind by a killed process")


def _blobs(repo: Repository, entries: Sequence[TreeEntry]) -> CheckResult:
    """Check that the blobs in the index exist: git itself asks only when it makes a commit."""
    is_partial = repo.config.get("extensions.partialClone") is not None
    gone = [] if is_partial else without_blob(repo)
    if not gone:
        return CheckResult("blobs", Level.OK, "all blobs in the index exist")
    tracked_paths = {entry.path for entry in entries}
    ours = [path for path in gone if path in tracked_paths]
    # `git add` looks at no file that seems unchanged.
    command = "wtxtgit add" if ours else "git hash-object -w"
    return CheckResult(
        "blobs",
        Level.ERROR,
        f"the index names blobs that are missing: {listed(gone)}",
        f"{command} -- {arguments_here(repo, ours or gone)} writes them again",
        paths=tuple(gone),
    )


def _locks(repo: Repository) -> CheckResult:
    """Check for locks of git's own that a killed git left."""
    found = locks.find(repo)
    if left := [one for one in found if one.is_left_behind]:
        return CheckResult(
            "locks",
            Level.WARN,
            f"left behind by a killed git: {_named(repo, left)}",
            "wtxtgit doctor --fix removes it",
            fixable=True,
            paths=_paths(repo, left),
        )
    if untold := [one for one in found if one.holders is None]:
        files = " ".join(shown(os.fsencode(one.path)) for one in untold)
        return CheckResult(
            "locks",
            Level.WARN,
            f"held by a process, or left behind by one: {_named(repo, untold)}",
            f"rm -- {files}, if no git is at work in this repository",
            paths=_paths(repo, untold),
        )
    at_work = [f"process {one.holders[0]} ({_named(repo, [one])})" for one in found if one.holders]
    return CheckResult(
        "locks", Level.OK, f"may be held: {', '.join(at_work)}" if at_work else "none"
    )


def _paths(repo: Repository, found: Sequence[locks.Lock]) -> tuple[bytes, ...]:
    return tuple(leftovers.shown_from(repo, one.path) for one in found)


def _named(repo: Repository, found: Sequence[locks.Lock]) -> str:
    return f"{listed(_paths(repo, found))}, {_age(min(one.seconds for one in found))} old"


def _age(seconds: float) -> str:
    if seconds < _HOUR:
        return f"{seconds:.0f} s"
    return f"{seconds / _HOUR:.0f} h"


def _size_checks(repo: Repository, entries: Sequence[TreeEntry]) -> list[CheckResult]:
    """Check whether tracked files are too large for forges, or for git with its current
    settings.
    """
    try:
        return diagnosis.checks(repo, sizes.text_sizes(repo, entries), sizes.machine())
    except WtxtgitError as error:
        return [CheckResult("sizes", Level.ERROR, error.message, error.hint)]


def _compression(repo: Repository, files: Sequence[FileStatus]) -> CheckResult:
    """Check for compressed files, which make poor deltas: a small change of weights changes all
    bytes.
    """
    compressed = []
    for file in files:
        format_ = registry.by_name(file.format or "")
        if file.state is not State.OK or format_ is None or format_.repack is None:
            continue
        if any_format.is_compressed(view_file(repo.file(file.path))):
            compressed.append(file.path)
    if compressed:
        return CheckResult(
            "compression",
            Level.WARN,
            f"compressed, so that git makes no small deltas: {listed(compressed)}",
            f"wtxtgit repack {arguments_here(repo, compressed[:1])} stores it uncompressed",
            paths=tuple(compressed),
        )
    return CheckResult("compression", Level.OK, "no compressed checkpoints")


def _data_checks(repo: Repository) -> list[CheckResult]:
    """Check whether the main remote has the data of its branch; nothing without detached texts."""
    try:
        data = branch_data.of_main_branch(repo)
    except EnvironmentFailure as error:
        return [CheckResult("data", Level.WARN, f"not known: {error.message}", error.hint)]
    if data is None:
        return []
    if not data.chunks:
        return [CheckResult("data", Level.OK, f"{data.place} has the data of {data.branch}")]
    there = f", {data.elsewhere} has" if data.elsewhere is not None else ""
    send = f"wtxtgit push {shlex.quote(data.remote)} {shlex.quote(data.branch)}"
    if not data.is_here and data.elsewhere is None:
        send = f"git remote add NAME URL, of a fork that has it, then {send}"
    lacks = f"{data.place} lacks {counted(data.chunks, 'chunk')} that {data.branch} needs{there}"
    message = f"{lacks}: {listed(data.paths)}"
    return [CheckResult("data", Level.WARN, message, send, paths=data.paths)]


def _fix_locks(repo: Repository | None) -> list[str]:
    removed = locks.remove(repo) if repo else []
    return (
        [f"removed {shown(leftovers.shown_from(repo, path))}" for path in removed] if repo else []
    )


def _fix_attributes(repo: Repository | None) -> list[str]:
    return [f"completed {shown(path)}" for path in track.repair(repo)] if repo else []


def _fix_raw(repo: Repository | None) -> list[str]:
    if repo is None:
        return []
    raw = _unedited_raw(repo, stored_forms(repo, tracked(repo)))
    staging.add(repo, raw, "--renormalize")
    return [f"staged {shown(path)} as text" for path in raw]


def _unedited_raw(repo: Repository, forms: StoredForms) -> list[bytes]:
    """Find the raw binaries whose file equals the blob, byte for byte: staging them loses
    nothing.
    """
    return [
        entry.path
        for entry in forms.raw
        if work_tree.file_is_blob(repo.file(entry.path), entry.oid)
    ]


def _fix_leftovers(repo: Repository | None) -> list[str]:
    if repo is None:
        return []
    return [f"removed {shown(leftovers.shown_from(repo, path))}" for path in leftovers.remove(repo)]


def _fix_settings(repo: Repository | None) -> list[str]:
    return sizes.tune(repo, tracked(repo)) if repo else []


def _fix_work_tree(
    repo: Repository | None,
    settings: FilterSettings | None,
    mend: Callable[[Repository, bytes], bool],
) -> list[str]:
    if repo is None:
        return []
    corrupt = [file.path for file in status(repo).files if file.state is State.CORRUPT]
    mended = [path for path in corrupt if mend(repo, path)]
    restored = install.resmudge(repo, settings).written
    return [
        *(f"mended {shown(path)}: staged; commit it" for path in mended),
        *(f"restored {shown(path)}" for path in restored),
    ]


def _pathspec(pattern: track.Pattern) -> bytes:
    """Convert a gitattributes pattern to a pathspec from the top level."""
    folder = pattern.file.rpartition(b"/")[0]
    # The folder's own name is not a pattern, so its special characters are escaped.
    start = b"".join(b"\\" + bytes([c]) if c in b"*?[\\" else bytes([c]) for c in folder)
    start += b"/" if folder else b""
    text = pattern.pattern
    if b"/" not in text:
        return b":(top,glob)" + start + b"**/" + text
    return b":(top,glob)" + start + text.removeprefix(b"/")
