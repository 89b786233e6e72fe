"""The time after which a test gives up waiting for something that must come.

A test that passes never waits so long. A test that gives up earlier fails on a machine that is busy with other things,
and says nothing about the code.
"""

from typing import Final

PATIENCE_S: Final = 240
