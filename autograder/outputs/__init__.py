"""Export results: feedback, pages for instructors, sheets of course systems. One file per format.

Everything here is made from the result files and `grades.csv` of a results folder; no submission is read again. (Only
Gradescope's bundle grades, on Gradescope's machines.)

May import: everything except `cli` and `doctor`.
"""
