"""Pages that a person enjoys: one self-contained HTML file, no request to the outside."""

from algoformer.report.page import Section, figure, page, table

__all__ = ["Section", "figure", "page", "table"]
