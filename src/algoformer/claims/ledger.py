"""All claims, run and compared with the record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from algoformer.claims.claim import Claim, Evidence, Kind, Verdict
from algoformer.files import replace_file

PAPERS = {
    "ahn": "Ahn et al. 2023, Transformers learn to implement preconditioned gradient descent for in-context learning",
    "gatmiry": "Gatmiry et al. 2024, Can looped transformers learn to implement multi-step gradient descent?",
    "giannou": "Giannou et al. 2024, How well can transformers emulate in-context Newton's method?",
    "fu": "Fu et al. 2024, Transformers learn to achieve second-order convergence rates (slides)",
    "algoformer": "AlgoFormer, On the expressive power of a variant of the looped transformer",
    "ours": "Found on the way: no paper states these",
}

_RECORD = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Row:
    """One line of the ledger: what a claim says, what was measured, and whether that agrees with the record."""

    id: str
    source: str
    statement: str
    derivation: str
    evidence: Evidence
    verdict: Verdict
    recorded: Verdict | None
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether the verdict is the one on record."""
        return self.verdict == self.recorded

    @property
    def label(self) -> str:
        """The verdict as printed: what holds on random instances holds where checked."""
        return label(self.verdict, self.evidence.kind)

    def json(self) -> dict[str, Any]:
        """The row as plain numbers and strings."""
        return {
            "id": self.id,
            "source": self.source,
            "statement": self.statement,
            "derivation": self.derivation,
            "kind": str(self.evidence.kind),
            "numbers": dict(self.evidence.numbers),
            "verdict": self.label,
            "recorded": self.recorded and label(self.recorded, self.evidence.kind),
            "agrees": self.agrees,
            "seconds": self.seconds,
        }


def claims() -> dict[str, Claim]:
    """Every claim by its id, in the order of the papers."""
    found: dict[str, Claim] = {}
    for paper in PAPERS:
        for value in vars(import_module(f"algoformer.claims.{paper}")).values():
            if isinstance(value, Claim):
                if value.id in found:
                    raise ValueError(f"claims must have ids of their own; got {value.id} twice")
                found[value.id] = value
    return found


def verify(ids: Collection[str] | None = None, progress: Callable[[int, int, str], None] | None = None) -> list[Row]:
    """Measure and judge the claims with these ids (all by default).

    `progress(done, total, id)` is called before each claim and once at the end, with an empty id.
    """
    known = claims()
    unknown = [i for i in ids or () if i not in known]
    if unknown:
        raise ValueError(f"ids must be claims of the ledger; got {', '.join(unknown)}")
    chosen = [known[i] for i in known if ids is None or i in ids]
    record, rows = recorded(), []
    for done, c in enumerate(chosen):
        if progress:
            progress(done, len(chosen), c.id)
        begin = time.perf_counter()
        evidence = c.measure()
        verdict = c.judge(evidence)
        seconds = time.perf_counter() - begin
        known_verdict = Verdict(record[c.id]["verdict"]) if c.id in record else None
        rows.append(Row(c.id, c.source, c.statement, c.derivation, evidence, verdict, known_verdict, seconds))
    if progress:
        progress(len(chosen), len(chosen), "")
    return rows


def recorded() -> dict[str, dict[str, Any]]:
    """The record: {id: {"verdict", "kind", "numbers"}}."""
    return dict(json.loads(_RECORD.read_text())) if _RECORD.exists() else {}


def record(rows: Collection[Row]) -> None:
    """Write the rows into the record, beside those already there."""
    known = recorded() | {
        row.id: {"verdict": str(row.verdict), "kind": str(row.evidence.kind), "numbers": dict(row.evidence.numbers)}
        for row in rows
    }
    ordered = {i: known[i] for i in claims() if i in known}
    replace_file(_RECORD, json.dumps(ordered, indent=1).encode() + b"\n")


def page() -> str:
    """The ledger as a Markdown page, from the record."""
    record, everything = recorded(), claims()
    labels = dict.fromkeys(label(verdict, kind) for verdict in Verdict for kind in Kind)
    counts = {label: sum(_status(record, id) == label for id in record) for label in labels}
    lines = [
        "# The ledger",
        "",
        "Statements of the papers that a computer can check, with numbers and a verdict each: theorems, lemmas and",
        "propositions with such content, single steps of proofs, and statements that give a quantity.",
        "`algoformer verify` measures all of it again; `algoformer verify ID` shows one row with its derivation.",
        "",
        "*holds*: as printed. *holds where checked*: as printed, on random instances. *holds corrected*: not as",
        "printed, but after the correction given. *vacuous*: true, and says nothing at any size in reach. *fails*:",
        "the counterexample is in the numbers. *open*: not decided.",
        "",
        "Evidence is *derived* (a proof, and numbers that would contradict it), *exact at sizes* (exact arithmetic, or",
        "float64 to rounding, at the sizes named) or *sampled* (random instances or prompts).",
        "",
        "| verdict | rows |",
        "|---|---|",
        *(f"| {verdict} | {count} |" for verdict, count in counts.items()),
    ]
    for paper, title in PAPERS.items():
        rows = [c for i, c in everything.items() if i.startswith(f"{paper}.")]
        if not rows:
            continue
        lines += ["", f"## {title}", "", "| claim | source | verdict |", "|---|---|---|"]
        lines += [f"| [{c.id}](#{_anchor(c.id)}) | {c.source} | {_status(record, c.id)} |" for c in rows]
        for c in rows:
            lines += ["", f"### {c.id}", "", f"**{_status(record, c.id)}** — {c.source}", "", c.statement, ""]
            if c.id in record:
                row = record[c.id]
                lines += [f"Evidence ({row['kind']}):", ""]
                lines += [f"- {name}: {value:.10g}" for name, value in row["numbers"].items()] + [""]
            lines += [" ".join(c.derivation.split())]
    return "\n".join(lines) + "\n"


def _status(record: dict[str, dict[str, Any]], id: str) -> str:
    return label(Verdict(record[id]["verdict"]), Kind(record[id]["kind"])) if id in record else "not recorded"


def label(verdict: Verdict, kind: Kind) -> str:
    """A verdict as printed, by the kind of its evidence."""
    return "holds where checked" if verdict == Verdict.HOLDS and kind == Kind.SAMPLED else str(verdict)


def _anchor(id: str) -> str:
    return id.replace(".", "")
