"""Text between marks: <!-- name --> and <!-- /name --> on a page enclose what a program writes."""

from __future__ import annotations


def fill(text: str, name: str, body: str) -> str:
    """The page with `body` between the marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"a page needs the marks {begin} and {end}, in this order, around its {name}.")
    inside = f"\n\n{body}\n\n" if body else "\n"
    return f"{before}{begin}{inside}{end}{after}"
