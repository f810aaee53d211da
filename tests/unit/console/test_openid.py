"""Sign-in by OpenID Connect, against an issuer in memory: state, nonce, signature and claims all have to hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.exceptions import HTTPException

from groundwire.console.auth import OpenId
from groundwire.console.settings import ConsoleSettings
from groundwire.review.permissions import Person
from tests.unit.console.rooms import Room, make_decision, make_room

joserfc_jwt = pytest.importorskip("joserfc.jwt")
joserfc_jwk = pytest.importorskip("joserfc.jwk")

http = pytest.importorskip("authlib.integrations.httpx_client.oauth2_client").httpx2
"""What authlib asks issuers with: httpx2, or httpx where that is not installed."""
ISSUER = "https://id.example"
SETTINGS: dict[str, Any] = {
    "oidc_issuer": ISSUER,
    "oidc_client_id": "console",
    "oidc_client_secret": "client secret",
}
CLAIMS = {"email": "lead", "email_verified": True, "groundwire_tenants": ["acme"]}


class Issuer:
    """Answers as an issuer does; `claims` and `key` are what its id tokens are made of."""

    def __init__(self) -> None:
        self.key = joserfc_jwk.RSAKey.generate_key(2048, {"kid": "1"}, private=True)
        self.signing = self.key
        self.claims: dict[str, Any] = dict(CLAIMS)
        self.nonce = ""
        self.asked: list[dict[str, list[str]]] = []

    def answer(self, request: Any) -> Any:
        if request.url.path == "/.well-known/openid-configuration":
            return http.Response(200, json=self.metadata)
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

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
            "id_token_signing_alg_values_supported": ["RS256"],
        }


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def room(issuer: Issuer) -> Iterator[Room]:
    room = make_room(**SETTINGS)
    assert room.site.openid is not None
    room.site.openid._client.client_kwargs["transport"] = http.MockTransport(issuer.answer)
    room.add(make_decision("c-1"))
    return room


async def go(client: httpx.AsyncClient, issuer: Issuer, **changes: str) -> httpx.Response:
    """Go to the issuer and come back, as a browser does."""
    there = await client.get("/signin/oidc")
    query = {name: values[0] for name, values in parse_qs(urlsplit(there.headers["location"]).query).items()}
    issuer.nonce = issuer.nonce or query["nonce"]
    back = {"code": "c", "state": query["state"]} | changes
    return await client.get("/signin/oidc/callback", params=back)


async def test_who_comes_back_from_the_issuer_is_signed_in(room, issuer) -> None:
    async with room.client() as client:
        there = await client.get("/signin/oidc")
        query = parse_qs(urlsplit(there.headers["location"]).query)
        answer = await go(client, issuer)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert (await client.get("/api/queue")).json()["total"] == 1

    assert there.headers["location"].startswith(f"{ISSUER}/authorize?")
    assert query["redirect_uri"] == ["http://127.0.0.1:8700/signin/oidc/callback"]
    assert query["code_challenge_method"] == ["S256"]
    assert issuer.asked[0]["code_verifier"]


async def test_claims_that_do_not_hold_or_that_another_key_signed_let_nobody_in(room, issuer) -> None:
    another = joserfc_jwk.RSAKey.generate_key(2048, {"kid": "1"}, private=True)
    let_in = []
    for claims, signing in (
        *(
            (claims, issuer.key)
            for claims in (
                *({"nonce": "another"}, {"aud": "another"}, {"iss": "https://other.example"}, {"exp": 1}),
                *({"email_verified": False}, {"email_verified": "true"}, {"email": ""}, {"email": ["lead"]}),
                *({"groundwire_tenants": []}, {"groundwire_tenants": "acme"}),
                {"groundwire_tenants": ["no/tenant"]},
            )
        ),
        ({}, another),
    ):
        room.clock.forward(minutes=1)  # sign-in attempts are limited
        issuer.claims, issuer.signing, issuer.nonce = CLAIMS | claims, signing, ""
        async with room.client() as client:
            statuses = (await go(client, issuer)).status_code, (await client.get("/api/queue")).status_code
        if statuses != (403, 401):
            let_in.append((claims, statuses))
    assert let_in == []


async def test_an_answer_that_this_browser_did_not_ask_for_lets_nobody_in(room, issuer) -> None:
    async with room.client() as client, room.client() as victim:
        assert (await go(client, issuer, state="forged")).status_code == 403
        there = await client.get("/signin/oidc")
        state = parse_qs(urlsplit(there.headers["location"]).query)["state"][0]
        issuer.nonce = parse_qs(urlsplit(there.headers["location"]).query)["nonce"][0]
        stolen = await victim.get("/signin/oidc/callback", params={"code": "c", "state": state})
        assert stolen.status_code == 403
        assert (await victim.get("/api/queue")).status_code == 401


async def test_an_issuer_out_of_reach_is_said_to_be() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("away", request=request)

    room = make_room(**SETTINGS)
    assert room.site.openid is not None
    room.site.openid._client.client_kwargs["transport"] = httpx.MockTransport(away)
    async with room.client() as client:
        assert (await client.get("/signin/oidc")).status_code == 502


def test_claims_are_mapped_by_the_settings() -> None:
    openid = OpenId(ConsoleSettings(**SETTINGS, oidc_name_claim="sub", oidc_tenants="acme, globex"))

    assert openid.person({"sub": "u-1"}) == Person("u-1", frozenset({"acme", "globex"}))
    assert openid.person({"sub": "u-1", "groundwire_tenants": ["x"]}) == Person("u-1", frozenset({"x"}))
    with pytest.raises(HTTPException):
        openid.person({"email": "lead", "email_verified": True})


async def test_without_an_issuer_there_is_no_such_sign_in() -> None:
    async with make_room().client() as client:
        assert (await client.get("/signin/oidc")).status_code == 404
        assert (await client.get("/signin/oidc/callback?code=c&state=s")).status_code == 404
