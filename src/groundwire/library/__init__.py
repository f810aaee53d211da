"""What programs without Kafka use: the names that `groundwire` exports, over the same checks and the same gate."""
