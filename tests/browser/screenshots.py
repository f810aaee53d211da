"""Pictures of every page for the documentation, as a reader sees them: `make screenshots`.

python -m tests.browser.screenshots [FOLDER] writes them; the pages show what the browser tests put on the board. A
picture keeps 255 colours: a page has few, and its file is a quarter as large.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import struct
import sys
import tempfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from demo.examples import WAVES
from demo.queue import POLICY, QUEUE
from demo.sources import made_in
from groundwire.library.check import Checker
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Decision
from groundwire.policy import Policy, load_policy
from groundwire.review.board import Board
from groundwire.verify.citations import CitationVerifier, Sources
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import UrlChecker
from tests.browser.site import RECORDS, TENANT, Reader, Running, full_board, put, running
from tests.browser.test_accessible import visit, waiting_worker

FOLDER: Final = Path(__file__).parents[2] / "docs/use/console"
SIZES: Final = {"light": (1180, 760), "dark": (1180, 760), "phone": (390, 760)}
SHOTS: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("light", "dark", "phone"),
    "a claim": ("light", "phone"),
    "an answer with faults": ("light", "dark"),
    **dict.fromkeys(("a conflict", "reject form", "bulk confirmation", "responses"), ("light",)),
    **dict.fromkeys(("approved list", "blocked list", "dead letters"), ("light",)),
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


def demo_board() -> Board:
    """Return a board with what `make demo-console` has decided before people do."""

    async def decide(lines: list[bytes], verifier: CitationVerifier, policy: Policy) -> list[Decision]:
        checker = Checker(policy, verifier, now=datetime.now(UTC))
        return [one async for one in checker.check(lines) if isinstance(one, Decision)]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy.toml").write_text(POLICY)
        with made_in(folder) as made:
            urls = UrlChecker(AddressGuard(["127.0.0.1/32"], ports=[80, made.port]))
            verifier = CitationVerifier({"*": Sources(adr_dir=made.adr_dir, repo=made.repo)}, urls=urls)
            examples = [example for wave in (*WAVES[:6], QUEUE) for example in wave.examples]
            records = [json.loads(example.value(made.places) or b"") for example in examples]
            lines = [json.dumps(record | {"tenant_id": TENANT}).encode() for record in records]
            decisions = asyncio.run(decide(lines, verifier, load_policy(folder / "policy.toml", {})))
    by_hash = {sha256_hex(line): line for line in lines}
    board, places = Board(), []
    for one in decisions:
        place = {"topic": "groundwire.llm-responses", "offset": len(RECORDS)}
        RECORDS.append(by_hash[one.origin.sha256])
        places.append(one.model_copy(update={"origin": one.origin.model_copy(update=place)}))
    put(board, *places)
    return board


def decide_some(reader: Reader) -> None:
    """Decide some items, so that figures are not empty."""
    for key in ("a", "a", "r", "a", "r", "a", "a", "r"):
        reader.open("/?kind=claim&sort=oldest")
        reader.go("Enter")
        reader.go(*(("r", "2", "Enter") if key == "r" else ("a",)))
        reader.console.release()
        reader.page.wait_for_timeout(700)
    reader.console.clock.forward(minutes=1)  # no outcome is shown any more


def shoot_demo(folder: Path, opened: Browser, board: Board) -> None:
    with running(board, tour=True) as console:
        page, plain = opened.new_page(), opened.new_page()
        reader = Reader(page, console)
        page.set_viewport_size({"width": 1180, "height": 760})
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        reader.sign_in(console.link)
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)
        (folder / "demo-light.png").write_bytes(small_png(plain, page.screenshot()))


def shoot(folder: Path, opened: Browser, console: Running) -> None:
    def keep(name: str, png: bytes) -> None:
        small = small_png(plain, png)
        (folder / name).write_bytes(small)
        sys.stdout.write(f"{name} {len(small) // 1000} kB\n")

    page = opened.new_page()
    reader = Reader(page, console)
    page.set_viewport_size({"width": 1180, "height": 760})
    plain = opened.new_page()
    reader.open("/signin")
    keep("sign-in-light.png", page.screenshot())
    reader.sign_in(console.link)
    decide_some(reader)
    for name, looks in SHOTS.items():
        for look in looks:
            width, height = SIZES[look]
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme="dark" if look == "dark" else "light", reduced_motion="reduce")
            visit(reader, name)
            page.mouse.move(0, 0)
            page.wait_for_timeout(300)
            keep(f"{name.replace(' ', '-')}-{look}.png", page.screenshot(full_page=name == "status"))


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    where.mkdir(parents=True, exist_ok=True)
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    grafana = "https://grafana.acme.example/d/groundwire"
    of_demo = demo_board()  # before playwright's loop runs in this thread
    with waiting_worker() as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        with running(full_board(), workers=address, grafana_url=grafana, rate_identity=100_000) as console:
            shoot(where, chromium, console)
        shoot_demo(where, chromium, of_demo)
        chromium.close()
