"""What no rule foresees is seen by a second look: the exercise is checked again with what mentions its objects."""

import nbformat

from autograder.authors import build
from autograder.grading import selfcheck
from autograder.grading.grade import grade_bytes

DESCENT = """def gradient_descent(grad, w0, lr, steps):
    path = [w0]
    for _ in range(steps):
        path.append(path[-1] + table[0] * lr * grad(path[-1]))
    return torch.stack(path)"""
HIDDEN = 'table = []\ngetattr(table, "app" + "end")(-1.0)'


def graded(tmp_path, zygote, *cells):
    cells = [nbformat.v4.new_code_cell(cell) for cell in (build.code("gradient_descent")[0], *cells)]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"hpcdl": {"lab": "gradient_descent"}})
    path = tmp_path / "02_gradient_descent.ipynb"
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    result = grade_bytes(path.read_bytes(), str(path), zygote, "ada", selfcheck.SECRET, None, False)
    return next(each for each in result.exercises if each.name == "gradient_descent")


def test_hidden_change_is_found(tmp_path, zygote):
    found = graded(tmp_path, zygote, HIDDEN, DESCENT)
    assert found.points == 10
    assert found.note.startswith("This failed without cell 2")


def test_wrong_answer_stays_wrong(tmp_path, zygote):
    found = graded(tmp_path, zygote, HIDDEN.replace("-1.0", "1.0"), DESCENT)
    assert found.points < 10
