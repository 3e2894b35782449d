"""Twelve bar charts whose red bar has a known value, drawn here, and the questions for it: see examples/charts.yaml."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("charts")
WIDTH, HEIGHT, SCALE = 160, 110, 10  # ten pixels for a unit
WHITE, GREY, BLUE, RED = b"\xff\xff\xff", b"\xd0\xd0\xd0", b"\x30\x60\xc0", b"\xd0\x20\x20"
VALUES = [(number * 7 + 3) % 9 + 1 for number in range(12)]


def chart(number: int) -> bytes:
    """Return a chart of four bars as PNG, with a line at each unit; the red bar has the value of this number."""
    heights = [(number * step + 2 * step) % 9 + 1 for step in (2, 4, 5, 8)]
    heights[number % 4] = VALUES[number]
    rows = []
    for y in range(HEIGHT, 0, -1):
        row = [GREY if y % SCALE == 0 else WHITE] * WIDTH
        for bar, height in enumerate(heights):
            if y <= height * SCALE:
                row[10 + bar * 37 : 35 + bar * 37] = [RED if bar == number % 4 else BLUE] * 25
        rows.append(b"\0" + b"".join(row))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks:
        png += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return png


def rows() -> Iterator[dict[str, Any]]:
    """Draw the charts in the folder `charts`, and yield the rows that ask for their values."""
    FOLDER.mkdir(exist_ok=True)
    for number, value in enumerate(VALUES):
        path = FOLDER / f"chart{number:02}.png"
        path.write_bytes(chart(number))
        yield {
            "id": path.stem,
            "inputs": {"question": "Which value has the red bar? Grey lines are one apart. Answer with a number only."},
            "reference_outputs": {"answer": str(value)},
            "attachments": {"chart": str(path)},
        }
