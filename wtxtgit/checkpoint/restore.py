"""Restore: a text back to the file that it stands for.

No file takes its name unless the whole text verifies. A native snapshot becomes
an .npz or .safetensors file, by the ending of the output.
"""

from __future__ import annotations

import os
import shlex
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np

from wtxtgit.checkpoint.emit import MAX_WSUM
from wtxtgit.containers.safetensors.write import build
from wtxtgit.containers.tensor_header import METADATA_KEY
from wtxtgit.errors import MAX_NAME, CheckError, InputError, UsageError, clipped
from wtxtgit.io.files import read_small, shown, view_file, write_all, write_output
from wtxtgit.io.view import Buffer
from wtxtgit.text.arrays import Weights, weights_of
from wtxtgit.text.file import assumed_layout, file_pieces, verify_into
from wtxtgit.text.grammar import MAGIC
from wtxtgit.text.index import index, quote
from wtxtgit.text.verify import Report, verify

TEXT_ENDING = ".wtxt"
_MAX_MEMBER_NAME = 65_535 - len(".npy")
"""Bytes of a name that a zip file can hold."""
NATIVE_ENDINGS = (".npz", ".safetensors")
_NUMPY_TO_SAFETENSORS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


def default_output(text: Path) -> Path:
    """The file beside the text that it was made of: its name without `.wtxt`.

    Raises UsageError for another ending, and where that file is there already:
    what is overwritten has to be named.
    """
    if text.suffix != TEXT_ENDING or not text.stem:
        raise UsageError(f"{shown(text)} does not end in {TEXT_ENDING}: say where to, with -o")
    out = text.with_suffix("")
    if os.path.lexists(out):
        raise UsageError(f"{shown(out)} is there already", hint=f"-o {shown(out)} replaces it")
    return out


def restore(
    path: Path,
    out: Path | None,
    *,
    wsum: Path | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    write: Callable[[Iterable[Buffer]], None] | None = None,
) -> None:
    """Restore the text at `path` to the file `out`, or through `write` where it is None."""
    text = view_file(path)
    if text[: len(MAGIC)] != MAGIC:
        raise InputError(f"{shown(path)}: no WTXT text, it starts with {quote(bytes(text[:16]))}")
    wsum_bytes = None if wsum is None else read_small(wsum, MAX_WSUM, "a WSUM")
    indexed = index(text)
    assumed = None if out is None else assumed_layout(text, indexed)
    if out is not None and assumed is not None:

        def fill(descriptor: int) -> None:
            report, is_whole = verify_into(
                descriptor,
                text,
                indexed,
                assumed,
                wsum=wsum_bytes,
                threads=threads,
                progress=progress,
            )
            _check(report, path)
            if not is_whole:
                raise InputError(f"{shown(path)}: changed while it was read")

        write_output(out, fill)
        return
    report = verify(text, indexed=indexed, wsum=wsum_bytes, threads=threads, progress=progress)
    _check(report, path)
    layout = report.layout
    if layout is None or layout.size is None:
        _restore_native(weights_of(text, report, threads=threads), path, out)
        return
    pieces = file_pieces(text, indexed, layout, threads=threads)
    if out is not None:
        write_output(out, lambda fd: write_all(fd, pieces))
    elif write is not None:
        write(pieces)


def _check(report: Report, path: Path) -> None:
    """Raise CheckError for a text that does not verify."""
    if report.ok:
        return
    problem = report.problems[0]
    if problem.kind == "pending":
        hint = "--wsum FILE names the WSUM that finalizes it"
    else:
        hint = f"wtxtgit verify -- {shlex.quote(shown(path))} lists all that is wrong"
    raise CheckError(f"{shown(path)}: {problem}", hint=hint)


def _restore_native(weights: Weights, path: Path, out: Path | None) -> None:
    ending = "" if out is None else out.suffix
    if out is None or ending not in NATIVE_ENDINGS:
        raise UsageError(
            f"{shown(path)} is a native snapshot: -o with the ending "
            f"{' or '.join(NATIVE_ENDINGS)} says which file to make of it"
        )
    _check_names(weights, ending)
    if ending == ".npz":

        def write(descriptor: int) -> None:
            with open(descriptor, "wb", closefd=False) as file:
                _write_npz(file, weights)

        write_output(out, write)
    else:
        tensors = []
        for name in weights:
            array = weights[name]
            dtype = _NUMPY_TO_SAFETENSORS.get(array.dtype.name)
            if dtype is None:
                raise UsageError(f'array "{name}" is {array.dtype}: safetensors has no such dtype')
            raw = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
            tensors.append((name, dtype, array.shape, raw))
        write_output(out, lambda fd: write_all(fd, build(tensors)))


def _check_names(weights: Weights, ending: str) -> None:
    """Raise UsageError for a name that the file could not give back."""
    for name in weights:
        if ending == ".safetensors":
            bad = name == METADATA_KEY
        else:
            bad = "\0" in name or len(name.encode()) > _MAX_MEMBER_NAME
        if bad:
            shown_name = clipped(name, MAX_NAME)
            raise UsageError(f"an {ending} file can't hold an array called {shown_name!r}")


def _write_npz(file: IO[bytes], weights: Weights) -> None:
    """Write members as numpy.savez does; it takes names as keywords, which some can't be."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in weights:
            # ZipInfo's own date is 1980: the same arrays give the same bytes.
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, weights[name], allow_pickle=False)
