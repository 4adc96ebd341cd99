"""Pages that a person enjoys: one self-contained HTML file, no request to the outside."""

from algoformer.report.docs import markdown, page_at, write
from algoformer.report.page import Section, figure, page, table
from algoformer.report.results import Report, build

__all__ = ["Report", "Section", "build", "figure", "markdown", "page", "page_at", "table", "write"]
