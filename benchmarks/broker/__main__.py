"""`python -m benchmarks.broker` runs the comparison."""

from __future__ import annotations

import sys

from benchmarks.broker.run import main

sys.exit(main())
