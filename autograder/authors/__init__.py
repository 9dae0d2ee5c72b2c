"""Tools for authors and instructors: `build` makes a lab's notebooks from its source, `new` begins a lab from the texts
in `templates/`, `release` makes the bundle for students. Graders get the reference solutions from `build.code`.

May import: this room, `exercises`, `authoring`, `hpcdl`.
"""
