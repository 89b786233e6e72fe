"""The system itself, without sockets, clocks or disks: messages and a time go in, effects come out."""
