"""The OpenAPI document: with the limits of this server, and the fields of the model it serves."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from fastapi import FastAPI

from coldhash.features.people import HISTORY
from coldhash.recommender.recommender import USER_ID
from coldhash.serve.limits import Limits
from coldhash.serve.middleware import OPEN
from coldhash.serve.registry import Served, Shelf
from coldhash.serve.schemas import ID

PERSON = {"$ref": "#/components/schemas/Person"}
NULL = {"type": "null"}


def document_of(app: FastAPI, shelf: Shelf, limits: Limits, has_token: bool) -> Callable[[], Any]:
    """Return the function that writes the document; it is written anew for another model."""
    made: dict[str, dict[str, Any]] = {}

    def document() -> dict[str, Any]:
        served = shelf.current
        if served.version not in made:
            base = deepcopy(FastAPI.openapi(app))
            made.clear()
            made[served.version] = _completed(base, served, limits, has_token)
        return made[served.version]

    return document


def _completed(
    document: dict[str, Any], served: Served, limits: Limits, has_token: bool
) -> dict[str, Any]:
    """Add to the document what depends on limits and model."""
    schemas = document["components"]["schemas"]
    schemas["Person"] = _person(served, limits)
    people = {"type": "array", "items": PERSON, "maxItems": limits.max_batch}
    ids = {"type": "array", "items": ID, "maxItems": limits.max_batch}
    _choose(schemas["Ask"], {"user": PERSON, "user_id": ID})
    _choose(schemas["AskMany"], {"users": people, "user_ids": ids})
    for name in ("Ask", "AskMany"):
        options = schemas[name]["properties"]
        options["k"]["maximum"] = limits.max_k
        options["score"]["enum"] = ["real", "hamming"] if served.model.has_codes else ["real"]
        for items in ("exclude", "candidates"):  # FastAPI turns the bounds of ids into floats
            options[items]["anyOf"][0]["items"] = ID
    schemas["AskCode"]["properties"]["user"] = PERSON
    schemas["AskWhy"]["properties"] |= {"user": PERSON, "item_id": ID}
    _add_examples(schemas, served)
    (k,) = [
        each
        for each in document["paths"]["/v1/items/{item_id}/similar"]["get"]["parameters"]
        if each["name"] == "k"
    ]
    k["schema"]["maximum"] = limits.max_k
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path in OPEN else [{"token": []}]
    return document


def _choose(schema: dict[str, Any], either: dict[str, Any]) -> None:
    """Say that exactly one of two properties is given; the other is missing or null."""
    for name, form in either.items():
        schema["properties"][name] = {"anyOf": [form, NULL]}
    schema["oneOf"] = [
        {
            "required": [name],
            "properties": {each: form if each == name else NULL for each, form in either.items()},
        }
        for name in either
    ]


def _person(served: Served, limits: Limits) -> dict[str, Any]:
    low, high = served.model.scale
    ratings = {
        "type": ["object", "null"],
        "description": "Item id -> rating.",
        "propertyNames": {"minLength": 1},
        "additionalProperties": {"type": "number", "minimum": low, "maximum": high},
        "maxProperties": limits.max_history,
    }
    fields = {name: field.schema() for name, field in served.fields.items()}
    return {
        "type": "object",
        "description": "What is known of a person; everything may be missing or null.",
        "properties": {USER_ID: {"anyOf": [ID, {"const": ""}, NULL]}, **fields, HISTORY: ratings},
        "additionalProperties": False,
    }


def _add_examples(schemas: dict[str, Any], served: Served) -> None:
    """Add a request of each kind that this model takes."""
    model = served.model
    somebody = {field.name: field.example() for field in served.fields.values()}
    item_id = model.item_ids[0] if len(model.item_ids) else "1"
    for name, example in {
        "Ask": {"user": somebody, "k": 3},
        "AskMany": {"users": [somebody, {}], "k": 3},
        "AskCode": {"user": somebody},
        "AskWhy": {"user": somebody, "item_id": item_id},
    }.items():
        schemas[name]["examples"] = [example]
