# SPDX-License-Identifier: Apache-2.0
"""Every path and verb of administration as super user, tenant administrator, permitted role, stranger and anonymous,
against the table of what each needs.
"""

import re
from collections.abc import Iterator

import httpx
import pytest
from starlette.routing import Match, Route

from magnetar.admin.app import all_routes
from magnetar.admin.coverage import sample_of, served_paths
from magnetar.admin.route_rules import need_of
from magnetar.broker.auth.grants import Need
from tests.conformance.guarded import GuardedStandalone

ROLES = ("admin", "owner", "permitted", "stranger", None)
PERMITTED = {Need.LOOK_UP, Need.PRODUCE, Need.CONSUME, Need.LIST, Need.CONSUME_ALL}
# Would end the broker that is walked through.
NOT_WALKED = {("POST", "/admin/v2/brokers/shutdown")}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(tmp_path_factory.mktemp("walked")) as running:
        running.furnish()
        with running.admin() as admin:
            path = "/namespaces/owned/space/permissions/permitted"
            assert admin.post(path, json=["produce", "consume"]).status_code == 204
        yield running


def roles_with(need: Need) -> set[str | None]:
    if need in (Need.NOTHING, Need.ANY_ROLE):
        return set(ROLES)
    if need in PERMITTED:
        return {"admin", "owner", "permitted"}
    return {"admin", "owner"} if need is Need.TENANT_ADMIN else {"admin"}


def need_for(method: str, path: str) -> Need:
    """By the route that serves it, as the door asks."""
    scope = {"type": "http", "method": method, "path": path, "headers": [], "root_path": ""}
    for route in all_routes():
        if isinstance(route, Route):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return need_of(method, route.path, found["path_params"].get("policy", ""))
    raise AssertionError(f"{method} {path} is not served")


def asked_path(path: str, namespace: str) -> str:
    named = re.sub(r"\{tenant\}", "owned", re.sub(r"\{namespace\}", namespace, path))
    return sample_of(named)


@pytest.mark.feature("F-SEC-02")
def test_every_path_lets_through_whom_the_table_allows(standalone: GuardedStandalone) -> None:
    wrong, walked = [], 0
    clients = {role: standalone.admin(role) for role in ROLES}
    try:
        for method, path, is_served in served_paths(all_routes()):
            if not is_served or (method, path) in NOT_WALKED:
                continue
            for role, client in clients.items():
                allowed = roles_with(need_for(method, asked_path(path, "space")))
                # Whoever may, does it to a namespace that is not there; a permitted role needs one that is.
                namespace = "missing" if role in ("admin", "owner") else "space"
                url = standalone.web_url + asked_path(path, namespace)
                status = client.request(method, httpx.URL(url)).status_code
                walked += 1
                if (status != 403) is not (role in allowed) or status in (401, 500):
                    wrong.append(f"{role}: {method} {path}: {status}, allowed {allowed}")
    finally:
        for client in clients.values():
            client.close()
    assert not wrong, "\n".join(wrong)
    assert walked > 1_500


@pytest.mark.feature("F-SEC-02")
def test_without_an_anonymous_role_nobody_unknown_gets_an_answer(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        GuardedStandalone(tmp_path_factory.mktemp("closed"), anonymousUserRole="") as closed,
        httpx.Client(base_url=closed.web_url, timeout=30) as client,
    ):
        for method, path, is_served in served_paths(all_routes()):
            need = need_for(method, asked_path(path, "space")) if is_served else None
            if need in (None, Need.NOTHING) or (method, path) in NOT_WALKED:
                continue
            answer = client.request(method, asked_path(path, "space"))
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
