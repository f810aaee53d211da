"""Epistemic verification: whether the evidence supports each claim of an answer (S4-01..S4-63, S4-68).

By default rules decide, in this process, without a model and without a network. With a client, a language model is
asked as well; it can lower a verdict, and raise it only where configured.
"""
