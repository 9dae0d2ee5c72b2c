"""The options of a run on a mesh: checked, written as TOML, and read from it."""

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hpcdl.parallel.schedules import SCHEDULES

AXES = ("data", "pipeline", "tensor", "sequence")
PRECISIONS = ("fp64", "fp32", "bf16", "fp16")
RATES = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}  # optimizers, and their default learning rates
SIZES = {  # models and their sizes; the first one is the default
    "mlp": ("tiny", "small", "medium"),
    "lenet": ("lenet5",),
    "gpt": ("tiny", "small", "medium", "large"),
}
TOKENS = {"tiny": 16, "small": 64, "medium": 128, "large": 256}  # of a gpt's text, by size
ALIASES = {"1f1b": "one_f_one_b"}
DERIVED = {"tokens_per_step": "batch", "microbatch_size": "microbatches"}  # the first, if given, determines the second

HEADER = "# the configuration: to repeat this run, save these lines and give --config FILE\n"

_KNOWN: dict[str, Collection[str]] = {
    "model": SIZES,
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "optimizer": RATES,
}


class ConfigurationError(ValueError):
    """An option cannot be used; the message is one sentence."""


@dataclass(frozen=True)
class Configuration:
    """Everything that determines a run: a model, a mesh, and how it is trained. Equal configurations give equal losses.

    `mesh` has the sizes of the axes in `AXES`. `batch` is the number of samples in a step over all ranks; each data
    replica splits its part into `microbatches`, computed one after another. Unless 0, `tokens_per_step` determines
    `batch` for a gpt, and `microbatch_size`, in samples, determines `microbatches` on any mesh. `sharding` is ZeRO's
    stage: 0 replicates everything, 1 to 3 shard optimizer states, gradients and weights. Raises ConfigurationError for
    a value out of range.
    """

    model: str = "gpt"
    size: str = ""  # default: the model's first
    mesh: tuple[int, int, int, int] = (1, 1, 1, 1)
    sharding: int = 0
    schedule: str = "one_f_one_b"
    microbatches: int = 1
    microbatch_size: int = 0
    precision: str = "fp32"
    optimizer: str = "adamw"
    lr: float = 0.0  # default: the optimizer's rate in `RATES`
    batch: int = 32
    tokens_per_step: int = 0
    steps: int = 20
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "schedule", ALIASES.get(self.schedule, self.schedule))
        for name, known in _KNOWN.items():
            if getattr(self, name) not in known:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(known)}")
        object.__setattr__(self, "size", self.size or SIZES[self.model][0])
        if self.size not in SIZES[self.model]:
            raise ConfigurationError(f"size is {self.size!r}; {self.model} has {', '.join(SIZES[self.model])}")
        object.__setattr__(self, "lr", self.lr or RATES[self.optimizer])
        self._require_numbers()
        if self.tokens_per_step:
            object.__setattr__(self, "batch", self._texts())
        if self.microbatch_size:
            each = self.batch // self.mesh[0] // self.microbatch_size  # `fitting` requires that it divides
            object.__setattr__(self, "microbatches", max(1, each))

    def _require_numbers(self) -> None:
        """Raise ConfigurationError if a number is out of range."""
        least = {"microbatches": 1, "batch": 1, "steps": 0, "tokens_per_step": 0, "microbatch_size": 0}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it is {smallest} or more")
        if self.sharding not in range(4):
            raise ConfigurationError(f"sharding is {self.sharding}; ZeRO's stages are 1 to 3, and 0 shards nothing")
        if not 0 < self.lr < float("inf"):
            raise ConfigurationError(f"lr is {self.lr}; a learning rate is above 0, such as {RATES[self.optimizer]}")
        if min(self.mesh) < 1:
            raise ConfigurationError(f"mesh is {self.mesh_text}; each axis has 1 rank or more")

    def _texts(self) -> int:
        """Return the texts with `tokens_per_step` tokens."""
        if self.model != "gpt":
            raise ConfigurationError(
                f"tokens_per_step is {self.tokens_per_step}, and {self.model} reads images without tokens; give batch"
            )
        tokens, length = self.tokens_per_step, TOKENS[self.size]
        if tokens % length:
            near = max(1, (2 * tokens + length) // (2 * length)) * length
            raise ConfigurationError(
                f"tokens_per_step is {tokens}, not a multiple of the {length} tokens of a text; the nearest is {near}"
            )
        return tokens // length

    @property
    def ranks(self) -> int:
        """Return the number of ranks in the mesh."""
        data, pipeline, tensor, sequence = self.mesh
        return data * pipeline * tensor * sequence

    @property
    def axes(self) -> dict[str, int]:
        """Return the axes' sizes by name, as `hpcdl.parallel.Mesh` takes them."""
        return dict(zip(AXES, self.mesh, strict=True))

    @property
    def mesh_text(self) -> str:
        """Return the mesh as `--mesh` takes it."""
        return shown(self.mesh)

    def changed(self, **options: Any) -> "Configuration":
        """Return a copy with some options changed; an option that determined one of them no longer does."""
        free = {name: 0 for name, derived in DERIVED.items() if derived in options}
        return replace(self, **{**free, **options})

    def to_toml(self) -> str:
        """Return the lines of a file for `from_toml` and `hpcdl train --config`."""
        options: dict[str, Any] = {**asdict(self), "mesh": self.mesh_text}
        for name, derived in DERIVED.items():
            del options[derived if options[name] else name]
        return "".join(f"{name} = {_value(value)}\n" for name, value in options.items())


def shown(mesh: tuple[int, ...]) -> str:
    """Return a mesh as `--mesh` takes it: data=2,pipeline=1,tensor=1,sequence=1."""
    return ",".join(f"{name}={size}" for name, size in zip(AXES, mesh, strict=True))


def parse_mesh(text: str) -> tuple[int, int, int, int]:
    """Parse the axes' sizes from a text such as "data=2,tensor=2"; missing axes are 1."""
    sizes: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, size = (word.strip() for word in part.partition("="))
        if name not in AXES or not (size.isascii() and size.isdecimal()) or len(size) > 6 or name in sizes:
            raise ConfigurationError(
                f"the mesh has {part[:40]!r}; it is a list of sizes, each axis once, such as "
                "data=2,pipeline=2,tensor=2,sequence=1"
            )
        sizes[name] = int(size)
    data, pipeline, tensor, sequence = (sizes.get(name, 1) for name in AXES)
    return data, pipeline, tensor, sequence


def from_options(options: Mapping[str, Any], start: Configuration | None = None) -> Configuration:
    """Return `start` with these options changed; raise ConfigurationError for unknown names and wrong types."""
    kinds: dict[str, type] = {field.name: type(field.default) for field in fields(Configuration)}
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in kinds:
            raise ConfigurationError(f"there is no option {name[:40]!r}; the options are {', '.join(kinds)}")
        if name == "mesh" and isinstance(value, Mapping):  # a TOML table
            value = ",".join(f"{axis}={size}" for axis, size in value.items())
        wanted = str if name == "mesh" else kinds[name]
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise ConfigurationError(f"{name} is {value!r:.60}; it is a {_NAMES[wanted]}")
        found[name] = parse_mesh(str(value)) if name == "mesh" else value
    for name, derived in DERIVED.items():
        if {name, derived} <= set(found):
            raise ConfigurationError(f"{name} determines {derived}, and both are given; give one of them")
    if start and start.lr == RATES[start.optimizer]:  # it is the optimizer's default, not a choice
        found.setdefault("lr", 0.0)
    if "model" in found:
        found.setdefault("size", "")
    return (start or Configuration()).changed(**found)


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of both; `second` wins, also over an option of `first` that would determine one of it."""
    replaced = {name for pair in DERIVED.items() if set(pair) & set(second) for name in pair}
    return {**{name: value for name, value in first.items() if name not in replaced}, **second}


_NAMES = {str: "text", int: "whole number", float: "number"}


def read_text(text: str, name: str) -> dict[str, Any]:
    """Read the options in a TOML text, or in all that runs printed, from the last one's configuration.

    Raises ConfigurationError if it is neither. `from_options` checks names and values.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _, header, printed = text.replace("\r\n", "\n").rpartition(HEADER)
        if header:
            return read_text(printed.partition("\n\n")[0], name)
        raise ConfigurationError(f"{name} is not a configuration in TOML: {error}") from None


def read_options(path: str | Path) -> dict[str, Any]:
    """Read the options in a TOML file; see `read_text`."""
    try:
        return read_text(Path(path).read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a text in UTF-8, so it is no configuration") from None


def _value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
