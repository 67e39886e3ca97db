"""What a long ill-treatment does, shown in figures: `make torture`, and `docs/reliability.md`.

`python -m tests.torture` runs all parts, or those that are named. A part is a module here with a
function `run`, which gives a table; `PARTS` names it, and the page has a place for its table.
"""
