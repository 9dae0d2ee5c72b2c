"""Grading of the course: checks in the notebook, grades for a folder of submissions.

Values cross the boundary to student code, verdicts never do (see `autograder/README.md`).
"""
