"""`wtxtgit ring`: what a training's snapshots became."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wtxtgit.cli import environment
from wtxtgit.cli.boundary import complain, note
from wtxtgit.cli.keys import key_options, signing_key
from wtxtgit.cli.options import FILE, FilePath, identity_option, opening_keys, passphrase_option
from wtxtgit.cli.output import (
    is_printed,
    no_progress,
    print_json,
    print_line,
    print_table,
    progress,
)
from wtxtgit.errors import UsageError, counted
from wtxtgit.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wtxtgit.remotes.target import Target
    from wtxtgit.stream.overview import RankedGeneration, RankedState, RankState
    from wtxtgit.stream.state import Generation, RingState
    from wtxtgit.stream.upkeep import Sent

_folder = click.argument("folder", type=FilePath(Path), metavar="RING")
_json = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
_FOUND = 1


@click.group()
def ring() -> None:
    """List, check, send and prune the snapshots of a training run.

    A ring is the folder that `wtxtgit.stream.Snapshots` writes to. While a training run
    uses it, only `ls` and `verify` work; the other commands are refused.

    \b
    wtxtgit ring ls runs/exp1
    wtxtgit ring retry runs/exp1
    """


@ring.command("ls")
@_folder
@_json
def list_generations(folder: Path, as_json: bool) -> None:
    """List the generations of RING, and their state at each target.

    Lost, dropped, refused and abandoned generations are listed below the table. A generation
    written by several ranks counts only when all parts are there; missing parts are
    listed.

    \b
    wtxtgit ring ls runs/exp1
    wtxtgit ring ls runs/exp1 --json
    """
    from wtxtgit.stream.overview import RankedState, read_ring

    state = read_ring(folder)
    if is_printed(state, as_json):
        return
    if isinstance(state, RankedState):
        _list_ranked(state)
        return
    if state.generations:
        columns = ("gen", "time", "kind", "size", "merkle_this", "targets")
        print_table(
            columns, [_row(generation) for generation in state.generations], right=("gen", "size")
        )
        print_line()
    for line in _remarks(state):
        print_line(line)
    for generation in state.generations:
        for line in _refusals(generation):
            print_line(line)


def _list_ranked(state: RankedState) -> None:
    if state.generations:
        columns = ("gen", "time", "size", "parts", "targets")
        rows = [_ranked_row(generation, state.world) for generation in state.generations]
        print_table(columns, rows, right=("gen", "size"))
        print_line()
    for rank_state in state.ranks:
        for line in _remarks(rank_state):
            print_line(f"rank {rank_state.rank}: {line}")
    for generation in state.generations:
        for rank, part in generation.parts.items():
            for line in _refusals(part):
                print_line(f"rank {rank.number}: {line}")


def _ranked_row(generation: RankedGeneration, world: int) -> tuple[str, ...]:
    missing = _missing(generation.missing)
    parts = f"all {world}" if generation.is_whole else f"incomplete: {missing}"
    is_pinned = any(part.is_pinned for part in generation.parts.values())
    return (
        str(generation.gen),
        generation.ts,
        size(generation.size),
        f"{parts}, pinned" if is_pinned else parts,
        _deliveries(generation.parts.values()),
    )


def _missing(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "no index yet"
    return f"no rank{'' if len(ranks) == 1 else 's'} {_numbers(ranks)}"


def _row(generation: Generation) -> tuple[str, ...]:
    kind = generation.kind if generation.base is None else f"delta of {generation.base}"
    return (
        str(generation.gen),
        generation.ts,
        f"{kind}, pinned" if generation.is_pinned else kind,
        size(generation.size),
        generation.this.hex()[:12],
        _deliveries([generation]),
    )


def _deliveries(parts: Iterable[Generation]) -> str:
    counts = Counter(delivery.state.value for part in parts for delivery in part.deliveries)
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _remarks(state: RingState | RankState) -> Iterable[str]:
    counts = state.counts
    yield ", ".join(f"{number} {name}" for name, number in counts.entries() if number) or "empty"
    if state.lost:
        yield f"lost when the training process ended: {_numbers(state.lost)}"
    for gen, why in state.failed.items():
        yield f"generation {gen} could not be written: {why}"


def _refusals(generation: Generation) -> Iterable[str]:
    for delivery in generation.deliveries:
        if delivery.why is not None:
            where = f"generation {generation.gen}: {delivery.target}"
            yield f"{where}: {delivery.state.value}: {delivery.why}"


def _numbers(gens: tuple[int, ...]) -> str:
    return ", ".join(map(str, gens))


@ring.command()
@_folder
@click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="Also send everything to this target; repeatable.",
)
@key_options
@_json
def push(
    folder: Path,
    targets: tuple[str, ...],
    key: str | None,
    passphrase_fd: int | None,
    as_json: bool,
) -> int:
    """Try once to send what targets do not have yet.

    KEY signs the ledgers beside the texts on a git: target. The exit code is 1 if
    something could not be sent.

    \b
    wtxtgit ring push runs/exp1
    wtxtgit ring push runs/exp1 --to /backup/exp1
    wtxtgit ring push runs/exp1 --to git:origin#snapshots --key alice
    """
    from wtxtgit.stream import upkeep

    with progress("sending", None, noun="generation") as advance:
        sent = upkeep.push(folder, _opener(key, passphrase_fd), targets, advance)
        code = _tell_sent(sent, as_json)
    if not as_json and (left := _left_out(folder)):
        note(
            f"{counted(left, 'file')} refused or expired earlier: a push leaves such files out",
            f"wtxtgit ring retry -- {shlex.quote(str(folder))} sends them again",
        )
    return code


def _left_out(folder: Path) -> int:
    """Count what no push sends again."""
    from wtxtgit.stream.overview import RankedState, read_ring
    from wtxtgit.stream.state import DeliveryState

    state = read_ring(folder)
    parts: list[Generation] = []
    if isinstance(state, RankedState):
        parts += (part for one in state.generations for part in one.parts.values())
    else:
        parts += state.generations
    ended = (DeliveryState.REFUSED, DeliveryState.EXPIRED)
    return sum(delivery.state in ended for part in parts for delivery in part.deliveries)


@ring.command()
@_folder
@key_options
@_json
def retry(folder: Path, key: str | None, passphrase_fd: int | None, as_json: bool) -> int:
    """Send again what targets refused, or what was given up.

    KEY signs the ledgers beside the texts on a git: target. The exit code is 1 if
    something could not be sent.

    \b
    wtxtgit ring retry runs/exp1
    """
    from wtxtgit.stream import upkeep

    with progress("sending", None, noun="generation") as advance:
        sent = upkeep.retry(folder, _opener(key, passphrase_fd), advance)
        return _tell_sent(sent, as_json)


def _opener(key: str | None, passphrase_fd: int | None) -> Callable[[str], Target]:
    """Return what opens targets; those with ledgers sign them with the key."""
    from wtxtgit.remotes.spelling import parse_target
    from wtxtgit.stream.sealing import sealing

    signs = None if key is None else signing_key(key, passphrase_fd)
    return lambda spelled: sealing(parse_target(spelled), signs, environment.threads())


def _tell_sent(outcomes: Iterable[Sent], as_json: bool) -> int:
    sent = []
    for outcome in outcomes:
        sent.append(outcome)
        if as_json:
            continue
        what = f"generation {outcome.gen}" + (
            "" if outcome.rank is None else f" of rank {outcome.rank}"
        )
        with no_progress():
            if outcome.why is None:
                print_line(f"{outcome.state.value}  {what} to {outcome.target}")
            else:
                complain(f"{what}: {outcome.target}: {outcome.why}")
    if as_json:
        print_json({"sent": sent})
    elif not sent:
        print_line("nothing to send")
    return _FOUND if any(delivery.why is not None for delivery in sent) else 0


@ring.command()
@_folder
@click.argument("gens", nargs=-1, type=click.IntRange(min=0), metavar="[GEN]...")
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Keep the last N generations."
)
@_json
def prune(folder: Path, gens: tuple[int, ...], keep: int | None, as_json: bool) -> None:
    """Remove the generations GEN, even pinned ones, or all but the last N.

    Generations that a target still waits for are kept, and so are the bases of deltas
    that are kept. With several ranks, N counts complete generations; those that can no
    longer become complete are removed.

    \b
    wtxtgit ring prune runs/exp1 --keep 5
    wtxtgit ring prune runs/exp1 500 1000
    """
    from wtxtgit.stream import upkeep

    if (keep is None) == (not gens):
        raise UsageError("no generations selected: give GEN... or --keep N")
    gone = upkeep.prune(folder, keep, gens)
    if not is_printed({"pruned": gone}, as_json):
        print_line(
            f"{counted(len(gone), 'generation')} removed: {_numbers(tuple(gone))}".rstrip(": ")
        )


@ring.command()
@_folder
@identity_option
@passphrase_option
@_json
def verify(
    folder: Path, identities: tuple[Path, ...], passphrase_fd: int | None, as_json: bool
) -> int:
    """Check every generation of RING: file, text, and chain.

    Each generation must follow the one before it. The texts of encrypted generations
    are checked only with an identity. With several ranks, incomplete generations are
    listed, but are not errors.

    \b
    wtxtgit ring verify runs/exp1
    """
    from wtxtgit.stream import upkeep

    keys = opening_keys(identities, passphrase_fd)
    with progress("verifying", None, noun="generation", waits=True) as advance:
        verdict = upkeep.check_ring(
            folder, identities=keys, threads=environment.threads(), progress=advance
        )
    if not is_printed(verdict, as_json):
        for generation in verdict.generations:
            if generation.missing is not None:
                print_line(f"incomplete  {generation.file}: {_missing(generation.missing)}")
            else:
                print_line(
                    f"ok      {generation.file}"
                    if generation.ok
                    else f"failed  {generation.file}: {generation.why}"
                )
        if not verdict.generations:
            print_line("the ring is empty")
    return 0 if verdict.ok else _FOUND


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--gen", metavar="N", default="latest", help="Which generation. Default: latest.")
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="OUT",
    help="Write to this file, in the format its ending names. Default: gen-N.wtxt.",
)
@click.option(
    "--signers",
    type=FilePath(Path),
    metavar="F",
    help="Known signers: allowed_signers lines, or a .pub file.",
)
@click.option("--require-signed", is_flag=True, help="Require a signature by a known signer.")
@identity_option
@passphrase_option
@_json
def pull(
    target: str,
    gen: str,
    output: Path | None,
    signers: Path | None,
    require_signed: bool,
    identities: tuple[Path, ...],
    passphrase_fd: int | None,
    as_json: bool,
) -> None:
    """Fetch a generation of a training run from TARGET, verify it, and write the checkpoint.

    Deltas are applied, and the parts of several ranks are joined. Nothing is written
    unless all hashes and the chain from earlier generations hold.

    \b
    wtxtgit pull /backup/exp1 -o model.safetensors
    wtxtgit pull git:origin#snapshots --gen 500 --signers .wtxt/signers --require-signed
    """
    from wtxtgit.checkpoint.verify import public_keys_of
    from wtxtgit.remotes.spelling import parse_target
    from wtxtgit.stream import pull as stream_pull

    if gen != "latest" and not gen.isdecimal():
        raise UsageError(f'--gen is "{gen[:40]}", expected a number or latest')
    if require_signed and signers is None:
        raise UsageError("--require-signed needs --signers FILE")
    keys = opening_keys(identities, passphrase_fd)
    with progress("fetching", None, noun="part") as advance:
        pulled = stream_pull.pull(
            parse_target(target),
            None if gen == "latest" else int(gen),
            output,
            public_keys=public_keys_of(signers),
            require_signed=require_signed,
            identities=keys,
            threads=environment.threads(),
            progress=advance,
        )
    if is_printed(pulled, as_json):
        return
    follows = "" if pulled.follows is None else f", follows {pulled.follows}"
    parts = "" if pulled.parts is None else f", {counted(len(pulled.parts), 'part')}"
    print_line(f"generation {pulled.gen}{parts}, signature {pulled.signature.value}{follows}")
    print_line(f"written to {pulled.output}")
