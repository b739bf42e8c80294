"""An option is declared once: by the name that the library, or the server, gives it."""

from __future__ import annotations

import dataclasses
import inspect

from coldhash import Recommender
from coldhash.cli.models import RecommendOptions
from coldhash.cli.serve import LimitOptions, ServerOptions
from coldhash.serve import Limits
from coldhash.serve.server import Serving


def defaults_of(function):
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def test_options_of_the_command_are_those_of_the_library():
    library = defaults_of(Recommender.recommend)
    command = {field.name: field.default for field in dataclasses.fields(RecommendOptions)}
    assert command == {name: library[name] for name in command}


def test_options_of_the_server_have_its_defaults():
    for options, settings in ((LimitOptions, Limits), (ServerOptions, Serving)):
        known = defaults_of(settings)
        for name, default in defaults_of(options).items():
            assert default == known[name], name
