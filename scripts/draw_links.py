#!/usr/bin/env python3
"""Draws docs/links.svg, which strategy for which link, by asking `waggle plan` for each of its squares.

  scripts/draw_links.py --binary build/bin/waggle
"""
import argparse
import os
import pathlib
import re
import subprocess

OUT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "links.svg"
RATES = [f"{n}{unit}" for unit in ("mbit", "gbit") for n in ((1, 3, 10, 30, 100, 300) if unit == "mbit" else (1, 3, 10))]
VALUES = ["1e6", "3e6", "1e7", "3e7", "1e8", "3e8", "1e9", "3e9", "1e10"]
CODECS = {"none": "#f6e3b4", "blockwise8": "#dfe9f3", "e3m0": "#e6dcee", "sparse2": "#e3ecd9"}
NAMES = {"none": "float32", "blockwise8": "8 bits a value", "e3m0": "4 bits", "sparse2": "0.23 bits"}
WIDTH, HEIGHT, LEFT, TOP = 62, 34, 150, 66

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--binary", default="waggle", help="the program waggle")
binary = parser.parse_args().binary


def square(rate, values):
    """The codec of the best row, passes between rounds and with a round, and whether it computes for 90 % of the time."""
    ran = subprocess.run([binary, "plan", "--peers", "4", "--link", f"{rate},20ms", "--values", values, "--step-time", "400ms"],
                         capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    best = ran.splitlines()[-1]
    found = [re.search(rf"{name}[= ](\w+)", best) for name in ("--codec", "steps", "overlap")]
    codec, steps, overlap = (match.group(1) if match else "" for match in found)
    return codec or "none", steps or "1", overlap, "No row computes" not in ran


squares = {(rate, values): square(rate, values) for rate in RATES for values in VALUES}
right, bottom = LEFT + WIDTH * len(RATES), TOP + HEIGHT * len(VALUES)
out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 20} {bottom + 48}" font-family="sans-serif" font-size="12" '
       'text-anchor="middle" fill="#333">', '<rect width="100%" height="100%" fill="#fffefa"/>']
for n, codec in enumerate(name for name in CODECS if any(each[0] == name for each in squares.values())):
    x = LEFT + 140 * n
    out.append(f'<rect x="{x}" y="14" width="22" height="16" fill="{CODECS[codec]}" stroke="#8a857a"/>'
               f'<text x="{x + 28}" y="27" text-anchor="start">{NAMES[codec]}</text>')
out.append('<text x="20" y="52" text-anchor="start">passes from one round to the next; +: a round runs beside passes; '
           'grey: less than 90 % of the time computes</text>')
for row, values in enumerate(reversed(VALUES)):
    y = TOP + HEIGHT * row
    count = float(values)
    name = f"{count / 1e9:g} billion" if count >= 1e9 else f"{count / 1e6:g} million"
    out.append(f'<text x="{LEFT - 8}" y="{y + 21}" text-anchor="end">{name}</text>')
    for column, rate in enumerate(RATES):
        codec, steps, overlap, good = squares[rate, values]
        x = LEFT + WIDTH * column
        out.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="{CODECS[codec] if good else "#e8e6e1"}" stroke="#fffefa"/>'
                   f'<text x="{x + WIDTH / 2:g}" y="{y + 21}">{steps}{"+" if overlap else ""}</text>')
for column, rate in enumerate(RATES):
    out.append(f'<text x="{LEFT + WIDTH * (column + 0.5):g}" y="{bottom + 18}">{rate.replace("mbit", " Mbit").replace("gbit", " Gbit")}</text>')
out.append(f'<text x="{(LEFT + right) / 2:g}" y="{bottom + 38}">bits a second of each of four links, of 20 ms; upwards: values that are trained; '
           'passes of 400 ms</text>')
OUT.write_text("\n".join([*out, "</svg>\n"]))
