"""Language models over HTTP: any service that speaks the API of OpenAI or that of Anthropic.

async with OpenAIModel("http://127.0.0.1:8000/v1") as model:
    verified = await verify_response(query, answer, context, client=model)
"""

from groundwire.verify.models.http import HttpModel, ModelLimits
from groundwire.verify.models.providers import AnthropicModel, OpenAIModel
from groundwire.verify.models.settings import ModelSettings, load_model

__all__ = ["AnthropicModel", "HttpModel", "ModelLimits", "ModelSettings", "OpenAIModel", "load_model"]
