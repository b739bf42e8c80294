"""The OpenAPI document, with the limits of this server and the fields of its model."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from coldhash import __version__
from coldhash.serve.endpoints import HEALTH_PATHS, Operation
from coldhash.serve.limits import JSON, Limits
from coldhash.serve.registry import ServedModel
from coldhash.serve.schemas import REF, REQUESTS, ErrorAnswer, Schema

ERRORS = (400, 401, 404, 413, 421, 422, 503, 504)


def make_document(
    operations: Sequence[Operation], served: ServedModel, limits: Limits, has_token: bool
) -> Schema:
    """Describe operations, for one model."""
    requests = {name: served.types(limits).request(name) for name in REQUESTS}
    answers = [operation.answer for operation in operations if operation.answer is not None]
    types: list[type[BaseModel]] = [ErrorAnswer, *answers, *requests.values()]
    _, forms = models_json_schema([(kind, "validation") for kind in types], ref_template=REF)
    schemas: Schema = forms["$defs"]
    person, item_ids = served.model.features.example(), served.model.item_ids
    item_id = item_ids[0] if len(item_ids) else "1"
    example = {"user": person, "users": [person, {}], "k": 3, "item_id": item_id}
    for name in requests:
        given = {field: example[field] for field in example if field in schemas[name]["properties"]}
        schemas[name]["examples"] = [given]
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
    needs_token = operation.path not in HEALTH_PATHS
    content: Schema = {} if operation.answer is None else _as_json(operation.answer.__name__)
    if operation.text_type is not None:
        content[operation.text_type] = {"schema": {"type": "string"}}
    responses = {"200": {"description": "The answer.", "content": content}}
    if needs_token:
        error = {"description": "An error.", "content": _as_json(ErrorAnswer.__name__)}
        responses |= {str(status): error for status in ERRORS}
    found: Schema = {
        "operationId": operation.handler.__name__,
        "description": operation.handler.__doc__,
        "security": [{"token": []}] if has_token and needs_token else [],
        "responses": responses,
    }
    if operation.request is None:
        return found
    if operation.method == "POST":
        return found | {"requestBody": {"required": True, "content": _as_json(operation.request)}}
    request = schemas.pop(operation.request)
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


def _as_json(name: str) -> Schema:
    return {JSON: {"schema": {"$ref": REF.format(model=name)}}}
