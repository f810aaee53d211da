"""`python -m groundwire`: the `groundwire` command, where its script is not on the path."""

from __future__ import annotations

from groundwire.cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m groundwire")
