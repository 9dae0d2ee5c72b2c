"""Functions written in the notebook of an earlier lab, as text to paste."""

import ast
import json
import re
from pathlib import Path

MAGIC = re.compile(r"^\s*[%!?].*$", re.MULTILINE)


def bring(name: str, folder: Path | None = None) -> None:
    """Print the text of a function of yours from the lab's notebook in this folder: `bring("ddp.ring_all_reduce")`.

    Of several definitions it takes the last. Without a notebook, or if the function is still open, it says so.
    """
    slug, _, function = name.partition(".")
    found = sorted((folder or Path.cwd()).glob(f"[0-9][0-9]_{slug}.ipynb"))
    if not function or not found:
        print(f"There is no notebook of lab {slug!r} beside this one. Name a lab and a function: {EXAMPLE}")
        return
    definitions = _definitions(found[0])
    if function not in definitions:
        print(f"{found[0].name} has no function {function!r}.")
    elif "raise NotImplementedError" in definitions[function]:
        print(f"{function} is still open in {found[0].name}: solve it there, or here.")
    else:
        _show(function, definitions, slug, found[0].name)


EXAMPLE = 'bring("ddp.ring_all_reduce").'


def _show(function: str, definitions: dict[str, str], slug: str, file: str) -> None:
    text = definitions[function]
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    others = [other for other in definitions if other in used and other != function]
    print(f"# yours, from {file}\n{text}")
    for other in others:
        print(f'# it calls {other}: bring("{slug}.{other}")')


def _definitions(path: Path) -> dict[str, str]:
    """Return the text of every function and class at the top level of a cell, by name; the last definition counts."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found: dict[str, str] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            found |= _of_cell("".join(cell["source"]))
    return found


def _of_cell(text: str) -> dict[str, str]:
    text = MAGIC.sub("", text)
    try:
        tree = ast.parse(text)
    except SyntaxError:  # an unfinished cell
        return {}
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: ast.get_source_segment(text, node) or "" for node in tree.body if isinstance(node, kinds)}
