"""An optimizer's options and states in a checkpoint: JSON, with a name for each tensor.

JSON has no tuples, tensors or complex numbers: each of them is an object whose one key says what it is.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

Keep = Callable[[str, torch.Tensor], Any]  # takes where a tensor was found; returns its name and form in JSON
Find = Callable[[Any], torch.Tensor]  # takes that name and form

ABOUT_PARAMETERS = ("params", "param_names")  # in a group, and no options


def options_of(groups: list[dict[str, Any]]) -> str:
    """Return the options of all `groups` as text. Raises ValueError for one that a file cannot hold."""
    found = [{key: value for key, value in group.items() if key not in ABOUT_PARAMETERS} for group in groups]
    return json.dumps(_pack(found, "param_groups", lambda _, x: {"dtype": _name(x.dtype), "list": _pack(x.tolist())}))


def give_options(groups: list[dict[str, Any]], text: str) -> None:
    """Give `groups` the options in `text`, tensors on the devices where they are now."""
    saved = _unpack(json.loads(text), lambda x: torch.tensor(_unpack(x["list"]), dtype=getattr(torch, x["dtype"])))
    for group, options in zip(groups, saved, strict=True):
        for key, value in options.items():
            now = group.get(key)
            if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
                value = value.to(now.device)
            group[key] = value


def require_as_many(groups: list, saved: list[list]) -> None:
    """Raise ValueError unless `saved` are the groups of one optimizer, as many as `groups`."""
    if len(saved) > 1:
        raise ValueError(
            f"the parameters were saved with {len(saved)} different lists of options; restore as many optimizers, each "
            "with its own shards, and give all ranks the same options"
        )
    if saved and len(groups) != len(saved[0]):
        raise ValueError(
            f"the checkpoint has {len(saved[0])} groups of options, and the optimizer {len(groups)}; restore an "
            "optimizer with the same groups"
        )


def require_among(groups: list[dict[str, Any]], pieces: list[torch.Tensor]) -> None:
    """Raise ValueError if `groups` have a parameter that is not among `pieces`: its state would be lost."""
    known = {id(piece) for piece in pieces}
    for param in (param for group in groups for param in group["params"]):
        if param.numel() and id(param) not in known:
            raise ValueError(
                f"the optimizer steps a tensor of shape {tuple(param.shape)} that is not among the shards, and its "
                "state would not be saved; give the shards of all that it steps, such as model.shards()"
            )


def pack_state(state: Mapping[str, Any], keep: Keep) -> Any:
    """Return a parameter's `state` in JSON's types; `keep` takes its tensors. Raises ValueError for other objects."""
    return _pack(dict(state), "", keep)


def unpack_state(packed: Any, find: Find) -> dict[str, Any]:
    """Return the state that was packed; `find` returns its tensors."""
    return _unpack(packed, find)


def as_tensor(text: str) -> torch.Tensor:
    """Return `text` as bytes."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def as_text(raw: torch.Tensor) -> str:
    """Return bytes as text."""
    return raw.numpy().tobytes().decode()


def quoted(part: str) -> str:
    """Return a part of a name without "/", which stands between parts."""
    return part.replace("%", "%25").replace("/", "%2F")


def _pack(value: Any, where: str = "", keep: Keep | None = None) -> Any:
    if isinstance(value, torch.Tensor) and keep:
        return {"tensor": keep(where, value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": _name(value)}
    if isinstance(value, list | tuple):
        items = [_pack(each, f"{where}/{i}", keep) for i, each in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        return {"dict": [[_pack(key), _pack(each, f"{where}/{quoted(str(key))}", keep)] for key, each in value.items()]}
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return _pack(value.item())
    raise ValueError(
        f"the optimizer has a {type(value).__name__} at {where.removeprefix('/')}, and a checkpoint holds tensors, "
        "numbers, strings, lists and dicts; keep it outside of the optimizer's groups and states"
    )


def _unpack(packed: Any, find: Find | None = None) -> Any:
    if isinstance(packed, list):
        return [_unpack(each, find) for each in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor" and find:
        return find(content)
    if kind == "complex":
        return complex(*content)
    if kind == "dtype":
        return getattr(torch, content)
    if kind == "tuple":
        return tuple(_unpack(content, find))
    return {_unpack(key): _unpack(each, find) for key, each in content}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
