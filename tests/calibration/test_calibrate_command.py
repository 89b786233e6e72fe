"""The command asks before it drives a broker to saturation."""

import subprocess
import sys
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "surecast")


def test_nobody_is_driven_to_saturation_by_accident(tmp_path):
    out = tmp_path / "p.yaml"
    ended = subprocess.run(
        [PROGRAM, "calibrate", "127.0.0.1:1", "--out", str(out)], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "as much as it takes" in ended.stderr
    assert "--yes is missing" in ended.stderr
    assert not out.exists()
