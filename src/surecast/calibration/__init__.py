"""Calibration: measures what a broker costs on this machine, and writes it as a profile.

>>> from surecast.calibration import intention
>>> from surecast.load import BrokerAccess
>>> intention(BrokerAccess("localhost", 1883), quick=True)
'localhost:1883 gets ... loads in about ... minutes: ...'
"""

from surecast.calibration.broker_process import find_processes
from surecast.calibration.calibrating import Calibration, CalibrationError, Checked, calibrate, intention

__all__ = ["Calibration", "CalibrationError", "Checked", "calibrate", "find_processes", "intention"]
