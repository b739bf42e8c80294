"""The OpenAPI document, with the limits of this server and the fields of its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from coldhash import __version__
from coldhash.serve.endpoints import HEALTH_PATHS, Operation
from coldhash.serve.limits import JSON, Limits
from coldhash.serve.registry import ServedModel
from coldhash.serve.schemas import LIMITED, REF, ErrorAnswer

Schema = dict[str, Any]

ERRORS = (401, 404, 413, 421, 422, 503, 504)


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
            "schema": schema,
        }
        for name, schema in request["properties"].items()
    ]
    return found | {"parameters": parameters}


def _as_json(kind: type[BaseModel]) -> Schema:
    return {JSON: {"schema": {"$ref": REF.format(model=kind.__name__)}}}


def _add_limits(request: Schema, served: ServedModel, limits: Limits) -> None:
    """Add the limits of the server to the schema of a request, and an example for the model."""
    properties: Schema = request["properties"]
    for name in LIMITED.keys() & properties.keys():
        keyword = "maximum" if properties[name].get("type") == "integer" else "maxItems"
        properties[name][keyword] = getattr(limits, LIMITED[name])
    if "score" in properties and not served.model.has_codes:
        properties["score"]["enum"] = ["real"]
    if "popularity" in properties and served.model.items.levels is None:
        properties["popularity"]["minimum"] = 1
    person, item_ids = served.model.features.example(), served.model.item_ids
    item_id = item_ids[0] if len(item_ids) else "1"
    example = {"user": person, "users": [person, {}], "k": 3, "item_id": item_id}
    request["examples"] = [{name: example[name] for name in example if name in properties}]
