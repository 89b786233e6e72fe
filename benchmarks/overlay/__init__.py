"""Overlays of brokers side by side: Surecast, Mosquitto bridges, NATS leaf nodes and Zenoh routers."""
