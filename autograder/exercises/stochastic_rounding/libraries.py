"""What the answers of several exercises may not call."""

from autograder.authoring import Rules

GRIDS = tuple(f"hpcdl.numerics.rounding.formats.{kind}.quantum" for kind in ("Fixed", "Float"))
OWN: Rules = {
    "forbid": (*GRIDS, "aten::*fake_quantize*", "aten::quantize_per_tensor*"),
    "instead": "Write yourself what it does: ε, floor and a comparison. Compare with it afterwards.",
}
BESIDE: Rules = {**OWN, "forbid": (*OWN["forbid"], "aten::nextafter*", "matplotlib.ticker._Edge_integer.__init__")}
