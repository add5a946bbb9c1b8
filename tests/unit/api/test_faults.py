"""Errors as clients get them."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paddock.api.faults import CLIENT_CLOSED, MethodNotAllowed, TooMany, answer, as_paddock_error, no_route
from paddock.errors import BY_STATUS, Conflict, Unauthenticated
from paddock.sandboxes.requests import CreateSandbox, ExecRequest

API_PATH = "/api/v1/sandboxes"


@pytest.mark.parametrize("status", sorted(BY_STATUS))
def test_every_error_keeps_its_status_and_reason(status: int) -> None:
    response = answer(API_PATH, BY_STATUS[status]("what happened", reason="why", hint="do this"))
    assert response.status_code == status
    assert json.loads(response.body) == {"error": "what happened", "reason": "why", "hint": "do this"}


def test_reference_5_gets_its_own_shape() -> None:
    response = answer("/sandboxes/x", Conflict("taken", reason="name_taken", hint="try another"))
    assert json.loads(response.body) == {"error": "taken"}
    response = answer("/sandboxes/x/nothing", no_route())
    assert (response.status_code, response.body) == (404, b"404 page not found")
    assert response.headers["content-type"].startswith("text/plain")
    assert json.loads(answer("/sandboxesx", no_route()).body)["reason"] == "no_route"


def test_headers_that_belong_to_an_error() -> None:
    assert answer(API_PATH, TooMany(0.2)).headers["retry-after"] == "1"
    assert answer(API_PATH, TooMany(2.5)).headers["retry-after"] == "3"
    assert answer(API_PATH, MethodNotAllowed("PUT", ["GET", "POST"])).headers["allow"] == "GET, POST"
    assert answer(API_PATH, Unauthenticated("who?")).headers["www-authenticate"].startswith("Bearer")


def test_what_is_not_known_is_told_to_nobody() -> None:
    response = answer(API_PATH, RuntimeError("the password is 1234"))
    assert response.status_code == 500
    assert b"1234" not in response.body
    assert json.loads(response.body)["reason"] == "internal"
    assert as_paddock_error(RuntimeError()) is None


def test_others_are_translated() -> None:
    assert answer(API_PATH, ClientDisconnect()).status_code == CLIENT_CLOSED
    assert answer(API_PATH, HTTPException(404)).status_code == 404
    assert answer(API_PATH, HTTPException(400, "odd")).status_code == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "the body is not valid JSON"),
        ("[]", "the body: "),
        ('{"labels": {"k": 1}}', "labels.k: "),
        ('{"limits": {"memory": 1}}', "limits.memory: "),
        ('{"nonsense": 1}', "nonsense: "),
    ],
)
def test_validation_names_the_field(body: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CreateSandbox.model_validate_json(body)
    response = answer(API_PATH, caught.value)
    assert response.status_code == 400
    content = json.loads(response.body)
    assert content["reason"] == "invalid"
    assert content["error"].startswith(words)


def test_our_own_rules_speak_plainly() -> None:
    with pytest.raises(ValidationError) as caught:
        ExecRequest.model_validate({"command": [""]})
    assert "Value error" not in json.loads(answer(API_PATH, caught.value).body)["error"]
