"""Say in words why a function is no kernel that Triton compiles: see `autograder.inside.triton_rule`."""

from typing import Any

from autograder import show

from .ladder import CheckFailure

RULE = (
    "A GPU runs no Python. A kernel may use its arguments, its own variables, numbers, `range`, what `tl` has, and "
    "functions under @triton.jit. Triton's interpreter runs more, which would not compile: write it with `tl`."
)
FORMS = {
    "DELETE_": "has a `del`",
    "STORE_GLOBAL": "sets a global name",
    "STORE_": "sets a part of a value; results go to memory, with `tl.store`",
    "MATCH_": "has a `match`",
}


def compiles(fault: Any, name: str, launch: str) -> None:
    """Check that the student's process has found no fault in the kernel `name` when `launch` started it."""
    if fault is None:
        return
    parts = [*fault, *[""] * 5][:5] if type(fault) in (tuple, list) else [""] * 5
    kind, what, function, line, source = (part if type(part) in (str, int) else "" for part in parts)
    place = f"Line {line} of `{function}`" if line else f"`{function or name}`"
    raise CheckFailure(sentence(str(kind), str(what), place, name, launch), got=str(source), why=RULE)


def sentence(kind: str, what: str, place: str, name: str, launch: str) -> str:
    """Return what is wrong, and where."""
    if kind == "form":
        return f"{place} {form(what)}."
    return {
        "name": f"{place} uses `{what}`, which is neither in `tl` nor a function under @triton.jit.",
        "attribute": f"{place} reads `.{what}`, which no tensor of Triton's has on a GPU.",
        "default": f"{place} has the default value `{what}`, which is not a number.",
        "kind": f"`{name}` is {show.an(what)}: write it as a function under @triton.jit, and under nothing else.",
        "hook": f"{place} has a hook or a method of its own, which would run beside the kernel. Leave it out.",
        "text": f"Triton cannot read the text of {place}: {what}. Write it in a cell, as a function under @triton.jit.",
        "changed": f"`{what}` is no longer Triton's own: an answer must not replace it. Restart the kernel.",
        "none": f"`{launch}` starts no kernel. It comes with the lab: run its cell as it is.",
    }.get(kind, f"`{name}` is no kernel that Triton compiles.")


def form(what: str) -> str:
    """Return what a line does that Triton does not compile."""
    does, _, name = what.partition(" ")
    if does == "import":
        return f"imports `{name}`"
    if does == "set":
        return f"sets `.{name}`; results go to memory, with `tl.store`"
    return next((said for op, said in FORMS.items() if what.startswith(op)), "is Python that Triton does not compile")
