"""A broker of an overlay as a real process: the shell around `surecast.protocol.overlay`."""
