"""A real Apache Kafka for the tests, without Docker: its jars by Maven, its nodes as child processes."""
