"""Reliability under failures in virtual time: the compiled process (`compiled`) and the real protocol (`protocol`)."""
