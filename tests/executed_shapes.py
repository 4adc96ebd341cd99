"""The checker of shapes and types that the tests run with: an int may stand where a float is wanted."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
