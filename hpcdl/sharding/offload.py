"""Optimizer states on disk, or in the host's memory: they are loaded while their parameter is updated, and prefetched.

Ren et al. 2021, "ZeRO-Offload"; Rajbhandari et al. 2021, "ZeRO-Infinity". Costs: `hpcdl.cost.offload`.
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from hpcdl.sharding.one_by_one import hooks_once, only, require_one_by_one

TOGETHER = ("LBFGS",)  # torch's: it treats all parameters as one vector

State = dict[str, Any]  # an optimizer's state for a parameter: tensors, sometimes None or a number


_numbers: weakref.WeakKeyDictionary["Store", Iterator[int]] = weakref.WeakKeyDictionary()  # not yet used, by store


class Store(Protocol):
    """A store for tensors, by number. Several optimizers may share one: each number is given once."""

    def write(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """Keep copies of the tensors."""

    def read(self, number: int, out: Sequence[torch.Tensor]) -> None:
        """Fill `out` with the stored copies."""


class Disk:
    """Files in a new folder within `folder`, removed with this object; unlike checkpoints, they do not outlive the
    process."""

    def __init__(self, folder: str | Path):
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="states-", dir=folder))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        path = self.folder / str(number)
        try:
            with path.open("wb", buffering=0) as file:
                for x in tensors:
                    _all(file.write, _bytes_of(x.detach().cpu()))
        except OSError as error:
            error.filename = str(path)  # the error of a full disk names no file
            raise

    def read(self, number: int, out: Sequence[torch.Tensor]) -> None:
        with (self.folder / str(number)).open("rb", buffering=0) as file:
            for x in out:
                here = x if x.device.type == "cpu" else torch.empty_like(x, device="cpu")
                _all(file.readinto, _bytes_of(here))
                if here is not x:
                    x.copy_(here)


class Host:
    """The host's memory, for parameters on a GPU: pinned, so that the GPU copies it while it computes."""

    def __init__(self) -> None:
        self._kept: dict[int, list[torch.Tensor]] = {}

    def write(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        if number not in self._kept:
            self._kept[number] = [torch.empty_like(x, device="cpu", pin_memory=x.is_cuda) for x in tensors]
        for kept, x in zip(self._kept[number], tensors, strict=True):
            kept.copy_(x)

    def read(self, number: int, out: Sequence[torch.Tensor]) -> None:
        for x, kept in zip(out, self._kept[number], strict=True):
            x.copy_(kept)


class Offloaded:
    """A torch optimizer whose states are in `store`, except while their parameter is updated.

        Offloaded(torch.optim.Adam(model.parameters()), Disk("scratch")).step()
        ShardedOptimizer(params, comm, lambda shards: Offloaded(torch.optim.Adam(shards), Disk("scratch")))

    `step` updates one parameter after another, with results bit-identical to the plain optimizer's. With `ahead` a
    thread writes the last parameter's states and reads the next one's meanwhile, so at most three parameters' states
    are in memory; without it, one parameter's, and each step waits for the store. Between steps no state is in memory.
    `optimizer` is the wrapped optimizer, for learning rate schedules; its `state` is what is in memory now. `state` is
    the whole state, which `with_states` and `Checkpoint.restore` accept, and `state_dict` and `load_state_dict` are as
    the plain optimizer's. Hooks of the optimizer's step run once. Raises ValueError for an optimizer that does not go
    parameter by parameter: a small copy of one that is not torch's takes some steps.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, store: Store, ahead: bool = True):
        if type(optimizer).__name__ in TOGETHER:
            raise ValueError(
                f"{type(optimizer).__name__} updates all parameters together, so that all states are needed at once; "
                "take one that goes parameter by parameter, such as SGD, Adam or AdamW"
            )
        require_one_by_one(optimizer)
        self.optimizer, self.ahead = optimizer, ahead
        self.state = States(optimizer, store)
        optimizer.register_state_dict_pre_hook(partial(_if_alive, weakref.WeakMethod(self.state.require_here)))
        optimizer.register_load_state_dict_post_hook(partial(_if_alive, weakref.WeakMethod(self.state.take_all)))

    def step(self) -> None:
        """Update the parameters that have gradients."""
        todo = [param for group in self.optimizer.param_groups for param in group["params"] if param.grad is not None]
        with hooks_once(self.optimizer):
            if self.ahead:
                self._step_ahead(todo)
            else:
                self._step_plainly(todo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an Offloaded cannot be copied or pickled: a copy would write to the same files; copy or save its "
            "state_dict(), and load it into one with a store of its own"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state with all states in memory, in torch's form."""
        self.optimizer.state.update(self.state)
        try:
            return self.optimizer.state_dict()
        finally:
            self.optimizer.state.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`, of this class or of the plain optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def _step_plainly(self, todo: list[torch.Tensor]) -> None:
        """Read, update and write, one parameter after another."""
        for param in todo:
            self.state.allocate(param)
            self.state.fetch(param)
            self._update(param)
            self.state.save(param)
            self.state.free(param)

    def _step_ahead(self, todo: list[torch.Tensor]) -> None:
        """Update each parameter while the previous one's states are written and the next one's are read."""
        with ThreadPoolExecutor(1) as link:
            for before, now, after in zip([None, None, *todo], [None, *todo, None], [*todo, None, None], strict=True):
                if after is not None:
                    self.state.allocate(after)
                moved = link.submit(self._move, before, after)
                if now is not None:
                    self._update(now)
                moved.result()
                if before is not None:
                    self.state.free(before)

    def _move(self, before: torch.Tensor | None, after: torch.Tensor | None) -> None:
        if before is not None:
            self.state.save(before)
        if after is not None:
            self.state.fetch(after)

    def _update(self, param: torch.Tensor) -> None:
        """Run the optimizer's step as if it had only this parameter."""
        with only(self.optimizer, param):
            self.optimizer.step()


class _Form(NamedTuple):
    """The shape and type of a stored tensor; its strides are those of memory without gaps."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class States(MutableMapping[torch.Tensor, State]):
    """An optimizer's states by parameter: reading one loads a copy, setting one stores it.

    An update uses four calls instead: `allocate` makes room for a parameter's states in the optimizer, `fetch` fills
    it, `save` stores them and `free` releases the memory. Another thread may call `fetch` and `save`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, store: Store):
        self._optimizer, self._store = optimizer, store
        self._forms: dict[torch.Tensor, State] = {}  # a _Form instead of each tensor
        self._numbers: dict[torch.Tensor, int] = {}
        self._unused = _numbers.setdefault(store, count())
        self.take_all()  # the optimizer may have taken steps

    @property
    def _here(self) -> MutableMapping[torch.Tensor, State]:
        return self._optimizer.state

    def take_all(self) -> None:
        """Store the states that the optimizer has in memory, and forget others."""
        self._forms.clear()
        for param in list(self._here):
            self[param] = self._here.pop(param)

    def require_here(self) -> None:
        """Raise RuntimeError unless the optimizer has all states in memory."""
        if any(param not in self._here for param in self._forms):
            raise RuntimeError(
                "state_dict: the optimizer's states are in the store of Offloaded, and would be missing; call "
                "state_dict() of the Offloaded"
            )

    def allocate(self, param: torch.Tensor) -> None:
        """Allocate memory for the states, if any exist yet."""
        if param in self._forms:
            self._here[param] = {key: _empty(form) for key, form in self._forms[param].items()}

    def fetch(self, param: torch.Tensor) -> None:
        """Fill the memory from `allocate`."""
        if param in self._forms:
            self._store.read(self._numbers[param], _tensors(self._here[param]))

    def save(self, param: torch.Tensor) -> None:
        """Store the optimizer's states."""
        self._put(param, self._here.get(param, {}))

    def free(self, param: torch.Tensor) -> None:
        """Free the optimizer's states."""
        self._here.pop(param, None)

    def _put(self, param: torch.Tensor, state: State) -> None:
        if param not in self._numbers:
            self._numbers[param] = next(self._unused)
        self._store.write(self._numbers[param], _tensors(state))
        self._forms[param] = {key: _form(value) for key, value in state.items()}

    def __getitem__(self, param: torch.Tensor) -> State:
        state = {key: _empty(form) for key, form in self._forms[param].items()}
        self._store.read(self._numbers[param], _tensors(state))
        return state

    def __setitem__(self, param: torch.Tensor, state: State) -> None:
        self._put(param, state)

    def __delitem__(self, param: torch.Tensor) -> None:
        del self._forms[param]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)


def _if_alive(method: weakref.WeakMethod, _: torch.optim.Optimizer) -> None:
    """Call a method of `States`: the optimizer's hooks do not keep them, nor their store, alive."""
    if found := method():
        found()


def _tensors(state: State) -> list[torch.Tensor]:
    return [value for value in state.values() if isinstance(value, torch.Tensor)]


def _form(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    stride = value.stride() if value.is_contiguous() else torch.empty_like(value, device="meta").stride()
    return _Form(value.shape, stride, value.dtype, value.device)


def _empty(form: Any) -> Any:
    if not isinstance(form, _Form):
        return form
    return torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device=form.device)


def _bytes_of(x: torch.Tensor) -> memoryview:
    """Return the memory of `x` in the order in which its elements lie; a copy of it if there are gaps."""
    if not x.is_contiguous():  # channels_last, for one
        dense = torch.empty_like(x)
        x = (x if x.stride() == dense.stride() else dense.copy_(x)).as_strided((x.numel(),), (1,))
    return x.view(-1).view(torch.uint8).numpy().data


def _all(transfer: Any, data: memoryview) -> None:
    """Repeat until all bytes are transferred: one call moves at most 2 GB."""
    while data:
        moved = transfer(data)
        if not moved:
            raise OSError(f"a file of states ends {len(data)} bytes too soon")
        data = data[moved:]
