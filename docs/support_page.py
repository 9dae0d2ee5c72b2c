"""The support matrix on the site: how much is right, and numbers that lead to the refusals that they stand for."""

import re
from html import escape

ROW = re.compile(r"^\| (?!---|model or loop)[^|]+\|.*\|$", re.MULTILINE)
HEAD = re.compile(r"^\| model or loop \|(.*)\|$", re.MULTILINE)
NUMBER = re.compile(r"(?<= )\d+(?= \|)")
SENTENCE = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)


def linked(text: str) -> str:
    """Return the page with a summary above the table, and each number as a link that shows its sentence."""
    told = dict(SENTENCE.findall(text))

    def link(number: re.Match) -> str:
        said = escape(told[number[0]], quote=True).replace("|", "&#124;").replace("`", "")
        return f'<a href="#refusal-{number[0]}" title="{said}">{number[0]}</a>'

    text = HEAD.sub(lambda head: f"{summary(text)}\n\n{head[0]}", text)
    text = ROW.sub(lambda row: _cells(row[0], link), text)
    return SENTENCE.sub(r'\1. <span id="refusal-\1"></span>\2', text)


def _cells(row: str, link) -> str:
    name, bar, cells = row[2:].partition("|")
    return "| " + name + bar + NUMBER.sub(link, cells)


def summary(text: str) -> str:
    """Return a sentence with the share of rows that each wrapper trains right."""
    names = [name.strip() for name in HEAD.search(text)[1].split("|")]
    rows = [[cell.strip() for cell in row.split("|")[2:-1]] for row in ROW.findall(text)]
    columns = list(zip(*rows, strict=True))
    tried = [[cell for cell in column if cell != "–"] for column in columns]
    shares = [f"{name} {each.count('right')} of {len(each)}" for name, each in zip(names, tried, strict=True)]
    return f"Right, of the rows that are about a wrapper: {', '.join(shares)}. A number leads to its sentence."
