"""The slides of a notebook: title, goals, and for each section a heading, key sentences, formulas and pictures."""

import ast
import re
from dataclasses import dataclass, field

from hpcdl.slides import formulas

HEADING = re.compile(r"^(#{1,3}) (.+)$", re.MULTILINE)
HIDDEN = re.compile(r"<details>.*?</details>|<!--.*?-->|```.*?```|\*\*Further reading\*\*.*?(?=\n#|\Z)", re.DOTALL)
LIST = re.compile(r"(?:^(?:- |\d+\. ).*\n(?:  +.*\n)*)+", re.MULTILINE)
NOT_SHOWN = re.compile(
    r"exercise|hint|check|challenge|points|impostors|want more|further reading", re.IGNORECASE
)  # in a heading
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z$*`])")
LEAD_IN = re.compile(r"\*[^*\n]+\.\* ")  # *Too many messages.* begins a paragraph
TABLE = re.compile(r"^\|.*\|\n\|[-:| ]+\|\n(?:\|.*\|\n)+", re.MULTILINE)
CODE = re.compile(r"(?:^    .*\n)(?:(?:    .*)?\n)*", re.MULTILINE)
MOST_SENTENCES, MOST_ITEMS, MOST_FORMULAS, MOST_LINES = 2, 5, 3, 10
PICTURES = "hpcdl.widgets.pictures"


@dataclass
class Slide:
    """One slide: a heading with sentences, items, formulas, a table or code in Markdown; or a picture by its name."""

    title: str
    sentences: list[str] = field(default_factory=list)
    announced: str = ""  # by these words
    items: list[str] = field(default_factory=list)
    formulas: list[str] = field(default_factory=list)
    block: str = ""  # a table, or code
    picture: str = ""
    is_first: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.sentences or self.items or self.formulas or self.picture)


def slides(cells: list[dict]) -> list[Slide]:
    """Return the slides of a notebook's cells; each picture once, after the slide of its section."""
    found: list[Slide] = []
    names: dict[str, str] = {}  # of pictures, by the name that the notebook gives them
    seen: set[str] = set()
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            found += _sections(text, not found) or _formulas(text, found[-1].title if found else "")
            continue
        names |= _imported(text)
        for picture in _shown(text, names):
            if picture not in seen and found:
                seen.add(picture)
                found.append(Slide(found[-1].title, picture=picture))
    return [slide for slide in found if not slide.is_empty]


def _sections(text: str, is_first: bool) -> list[Slide]:
    """A slide for each heading of a cell; the notebook's first cell has the title and, below it, the subtitle."""
    text = HIDDEN.sub("", text)
    heads = list(HEADING.finditer(text))
    if is_first and heads:
        rest = text[heads[min(1, len(heads) - 1)].end() :]
        subtitle = [heads[1][2]] if len(heads) > 1 and heads[1][1] == "##" else []
        goals = _slide("What you will be able to do", rest)
        goals.sentences, goals.announced, goals.formulas = [], "", []
        return [Slide(heads[0][2], subtitle or [" "], is_first=True), goals]
    ends = [*(head.start() for head in heads[1:]), len(text)][: len(heads)]
    bodies = [(head[2], text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]
    return [_slide(title, body) for title, body in bodies if not NOT_SHOWN.search(title)]


def _formulas(text: str, title: str) -> list[Slide]:
    """Return a slide for a cell that continues a section, if it has a key formula."""
    text = HIDDEN.sub("", text)
    return [_slide(title, text)] if formulas.DISPLAY.search(text) and not HEADING.search(text) else []


def _slide(title: str, body: str) -> Slide:
    shown = formulas.DISPLAY.findall(body)[:MOST_FORMULAS]
    announced = _announcement(body)
    body = formulas.DISPLAY.sub("\n", body)
    paragraphs = [part for part in LIST.sub("\n", body + "\n").split("\n\n") if _is_prose(part)]
    sentences = _sentences(paragraphs[0])[:MOST_SENTENCES] if paragraphs else []
    items = _items(body, paragraphs[1:])
    if announced and sentences[-1:] == [announced]:
        sentences.pop()
    found = Slide(title, sentences, announced, items, shown)
    if sentences and sentences[-1].endswith(":") and not (items or shown):
        found.block = _block(body)
        found.sentences[-1] = sentences[-1] if found.block else f"{sentences[-1][:-1]}."
    return found


def _announcement(body: str) -> str:
    """Return the unfinished sentence that the first list continues, if any."""
    lists = LIST.search(body + "\n")
    before = body[: lists.start()].rstrip().split("\n\n")[-1] if lists else ""
    return "" if not _is_prose(before) or before.endswith((".", "?", "!", "$$", ")")) else _sentences(before)[-1]


def _items(body: str, paragraphs: list[str]) -> list[str]:
    """Return the items of the first list; without a list, the paragraphs that begin with a lead-in, in brief."""
    lists = LIST.search(body + "\n")
    if lists:
        items = re.split(r"^(?:- |\d+\. )", lists[0], flags=re.MULTILINE)[1:]
    else:
        items = [part.strip() for part in paragraphs if LEAD_IN.match(part.strip())]
    return [" ".join(_sentences(item)[:MOST_SENTENCES]) for item in items[:MOST_ITEMS]]


def _sentences(paragraph: str) -> list[str]:
    return SENTENCE.split(" ".join(paragraph.split()))


def _block(body: str) -> str:
    """Return the first table or code of a few lines, as Markdown."""
    found = [block for pattern in (TABLE, CODE) for block in pattern.findall(body + "\n")]
    return next((block for block in found if block.count("\n") <= MOST_LINES), "")


def _is_prose(part: str) -> bool:
    """Return whether a paragraph is no table, no drawing and no code."""
    return bool(part.strip()) and not part.startswith("    ") and not part.lstrip().startswith(("|", "{{", "<"))


def _imported(code: str) -> dict[str, str]:
    """Return the pictures that a cell imports, by the name that it gives them."""
    nodes = [node for node in _walk(code) if isinstance(node, ast.ImportFrom) and node.module == PICTURES]
    return {alias.asname or alias.name: alias.name for node in nodes for alias in node.names}


def _shown(code: str, names: dict[str, str]) -> list[str]:
    """Return the pictures that a cell shows."""
    called = [node.value for node in _walk(code) if isinstance(node, ast.Attribute) and node.attr == "explorable"]
    return [names[value.id] for value in called if isinstance(value, ast.Name) and value.id in names]


def _walk(code: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(code)))
    except SyntaxError:  # a cell with a magic
        return []
