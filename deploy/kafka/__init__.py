"""A real Apache Kafka for the tests, without Docker: its jars by Maven, its nodes as child processes."""

from deploy.kafka.cluster import KafkaCluster

__all__ = ["KafkaCluster"]
