"""How well verdicts agree with labels: figures with intervals, and an operating point chosen on labels of one's own."""
