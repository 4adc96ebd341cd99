"""A built-in corpus: numbers, dates and clock times in German and English words, by rule."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from algoformer.checks import one_of, whole
from algoformer.tasks.translation import Lines, Parallel

# Tens and units that stand together in no training sentence. Every word of them does, with others.
UNSEEN = (34, 39, 47, 51, 56, 62, 78, 83, 95)
SHARES = {"number": 0.8, "date": 0.1, "time": 0.1}
HELD = 10  # in a hundred values

_UNITS = {
    "de": ("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
           "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
    "en": ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
           "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
}  # fmt: skip
_TENS = {
    "de": ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"),
    "en": ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
}
_MONTHS = {
    "de": ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November",
           "Dezember"),
    "en": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December"),
}  # fmt: skip
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ODD = {
    "de": {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"},
    "en": {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"},
}


@dataclass(frozen=True, kw_only=True)
class NumberWords(Parallel):
    """einundzwanzigtausenddreihundertvier <-> twenty-one thousand three hundred and four; dates and clock times.

    Numbers are 0 to 999,999, every count of digits equally likely. A tenth of all values, by their hash, is never
    trained on: half of it is "valid", half "test". "structural" holds the values with one of nine combinations of tens
    and units, such as 47, which no training sentence contains; `size` sentences are trained on, a tenth are in each
    other split.
    """

    vocabulary: int = 400
    longest: int = 64
    size: int = 20_000
    source: str = "de"
    target: str = "en"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("size", self.size, 10)
        one_of("source", self.source, ("de", "en"))
        one_of("target", self.target, ("de", "en"))

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "valid", "test", "structural")

    def read(self, split: str) -> Lines:
        size = self.size if split == "train" else self.size // 10
        draw = random.Random(f"number words, {split}")
        found: list[tuple[str, tuple[int, ...]]] = []
        kinds = list(SHARES)
        while len(found) < size:
            kind = draw.choices(kinds, list(SHARES.values()))[0]
            value = _drawn(kind, draw)
            if split_of(kind, value) == split:
                found.append((kind, value))
        german, english = ([words(kind, value, language) for kind, value in found] for language in ("de", "en"))
        sides = {"de": german, "en": english}
        return Lines(sides[self.source], sides[self.target])


def split_of(kind: str, value: tuple[int, ...]) -> str:
    """The one split in which a value may stand."""
    if kind == "time":
        spoken = [min(value[1], 60 - value[1])]
    elif kind == "date":
        spoken = [value[0], value[2] % 100]
    else:
        spoken = [value[0] % 100, value[0] // 1000 % 100]
    if any(part in UNSEEN for part in spoken):
        return "structural"
    digest = hashlib.blake2b(f"{kind} {' '.join(map(str, value))}".encode(), digest_size=4).digest()
    place = int.from_bytes(digest, "big") % 200
    return "train" if place >= 2 * HELD else "valid" if place < HELD else "test"


def words(kind: str, value: tuple[int, ...], language: str) -> str:
    """A number (n), date (day, month, year) or clock time (hour, minute) in words."""
    if kind == "number":
        return number(value[0], language)
    if kind == "date":
        return date(value[0], value[1], value[2], language)
    return time(value[0], value[1], language)


def number(n: int, language: str) -> str:
    """A number below a million in words."""
    if not 0 <= n < 1_000_000:
        raise ValueError(f"a number in words must be 0 to 999,999; got {n}")
    return _german(n) if language == "de" else _english(n)


def date(day: int, month: int, year: int, language: str) -> str:
    """der dritte Mai achtzehnhundertvier <-> the third of May eighteen oh four; years 1100 to 2099."""
    name = _MONTHS[language][month - 1]
    century, rest = divmod(year, 100)
    if language == "de":
        return f"der {_ordinal(day, 'de')} {name} {_german(year) if century == 20 else _hundreds(century, rest)}"
    if century == 20 and rest < 10:
        spoken = _english(year)
    elif rest == 0:
        spoken = f"{_english(century)} hundred"
    else:
        spoken = f"{_english(century)} {'oh ' if rest < 10 else ''}{_english(rest)}"
    return f"the {_ordinal(day, 'en')} of {name} {spoken}"


def time(hour: int, minute: int, language: str) -> str:
    """fünf vor halb vier <-> twenty-five past three; hours 1 to 12."""
    after = hour % 12 + 1
    h, later = (_UNITS[language][v] for v in (hour, after))
    if minute == 0:
        return f"{'ein' if hour == 1 else h} Uhr" if language == "de" else f"{h} o'clock"
    to = minute > 30
    count, at = (60 - minute, later) if to else (minute, h)
    if language == "de":
        if minute == 30:
            return f"halb {later}"
        if 25 <= minute <= 35 and minute % 5 == 0:
            return f"fünf {'nach' if to else 'vor'} halb {later}"
        spoken = "Viertel" if count == 15 else _german(count)
        if count % 5:
            spoken = "eine Minute" if count == 1 else f"{spoken} Minuten"
        return f"{spoken} {'vor' if to else 'nach'} {at}"
    spoken = {15: "quarter", 30: "half"}.get(count, _english(count))
    if count % 5:
        spoken = f"{spoken} minute{'' if count == 1 else 's'}"
    return f"{spoken} {'to' if to else 'past'} {at}"


def _drawn(kind: str, draw: random.Random) -> tuple[int, ...]:
    if kind == "number":
        digits = draw.randint(1, 6)
        return (draw.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits),)
    if kind == "date":
        month = draw.randint(1, 12)
        return draw.randint(1, _DAYS[month - 1]), month, draw.randint(1100, 2099)
    return draw.randint(1, 12), draw.randint(0, 59)


def _german(n: int, last: str = "eins") -> str:
    """`last` is the form of a one at the end: eins, or ein before what it counts."""
    if n == 1:
        return last
    if n < 20:
        return _UNITS["de"][n]
    if n < 100:
        tens, units = divmod(n, 10)
        return (f"{_german(units, 'ein')}und" if units else "") + _TENS["de"][tens]
    if n < 1000:
        return _hundreds(*divmod(n, 100), last)
    thousands, rest = divmod(n, 1000)
    return f"{_german(thousands, 'ein')}tausend" + (_german(rest, last) if rest else "")


def _hundreds(count: int, rest: int, last: str = "eins") -> str:
    return f"{_german(count, 'ein')}hundert" + (_german(rest, last) if rest else "")


def _english(n: int) -> str:
    if n < 20:
        return _UNITS["en"][n]
    if n < 100:
        tens, units = divmod(n, 10)
        return _TENS["en"][tens] + (f"-{_UNITS['en'][units]}" if units else "")
    if n < 1000:
        hundreds, rest = divmod(n, 100)
        return f"{_UNITS['en'][hundreds]} hundred" + (f" and {_english(rest)}" if rest else "")
    thousands, rest = divmod(n, 1000)
    link = " and " if rest < 100 else " "
    return f"{_english(thousands)} thousand" + (f"{link}{_english(rest)}" if rest else "")


def _ordinal(n: int, language: str) -> str:
    if language == "de":
        return _ODD["de"].get(n) or _german(n) + ("te" if n < 20 else "ste")
    if n in _ODD["en"]:
        return _ODD["en"][n]
    if n < 20:
        return f"{_UNITS['en'][n]}th"
    tens, units = divmod(n, 10)
    return f"{_TENS['en'][tens]}-{_ordinal(units, 'en')}" if units else f"{_TENS['en'][tens][:-1]}ieth"
