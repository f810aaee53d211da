"""Clients of verification, and what they are asked about."""

import json

from groundwire.epistemic.model import Model, ModelAnswer
from groundwire.epistemic.types import VerificationConfig

FULL = VerificationConfig(model_scope="all", mode="full")
ALONE = VerificationConfig(model_scope="all", mode="full", evidence_scrubbing=False)
TEXT = "The gateway retries failed requests 3 times and waits 30 seconds between attempts."
LONG = f"{TEXT} It waits 30 seconds between attempts."


def said(verdict="supported", probability=0.9, **other):
    return json.dumps({"verdict": verdict, "probability": probability, **other})


YES = said()


class Judge(Model):
    def __init__(self, *answers):
        self.answers = list(answers or [ModelAnswer(YES)])
        self.requests = []

    async def answer(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer
