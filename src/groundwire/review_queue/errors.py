"""What a review queue refuses, and what can go wrong with an approval.

```
GroundwireError
├── ReviewQueueFull        no place left: try again later
├── ReviewNotFound         there is nothing to decide (also a LookupError)
│   └── ReviewUnauthorized ... for this reviewer (also a PermissionError)
├── ReviewStoreFailed      the callback failed, the item is pending again
└── ReviewOvertaken        the callback outlived its lease, and the item was decided otherwise meanwhile
```
"""

from __future__ import annotations

from groundwire.errors import GroundwireError


class ReviewQueueFull(GroundwireError):
    """The queue takes no more items of this user, or none at all (S0-133, S0-134); nothing was evicted.

    Attributes:
        scope: `user` or `total`: which limit was reached.
        limit: the most items allowed.
    """

    def __init__(self, scope: str, limit: int) -> None:
        whose = "the user has" if scope == "user" else "the queue in total has"
        super().__init__(f"review_queue_full: {whose} {limit} items waiting, the most allowed")
        self.scope = scope
        self.limit = limit


class ReviewNotFound(GroundwireError, LookupError):
    """There is nothing to decide under the id (S0-142).

    Attributes:
        queue_id: as it was given.
        state: told to those who may decide the item: `approving`, `stored`, `rejected` or `expired`; else None.
        memory_id: of an item that is stored, else None.
    """

    def __init__(self, queue_id: str, state: str | None = None, memory_id: str | None = None) -> None:
        super().__init__(f"not found among the pending items: {queue_id[:200]} is {state}")
        self.queue_id = queue_id
        self.state = state
        self.memory_id = memory_id


class ReviewUnauthorized(ReviewNotFound, PermissionError):
    """There is nothing under the id that this reviewer may decide (S0-131, S0-142).

    The same for an item of somebody else and for an id that does not exist: nobody learns what others have.
    """

    def __init__(self, queue_id: str) -> None:
        Exception.__init__(
            self, f"Unauthorized: {queue_id[:200]} was not found among the items this reviewer may decide"
        )
        self.queue_id = queue_id
        self.state = None
        self.memory_id = None


class ReviewStoreFailed(GroundwireError):
    """The store callback failed (S0-140); what it raised is the cause of this error.

    Attributes:
        queue_id: the item, which waits for the next approval.
    """

    def __init__(self, queue_id: str, reason: str, *, noted: bool = True) -> None:
        when = "again" if noted else "again when its lease has run out"
        super().__init__(f"store_failed: {reason}; {queue_id} is pending {when}")
        self.queue_id = queue_id


class ReviewOvertaken(GroundwireError):
    """The callback stored the memory, but so late that the item had been decided otherwise: withdraw the memory.

    Attributes:
        queue_id: the item.
        state: what became of it: `rejected` or `expired`.
        memory_id: what was stored nevertheless.
    """

    def __init__(self, queue_id: str, state: str, memory_id: str) -> None:
        super().__init__(f"{queue_id} was {state} while it was being stored: withdraw the memory")
        self.queue_id = queue_id
        self.state = state
        self.memory_id = memory_id
