"""What authors and instructors run on a lab's source: `build` makes its notebooks, `new` begins a lab from the texts in
`templates/`, `release` makes the bundle that students get. Graders find the reference solutions here, by `build.code`.

May import: this room, `exercises`, `authoring`, `hpcdl`.
"""
