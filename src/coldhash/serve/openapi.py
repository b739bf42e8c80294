"""The OpenAPI document, with the limits of this server and the fields of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from coldhash import __version__
from coldhash.recommender.where import BOUNDS
from coldhash.serve.endpoints import HEALTH_PATHS, Operation
from coldhash.serve.limits import JSON, Limits
from coldhash.serve.registry import ServedModel
from coldhash.serve.schemas import LIMITED, NULL, REF, ErrorAnswer

Schema = dict[str, Any]

ERRORS = (400, 401, 404, 413, 421, 422, 503, 504)


def make_document(
    operations: Sequence[Operation], served: ServedModel, limits: Limits, has_token: bool
) -> Schema:
    """Describe operations, for one model."""
    types: list[type[BaseModel]] = [ErrorAnswer]
    for operation in operations:
        types += [kind for kind in (operation.request, operation.answer) if kind is not None]
    forms = models_json_schema([(kind, "validation") for kind in types], ref_template=REF)[1]
    person = served.person_type(limits.max_history).model_json_schema(ref_template=REF)
    schemas: Schema = forms["$defs"] | {"Person": person}
    paths = {
        operation.path.replace(":path", ""): {
            operation.method.lower(): _describe(operation, schemas, served, limits, has_token)
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


def _describe(
    operation: Operation, schemas: Schema, served: ServedModel, limits: Limits, has_token: bool
) -> Schema:
    needs_token = operation.path not in HEALTH_PATHS
    content: Schema = {} if operation.answer is None else _as_json(operation.answer)
    if operation.text_type is not None:
        content[operation.text_type] = {"schema": {"type": "string"}}
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
    if operation.request is None:
        return found
    request = schemas[operation.request.__name__]
    _add_limits(request, served, limits)
    if operation.method == "POST":
        return found | {"requestBody": {"required": True, "content": _as_json(operation.request)}}
    del schemas[operation.request.__name__]
    parameters = [
        {
            "name": name,
            "in": "path" if f"{{{name}" in operation.path else "query",
            "required": name in request.get("required", ()),
            **({"content": {JSON: {"schema": schema}}} if name == "where" else {"schema": schema}),
            **({"style": "form", "explode": False} if name == "fields" else {}),
        }
        for name, schema in request["properties"].items()
    ]
    return found | {"parameters": parameters}


def _as_json(kind: type[BaseModel]) -> Schema:
    return {JSON: {"schema": {"$ref": REF.format(model=kind.__name__)}}}


def _add_limits(request: Schema, served: ServedModel, limits: Limits) -> None:
    """Add limits, item columns and an example for the model to the schema of a request."""
    properties: Schema = request["properties"]
    for name in LIMITED.keys() & properties.keys():
        keyword = "maximum" if properties[name].get("type") == "integer" else "maxItems"
        properties[name][keyword] = getattr(limits, LIMITED[name])
    if "score" in properties and not served.model.has_codes:
        properties["score"]["enum"] = ["real"]
    if "popularity" in properties and served.model.items.levels is None:
        properties["popularity"]["minimum"] = 1
    columns = {field.name: field.kind for field in served.item_fields}
    for name, schema in (("where", _describe_where(columns)), ("fields", _choose_some(columns))):
        if name in properties:
            null = [NULL] if "anyOf" in properties[name] else []
            about = {"description": properties[name]["description"]}
            properties[name] = about | ({"anyOf": [schema, *null]} if null else schema)
    person, item_ids = served.model.features.example(), served.model.item_ids
    item_id = item_ids[0] if len(item_ids) else "1"
    example = {"user": person, "users": [person, {}], "k": 3, "item_id": item_id}
    request["examples"] = [{name: example[name] for name in example if name in properties}]


def _describe_where(columns: Mapping[str, str | None]) -> Schema:
    """Describe what `where` takes: conditions on the columns that can be compared."""
    number: Schema = {"type": "number"}
    bounds = {"type": "object", "properties": dict.fromkeys(BOUNDS, number), "minProperties": 1}
    values: Schema = {"number": number, "boolean": {"type": "boolean"}}
    values["text"] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    properties = {}
    for name, kind in columns.items():
        if kind is not None:
            ways = [values[kind], {"type": "array", "items": values[kind]}]
            if kind == "number":
                ways.append(bounds | {"additionalProperties": False})
            properties[name] = {"anyOf": ways}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _choose_some(columns: Mapping[str, str | None]) -> Schema:
    return (
        {"type": "array", "items": {"enum": [*columns]}}
        if columns
        else {"type": "array", "maxItems": 0}
    )
