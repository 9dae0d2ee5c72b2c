"""The accuracy of predictions: for each kind of run, their errors on public figures.

`KINDS` is the result of `hpcdl.cost.published.intervals`, with constants fitted without one source at a time; a test
checks it. The interval of a kind without a public figure is a guess, and is marked as one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, hypot, log
from typing import Any, NamedTuple

from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import HOSTS, Machine
from hpcdl.cost.scaling import Iteration
from hpcdl.cost.topology import ParameterServers
from hpcdl.cost.work import Transformer


class Kind(NamedTuple):
    """A kind of run: the number of public `rows`, their root mean square `error` and the interval's half `width`.

    Both are logarithms of predicted over published. `says` names what the model ignores.
    """

    rows: int
    error: float
    width: float
    says: str


ASKED = 0.15  # nine of ten predictions are asked to miss by this at most
NINE_OF_TEN = 1.645  # the standard deviations within which nine of ten errors are
GUESS = 0.41  # a factor of 1.5 either way, without a public figure
KINDS = {
    "transformer": Kind(41, 0.067, 0.208, "stragglers, starts, and what a framework does between iterations"),
    "small transformer": Kind(17, 0.089, 0.328, "of 1 to 2 B parameters; below 1 B no figure is public here"),
    "tiny transformer": Kind(0, 0.0, GUESS, "of less than 1 B parameters: launching kernels matters, and differs"),
    "sharded": Kind(6, 0.047, 0.246, "two sources; networks slower than theirs have not been seen"),
    "context": Kind(0, 0.0, GUESS, "no public figure of a sequence cut over ranks"),
    "experts": Kind(1, 0.173, GUESS, "one public figure; imbalance is given, not predicted"),
    "layers": Kind(25, 0.192, 0.509, "concatenations, pools, input and what a framework adds; `measured` is better"),
    "measured": Kind(14, 0.128, 0.383, "computing was measured; messages, and waiting for the slowest, are predicted"),
    "servers": Kind(8, 0.179, 0.657, "servers differ in what they do for each byte"),
}
DEVICES = ("A100", "V100", "H100 (Grand Teton)", "P100", "P40", "K80")  # their constants come from public figures
OTHER_DEVICE = 0.26  # a factor of 1.3 either way, if the rate of matrix products is unknown


def reaches(error: float, rows: int) -> bool:
    """Return whether figures with this root mean square `error` put nine of ten predictions as near as is asked."""
    return rows > 0 and NINE_OF_TEN * error <= log(1 + ASKED)


@dataclass(frozen=True)
class Prediction:
    """An iteration's seconds and their `parts`, and the interval in which 95 of 100 such runs are expected.

    `again` predicts the seconds with a host that needs another time to launch a kernel: small models wait for it, and
    hosts differ by the factor of `machines.HOSTS`.
    """

    parts: Iteration
    kind: str
    width: float
    again: Callable[[float], float] = field(repr=False, compare=False)

    @property
    def seconds(self) -> float:
        """Return the sum of all parts."""
        return self.parts.seconds

    @property
    def low(self) -> float:
        """Return the interval's lower end, in seconds."""
        return self.seconds * exp(-hypot(self.width, log(self.again(HOSTS[0]) / self.seconds)))

    @property
    def high(self) -> float:
        """Return the interval's upper end, in seconds."""
        return self.seconds * exp(hypot(self.width, log(self.again(HOSTS[1]) / self.seconds)))

    def __getattr__(self, name: str) -> float:
        """Return a part by name: `forward`, `exposed`, `bubble`, ..., and `compute`."""
        if name in Iteration._fields or name == "compute":
            return getattr(self.parts, name)
        names = ", ".join(Iteration._fields)
        raise AttributeError(f"a prediction has no {name!r}; it has seconds, low, high, compute, {names}")

    def __str__(self) -> str:
        kind = KINDS[self.kind]
        known = f"{kind.rows} public figures missed by {100 * kind.error:.0f} %" if kind.rows else "no public figure"
        return f"{self.seconds:.3g} s ({self.low:.3g} to {self.high:.3g} s), {self.kind}: {known}; {kind.says}"


def expect(
    parts: Iteration, model: Any, machine: Machine, layout: Layout, measured: Any, again: Callable[[float], float]
) -> Prediction:
    """Return the prediction with the interval of its kind, wider for a device whose constant is unknown."""
    kind = kind_of(model, machine.network, layout, measured)
    known = bool(measured) or any(machine.name.startswith(device) for device in DEVICES)
    return Prediction(parts, kind, hypot(KINDS[kind].width, 0.0 if known else OTHER_DEVICE), again)


def kind_of(model: Any, network: Any, layout: Layout, measured: Any) -> str:
    """Return a run's name in `KINDS`: the part that is hardest to predict."""
    if isinstance(network, ParameterServers) and network.staging:
        return "servers"
    if measured:
        return "measured"
    if not isinstance(model, Transformer):
        return "layers"
    if model.experts > 1:
        return "experts"
    if layout.context > 1:
        return "context"
    if layout.zero == 3:
        return "sharded"
    if model.parameters < 1e9:
        return "tiny transformer"
    return "small transformer" if model.parameters < 2e9 else "transformer"
