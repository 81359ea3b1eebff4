#!/usr/bin/env python3
"""Draws docs/house.svg: folders as rooms, as wide as their code is long, each above all that it includes.

An arrow is an include; those that follow from others are left out. Exits with 1 if folders include each other in a circle.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOPS = {"runtime": "#dfe9f3", "actors": "#f6e3b4", "trainer": "#e6dcee", "include": "#e3ecd9"}
HEIGHT, FLOOR, WIDTH = 38, 74, 1000


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("runtime", "actors") and len(parts) > 2 else parts[0]


below, lines = collections.defaultdict(set), collections.Counter()
for top in TOPS:
    for file in sorted((ROOT / top).rglob("*.[ch]pp")):
        here, text = room(str(file.relative_to(ROOT))), file.read_text()
        lines[here] += text.count("\n")
        below[here] |= {room(i) for i in re.findall(r'#include "([^"]+)"', text) if i.split("/")[0] in TOPS} - {here}


def reached(a, path=()):
    if a in path:
        sys.exit("circle: " + " -> ".join([*path[path.index(a):], a]))
    return below[a].union(*(reached(b, (*path, a)) for b in below[a]))


def floor(a):
    return 1 + max(map(floor, below[a]), default=0)


rooms = sorted(lines, key=lambda a: (floor(a), a))
arrows = [(a, b) for a in rooms for b in sorted(below[a]) if not any(b in reached(c) for c in below[a] - {b})]
floors = [[a for a in rooms if floor(a) == n + 1] for n in range(floor(rooms[-1]))]
wide = {a: max(20 + 8 * len(a.split("/")[-1]), lines[a] * 0.022) for a in rooms}
left = {}


def place(row):
    gap = (WIDTH - sum(wide[a] for a in row)) / (len(row) + 1)
    for n, a in enumerate(row):
        left[a] = gap * (n + 1) + sum(wide[b] for b in row[:n])


def middle(a):
    return left[a] + wide[a] / 2


for row in floors:
    place(row)
for _ in range(20):  # each room near the middle of those that it has arrows with
    for row in floors:
        tied = {a: [middle(x if y == a else y) for x, y in arrows if a in (x, y)] for a in row}
        row.sort(key=lambda a: sum(tied[a]) / max(1, len(tied[a])))
        place(row)

top_of = {a: 20 + (len(floors) - floor(a)) * FLOOR for a in rooms}
out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(floors) * FLOOR}" '
       'font-family="sans-serif" font-size="13" text-anchor="middle">',
       '<rect width="100%" height="100%" fill="#fffefa"/><g fill="none" stroke="#7a756b">']
for a, b in arrows:
    y, end = top_of[a] + HEIGHT, top_of[b]
    out.append(f'<path d="M{middle(a):.0f} {y}C{middle(a):.0f} {y + 40} {middle(b):.0f} {end - 40} {middle(b):.0f} {end}"/>')
out.append("</g>")
for a in rooms:
    out.append(f'<rect x="{left[a]:.0f}" y="{top_of[a]}" width="{wide[a]:.0f}" height="{HEIGHT}" rx="5" '
               f'fill="{TOPS[a.split("/")[0]]}" stroke="#8a857a"/><text x="{middle(a):.0f}" y="{top_of[a] + 16}">'
               f'{a.split("/")[-1]}<tspan x="{middle(a):.0f}" dy="15" font-size="10" fill="#6b665c">{lines[a]:,}</tspan></text>')
(ROOT / "docs" / "house.svg").write_text("\n".join([*out, "</svg>\n"]))
