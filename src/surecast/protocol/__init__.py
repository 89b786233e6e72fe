"""The system itself, without sockets, clocks or disks."""
