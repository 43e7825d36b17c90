"""The tables of a report as CSV, which readers copy from the page."""

import csv
import html
import io
import re

__all__ = ["copied_tables", "without_numbers"]

# Numbers formatted for people: with units, intervals or thousands separators.
_FOR_PEOPLE = re.compile(
    r"[\d.,∞]+ ?([kMG]?B|[kMG]|[mµ]?s|min|%|USD|W)\b|\d%|±|\d,\d{3}|\d to \d|× \d"
)


def copied_tables(page: str) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table by its name.

    Args:
        page: the HTML of the report.
    """
    found = {}
    for name, text in re.findall(r'<pre id="([^"]*)-CSV"[^>]*>(.*?)</pre>', page, re.DOTALL):
        found[name] = list(csv.DictReader(io.StringIO(html.unescape(text))))
    return found


def without_numbers(rows: list[dict[str, str]]) -> list[str]:
    """Return the cells outside the first column that no program can parse as a number."""
    cells = [cell for row in rows for cell in list(row.values())[1:]]
    return [cell for cell in cells if _FOR_PEOPLE.search(cell)]
