"""One reading of a text: its statements, and what each says of which value, in which clause, with what force."""
