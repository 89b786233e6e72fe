"""Surecast beside other brokers: processor time, throughput, latency, durability and memory."""
