"""Six tools, one step: who sends how many bytes in which stage of a step, and the line of code that says so.

Bytes are those of rings, as each rank sends them. Sources: each tool's documentation; for DDP, FSDP2 and DTensor the
tests count them on simulated ranks. Rajbhandari et al. 2020, "ZeRO" (DeepSpeed's stages); Sergeev and Del Balso 2018,
"Horovod".
"""

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from hpcdl.widgets.kit import palette, style, units
from hpcdl.widgets.kit.controls import choice, stops
from hpcdl.widgets.kit.explorable import Explorable

STAGES = ("forward", "backward", "gradients", "update")
ITEMSIZE = 4  # bytes of a number


class Tool(NamedTuple):
    """How often, by stage, all weights (gather or scatter: once, a sum: twice) and a block's activations travel."""

    weights: dict[str, int]
    activations: dict[str, int]
    lines: dict[str, str]  # by stage, what its user writes


BOTH = "loss.backward()"
STEP = "optimizer.step()"
TOOLS = {
    "DDP": Tool(
        {"gradients": 2},
        {},
        {
            "forward": "model = DistributedDataParallel(model)",
            "backward": BOTH,
            "gradients": "loss.backward()  # hooks, in buckets, while it runs",
            "update": STEP,
        },
    ),
    "FSDP2": Tool(
        {"forward": 1, "backward": 1, "gradients": 1},
        {},
        {
            "forward": "fully_shard(block, mesh=mesh)  # gathers before, frees after",
            "backward": "loss.backward()  # gathers each block once more",
            "gradients": "loss.backward()  # reduce-scatter: each rank its share",
            "update": "optimizer.step()  # only of the share",
        },
    ),
    "DTensor": Tool(
        {},
        {"forward": 2, "backward": 4},  # backward q, k, v and up have a sum each
        {
            "forward": '{"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}',
            "backward": "loss.backward()  # a sum each for what went into q, k, v and up",
            "gradients": "# each rank has the gradients of its part: nothing to send",
            "update": STEP,
        },
    ),
    "Horovod": Tool(
        {"gradients": 2},
        {},
        {
            "forward": "hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # once",
            "backward": BOTH,
            "gradients": "optimizer = hvd.DistributedOptimizer(optimizer)",
            "update": "optimizer.step()  # waits for the sums",
        },
    ),
    "DeepSpeed": Tool(
        {"gradients": 1, "update": 1},
        {},
        {
            "forward": 'engine, *_ = deepspeed.initialize(model=model, config={..."stage": 1})',
            "backward": "engine.backward(loss)",
            "gradients": "engine.backward(loss)  # reduce-scatter",
            "update": "engine.step()  # a p-th of the update, and the new weights are gathered",
        },
    ),
    "Ray Train": Tool(
        {"gradients": 2},
        {},
        {
            "forward": "model = train.torch.prepare_model(model)  # DDP",
            "backward": BOTH,
            "gradients": "loss.backward()  # DDP's",
            "update": 'train.report({"loss": loss.item()})  # on all ranks',
        },
    ),
}
MODELS = {"85 M": (768, 12), "1.5 B": (1600, 48), "7.2 B": (4096, 36)}  # hidden, blocks


def explorable() -> Explorable:
    """The tool whose line is shown, the stage, the ranks, the model, and the tokens of a rank's batch."""
    controls = {
        "tool": choice("tool", [(name, name) for name in TOOLS], "DDP"),
        "stage": choice("stage", [(name, name) for name in STAGES], "gradients"),
        "p": stops("ranks p", (1, 2, 4, 8, 16, 64), 2),
        "model": choice("blocks' weights", [(name, name) for name in MODELS], "85 M"),
        "tokens": stops("tokens on a rank", [(f"{n:,}", n) for n in (256, 1024, 4096, 16384)], 1024),
    }
    return Explorable(draw, controls, (9.6, 4.6), layout=[["table"], ["line"]], height_ratios=[5, 1])


def sent(tool: str, stage: str, p: int, hidden: int, blocks: int, tokens: int) -> float:
    """Bytes that each rank sends in a stage: (p - 1)/p of what travels, each time."""
    weights = blocks * (12 * hidden**2 + 10 * hidden)
    each = TOOLS[tool].weights.get(stage, 0) * weights
    each += TOOLS[tool].activations.get(stage, 0) * 2 * blocks * tokens * hidden  # a sum travels twice
    return (p - 1) / p * each * ITEMSIZE


def draw(state: dict, axes: Mapping[str, Axes]) -> str:
    hidden, blocks = MODELS[state["model"]]
    found = {
        (tool, stage): sent(tool, stage, state["p"], hidden, blocks, state["tokens"])
        for tool in TOOLS
        for stage in STAGES
    }
    _draw_table(axes["table"], found, state["tool"], state["stage"])
    line = TOOLS[state["tool"]].lines[state["stage"]]
    axes["line"].set_axis_off()
    axes["line"].text(0.0, 0.5, line, family="monospace", fontsize=10.5, va="center")
    total = {tool: sum(found[tool, stage] for stage in STAGES) for tool in TOOLS}
    least = [name for name, nbytes in total.items() if nbytes == min(total.values())]
    return (
        f"{state['tool']}, {state['stage']}: each rank sends {units.nbytes(found[state['tool'], state['stage']])}, and "
        f"{units.nbytes(total[state['tool']])} in the whole step. "
        + (
            f"{_send_the_least(least)}, {units.nbytes(total[least[0]])}."
            if state["p"] > 1
            else "One rank sends nothing."
        )
    )


def _send_the_least(tools: list[str]) -> str:
    """Say which tools send the least: `DDP, Horovod and Ray Train send the least`."""
    *others, last = tools
    return f"{', '.join(others)} and {last} send the least" if others else f"{last} sends the least"


def _draw_table(axes: Axes, found: dict, tool: str, stage: str) -> None:
    most = max(found.values()) or 1.0
    for x, name in enumerate(TOOLS):
        for y, row in enumerate(STAGES):
            nbytes = found[name, row]
            colour = palette.tint(style.ORANGE, 0.1 + 0.55 * nbytes / most) if nbytes else style.CARD
            chosen = (name, row) == (tool, stage)
            edge, width = (style.VERMILLION, 2.5) if chosen else (style.GREY, 0.5)
            axes.add_patch(
                Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, facecolor=colour, edgecolor=edge, linewidth=width)
            )
            axes.text(x, y, units.nbytes(nbytes) if nbytes else "–", ha="center", va="center", fontsize=9.5)
    axes.set(xlim=(-0.55, len(TOOLS) - 0.45), ylim=(len(STAGES) - 0.5, -0.5), title="Each rank sends")
    style.ticks(axes.xaxis, range(len(TOOLS)), list(TOOLS))
    style.ticks(axes.yaxis, range(len(STAGES)), list(STAGES))
