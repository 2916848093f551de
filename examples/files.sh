#!/bin/sh
# A bag with files: each task gets a program and a text, and draws a picture of the letters in the text.
#
#     sh examples/files.sh
#
# You need a grid: that of $DESKGRID_JOIN, or the broker of this machine.
set -eu

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

cat > letters.py <<'PROGRAM'
"""Count the letters of texts/NAME.txt, and draw a bar for each into out/NAME.svg."""

import pathlib
import sys
from collections import Counter

name = sys.argv[1]
text = pathlib.Path("texts", f"{name}.txt").read_text(encoding="utf-8")
counts = sorted(Counter(filter(str.isalpha, text.lower())).items())
bars = [f'<rect x="{20 * n}" y="{100 - 10 * c}" width="18" height="{10 * c}"/>' for n, (_, c) in enumerate(counts)]
pathlib.Path("out").mkdir()
svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{20 * len(bars)}" height="100">{"".join(bars)}</svg>'
pathlib.Path("out", f"{name}.svg").write_text(svg, encoding="utf-8")
print(f"{name}: {len(counts)} different letters")
PROGRAM

mkdir texts
echo "the quick brown fox jumps over the lazy dog" > texts/fox.txt
echo "pack my box with five dozen liquor jugs" > texts/box.txt

bag=$(printf '%s\n' fox box | deskgrid submit --runtime 2 --name letters --each - \
    --input letters.py --input texts/ --output 'out/*.svg' -- python3 letters.py {})
deskgrid results "$bag"
deskgrid fetch "$bag" --to pictures
ls pictures/*/out
deskgrid forget "$bag"
