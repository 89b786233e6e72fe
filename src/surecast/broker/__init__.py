"""The broker on real sockets, disks and clocks: what `protocol/` decides is received, stored, sent and logged here."""
