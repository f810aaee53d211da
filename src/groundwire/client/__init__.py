"""What stands behind `groundwire produce` and `groundwire tail`: plain Kafka clients, no gate."""

from groundwire.client.produce import Produced, produce
from groundwire.client.tail import Start, follow

__all__ = ["Produced", "Start", "follow", "produce"]
