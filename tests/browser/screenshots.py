"""Pictures of every page for the documentation, as a reader sees them: `make screenshots`.

python -m tests.browser.screenshots [FOLDER] writes them; the pages show what the browser tests put on the board. A
picture keeps 255 colours: a page has few, and its file is a quarter as large.
"""

from __future__ import annotations

import base64
import os
import shutil
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from groundwire.review.board import Board
from tests.browser.items import full_board
from tests.browser.reader import Complaints, Reader
from tests.browser.site import Running, running
from tests.browser.test_accessible import PAGES, worker_metrics

FOLDER: Final = Path(__file__).parents[2] / "docs/use/console"
SIZES: Final = {"light": (1180, 760), "dark": (1180, 760), "phone": (390, 760)}
SHOTS: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("light", "dark", "phone"),
    "a claim": ("light", "phone"),
    "an answer with faults": ("light", "dark"),
    "a conflict": ("light",),
    "reject form": ("light",),
    "bulk confirmation": ("light",),
    "responses": ("light",),
    "approved list": ("light",),
    "blocked list": ("light",),
    "dead letters": ("light",),
    "status": ("light", "dark"),
    "help": ("light",),
}
_FEWER: Final = """async (png) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const colours = new Map();
  const key = (i) => (data[i] & 0xfc) << 16 | (data[i + 1] & 0xfc) << 8 | data[i + 2] & 0xfc;
  for (let i = 0; i < data.length; i += 4) colours.set(key(i), (colours.get(key(i)) || 0) + 1);
  const kept = [...colours].sort((a, b) => b[1] - a[1]).slice(0, 255).map(([colour]) => colour);
  const parts = (c) => [c >> 16 & 255, c >> 8 & 255, c & 255];
  const distance = (a, b) => parts(a).reduce((sum, v, i) => sum + (v - parts(b)[i]) ** 2, 0);
  const nearest = new Map([...colours.keys()].map((c) => [c, kept.reduce((best, one, at) =>
    distance(c, one) < distance(c, kept[best]) ? at : best, 0)]));
  let text = "";
  for (let i = 0; i < data.length; i += 4) text += String.fromCharCode(nearest.get(key(i)));
  return [width, height, kept.flatMap((c) => parts(c).map((v) => v | v >> 6)), btoa(text)];
}"""
"""Colours to the nearest of the 255 most frequent ones."""


def small_png(page: Page, png: bytes) -> bytes:
    """Return a picture with a palette instead of true colour."""
    width, height, palette, pixels = page.evaluate(_FEWER, base64.b64encode(png).decode())
    rows = base64.b64decode(pixels)
    lines = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (b"IHDR", head), (b"PLTE", bytes(palette)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def decide_some(reader: Reader, board: Board) -> None:
    """Decide some items, so that figures are not empty."""
    for key in ("a", "a", "r", "a", "r", "a", "a", "r"):
        reader.open("/?kind=claim&sort=oldest")
        reader.go("Enter")
        reader.go(*(("r", "2", "Enter") if key == "r" else ("a",)))
        reader.console.release()
        reader.page.wait_for_timeout(700)
    reader.console.clock.forward(minutes=1)  # nothing is told of what was done any more


@contextmanager
def browser() -> Iterator[Browser]:
    """The Chromium of the tests."""
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        yield opened
        opened.close()


def shoot(folder: Path, opened: Browser, console: Running) -> Iterator[tuple[str, int]]:
    """Write the pictures; yield their names and sizes."""
    page = opened.new_page()
    reader = Reader(page, console, Complaints())
    page.set_viewport_size({"width": 1180, "height": 760})
    plain = opened.new_page()
    reader.open("/signin")
    yield _keep(folder / "sign-in-light.png", small_png(plain, page.screenshot()))
    reader.sign_in(console.link)
    decide_some(reader, console.board)
    for name, looks in SHOTS.items():
        for look in looks:
            width, height = SIZES[look]
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme="dark" if look == "dark" else "light", reduced_motion="reduce")
            PAGES[name](reader)
            page.mouse.move(0, 0)
            page.wait_for_timeout(300)
            whole = name == "status"
            file = folder / f"{name.replace(' ', '-')}-{look}.png"
            yield _keep(file, small_png(plain, page.screenshot(full_page=whole)))


def _keep(file: Path, png: bytes) -> tuple[str, int]:
    file.write_bytes(png)
    return file.name, len(png)


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    where.mkdir(parents=True, exist_ok=True)
    with (
        worker_metrics() as address,
        browser() as chromium,
        running(
            full_board(),
            workers=address,
            grafana_url="https://grafana.acme.example/d/groundwire",
            rate_identity=100_000,
            undo_seconds=5,
        ) as console,
    ):
        for file, size in shoot(where, chromium, console):
            sys.stdout.write(f"{file} {size // 1000} kB\n")
