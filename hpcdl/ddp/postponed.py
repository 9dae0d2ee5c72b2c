"""Run users' hooks on gradients on the mean over ranks, as in one process, not on this rank's gradient.

A wrapper gives its parameters a `Table` of hooks, in which a user's hook becomes `Postponed`: backward does not call
it. When the mean is there, the wrapper calls `run`.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch.utils.hooks import RemovableHandle

SCALE = 2.0**14  # of the large numbers with which a hook is tried

Hook = TypeVar("Hook", bound=Callable)


def own(hook: Hook) -> Hook:
    """Mark a hook of this library, which backward calls at once; return it."""
    hook.of_hpcdl = True  # type: ignore[attr-defined]
    return hook


def listen(register: Callable, param: torch.Tensor, hook: Callable) -> RemovableHandle:
    """Call `register(hook)`, a method of `param`, also if it is frozen: it may be unfrozen later. Return the handle."""
    frozen = not param.requires_grad
    param.requires_grad_(True)
    handle = register(hook)
    param.requires_grad_(not frozen)
    return handle


def postpone(params: Iterable[torch.Tensor], owner: object, aside: bool = False) -> None:
    """Postpone all hooks of `params`, later ones too, while `owner` lives.

    `aside`: `owner` takes from autograd only a part of the gradient, and calls the hooks itself with the whole.
    """
    for param in params:
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            table = getattr(param, name)
            if not isinstance(table, Table):
                table = Table(param, name == "_backward_hooks", table or {})
                setattr(param, name, table)
            table.owner, table.aside = weakref.ref(owner), aside


class Table(OrderedDict):
    """A parameter's hooks. `before`: they get the gradient; otherwise the parameter, after accumulation."""

    def __init__(self, param: torch.Tensor, before: bool, earlier: dict[int, Callable]):
        super().__init__()
        self.param, self.before = weakref.ref(param), before
        self.owner: Callable[[], object] = lambda: None
        self.aside = False  # autograd has only a part of the gradient
        self.begun = False  # a backward pass has come since the last `run`
        self.held: torch.Tensor | None = None  # the gradient before that pass
        self.any = False  # a user has, or had, a hook here
        self._earlier, self._keys = earlier, set(earlier)  # handles remove their hooks from `earlier`
        for key, hook in earlier.items():
            self[key] = hook

    def __setitem__(self, key: int, hook: Callable) -> None:
        mine = getattr(hook, "of_hpcdl", False)
        self.any = self.any or not mine
        super().__setitem__(key, hook if mine else Postponed(hook, self, key))

    def postponed(self) -> list["Postponed"]:
        """Return the users' hooks that are not removed."""
        return [hook for hook in self.values() if isinstance(hook, Postponed) and self.has(hook)]

    def has(self, hook: "Postponed") -> bool:
        """Return whether `hook` is not removed."""
        return hook.key not in self._keys or hook.key in self._earlier

    def begin(self) -> None:
        """Begin a backward pass: only its own gradient is to be hooked."""
        param = self.param()
        assert param is not None  # its hook runs
        if self.before and not self.begun and param.grad is not None:
            self.held, param.grad = param.grad.clone(), None
        self.begun = True


class Postponed:
    """A user's hook, which does nothing during backward."""

    def __init__(self, hook: Callable, table: Table, key: int):
        self.hook, self.key, self._table = hook, key, weakref.ref(table)
        self._passes, self._additive = 0, False

    def __call__(self, x: torch.Tensor) -> Any:
        table = self._table()
        if table is None or table.owner() is None or (table.before and torch.is_grad_enabled()):
            return self.hook(x)  # its wrapper is gone, or a gradient that is part of a loss
        if table.aside or not table.has(self):
            return None
        self._passes += 1
        if self._passes > 1:
            self._require_additive(x.detach(), table.before)
        table.begin()
        return None

    def _require_additive(self, like: torch.Tensor, before: bool) -> None:
        """Raise RuntimeError unless the hook of a sum is the sum of hooks: backward adds up several gradients."""
        self._additive = self._additive or (before and is_additive(self.hook, like))
        if not self._additive:
            raise RuntimeError(SEVERAL.format(tuple(like.shape)))

    def end(self) -> None:
        self._passes = 0


def users_hooks(table: dict | None) -> list[Callable]:
    """Return the users' hooks of a parameter's table, without the library's own."""
    if isinstance(table, Table):
        return [hook.hook for hook in table.postponed()]
    return [hook for hook in (table or {}).values() if not getattr(hook, "of_hpcdl", False)]


SEVERAL = (
    "a hook on the gradient of a parameter of shape {} is not linear, and one process would call it in each of several "
    "backward passes before the step, where here it would get only their sum; remove the hook, and change the gradient "
    "after synchronizing"
)


def hooked(param: torch.Tensor) -> bool:
    """Return whether users have hooks on the gradient of `param`."""
    before, after = param._backward_hooks, param._post_accumulate_grad_hooks
    return any(table.any if isinstance(table, Table) else table for table in (before, after) if table)


def changed(param: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Call the postponed hooks on `grad`, the mean gradient of `param`; return what they make of it."""
    table = param._backward_hooks
    for hook in table.postponed() if isinstance(table, Table) else ():
        new = hook.hook(grad)
        grad = grad if new is None else new
        hook.end()
    return grad


def run(param: torch.Tensor, announced: bool = True) -> None:
    """Call the postponed hooks of `param`, whose `.grad` is the mean; `announced`: a backward pass computed it."""
    table, after = param._backward_hooks, param._post_accumulate_grad_hooks
    if isinstance(table, Table):
        if param.grad is not None:
            param.grad = changed(param, param.grad)
        held, table.held, table.begun = table.held, None, False
        if held is not None and (announced or param.grad is None):
            param.grad = held if param.grad is None else param.grad + held
        for hook in table.postponed():
            hook.end()
    for hook in after.postponed() if isinstance(after, Table) else ():
        hook.end()
        if announced and param.grad is not None:
            hook.hook(param)


@torch.no_grad()
def is_additive(hook: Callable, like: torch.Tensor) -> bool:
    """Return whether `hook` is linear, by calling it with some gradients of the shape of `like`."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like) for _ in range(2))

    def hooked(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        changed = hook(x)
        return x if changed is None else changed

    try:
        pairs = (hooked(a) + hooked(b), hooked(a + b)), (SCALE * hooked(a), hooked(SCALE * a))
        return all(torch.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in pairs)
    except Exception:
        return False
