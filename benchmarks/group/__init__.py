"""Costs of replication: groups of 1 to 7 replicas beside the same broker alone and beside NATS JetStream."""
