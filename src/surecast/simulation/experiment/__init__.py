"""The harness of all simulations: virtual time, machines that fail in it, independent runs, and their confidence.

A simulation is a plan (`System` to arrays or objects), a function of the plan, the extent and the number of a run that
returns sums or records, and a function that turns the results of all runs into a report. All else is here.
"""

from surecast.simulation.experiment.clock import Clock
from surecast.simulation.experiment.confidence import (
    half_width,
    interval_ends,
    ratio_estimate,
    relative_width,
    student_t,
)
from surecast.simulation.experiment.host import Host, Machine
from surecast.simulation.experiment.replications import (
    Extent,
    Progress,
    Replications,
    check_at_least_one,
    replicate,
    replications,
    until_known,
)

__all__ = [
    "Clock",
    "Extent",
    "Host",
    "Machine",
    "Progress",
    "Replications",
    "check_at_least_one",
    "half_width",
    "interval_ends",
    "ratio_estimate",
    "relative_width",
    "replicate",
    "replications",
    "student_t",
    "until_known",
]
