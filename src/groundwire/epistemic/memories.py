"""What is kept for a client: replies that parsed, and what the last minute cost (S4-46, S4-47)."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from groundwire.epistemic.budget import MINUTE, Ledger

_REPLIES: Final = 1_024  # per client
_HELD: Final = 16  # clients that nobody else can be seen to hold

_T = TypeVar("_T")


@dataclass(slots=True)
class Memory(Generic[_T]):
    """What is kept for one client; safe to use from several threads."""

    minute: Ledger = field(default_factory=lambda: Ledger(MINUTE))
    _replies: OrderedDict[Hashable, _T] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, key: Hashable) -> _T | None:
        """Return the reply to a question, None where it is not known."""
        with self._lock:
            if key in self._replies:
                self._replies.move_to_end(key)
            return self._replies.get(key)

    def keep(self, key: Hashable, reply: _T) -> None:
        """Keep a reply; the one that was longest unused makes room."""
        with self._lock:
            self._replies[key] = reply
            if len(self._replies) > _REPLIES:
                self._replies.popitem(last=False)


class Memories(Generic[_T]):
    """The memory of each client, for as long as the client lives.

    Clients are told apart by identity: two that are equal may still have different keys, and one that has no hash,
    such as a dataclass, has a memory and a budget all the same. One that takes no weak reference is held here, the
    last 16 of them.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Callable[[], object], Memory[_T]]] = {}
        self._held: OrderedDict[int, object] = OrderedDict()
        self._lock = threading.RLock()  # a client may die, and be forgotten, while it is held

    def of(self, client: object) -> Memory[_T]:
        """Return the memory of a client."""
        with self._lock:
            seen = self._seen.get(id(client))
            if seen is not None and seen[0]() is client:
                return seen[1]
            memory: Memory[_T] = Memory()
            self._seen[id(client)] = (self._watch(client), memory)
            return memory

    def _watch(self, client: object) -> Callable[[], object]:
        """Return what gives the client while it lives, and forget it afterwards."""
        name = id(client)

        def forget(dead: Callable[[], object]) -> None:
            with self._lock:
                if name in self._seen and self._seen[name][0] is dead:
                    del self._seen[name]

        try:
            return weakref.ref(client, forget)
        except TypeError:
            self._held[name] = client
            if len(self._held) > _HELD:
                del self._seen[self._held.popitem(last=False)[0]]
            return lambda: client
