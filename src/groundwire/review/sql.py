"""SQL put together from fixed pieces; whatever comes from outside is bound as a parameter."""

from __future__ import annotations

from dataclasses import dataclass, field

Value = str | int


def statement(*parts: str) -> str:
    """Return a statement of fixed pieces."""
    return " ".join(parts)


@dataclass(slots=True)
class Where:
    """A conjunction; text reaches SQL as parameters only."""

    terms: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def add(self, term: str, *values: Value) -> Where:
        """Add a condition with a `?` for each value."""
        self.terms.append(term)
        self.values += [bindable(value) for value in values]
        return self

    def equals(self, column: str, value: str | None) -> Where:
        """Add that a column has a value; None: no condition."""
        return self if value is None else self.add(f"{column} = ?", value)

    @property
    def sql(self) -> str:
        """The clause, from its WHERE on."""
        return "WHERE " + (" AND ".join(self.terms) or "1")


def bindable(value: Value) -> Value:
    """Return a value that SQLite takes: what is no text matches nothing."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
