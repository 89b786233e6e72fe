"""Makes the data source `surecast` known to every Spark session: PySpark looks for modules whose names begin so."""

from surecast.pipeline.datasource import SurecastSource as DefaultSource

__all__ = ["DefaultSource"]
