"""Write the pages that show the course: one for each lab, the gallery, and the cards of the landing page."""

import json
import re
import tomllib
from html import escape
from pathlib import Path

import frames
from course import ROOT, Course, courses, exercises_table, linked
from frames import Frames

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
PATH = REPOSITORY.removeprefix("https://github.com/")
BINDER = f"https://mybinder.org/v2/gh/{PATH}/main?urlpath=lab/tree/labs/"
COLAB = f"https://colab.research.google.com/github/{PATH}/blob/main/labs/"
HERO = "fill_the_bubble"  # the picture of the landing page, if some lab has it
HELPFUL = re.compile(r"\(?(\d\d[\d, and]*) helps?\)?")  # labs that are not required
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def write(folder: Path) -> dict[str, str]:
    """Write all pages into `folder`; return the landing page's texts, by the mark that each replaces."""
    found = courses()
    names = list(dict.fromkeys(name for course in found for name in course.pictures))
    drawn = frames.render_all(names)
    labs = folder / "labs"
    labs.mkdir(exist_ok=True)
    pages = {f"{course.slug}.md": lab_page(course, drawn) for course in found}
    for old in set(labs.glob("*.md")) - {labs / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        (labs / name).write_text(text, encoding="utf-8")
    (folder / "gallery.md").write_text(gallery(found, drawn), encoding="utf-8")
    return {"<!-- hero -->": raw(hero(found, drawn)), "<!-- cards -->": raw(cards(found, drawn))}


# ---------------------------------------------------------------------------------------------- a lab


def lab_page(course: Course, drawn: dict[str, Frames]) -> str:
    """The page of one lab, as Markdown with HTML for what plays."""
    shown = [drawn[name] for name in course.pictures if name in drawn]
    parts = [
        f"# {course.number} · {course.title}",
        f"*{course.subtitle}*" if course.subtitle else "",
        raw(buttons(course) + facts(course)),
        course.about,
        raw(figure(shown[0], "../", lazy=False)) if shown else "",
        f"## What you learn\n\nAfter this lab you can\n\n{course.goals}" if course.goals else "",
        "## Before you start\n\n" + before(course),
        "## Exercises\n\n" + exercises_table(course.lab),
        "## Pictures\n\n" + raw("".join(figure(each, "../") for each in shown[1:])) if shown[1:] else "",
        "## In the lectures\n\n" + lectures(course) if course.lectures else "",
        raw(json_ld(course, shown)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def buttons(course: Course) -> str:
    """Where to open the lab, and how to teach it."""
    links = [
        (BINDER + course.notebook, "Open on Binder", "button go"),
        (COLAB + course.notebook, "Open on Colab", "button"),
        (f"../notebooks/{course.notebook}", "Download", "button"),
        (f"../teaching/labs/{course.slug}.html", "Teach this lab", "button"),
    ]
    return (
        "<p class='buttons'>"
        + "".join(f'<a class="{look}" href="{to}">{said}</a>' for to, said, look in links)
        + "</p>"
    )


def facts(course: Course) -> str:
    """How long, how many exercises and points, in one line."""
    shown = [
        course.time or f"about {course.minutes} minutes",
        f"{len(course.lab.exercises)} exercises",
        f"{course.lab.points:g} points",
    ]
    return "<p class='facts'>" + "".join(f"<span>{fact}</span>" for fact in shown) + "</p>"


def before(course: Course) -> str:
    """What to do first, what the machine needs, and a word on Colab."""
    first, needs = unlinked(course.map.get("do first", "")), course.map.get("needs", "")
    helpful = HELPFUL.search(first)
    lines = [course.needs]
    lines += [f"**Do first:** {linked(labs)}." if (labs := HELPFUL.sub("", first).strip(" –")) else ""]
    lines += [f"**Useful before it:** {linked(helpful[1])}." if helpful else ""]
    lines += [f"**Needs:** {needs}." if needs.startswith("MPI") and "MPI" not in course.needs else ""]
    lines += ["**On Colab**, run `%pip install git+" + REPOSITORY + "` in a cell of its own first."]
    return "\n\n".join(filter(None, lines))


def lectures(course: Course) -> str:
    """What of the lectures students practise here, and where the lectures are listed."""
    where = "[The lectures, and the labs of all their subjects](../teaching/index.md#from-lectures-to-labs)"
    return "\n".join(f"- {subject}" for subject in course.lectures) + f"\n\n{where}"


def json_ld(course: Course, shown: list[Frames]) -> str:
    """The lab as a LearningResource of schema.org."""
    said = {
        "@context": "https://schema.org",
        "@type": "LearningResource",
        "name": course.title,
        "description": unlinked(course.idea).replace("`", ""),
        "learningResourceType": "Jupyter notebook with exercises",
        "educationalLevel": "university",
        "timeRequired": f"PT{course.minutes}M",
        "position": course.lab.number,
        "inLanguage": "en",
        "isAccessibleForFree": True,
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "teaches": [_plain(line) for line in re.split(r"\n(?=- )", course.goals)] if course.goals else [],
        "url": f"{REPOSITORY}/blob/main/labs/{course.notebook}",
        "image": [f"../_pictures/{each.name}-light.webp" for each in shown],
        "isPartOf": {"@type": "Course", "name": PROJECT["name"], "url": REPOSITORY},
    }
    content = json.dumps(said, ensure_ascii=False, indent=1).replace("</", "<\\/")
    return f'<script type="application/ld+json">\n{content}\n</script>'


def unlinked(text: str) -> str:
    """The text with the words of its links only."""
    return LINK.sub(r"\1", text)


def _plain(line: str) -> str:
    """A goal without its mark, its end and its Markdown."""
    return re.sub(r"[`*$]", "", " ".join(line.removeprefix("- ").split())).rstrip(";.")


# ---------------------------------------------------------------------------------------------- all labs


def gallery(found: list[Course], drawn: dict[str, Frames]) -> str:
    """Every picture, under its lab."""
    parts = ["# Gallery", "Every picture of the labs. In a lab you move them yourself."]
    seen: set[str] = set()
    for course in found:
        new = [drawn[name] for name in course.pictures if name in drawn and name not in seen]
        seen |= {each.name for each in new}
        if new:
            pictures = "".join(figure(each, "") for each in new)
            parts += [f"## {course.number} · {course.title}", f"[The lab](labs/{course.slug}.md)"]
            parts += [raw(f"<div class='gallery'>{pictures}</div>")]
    return "\n\n".join(parts) + "\n"


def cards(found: list[Course], drawn: dict[str, Frames]) -> str:
    """A card for each lab: its first picture, its title, its idea."""
    return "<div class='cards'>" + "".join(card(course, drawn) for course in found) + "</div>"


def card(course: Course, drawn: dict[str, Frames]) -> str:
    shown = next((drawn[name] for name in course.pictures if name in drawn), None)
    picture = images(shown, "", play=False) if shown else ""
    return (
        f'<a class="card" href="labs/{course.slug}.html">{picture}'
        f"<strong>{course.number} · {escape(course.title)}</strong>"
        f"<span>{escape(_plain(course.subtitle or course.idea))}</span>"
        f"<small>{course.minutes} minutes · {len(course.lab.exercises)} exercises</small></a>"
    )


def hero(found: list[Course], drawn: dict[str, Frames]) -> str:
    """The picture that plays on the landing page."""
    shown = drawn.get(HERO) or next(iter(drawn.values()))
    return figure(shown, "", lazy=False, autoplay=True)


# ---------------------------------------------------------------------------------------------- HTML


def figure(shown: Frames, up: str, lazy: bool = True, autoplay: bool = False) -> str:
    """A picture with its Play button, and a slider over its frames (see `play.js`); `up` leads to the site's root."""
    moves = f" Moving: <em>{escape(shown.moves)}</em>." if shown.moves and shown.frames > 1 else ""
    button = "<button type='button' hidden>▶ Play</button>" if shown.frames > 1 else ""
    return (
        f"<figure class='play'{' data-autoplay' if autoplay else ''} id='{shown.name}'>"
        f"{images(shown, up, lazy=lazy)}"
        f"{slider(shown)}<figcaption>{button}{_html(shown.title)}{moves}</figcaption></figure>"
    )


def slider(shown: Frames) -> str:
    """A slider over the frames, with the sentence of the one that is shown; the page shows it where a browser can."""
    if shown.frames < 2:
        return ""
    told = escape(json.dumps(shown.told, ensure_ascii=False), quote=True)
    still = shown.told.index(shown.text) if shown.text in shown.told else 0
    return (
        f"<div class='frames' hidden><input type='range' min='0' max='{shown.frames - 1}' value='{still}' "
        f'aria-label="{escape(shown.moves or "frame", quote=True)}" data-told="{told}"><output></output></div>'
    )


def images(shown: Frames, up: str, lazy: bool = True, play: bool = True) -> str:
    """The picture for light and for dark pages; only the one that is seen is loaded."""
    alt = escape(f"{shown.title} {shown.text}".replace("`", "").strip(), quote=True)
    return "".join(
        f'<img class="only-{theme}" src="{up}_pictures/{shown.name}-{theme}.webp" alt="{alt}" '
        + (f'data-play="{up}_pictures/{shown.name}-{theme}-play.webp" ' if play and shown.frames > 1 else "")
        + f'width="{shown.width}" height="{shown.height}"{" loading=lazy" if lazy else ""}>'
        for theme in frames.THEMES
    )


def _html(text: str) -> str:
    """A docstring's sentence, its `code` as such."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def raw(html: str) -> str:
    return f"```{{raw}} html\n{html}\n```"
