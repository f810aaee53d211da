"""The subcommands of `groundwire`: one module each, with one click command of the module's name."""
