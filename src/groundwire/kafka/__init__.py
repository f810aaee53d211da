"""Plain Kafka clients: connections, producing records, following topics."""
