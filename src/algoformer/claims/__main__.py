"""Measure every claim again, and write the record and the page: `python -m algoformer.claims docs/ledger.md [ids]`."""

import sys
from pathlib import Path

from algoformer.claims.ledger import page, record, verify

if __name__ == "__main__":
    path, *ids = sys.argv[1:]
    record(verify(ids or None))
    Path(path).write_text(page())
