"""The ledger: every claim of the papers, measured and judged.

    for row in verify(): print(row.id, row.label)

A verdict is computed from evidence. The verdicts on record live in `recorded.json`, which no measurement and no judge
reads; a row that differs from the record is news.
"""

from __future__ import annotations

from algoformer.claims.claim import Claim, Evidence, Kind, Verdict
from algoformer.claims.ledger import Row, claims, page, recorded, verify

__all__ = ["Claim", "Evidence", "Kind", "Row", "Verdict", "claims", "page", "recorded", "verify"]
