"""Reviews to be rendered: a branch as people make them, one with all that is hostile, a big one."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from wtxtgit.report.diff import (
    ByteChange,
    DiffReport,
    MetadataChange,
    Numbers,
    RowBlocks,
    RowFacts,
    SideFacts,
    TensorDiff,
    TensorStatus,
)
from wtxtgit.report.review import (
    Distributions,
    Fate,
    Flag,
    Histogram,
    LayerGroup,
    Review,
    Reviewed,
    ReviewedCommit,
    ReviewedGeneration,
    Risk,
    Sealing,
    SealVerdict,
    Sizes,
)

MIB = 1024 * 1024
BASE, HEAD = "4f1c9a7e" * 5, "b82d03f5" * 5
COMMITS = ("9d2e71c4" * 5, "3b6f08ad" * 5, HEAD)
BINS = 48
HOSTILE_NAMES = (
    "</script><img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(2)>",
    "{{ 7 * 7 }}{% raw %}",
    "a\x00b\x1b[31m\n\r\t\u2028",
    "rtl-\u202egnp.exe",
    "bytes-\udcff\udc80",
    "--><!-- ]]></style><style>*{display:none}",
    "javascript:alert(3)",
    "https://example.com/x.js",
    "\U0001f600" * 400,
    "x" * 5000,
    "#c0-t0",
)

_ROWS = RowFacts(64, 3, ((4, 6), (9, 10)), True, RowBlocks(1, (0,) * 4 + (1, 1) + (0,) * 58))
PACKED = TensorDiff(
    "adapter.layers.3.q4",
    TensorStatus.CHANGED,
    "q4_0",
    (64, 32),
    change=ByteChange(1152, 37, _ROWS),
)

_CHANGED = (
    ("self_attn.q_proj", (768, 768)),
    ("self_attn.k_proj", (768, 768)),
    ("self_attn.v_proj", (768, 768)),
    ("self_attn.o_proj", (768, 768)),
    ("mlp.down_proj", (768, 3072)),
)
_LAYERS = 12


def sample() -> Review:
    """Two checkpoints, 61 tensors changed in the first one, over 12 layers."""
    return Review(
        "main",
        "finetune/support-chat",
        BASE,
        HEAD,
        3,
        (_finetuned(), _adapter()),
        ("wtxtgit.trustRoot is not set: the chain is judged from its first generation on",),
    )


def big(tensors: int = 2000) -> Review:
    """One checkpoint in which that many tensors changed."""
    changed = [
        changed_tensor(n, f"model.layers.{n // 10}.experts.{n % 10}.w", (512, 64))
        for n in range(tensors)
    ]
    return Review("main", "big", BASE, HEAD, 1, (reviewed(b"moe.safetensors", changed),))


def hostile() -> Review:
    """All text that may come out of a repository tries to be something else."""
    artifacts = [_hostile_artifact(n, name) for n, name in enumerate(HOSTILE_NAMES)]
    name = HOSTILE_NAMES[0]
    return Review(name, HOSTILE_NAMES[1], name, name, 2, tuple(artifacts), HOSTILE_NAMES)


def reviewed(
    path: bytes,
    tensors: list[TensorDiff],
    flags: tuple[Flag, ...] = (),
    formats: str = "safetensors",
) -> Reviewed:
    """A sealed checkpoint whose tensors changed so, with pictures of all that have numbers."""
    diff = DiffReport("main:x", "HEAD:x", formats, formats, tuple(tensors))
    return Reviewed(
        path,
        Fate.CHANGED,
        path,
        diff,
        None,
        groups(diff),
        flags,
        SealVerdict(
            Sealing.SEALED,
            "generation 7 seals what is there",
            (ReviewedGeneration(7, "2025-05-04T09:12:44Z", HEAD, ("ada@example.com",), "ok"),),
        ),
        Sizes(31 * MIB, 31 * MIB, 43 * MIB, 43 * MIB, 100 * MIB),
        (ReviewedCommit(HEAD, "train: learning rate 2e-5"),),
        {
            one.name: distributions(n, one.change)
            for n, one in enumerate(diff.by_change()[:100])
            if isinstance(one.change, Numbers)
        },
    )


def groups(diff: DiffReport) -> tuple[LayerGroup, ...]:
    """Layer groups, of names as in `model.layers.3.mlp`."""
    found: dict[str, list[TensorDiff]] = {}
    for tensor in diff.tensors:
        parts = tensor.name.split(".")
        name = ".".join(parts[:3]) if len(parts) > 3 else parts[0]
        found.setdefault(name, []).append(tensor)
    made = [_group(name, tensors) for name, tensors in found.items()]
    return tuple(sorted(made, key=lambda group: -(group.relative_l2 or 0)))


def changed_tensor(
    seed: int, name: str, shape: tuple[int, int], relative: float | None = None, **changes: object
) -> TensorDiff:
    """A changed tensor of made-up numbers that fit each other; `changes` are of `Numbers`."""
    rng = np.random.default_rng(seed)
    if relative is None:
        relative = float(10 ** rng.normal(-2.2, 0.35))
    rows, elements = shape[0], shape[0] * shape[1]
    height = max(1, 1 << max(rows // 64 - 1, 0).bit_length())
    blocks = -(-rows // height)
    # A few places where much happened, little beside them, nothing in some.
    middle = rng.uniform(0, blocks, 3)[:, None]
    near = np.exp(-(((np.arange(blocks) - middle) / (blocks / 12)) ** 2)).sum(axis=0)
    share = np.clip(near + rng.normal(0.1, 0.1, blocks), 0, 1)
    in_block = np.minimum((share * height).round().astype(int), height)
    in_block[-1] = min(in_block[-1], rows - (blocks - 1) * height)
    std = 0.02 + 0.01 * (seed % 5)
    norm = std * sqrt(elements)
    l2 = relative * norm
    weights = in_block * (0.3 + near)
    norms = l2 * np.sqrt(weights / max(weights.sum(), 1e-9))
    changed = max(int(in_block.sum()) * shape[1] * 9 // 10, 1)
    ranges = tuple((n * height, n * height + int(c)) for n, c in enumerate(in_block) if c)
    facts = RowFacts(
        rows,
        int(in_block.sum()),
        ranges,
        True,
        RowBlocks(height, tuple(in_block.tolist()), tuple(norms.tolist())),
    )
    far = 2 + 16 * relative
    ulp = tuple((1 << k, int(changed * np.exp(-((k - far) ** 2) / 3))) for k in range(1, 16))
    before = SideFacts(elements, 1.2e-4 * (seed % 7 - 3), std, 12, 0, 0)
    after = SideFacts(elements, before.mean, std * (1 + relative / 3), 9, 0, 0)
    made = Numbers(
        elements,
        changed,
        facts,
        l2,
        norm,
        relative,
        l2 / sqrt(changed) * 4.1,
        (rows * 2 // 3, shape[1] // 5),
        1 - relative * relative / 2,
        before,
        after,
        0,
        0,
        changed // 400,
        tuple((least, count) for least, count in ulp if count),
    )
    return TensorDiff(name, TensorStatus.CHANGED, "bf16", shape, change=replace(made, **changes))


def distributions(seed: int, change: Numbers) -> Distributions:
    """Values that fit the tensor's mean and deviation."""
    rng = np.random.default_rng(seed)
    std = (change.before.std or 1.0) * 4
    before = rng.normal(0, std / 4, 20_000)
    moved = rng.standard_t(4, 20_000) * std * min(change.relative_l2 or 0.1, 0.2) * 0.6
    after = before + moved * (rng.random(20_000) < 0.7)
    wide = float(np.abs(moved).max()) * 0.8
    return Distributions(_histogram(before, std), _histogram(after, std), _histogram(moved, wide))


def _histogram(values: np.ndarray, end: float) -> Histogram:
    counts, _ = np.histogram(values, BINS, (-end, end))
    below, above = int((values < -end).sum()), int((values > end).sum())
    return Histogram(-end, end, tuple(counts.tolist()), below, above)


def _group(name: str, tensors: list[TensorDiff]) -> LayerGroup:
    numbers = [t.change for t in tensors if isinstance(t.change, Numbers)]
    l2 = sqrt(sum(one.l2**2 for one in numbers))
    norm = sqrt(sum(one.base_norm**2 for one in numbers))
    return LayerGroup(
        name,
        len(tensors),
        sum(t.status is TensorStatus.CHANGED for t in tensors),
        sum(int(np.prod(t.shape)) for t in tensors),
        sum(one.changed for one in numbers),
        l2,
        l2 / norm if norm else 0.0,
    )


def _finetuned() -> Reviewed:
    spoilt = "model.layers.7.self_attn.v_proj.weight"
    jumped = "model.layers.11.mlp.down_proj.weight"
    recast = "lm_head.weight"
    tensors = []
    for layer in range(_LAYERS):
        for n, (part, shape) in enumerate(_CHANGED):
            name = f"model.layers.{layer}.{part}.weight"
            relative = 10 ** (-2.9 + 0.09 * layer + 0.12 * (n * 7 % 5))
            changes: dict[str, object] = {}
            if name == spoilt:
                changes = {"new_nan": 3, "new_inf": 1}
            elif name == jumped:
                relative = 0.31
            made = changed_tensor(layer * 10 + n, name, shape, relative, **changes)
            tensors.append(made)
        for part in ("input_layernorm", "post_attention_layernorm"):
            name = f"model.layers.{layer}.{part}.weight"
            tensors.append(TensorDiff(name, TensorStatus.SAME, "bf16", (768,)))
    head = changed_tensor(990, recast, (32_000, 768), 0.0019)
    tensors.append(replace(head, base_dtype="f32"))
    tensors.append(
        TensorDiff("model.embed_tokens.weight", TensorStatus.SAME, "bf16", (32_000, 768))
    )
    tensors.append(TensorDiff("model.rotary.inv_freq", TensorStatus.REMOVED, "f32", (32,)))
    tensors.append(TensorDiff("adapter.scale", TensorStatus.ADDED, "f32", ()))
    tensors.append(
        TensorDiff(
            "model.norm.weight", TensorStatus.RENAMED, "bf16", (768,), "transformer.norm.weight"
        )
    )
    flags = (
        Flag(Risk.NEW_NAN, "3 items are NaN that were not", spoilt),
        Flag(Risk.NEW_INF, "1 item is infinite that was not", spoilt),
        Flag(Risk.UNUSUAL, "changed 9.4 deviations more than the median tensor", jumped),
        Flag(Risk.DTYPE, "f32 before, bf16 after", recast),
        Flag(Risk.REMOVED, "it is gone", "model.rotary.inv_freq"),
        Flag(Risk.SIGNER, "generation 9 is signed by a key that the signers file does not have"),
    )
    one = reviewed(b"checkpoints/support-chat-350m.safetensors", tensors, flags)
    assert one.diff is not None
    changes = (
        MetadataChange("/__metadata__/step", TensorStatus.CHANGED, "48000", "51200"),
        MetadataChange("/__metadata__/lr", TensorStatus.CHANGED, "3e-5", "2e-5"),
        MetadataChange("/__metadata__/dataset", TensorStatus.ADDED, None, "support-2025-04"),
    )
    return replace(
        one,
        diff=replace(one.diff, metadata=changes),
        seal=SealVerdict(
            Sealing.UNTRUSTED,
            "generation 9 is signed by nobody who is trusted",
            (
                ReviewedGeneration(
                    8, "2025-05-03T17:40:02Z", COMMITS[1], ("ada@example.com",), "ok"
                ),
                ReviewedGeneration(
                    9,
                    "2025-05-04T09:12:44Z",
                    HEAD,
                    ("SHA256:Kx0c7mE0Yb2Vt9nTq4wVhQ0s1oZkU3pR5fJd8LgA6iM",),
                    "untrusted-signer",
                ),
            ),
        ),
        sizes=Sizes(61 * MIB, 62 * MIB, 84 * MIB, 86 * MIB + 300_000, 100 * MIB),
        commits=(
            ReviewedCommit(COMMITS[0], "data: support tickets up to April"),
            ReviewedCommit(COMMITS[1], "train: 1,600 steps at 3e-5"),
            ReviewedCommit(HEAD, "train: 1,600 steps more at 2e-5, and the head in bf16"),
        ),
    )


def _adapter() -> Reviewed:
    tensors = [
        changed_tensor(700 + n, f"adapter.layers.{n // 2}.lora_{'AB'[n % 2]}.weight", (64, 16))
        for n in range(6)
    ]
    tensors.append(PACKED)
    return reviewed("adapters/tonalit\u00e9.fold".encode(), tensors, formats="fold")


def _hostile_artifact(seed: int, name: str) -> Reviewed:
    tensors = [
        changed_tensor(seed, name, (4, 4)),
        TensorDiff(name + "2", TensorStatus.CHANGED, name, (1,), base_dtype=name, reason=name),
        TensorDiff(name + "3", TensorStatus.RENAMED, name, (1,), base_name=name),
    ]
    flags = tuple(Flag(risk, name, name) for risk in Risk)
    one = reviewed(name.encode("utf-8", "surrogateescape"), tensors, flags, name)
    assert one.diff is not None
    changes = (MetadataChange(name, TensorStatus.CHANGED, {name: name}, [name]),)
    return replace(
        one,
        base_path=b"\xff</title><script>alert(4)</script>",
        reason=name,
        diff=replace(one.diff, a=name, b=name, metadata=changes, notes=(name,)),
        seal=SealVerdict(
            list(Sealing)[seed % 4], name, (ReviewedGeneration(1, name, name, (name,) * 9, name),)
        ),
        commits=(ReviewedCommit(name, name),),
        fate=list(Fate)[seed % 4],
    )
