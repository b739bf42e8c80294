"""The OpenAPI document, with the limits of this server and the fields of its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from coldhash import __version__
from coldhash.features.people import HISTORY
from coldhash.recommender.recommender import USER_ID
from coldhash.serve.endpoints import JSON, NDJSON, Operation
from coldhash.serve.limits import Limits
from coldhash.serve.middleware import PUBLIC_PATHS
from coldhash.serve.registry import ServedModel
from coldhash.serve.schemas import DECIMAL, ID, LARGEST, ErrorAnswer, PersonField

Schema = dict[str, Any]

REF = "#/components/schemas/{model}"
PERSON = {"$ref": REF.format(model="Person")}
NULL = {"type": "null"}
PLAIN = {"type": ["string", "number", "boolean", "null"]}
ERRORS = (401, 404, 413, 421, 422, 503, 504)
BATCH = "/v1/recommend/batch"


def make_document(
    operations: Sequence[Operation], served: ServedModel, limits: Limits, has_token: bool
) -> Schema:
    """Describe operations, for one model."""
    types: list[type[BaseModel]] = [ErrorAnswer]
    types += [kind for each in operations for kind in (each.request, each.answer) if kind]
    defs = models_json_schema([(kind, "validation") for kind in types], ref_template=REF)[1]
    schemas = defs["$defs"]
    _add_limits(schemas, served, limits)
    _add_examples(schemas, served)
    paths = {
        operation.path.replace(":path", ""): {
            operation.method.lower(): _describe(operation, schemas, has_token)
        }
        for operation in operations
    }
    components: Schema = {"schemas": schemas}
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "coldhash",
            "version": __version__,
            "description": "Recommend to people you have never seen.",
        },
        "paths": paths,
        "components": components,
    }


def _describe(operation: Operation, schemas: Schema, has_token: bool) -> Schema:
    name = operation.handler.__name__
    description = operation.handler.__doc__
    content: Schema = {"text/plain": {"schema": {"type": "string"}}}
    if operation.answer is not None:
        content = _content(operation.answer)
    if operation.path == BATCH:
        content[NDJSON] = {"schema": {"type": "string"}}
    responses = {"200": {"description": "The answer.", "content": content}}
    is_public = operation.path in PUBLIC_PATHS
    if not is_public:
        error = {"description": "An error.", "content": _content(ErrorAnswer)}
        responses |= {str(status): error for status in ERRORS}
    found: Schema = {"operationId": name, "description": description, "responses": responses}
    if has_token:
        found["security"] = [] if is_public else [{"token": []}]
    if operation.request is not None and operation.method == "POST":
        found["requestBody"] = {"required": True, "content": _content(operation.request)}
    elif operation.request is not None:
        query = schemas.pop(operation.request.__name__)
        found["parameters"] = [
            {
                "name": name,
                "in": "path" if f"{{{name}" in operation.path else "query",
                "required": name in query.get("required", ()),
                "schema": schema,
            }
            for name, schema in query["properties"].items()
        ]
    return found


def _content(kind: type[BaseModel]) -> Schema:
    return {JSON: {"schema": {"$ref": REF.format(model=kind.__name__)}}}


def _add_limits(schemas: Schema, served: ServedModel, limits: Limits) -> None:
    """Add the limits of the server and the fields of the model."""
    schemas["Person"] = _person(served, limits)
    people = {"type": "array", "items": PERSON, "maxItems": limits.max_batch}
    ids = {"type": "array", "items": ID, "maxItems": limits.max_batch}
    _require_one(schemas["RecommendRequest"], {"user": PERSON, "user_id": ID})
    _require_one(schemas["BatchRequest"], {"users": people, "user_ids": ids})
    for name in ("RecommendRequest", "BatchRequest"):
        schemas[name]["properties"]["score"]["enum"] = (
            ["real", "hamming"] if served.model.has_codes else ["real"]
        )
    for name in ("RecommendRequest", "BatchRequest", "SimilarQuery"):
        schemas[name]["properties"]["k"]["maximum"] = limits.max_k
    for name in ("EncodeRequest", "ExplainRequest"):
        schemas[name]["properties"]["user"] = PERSON


def _require_one(schema: Schema, properties: Schema) -> None:
    """Require exactly one of two properties; the other is missing or null."""
    for name, form in properties.items():
        schema["properties"][name] = {"anyOf": [form, NULL]}
    schema["oneOf"] = [
        {"required": [name], "properties": dict.fromkeys(properties, NULL) | {name: form}}
        for name, form in properties.items()
    ]


def _person(served: ServedModel, limits: Limits) -> Schema:
    low, high = served.model.scale
    ratings = {
        "type": ["object", "null"],
        "description": "Item id -> rating.",
        "propertyNames": {"minLength": 1},
        "additionalProperties": {"type": "number", "minimum": low, "maximum": high},
        "maxProperties": limits.max_history,
    }
    fields = {name: _field_schema(field) for name, field in served.fields.items()}
    return {
        "type": "object",
        "description": "What is known of a person; everything may be missing or null.",
        "properties": {USER_ID: {"anyOf": [ID, {"const": ""}, NULL]}, **fields, HISTORY: ratings},
        "additionalProperties": False,
    }


def _field_schema(field: PersonField) -> Schema:
    """Return the schema of what `PersonField.check` accepts."""
    number = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    if field.kind == "vector":
        sizes = [{"maxItems": 0}, {"minItems": field.length, "maxItems": field.length}]
        vector = {"type": "array", "items": number, "anyOf": sizes}
        return {"anyOf": [vector, {"const": ""}, NULL]}
    if field.kind == "number":
        return {"anyOf": [number, {"type": "string", "pattern": DECIMAL}, NULL]}
    if field.kind == "multi-label":
        return {"anyOf": [PLAIN, {"type": "array", "items": PLAIN}]}
    return PLAIN


def _add_examples(schemas: Schema, served: ServedModel) -> None:
    """Add a request of each kind that this model accepts."""
    person = {field.name: _example(field) for field in served.fields.values()}
    item_id = served.model.item_ids[0] if len(served.model.item_ids) else "1"
    for name, example in {
        "RecommendRequest": {"user": person, "k": 3},
        "BatchRequest": {"users": [person, {}], "k": 3},
        "EncodeRequest": {"user": person},
        "ExplainRequest": {"user": person, "item_id": item_id},
    }.items():
        schemas[name]["examples"] = [example]


def _example(field: PersonField) -> object:
    if field.kind == "vector":
        return [0.0] * (field.length or 0)
    if field.kind == "number":
        return round(((field.min or 0) + (field.max or 0)) / 2)
    return field.choices[0] if field.choices else "some words"
