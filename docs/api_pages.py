"""The pages of the API, one for each part of the library: signatures, docstrings, and the file to read."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(path.parent for path in (ROOT / "hpcdl").glob("*/__init__.py"))
MAX_SIGNATURE = 100
PROSE = re.compile(r"([*_\[<$])(?=[^`]*(?:`[^`]*`[^`]*)*$)")  # outside of `code`


@dataclass
class Entry:
    """A public function or class of a module."""

    title: str
    signature: str
    doc: str


def write(folder: Path) -> None:
    """Write the pages into `folder`, as Markdown, and remove those of parts that are gone."""
    folder.mkdir(exist_ok=True)
    pages = {f"{part.name}.md": page(part.name) for part in FOLDERS}
    pages["index.md"] = index()
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def index() -> str:
    parts = {folder.name: _doc(folder / "__init__.py").partition("\n")[0] for folder in FOLDERS}
    rows = "\n".join(f"| [hpcdl.{part}]({part}.md) | {_markdown(words)} |" for part, words in parts.items())
    toc = "\n".join(parts)
    return (
        f"# The library\n\n| part | what it holds |\n| --- | --- |\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{toc}\n```\n"
    )


def page(part: str) -> str:
    """The page of one part: its contract, then each module's public names."""
    folder = ROOT / "hpcdl" / part
    text = [f"# hpcdl.{part}", _markdown(_doc(folder / "__init__.py"))]
    for path in sorted(folder.rglob("*.py")):
        found = entries(path)
        if path.stem.startswith("_") or not found:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        text += [f"## {module}", f"`{path.relative_to(ROOT)}`", _markdown(_doc(path))]
        for entry in found:
            text += [f"### {entry.title}", f"```python\n{entry.signature}\n```", _markdown(entry.doc)]
    return "\n\n".join(filter(None, text)) + "\n"


def entries(path: Path) -> list[Entry]:
    """The public functions and classes that have a docstring, methods after their class."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and _public(node):
            found.append(_entry(node))
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and _public(each)]
                found += [_entry(method, node.name + ".") for method in methods]
    return found


def _public(node) -> bool:
    return not node.name.startswith("_") and ast.get_docstring(node) is not None


def _entry(node, prefix: str = "") -> Entry:
    return Entry(f"{prefix}{node.name}", _signature(node), ast.get_docstring(node))


def _signature(node) -> str:
    if isinstance(node, ast.ClassDef):
        start = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
        arguments = ast.unparse(start.args).removeprefix("self").removeprefix(", ") if start else ""
        return f"class {node.name}({arguments})" if arguments else f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    one = f"def {node.name}({ast.unparse(node.args)}){returns}"
    if len(one) <= MAX_SIGNATURE:
        return one
    arguments = ",\n    ".join(_arguments(node.args))
    return f"def {node.name}(\n    {arguments},\n){returns}"


def _arguments(args: ast.arguments) -> list[str]:
    """Each argument as it is written, `*` included."""
    call = ast.parse(f"def f({ast.unparse(args)}): ...").body[0].args
    plain = [*call.posonlyargs, *call.args]
    defaults = [None] * (len(plain) - len(call.defaults)) + call.defaults
    parts = [_argument(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if call.vararg or call.kwonlyargs:
        parts.append(f"*{ast.unparse(call.vararg)}" if call.vararg else "*")
    parts += [_argument(arg, default) for arg, default in zip(call.kwonlyargs, call.kw_defaults, strict=True)]
    return parts + ([f"**{ast.unparse(call.kwarg)}"] if call.kwarg else [])


def _argument(arg: ast.arg, default) -> str:
    equals = " = " if arg.annotation else "="
    return ast.unparse(arg) + (f"{equals}{ast.unparse(default)}" if default is not None else "")


def _doc(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _markdown(doc: str) -> str:
    """A docstring as Markdown, which it nearly is: in prose, products, brackets and comparisons mean themselves."""
    return "\n".join(line if line.startswith("    ") else PROSE.sub(r"\\\1", line) for line in doc.splitlines())
