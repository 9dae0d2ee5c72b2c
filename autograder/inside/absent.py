"""Values that grading does not have: any use of one raises a sentence that says what to write instead."""

from typing import Any

NO_OUTPUTS = "`Out` and `_` have what a cell has shown, and grading shows nothing: give the value a name of its own."
NO_PROGRAMS = (
    "`!{}` runs a program of the machine, and grading runs none: write the value itself, or compute it in Python."
)
NO_CAPTURE = "`%%capture {}` keeps what a cell has shown, and grading shows nothing: give the value a name of its own."
NO_STORE = (
    "`%store -r {}` reads what another notebook has stored, and grading has only this notebook: compute the value here."
)
NO_VALUE = "`{}` has no value in grading: write the value itself, or compute it in Python."
NO_EFFECT = "`%{}` does nothing in grading: write in Python what it does."
NOT_RUN = "Grading does not run `{}`: take it out, and keep the code."
NO_SHELL = "`get_ipython().{}` does nothing in grading: write in Python what it does."


class NoProgramsError(RuntimeError):
    """A cell asks for the output of a shell line."""


class NoOutputsError(LookupError):
    """A cell asks for what grading does not have."""


class Outputs(dict):
    """IPython's `Out`, always empty."""

    def refuse(self, *args: Any) -> Any:
        raise NoOutputsError(NO_OUTPUTS)

    __getitem__ = __iter__ = get = pop = keys = values = items = refuse


class Absent:
    """A value that grading does not have: it may have a name, and any use raises."""

    def __init__(self, reason: str):
        self.__dict__["reason"] = reason

    def refuse(self, *args: Any, **options: Any) -> Any:
        raise NoOutputsError(self.reason)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.refuse()

    __call__ = __setattr__ = __contains__ = __setitem__ = __index__ = refuse
    __getitem__ = __iter__ = __len__ = __bool__ = __str__ = __float__ = __int__ = refuse
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __neg__ = __mod__ = __rmod__ = __pow__ = __rpow__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = refuse
    __hash__ = object.__hash__


class Capture(Absent):
    """What `%%capture NAME` binds; it may be shown, which shows nothing."""

    def show(self) -> None:
        """Show nothing."""

    __call__ = show


class QuietObject:
    """An object whose methods do nothing, like a shell's `display_formatter`."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> "QuietObject":
        return self

    __getitem__ = __call__

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep nothing."""
