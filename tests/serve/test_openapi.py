"""The OpenAPI document is true: requests made up from it get what it promises, and never a 5xx."""

from __future__ import annotations

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from coldhash.serve import create_app

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def openapi(model):
    app = create_app(model, log=lambda _: None)
    return schemathesis.openapi.from_asgi("/openapi.json", app)


# nothing in these requests can be wrong
BARE = ("/v1/model", "/healthz", "/readyz", "/metrics")
OPERATIONS = {
    "/v1/recommend": "POST",
    "/v1/recommend/batch": "POST",
    "/v1/encode": "POST",
    "/v1/explain": "POST",
    "/v1/items": "GET",
    "/v1/items/{item_id}/similar": "GET",
    "/v1/model": "GET",
    "/healthz": "GET",
    "/readyz": "GET",
    "/metrics": "GET",
}


RIGHT = [(path, GenerationMode.POSITIVE) for path in OPERATIONS]
WRONG = [(path, GenerationMode.NEGATIVE) for path in OPERATIONS if path not in BARE]


@pytest.mark.parametrize(("path", "mode"), RIGHT + WRONG)
def test_made_up_requests_get_what_the_document_says(openapi, path, mode):
    operation = openapi[path][OPERATIONS[path]]
    statuses = set()

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        answer = case.call()
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    ask()
    assert statuses >= ({200} if path in BARE else {422} if mode.is_negative else set())


def test_the_document_covers_the_service_and_its_examples_work(model):
    with TestClient(create_app(model, log=lambda _: None)) as client:
        document = client.get("/openapi.json").json()
        assert {path: [*methods] for path, methods in document["paths"].items()} == {
            path: [method.lower()] for path, method in OPERATIONS.items()
        }
        parts = document["components"]["schemas"]
        for path in ("/v1/recommend", "/v1/recommend/batch", "/v1/encode", "/v1/explain"):
            body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            name = body["schema"]["$ref"].rsplit("/", 1)[1]
            (example,) = parts[name]["examples"]
            assert client.post(path, json=example).status_code == 200
