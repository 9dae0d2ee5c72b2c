"""All algorithms of a convolution, raced while you watch over the size of the kernel, beside what counts predict."""

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from torch.nn.functional import conv2d

from hpcdl.conv import ALGORITHMS, Problem
from hpcdl.cost import convolution as counts
from hpcdl.widgets.kit import style
from hpcdl.widgets.kit.controls import MEASURED, MODEL, model_or_measured, shows, stops
from hpcdl.widgets.kit.explorable import Explorable

SIZE = 32  # pixels of the images, each way
KERNELS = (1, 3, 5, 7, 9, 11, 13, 15)
SECONDS = 0.015  # for each dot: as many runs as fit, the fastest counts
LONGEST = 0.08  # of one run: what is expected to take longer is left out
LOOKS = {
    "direct": (style.BLUE, "o"),
    "im2col": (style.ORANGE, "s"),
    "toeplitz": (style.GREY, "v"),
    "winograd_2x2": (style.PURPLE, "P"),
    "winograd_4x4": (style.VERMILLION, "D"),
    "fft": (style.GREEN, "^"),
    "torch": (style.INK, "x"),
}


class MeasuredMachine(NamedTuple):
    """What the prediction knows of the machine."""

    multiplications: float  # a second, in a matrix product
    nbytes: float  # a second, read or written


def library() -> dict[str, Callable]:
    """The course's algorithms and torch's own, as functions of x and w."""
    return {**ALGORITHMS, "torch": conv2d}


def library_cost(algorithm: str, problem: Problem) -> tuple[int, int]:
    """Multiplications of data with weights, and bytes moved."""
    cost = counts.cost(algorithm, problem)
    return cost.products, cost.nbytes


class Race(Explorable):
    """Channels and batch; each new setting is measured when it is chosen, kernel by kernel, in about a second."""

    def __init__(self, runs: dict[str, Callable], predict: Callable):
        self.runs, self.predict = runs, predict
        self.measured: dict[tuple[int, int], dict] = {}  # by channels and batch
        self._measuring = threading.Lock()  # two runs at once would slow each other
        self.machine = measure_machine()
        warm_up(runs)
        controls = {
            "channels": stops("channels C = K", [1, 4, 8, 16, 32], 8),
            "batch": stops("batch N", [1, 2, 4, 8], 1),
            "kind": model_or_measured(),
        }
        super().__init__(self._draw, controls, (9.6, 4.8), layout=[["times", "best"]], width_ratios=[2.1, 1])

    def _draw(self, state, axes) -> str:
        known = {
            "measured": dict(self._times(state)),
            "machine": self.machine,
            "predict": self.predict,
            "names": self.runs,
        }
        return draw({**state, **known}, axes)

    def _times(self, state) -> dict:
        return self.measured.setdefault((state["channels"], state["batch"]), {})

    def _redraw(self, _change=None) -> None:
        self._asked = asked = object()
        super()._redraw()
        with self._measuring:
            self._measure(lambda: self._asked is not asked)

    def _measure(self, outdated: Callable[[], bool]) -> None:
        """Measure what this setting lacks, kernel by kernel, until there is a newer one."""
        state = self.state
        times = self._times(state)
        for kernel in KERNELS:
            if kernel not in times and not outdated():
                times[kernel] = measure(self.runs, problem_of(state, kernel), times)
                super()._redraw()


def explorable(runs: dict[str, Callable] | None = None, predict: Callable = library_cost) -> Race:
    """The race of `runs`, {algorithm: f(x, w)}, by default the library's and torch's; `predict` gives
    (multiplications, bytes) of an algorithm and a Problem.
    """
    return Race(runs or library(), predict)


def problem_of(state: dict, kernel: int) -> Problem:
    channels = state["channels"]
    return Problem(state["batch"], channels, SIZE, SIZE, channels, kernel, kernel)


def possible(algorithm: str, problem: Problem) -> bool:
    """Whether the algorithm is for this kernel: Winograd's is for 3 x 3."""
    return not algorithm.startswith("winograd") or problem.R == 3


# Measuring


def measure_machine() -> MeasuredMachine:
    """The fastest of a few matrix products, and of a few copies of four megabytes."""
    a, here, there = torch.rand(256, 256), torch.rand(1 << 20), torch.zeros(1 << 20)
    return MeasuredMachine(256**3 / fastest(lambda: a @ a), 2 * 4 * here.numel() / fastest(lambda: there.copy_(here)))


def fastest(run: Callable, seconds: float = SECONDS) -> float:
    """The least seconds of a run, of at least two and of as many as fit."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        if times[-1] > LONGEST:
            break
    return min(times)


def warm_up(runs: dict[str, Callable]) -> None:
    """Run everything once: kernels are compiled at their first call, once for a machine."""
    start = time.perf_counter()
    for run in runs.values():
        with torch.no_grad():
            run(torch.zeros(1, 4, 8, 8), torch.zeros(4, 4, 3, 3))
    if (seconds := time.perf_counter() - start) > 3:
        print(f"The fast kernels were compiled first, once for this machine: {seconds:.0f} s.")


def measure(runs: dict[str, Callable], problem: Problem, before: dict) -> dict[str, float]:
    """Seconds of each algorithm that can do it; `before` are smaller kernels, {kernel: {algorithm: seconds}}."""
    x, w = torch.rand(problem.x_shape), torch.rand(problem.w_shape)
    found = {}
    for algorithm, run in runs.items():
        if possible(algorithm, problem) and expected(algorithm, problem, before) < LONGEST:
            with torch.no_grad():
                found[algorithm] = fastest(lambda run=run: run(x, w))
    return found


def expected(algorithm: str, problem: Problem, before: dict) -> float:
    """Seconds to be feared: the last kernel's, grown with the work."""
    known = [(kernel, times[algorithm]) for kernel, times in before.items() if algorithm in times]
    if not known:
        return 0.0 if not before or algorithm.startswith("winograd") else math.inf  # it was too slow before
    kernel, seconds = max(known)
    return seconds * (problem.R / kernel) ** (0 if algorithm == "fft" else 2)


# The picture


def draw(state: dict, axes: dict[str, Axes]) -> str:
    """`state`: channels, batch, measured {kernel: {algorithm: seconds}}, machine, predict, and the names that race."""
    predicted = {kernel: predictions(state, kernel) for kernel in KERNELS}
    names = [
        name for name in LOOKS if any(name in times for times in (*predicted.values(), *state["measured"].values()))
    ]
    for name in names:
        label = name.replace("_", " ")
        if shows(state, MODEL):
            _series(axes["times"], name, predicted, "-", label=None if shows(state, MEASURED) else label)
        if shows(state, MEASURED):
            _series(axes["times"], name, state["measured"], "", label=label)
    crossings = crossover(state["measured"]), crossover(predicted)
    _crossovers(axes["times"], *crossings)
    _frame(axes["times"])
    _best(axes["best"], state["measured"], predicted)
    return verdict(state, *crossings)


def predictions(state: dict, kernel: int) -> dict[str, float]:
    """Seconds by the counts, of every algorithm of the race that is counted."""
    problem, machine, found = problem_of(state, kernel), state["machine"], {}
    for algorithm in ALGORITHMS:
        if algorithm in state["names"] and possible(algorithm, problem):
            multiplications, nbytes = state["predict"](algorithm, problem)
            found[algorithm] = multiplications / machine.multiplications + nbytes / machine.nbytes
    return found


def crossover(times: dict) -> int | None:
    """The kernel from which on Fourier is the fastest of the course's algorithms; None where it is not at the end."""
    last = None
    for kernel in sorted(times, reverse=True):
        if best(times[kernel]) != "fft":
            break
        last = kernel
    return last if len(times) == len(KERNELS) else None


def best(times: dict[str, float]) -> str | None:
    ours = {name: seconds for name, seconds in times.items() if name != "torch"}
    return min(ours, key=ours.__getitem__) if ours else None


def verdict(state: dict, measured: int | None, predicted: int | None) -> str:
    """Where Fourier begins to win, measured and predicted, in a sentence."""
    done = len(state["measured"])
    if done < len(KERNELS):
        return f"Measuring: {done} of {len(KERNELS)} kernels. The lines are predicted from counts."

    def said(kernel):
        return f"from {kernel} x {kernel} on" if kernel else "for none of these kernels"

    right = sum(best(state["measured"][k]) == best(predictions(state, k)) for k in KERNELS)
    images = f"{state['batch']} image{'s' * (state['batch'] > 1)}, {state['channels']} channels"
    return (
        f"{images}: Fourier stays the fastest {said(measured)}; predicted: {said(predicted)}. The counts name the "
        f"fastest algorithm for {right} of {len(KERNELS)} kernels."
    )


def _series(axes, name: str, times: dict, line: str, label) -> None:
    colour, marker = LOOKS[name]
    kernels = [kernel for kernel in sorted(times) if name in times[kernel]]
    if len(kernels) < 2 and line:
        return  # a prediction for one kernel alone is no line
    if not kernels:
        return
    looks = {"linestyle": line, "linewidth": 1.6} if line else {"linestyle": "", "marker": marker, "markersize": 6.5}
    axes.plot(kernels, [1e3 * times[kernel][name] for kernel in kernels], color=colour, label=label, **looks)


def _crossovers(axes, measured: int | None, predicted: int | None) -> None:
    """Upright lines below the legend where Fourier begins to win."""
    for kernel, line, height, what in ((measured, "-", 1.6e-2, "measured"), (predicted, "--", 6e-3, "predicted")):
        if kernel:
            axes.axvline(kernel - 0.5, ymax=0.8, color=style.INK, linewidth=1.2, linestyle=line)
            side = "right" if kernel > KERNELS[-3] else "left"
            axes.text(kernel - 0.5, height, f" {what} ", ha=side, va="bottom", fontsize=10, bbox=style.BEHIND)


def _frame(axes) -> None:
    axes.set(yscale="log", xlim=(0, 16), ylim=(5e-3, 2e3), xlabel="kernel size R = S", ylabel="milliseconds")
    style.ticks(axes.xaxis, KERNELS, [str(kernel) for kernel in KERNELS])
    style.decades(axes.yaxis)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", ncols=4, columnspacing=0.9, handletextpad=0.1, labelspacing=0.3)
    axes.set_title("Measured (marks), predicted (lines)")


def _best(axes, measured: dict, predicted: dict) -> None:
    """Which of the course's algorithms is the fastest, kernel by kernel."""
    for column, times in enumerate((measured, predicted)):
        for row, kernel in enumerate(KERNELS):
            if name := best(times.get(kernel, {})):
                colour, _ = LOOKS[name]
                axes.barh(row, 0.94, left=column + 0.03, height=0.86, color=colour, alpha=0.6)
                axes.text(column + 0.5, row, name.replace("winograd_", "Win. "), ha="center", va="center", fontsize=10)
    axes.set(xlim=(0, 2), ylim=(len(KERNELS) - 0.5, -0.5), ylabel="kernel size")
    style.ticks(axes.xaxis, [0.5, 1.5], ["measured", "predicted"])
    style.ticks(axes.yaxis, range(len(KERNELS)), [str(kernel) for kernel in KERNELS])
    axes.grid(False)
    axes.set_title("Fastest (without torch)")
