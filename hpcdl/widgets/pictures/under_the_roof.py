"""Four layers under the roof of a machine: what limits each of them, and which batch changes that.

Roofline: Williams, Waterman and Patterson 2009. Peaks and bandwidths are data sheets' (`hpcdl.cost.machines`).
"""

from collections.abc import Mapping

from matplotlib.axes import Axes

from hpcdl.cost.machines import MACHINES
from hpcdl.cost.roofline import Device, attainable
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import choice, stops
from hpcdl.widgets.kit.explorable import Explorable

BATCHES = tuple(2**k for k in range(11))
CHIPS = {
    "P100, fp32": ("P100", "fp32", 4),
    "V100, fp16": ("V100 (DGX-1)", "fp16", 2),
    "A100, fp16": ("A100 (DGX)", "fp16", 2),
    "H100, fp16": ("H100 (DGX)", "fp16", 2),
}
LAYERS = {  # weights, multiply-accumulates and numbers moved for one image of 256 x 14 x 14, or one row of 4,096
    "3 x 3 convolution": (256 * 256 * 9, 256 * 256 * 9 * 14**2, 2 * 256 * 14**2),
    "1 x 1 convolution": (256 * 256, 256 * 256 * 14**2, 2 * 256 * 14**2),
    "depthwise 3 x 3": (256 * 9, 256 * 9 * 14**2, 2 * 256 * 14**2),
    "fully connected": (4096 * 1000, 4096 * 1000, 4096 + 1000),
}
MARKS = dict(zip(LAYERS, "os^D", strict=True))
COLOURS = {"memory": style.ORANGE, "arithmetic": style.BLUE}
LEFT, RIGHT = 0.2, 4000.0  # operations per byte


def explorable() -> Explorable:
    """The batch, and the chip."""
    controls = {
        "batch": stops("batch", BATCHES, 32),
        "chip": choice("chip", [(name, name) for name in CHIPS], "V100, fp16"),
    }
    return Explorable(draw, controls, (9.6, 4.4), layout=[["roof", "peak"]], width_ratios=[1.35, 1])


def device(chip: str) -> tuple[Device, int]:
    """Return a chip's roof and the bytes of a number."""
    name, precision, itemsize = CHIPS[chip]
    return MACHINES[name].device(precision), itemsize


def intensity(layer: str, batch: int, itemsize: int) -> float:
    """Return the operations per byte of a layer: inputs, outputs, and its weights once for the whole batch."""
    weights, macs, moved = LAYERS[layer]
    return 2 * batch * macs / (itemsize * (batch * moved + weights))


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    """The layers on the roof at the left, their share of the peak at the right."""
    roof, itemsize = device(state["chip"])
    across = {layer: intensity(layer, state["batch"], itemsize) for layer in LAYERS}
    limits = {layer: "memory" if x < roof.ridge else "arithmetic" for layer, x in across.items()}
    _draw_roof(axes["roof"], state["chip"], across, limits)
    _draw_peak(axes["peak"], roof, across, limits)
    waiting = [layer for layer, limit in limits.items() if limit == "memory"]
    said = f"memory limits {', '.join(waiting)}" if waiting else "arithmetic limits all four layers"
    return (
        f"Batch {state['batch']} on one {state['chip']}: {said}. "
        f"The roof bends at {roof.ridge:.0f} operations per byte."
    )


def _draw_roof(axes: Axes, chip: str, across: dict[str, float], limits: dict[str, str]) -> None:
    for name in CHIPS:
        roof, _ = device(name)
        here = name == chip
        xs = [LEFT, roof.ridge, RIGHT]
        ys = [attainable(x, roof) / 1e12 for x in xs]
        axes.loglog(xs, ys, color=style.INK if here else style.CONTOUR, linewidth=2.6 if here else 1.2)
        place = axes.get_yaxis_transform()  # beside the axes, where no mark comes
        axes.text(
            1.02, ys[-1], name, transform=place, va="center", fontsize=10, color=style.INK if here else style.GREY
        )
    roof, _ = device(chip)
    for layer, x in across.items():
        axes.loglog(x, attainable(x, roof) / 1e12, MARKS[layer], color=COLOURS[limits[layer]], markersize=9)
    axes.set(xlim=(LEFT, RIGHT), ylim=(0.1, 3000), xlabel="operations per byte", ylabel="TFLOP/s at most")
    style.ticks(axes.xaxis, [1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    style.ticks(axes.yaxis, [0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1,000"])
    axes.set_title("Four layers under the roof")


def _draw_peak(axes: Axes, roof: Device, across: dict[str, float], limits: dict[str, str]) -> None:
    for row, (layer, x) in enumerate(across.items()):
        share = attainable(x, roof) / roof.peak
        axes.barh(row, 100 * share, height=0.55, color=COLOURS[limits[layer]])
        axes.plot(3, row - 0.45, MARKS[layer], color=style.GREY, markersize=7, clip_on=False)
        axes.text(8, row - 0.45, f"{layer}: {100 * share:.0f} %", va="center", fontsize=11)
    axes.set(xlim=(0, 100), ylim=(3.5, -0.75), xlabel="% of the chip's peak")
    style.ticks(axes.yaxis, [], [])
    for limit, colour in COLOURS.items():
        axes.barh(0, 0, color=colour, label=f"limited by {limit}")
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=2, handlelength=1.0, columnspacing=1.0, fontsize=10
    )
