"""The OpenAPI document, with the limits of this server and the fields of its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from coldhash import __version__
from coldhash.features.people import HISTORY
from coldhash.recommender.recommender import USER_ID
from coldhash.serve.endpoints import JSON, Operation
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


def make_document(
    operations: Sequence[Operation], served: ServedModel, limits: Limits, has_token: bool
) -> Schema:
    """Describe operations, for one model."""
    types: list[type[BaseModel]] = [ErrorAnswer]
    for operation in operations:
        types += [kind for kind in (operation.request, operation.answer) if kind is not None]
    forms = models_json_schema([(kind, "validation") for kind in types], ref_template=REF)[1]
    schemas: Schema = forms["$defs"]
    schemas["Person"] = _describe_person(served, limits)
    _add_limits(schemas, served, limits)
    _add_examples(schemas, served)
    paths = {
        operation.path.replace(":path", ""): {
            operation.method.lower(): _describe(operation, schemas, has_token)
        }
        for operation in operations
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "coldhash", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}} if has_token else {},
        },
    }


def _describe(operation: Operation, schemas: Schema, has_token: bool) -> Schema:
    needs_token = operation.path not in PUBLIC_PATHS
    content = {kind: {"schema": {"type": "string"}} for kind in operation.text_types}
    if operation.answer is not None:
        content |= _as_json(operation.answer)
    responses = {"200": {"description": "The answer.", "content": content}}
    if needs_token:
        error = {"description": "An error.", "content": _as_json(ErrorAnswer)}
        responses |= {str(status): error for status in ERRORS}
    found: Schema = {
        "operationId": operation.handler.__name__,
        "description": operation.handler.__doc__,
        "security": [{"token": []}] if has_token and needs_token else [],
        "responses": responses,
    }
    if operation.request is not None and operation.method == "POST":
        found["requestBody"] = {"required": True, "content": _as_json(operation.request)}
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


def _as_json(kind: type[BaseModel]) -> Schema:
    return {JSON: {"schema": {"$ref": REF.format(model=kind.__name__)}}}


def _add_limits(schemas: Schema, served: ServedModel, limits: Limits) -> None:
    people = {"type": "array", "items": PERSON, "maxItems": limits.max_batch}
    ids = {"type": "array", "items": ID, "maxItems": limits.max_batch}
    for name, either in {
        "RecommendRequest": {"user": PERSON, "user_id": ID},
        "BatchRequest": {"users": people, "user_ids": ids},
    }.items():
        properties = schemas[name]["properties"]
        properties |= {field: {"anyOf": [form, NULL]} for field, form in either.items()}
        if not served.model.has_codes:
            properties["score"]["enum"] = ["real"]
        schemas[name]["oneOf"] = [  # the other one is missing or null
            {"required": [field], "properties": dict.fromkeys(either, NULL) | {field: form}}
            for field, form in either.items()
        ]
    for name in ("EncodeRequest", "ExplainRequest"):
        schemas[name]["properties"]["user"] = PERSON
    for name in ("RecommendRequest", "BatchRequest", "SimilarQuery"):
        schemas[name]["properties"]["k"]["maximum"] = limits.max_k


def _describe_person(served: ServedModel, limits: Limits) -> Schema:
    low, high = served.model.scale
    ratings = {
        "type": ["object", "null"],
        "description": "Item id -> rating.",
        "propertyNames": {"minLength": 1},
        "additionalProperties": {"type": "number", "minimum": low, "maximum": high},
        "maxProperties": limits.max_history,
    }
    fields = {name: _describe_field(field) for name, field in served.fields.items()}
    return {
        "type": "object",
        "description": "What is known of a person; everything may be missing or null.",
        "properties": {USER_ID: {"anyOf": [ID, {"const": ""}, NULL]}, **fields, HISTORY: ratings},
        "additionalProperties": False,
    }


def _describe_field(field: PersonField) -> Schema:
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
    person, item_ids = served.model.features.example(), served.model.item_ids
    item_id = item_ids[0] if len(item_ids) else "1"
    for name, example in {
        "RecommendRequest": {"user": person, "k": 3},
        "BatchRequest": {"users": [person, {}], "k": 3},
        "EncodeRequest": {"user": person},
        "ExplainRequest": {"user": person, "item_id": item_id},
    }.items():
        schemas[name]["examples"] = [example]
