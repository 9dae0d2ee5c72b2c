"""Attention: who looks at whom under a mask and a temperature, and what its scores hold as a sequence grows.

Sources: Vaswani et al. 2017, "Attention is all you need"; Liu et al. 2023, "Ring attention" (six blocks on each rank).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes

from hpcdl.widgets.kit import cells, palette, style, units
from hpcdl.widgets.kit.controls import choice, log_slider, stops
from hpcdl.widgets.kit.explorable import Explorable

TOKENS, D = 16, 8  # tokens in the left picture, numbers of their queries and keys
HIDDEN, HEADS, ITEMSIZE = 4096, 32, 2  # of the layer in the right picture
BLOCK = 256  # keys of a block of scores
GPU = 80e9  # bytes: the line in the right picture
LENGTHS = tuple(2**i for i in range(7, 23))
RANKS = (1, 4, 16, 64, 256)
STEPS = 20  # shades of a weight
LOW, HIGH = 4, 15.5  # powers of ten of the bytes that are shown
LINES = {
    "all scores": style.VERMILLION,
    "a block of scores": style.BLUE,
    "q, k, v, output": style.GREEN,
}


def explorable() -> Explorable:
    """The mask, the temperature, the length of the sequence, and how many ranks share it."""
    controls = {
        "mask": choice("mask", [("causal", True), ("none", False)], True),
        "temperature": log_slider("temperature", 1.0, 0.1, 10.0),
        "n": stops("tokens n", [(f"{n:,}", n) for n in LENGTHS], 2048),
        "p": stops("ranks p", RANKS, 1),
    }
    return Explorable(draw, controls, (9.6, 4.6), layout=[["weights", "memory"]], width_ratios=[1, 1.15])


@lru_cache(maxsize=1)
def scores() -> np.ndarray:
    """Return the scores of the left picture, (TOKENS, TOKENS)."""
    chance = np.random.default_rng(4)
    q, k = chance.standard_normal((2, TOKENS, D))
    return q @ k.T / np.sqrt(D)


def weights(causal: bool, temperature: float) -> np.ndarray:
    """Return the softmax of the scores divided by the temperature; each row sums to 1."""
    hot = scores() / temperature
    if causal:
        hot = np.where(np.triu(np.ones(hot.shape, dtype=bool), 1), -np.inf, hot)
    odds = np.exp(hot - hot.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def looked_at(odds: np.ndarray) -> float:
    """Return at how many tokens a row looks on average: the exponential of its entropy."""
    logs = np.log(np.where(odds > 0, odds, 1.0))
    return float(np.exp(-(odds * logs).sum(1)).mean())


def held(n: int, p: int) -> dict[str, float]:
    """Return the bytes of one layer's attention on each of p ranks that share n tokens, forward, in 16 bits.

    In a ring a rank has room for the keys and values that arrive beside its own: six blocks instead of four.
    """
    rows = n / p
    return {
        "all scores": ITEMSIZE * HEADS * rows * n,
        "a block of scores": ITEMSIZE * HEADS * rows * min(BLOCK, n),
        "q, k, v, output": ITEMSIZE * (4 if p == 1 else 6) * rows * HIDDEN,
    }


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    """Weights at the left; at the right bytes against tokens, for one rank."""
    causal, temperature, n, p = (state[key] for key in ("mask", "temperature", "n", "p"))
    odds = weights(causal, temperature)
    _draw_weights(axes["weights"], odds, causal)
    _draw_memory(axes["memory"], n, p)
    bytes_held = held(n, p)
    flash = bytes_held["a block of scores"] + bytes_held["q, k, v, output"]
    fits = "fits" if flash <= GPU else "does not fit"
    return (
        f"A token looks at {looked_at(odds):.1f} tokens on average. {n:,} tokens: all scores take "
        f"{units.nbytes(bytes_held['all scores'])} on {'one rank' if p == 1 else f'each of {p} ranks'}; block by block "
        f"attention takes {units.nbytes(flash)}, which {fits} into {units.nbytes(GPU)}."
    )


def _draw_weights(axes: Axes, odds: np.ndarray, causal: bool) -> None:
    shades = [palette.tint(style.BLUE, step / STEPS) for step in range(STEPS + 1)]
    hidden = np.triu(np.ones(odds.shape, dtype=bool), 1) & causal
    places = np.round(STEPS * np.sqrt(odds)).astype(int)  # small weights stay visible
    colours = [
        [style.FAINT if dark else shades[place] for place, dark in zip(row, masked, strict=True)]
        for row, masked in zip(places, hidden, strict=True)
    ]
    cells.table(axes, [[""] * TOKENS] * TOKENS, colours)
    axes.set(xlim=(0, TOKENS), ylim=(TOKENS, 0), xlabel="token j that is seen", ylabel="token i that looks")
    axes.grid(False)
    for axis in (axes.xaxis, axes.yaxis):
        style.ticks(axis, [0.5, 5.5, 10.5, 15.5], ["0", "5", "10", "15"])
    axes.set_title("Weights (grey: hidden)" if causal else "Weights, nothing hidden")


def _draw_memory(axes: Axes, n: int, p: int) -> None:
    """On plain axes of logarithms, which are drawn twice as fast."""
    across = np.log2(LENGTHS)
    for name, colour in LINES.items():
        curve = np.log10([held(length, p)[name] for length in LENGTHS])
        axes.plot(across, curve, color=colour, linewidth=2, label=name)
        axes.plot(np.log2(n), np.log10(held(n, p)[name]), "o", color=colour, markersize=8)
    axes.axhline(np.log10(GPU), color=style.GREY, linestyle=":", label=units.nbytes(GPU))
    axes.set(xlim=(across[0], across[-1]), ylim=(LOW, HIGH), xlabel="tokens n", ylabel="bytes on a rank")
    style.ticks(axes.xaxis, [8, 10, 14, 17, 20], ["256", "1,024", "16,384", "131,072", "1 million"])
    style.ticks(axes.yaxis, [6, 9, 12, 15], ["1 MB", "1 GB", "1 TB", "1,000 TB"])
    axes.legend(loc="upper left")
    axes.set_title(f"One layer (h = {HIDDEN:,}), {p} rank{'s' * (p > 1)}")
