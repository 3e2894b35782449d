"""JSON schemas in specs."""

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

JSON_TYPES = {"float": "number", "dict": "object", "tuple": "array", "list": "array"}
"""JSON schema's names of the types that function descriptions name as Python does, such as those of BFCL."""


def schema_errors(value: Any, schema_text: str) -> "list[ValidationError]":
    """Return all violations of a schema, given as JSON text, by a value. They are in the order of the schema's fields.

    Raise ValueError for an invalid schema, an unresolvable reference or an invalid pattern. Older drafts, and schemas
    reached only through a `$ref`, are not checked for these until they are used.
    """
    from referencing.exceptions import Unresolvable

    try:
        return list(schema_validator(schema_text).iter_errors(value))
    except Unresolvable as unresolved:
        raise ValueError(f"schema: {unresolved}") from unresolved
    except re.error as error:
        raise ValueError(f"schema: the pattern {error.pattern!r}: {error}") from error


@lru_cache(maxsize=128)
def schema_validator(schema_text: str) -> "Validator":
    """Return the validator of a schema; it is cached, since building it is slower than validating.

    Raise ValueError for an invalid schema.
    """
    from jsonschema import Draft202012Validator, SchemaError  # late: it takes a tenth of a second to import
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"schema: {error.json_path}: {error.message}") from error
    return kind(schema, registry=Registry())  # an empty registry, so that no $ref is fetched from the network
