"""Reading text: normalisation, tokens, sentences, negation, stems; pure, and shared by all checks."""
