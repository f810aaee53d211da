"""The bar of commands that read a file."""

import io

from rich.console import Console

from groundwire.commands.progress import FileProgress


def test_a_terminal_sees_how_many_records_are_done(tmp_path):
    out = io.StringIO()
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"x" * 10)
    with path.open("rb") as file, FileProgress(Console(file=out, force_terminal=True), "sent", file) as bar:
        file.read(5)
        bar.show(3)
    assert "sent 3" in out.getvalue()


def test_nothing_is_shown_elsewhere():
    out = io.StringIO()
    with FileProgress(Console(file=out), "sent", io.BytesIO(b"x")) as bar:
        bar.show(1)
    assert not out.getvalue()
