"""Removes compiled kernels from disk when any source of the package changed since they were made.

A kernel's cache is checked against its own file only: when a kernel in another file that it calls was edited, the
old machine code would go on being used.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / ".venv" / "kernels-stamp"


def main() -> None:
    digest = hashlib.sha256()
    for source in sorted((ROOT / "src").rglob("*.py")):
        digest.update(source.read_bytes())
    if STAMP.exists() and STAMP.read_text() == digest.hexdigest():
        return
    for pattern in ("*.nbi", "*.nbc"):
        for cached in (ROOT / "src").rglob(pattern):
            cached.unlink()
    STAMP.write_text(digest.hexdigest())


if __name__ == "__main__":
    main()
