"""Measure all claims again, and write the record and the page: `python -m algoformer.claims docs/ledger.md [ID ..]`."""

import argparse
from pathlib import Path

from algoformer.checks import known, refusals
from algoformer.claims.ledger import claims, page, record, verify
from algoformer.files import file_at, replace_file

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="algoformer.claims", description=__doc__)
    parser.add_argument("page", type=Path, metavar="PAGE", help="the page to write, docs/ledger.md")
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims; all if left out")
    asked = parser.parse_args()
    with refusals(parser):
        ids = [known("a claim", i, claims()) for i in asked.ids]
        target = file_at("page", asked.page)
    record(verify(ids or None))
    replace_file(target, page().encode())
