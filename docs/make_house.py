"""Draw the rooms of a package, folders and modules, by who imports whom.

    python docs/make_house.py afltool -o docs/decisions/house-now.svg

A box is a folder, or a module beside the folders, with its lines of .py; it stands above all that
it imports. An arrow is an import; arrows that follow from others are left out.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from html import escape
from pathlib import Path

UNIT, HEIGHT, GAP, ROW = 0.042, 40, 14, 78  # pixels: of a line of code, a box, between boxes, a row


def rooms(package: Path) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Lines of each room, and what it imports of the package."""
    lines: dict[str, int] = defaultdict(int)
    uses: dict[str, set[str]] = defaultdict(set)
    names = {p.stem for p in package.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    for path in sorted(package.rglob("*.py")):
        within = path.relative_to(package).with_suffix("").parts
        if within[0] in ("__init__", "__main__"):
            continue
        text = path.read_text()
        lines[within[0]] += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            uses[within[0]] |= imported(node, within, package.name) & (names - {within[0]})
    return lines, {room: found & lines.keys() for room, found in uses.items()}


def imported(node: ast.AST, within: tuple[str, ...], package: str) -> set[str]:
    """First names below the package that an import statement names."""
    if isinstance(node, ast.Import):
        told = [name.name.split(".") for name in node.names]
        return {parts[1] for parts in told if parts[0] == package and len(parts) > 1}
    if not isinstance(node, ast.ImportFrom):
        return set()
    module = node.module.split(".") if node.module else []
    if node.level:
        module = [*within[: len(within) - node.level], *module]
    elif module[:1] == [package]:
        module = module[1:]
    else:
        return set()
    return {module[0]} if module else {name.name for name in node.names}


def floors(uses: dict[str, set[str]], every: dict[str, int]) -> dict[str, int]:
    """The longest way down from each room; imports in a circle count once."""
    found: dict[str, int] = {}

    def floor(room: str, above: frozenset[str]) -> int:
        if room not in found:
            below = uses.get(room, set()) - above
            found[room] = 1 + max((floor(one, above | {room}) for one in sorted(below)), default=-1)
        return found[room]

    for room in sorted(every):
        floor(room, frozenset())
    return found


def direct(uses: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports that do not follow from others."""

    def reach(room: str, seen: set[str]) -> set[str]:
        for one in uses.get(room, set()) - seen:
            seen.add(one)
            reach(one, seen)
        return seen

    return [
        (room, one)
        for room, found in sorted(uses.items())
        for one in sorted(found)
        if not any(one in reach(other, set()) for other in found - {one})
    ]


def drawing(package: Path) -> str:
    lines, uses = rooms(package)
    floor = floors(uses, lines)
    top = max(floor.values())
    rows = [
        [r for r in sorted(lines, key=lambda r: -lines[r]) if floor[r] == f] for f in range(top + 1)
    ]
    width = {room: max(UNIT * n, 8.2 * len(room) + 16, 66) for room, n in lines.items()}
    wide = max(sum(width[r] for r in row) + GAP * (len(row) - 1) for row in rows) + 2 * GAP
    at: dict[str, tuple[float, float]] = {}
    for f, row in enumerate(rows):
        x = (wide - sum(width[r] for r in row) - GAP * (len(row) - 1)) / 2
        for room in row:
            at[room] = (x, GAP + (top - f) * ROW)
            x += width[room] + GAP
    high = GAP * 2 + top * ROW + HEIGHT
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
        'font-family="sans-serif" text-anchor="middle">',
        '<defs><marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0L6 3L0 6z" fill="#789"/></marker></defs>',
        f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#fff"/>',
    ]
    for room, one in direct(uses):
        (x, y), (x2, y2) = at[room], at[one]
        start, end = (x + width[room] / 2, y + HEIGHT), (x2 + width[one] / 2, y2)
        back = floor[one] >= floor[room]
        colour = "#c33" if back else "#9ab"
        drawn.append(
            f'<path d="M{start[0]:.0f} {start[1]:.0f}L{end[0]:.0f} {end[1]:.0f}" stroke="{colour}" '
            'fill="none" marker-end="url(#a)"/>'
        )
    for room, (x, y) in at.items():
        middle = x + width[room] / 2
        folder = (package / room).is_dir()
        drawn.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width[room]:.0f}" height="{HEIGHT}" rx="4" '
            f'fill="{"#e3edf7" if folder else "#f4f1e6"}" stroke="#456"/>'
            f'<text x="{middle:.0f}" y="{y + 17:.0f}" font-size="14">{escape(room)}</text>'
            f'<text x="{middle:.0f}" y="{y + 33:.0f}" font-size="11" fill="#456">'
            f"{lines[room]:,}</text>"
        )
    return "\n".join([*drawn, "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.write_text(drawing(given.package))
    print(given.out)
