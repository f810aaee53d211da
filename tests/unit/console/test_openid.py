"""Sign-in by OpenID Connect, against an issuer in memory: state, nonce, signature and claims all have to hold."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.exceptions import HTTPException

from groundwire.console.auth import OpenId
from groundwire.console.settings import ConsoleSettings
from groundwire.review.permissions import Person
from tests.unit.console.rooms import make_decision, make_room

joserfc_jwt = pytest.importorskip("joserfc.jwt")
joserfc_jwk = pytest.importorskip("joserfc.jwk")

http = pytest.importorskip("authlib.integrations.httpx_client.oauth2_client").httpx2
"""What authlib asks issuers with: httpx2, or httpx where that is not installed."""
ISSUER = "https://id.example"
SETTINGS = {"oidc_issuer": ISSUER, "oidc_client_id": "console", "oidc_client_secret": "client secret"}
CLAIMS = {"email": "lead", "email_verified": True, "groundwire_tenants": ["acme"]}


class Issuer:
    """Answers as an issuer does; `claims` and `signing` are what its id tokens are made of."""

    def __init__(self) -> None:
        self.signing = self.key = joserfc_jwk.RSAKey.generate_key(2048, {"kid": "1"}, private=True)
        self.claims: dict[str, Any] = dict(CLAIMS)
        self.nonce = ""
        self.asked: list[dict[str, list[str]]] = []

    def answer(self, request: Any) -> Any:
        if request.url.path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            metadata = {name: f"{ISSUER}/{path}" for name, path in places.items()}
            metadata |= {"issuer": ISSUER, "id_token_signing_alg_values_supported": ["RS256"]}
            return http.Response(200, json=metadata)
        if request.url.path == "/keys":
            return http.Response(200, json={"keys": [self.key.as_dict(private=False)]})
        self.asked.append(parse_qs(request.content.decode()))
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": "console",
            "sub": "1",
            "iat": now,
            "exp": now + 60,
            "nonce": self.nonce,
        }
        token = joserfc_jwt.encode({"alg": "RS256", "kid": "1"}, claims | self.claims, self.signing)
        return http.Response(200, json={"access_token": "a", "token_type": "Bearer", "id_token": token})


@pytest.fixture
def issuer():
    return Issuer()


@pytest.fixture
def room(issuer):
    room = make_room(**SETTINGS)
    room.site.openid._client.client_kwargs["transport"] = http.MockTransport(issuer.answer)
    room.add(make_decision("c-1"))
    return room


async def asked_for(client: httpx.AsyncClient) -> dict[str, str]:
    """Return the query with which a browser is sent to the issuer."""
    place = urlsplit((await client.get("/signin/oidc")).headers["location"])
    assert f"{place.scheme}://{place.netloc}{place.path}" == f"{ISSUER}/authorize"
    return {name: values[0] for name, values in parse_qs(place.query).items()}


async def go(client: httpx.AsyncClient, issuer: Issuer, **changes: str) -> httpx.Response:
    """Go to the issuer and come back, as a browser does."""
    query = await asked_for(client)
    issuer.nonce = issuer.nonce or query["nonce"]
    return await client.get("/signin/oidc/callback", params={"code": "c", "state": query["state"]} | changes)


async def test_who_comes_back_from_the_issuer_is_signed_in_where_that_browser_asked(room, issuer) -> None:
    async with room.client() as client, room.client() as victim:
        query = await asked_for(client)
        answer = await go(client, issuer)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert (await client.get("/api/queue")).json()["total"] == 1
        assert query["redirect_uri"] == "http://127.0.0.1:8700/signin/oidc/callback"
        assert query["code_challenge_method"] == "S256"
        assert issuer.asked[0]["code_verifier"]
        assert (await go(victim, issuer, state="forged")).status_code == 403
        query = await asked_for(client)
        issuer.nonce = query["nonce"]
        stolen = await victim.get("/signin/oidc/callback", params={"code": "c", "state": query["state"]})
        assert stolen.status_code == 403
        assert (await victim.get("/api/queue")).status_code == 401


async def test_claims_that_do_not_hold_or_that_another_key_signed_let_nobody_in(room, issuer) -> None:
    another = joserfc_jwk.RSAKey.generate_key(2048, {"kid": "1"}, private=True)
    wrong = {
        "nonce": ["another"],
        "aud": ["another"],
        "iss": ["https://other.example"],
        "exp": [1],
        "email_verified": [False, "true"],
        "email": ["", ["lead"]],
        "groundwire_tenants": [[], "acme", ["no/tenant"]],
    }
    cases, let_in = [{name: value} for name, values in wrong.items() for value in values], []
    for claims in ({}, *cases):
        room.clock.forward(minutes=1)  # sign-in attempts are limited
        issuer.claims, issuer.nonce = CLAIMS | claims, ""
        issuer.signing = issuer.key if claims else another
        async with room.client() as client:
            statuses = (await go(client, issuer)).status_code, (await client.get("/api/queue")).status_code
        if statuses != (403, 401):
            let_in.append((claims, statuses))
    assert let_in == []


async def test_an_issuer_out_of_reach_is_said_to_be_and_without_one_there_is_no_such_sign_in() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("away", request=request)

    room = make_room(**SETTINGS)
    room.site.openid._client.client_kwargs["transport"] = httpx.MockTransport(away)
    async with room.client() as client, make_room().client() as without:
        assert (await client.get("/signin/oidc")).status_code == 502
        for path in ("/signin/oidc", "/signin/oidc/callback?code=c&state=s"):
            assert (await without.get(path)).status_code == 404


def test_claims_are_mapped_by_the_settings() -> None:
    openid = OpenId(ConsoleSettings(**SETTINGS, oidc_name_claim="sub", oidc_tenants="acme, globex"))
    assert openid.person({"sub": "u-1"}) == Person("u-1", frozenset({"acme", "globex"}))
    assert openid.person({"sub": "u-1", "groundwire_tenants": ["x"]}) == Person("u-1", frozenset({"x"}))
    with pytest.raises(HTTPException):
        openid.person({"email": "lead", "email_verified": True})
