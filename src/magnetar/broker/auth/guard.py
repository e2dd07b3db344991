# SPDX-License-Identifier: Apache-2.0
"""The guard of a broker: identifies who comes and is asked before anything is done, by the binary protocol and by
administration alike.

Without authentication everyone may do everything. Records of tenants and namespaces are cached and kept right by a
watch, so that a permission that was granted or revoked holds for the next request; what is open already is closed by
session/withdrawals.py.
Carries.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from google.protobuf.message import Message

from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.authenticator import Credentials, Identity, Principal
from magnetar.broker.auth.command_rules import questions
from magnetar.broker.auth.grants import Grants, Need, Record, Target
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, NotAuthenticated, NotAuthorized, TopicNotFound
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.json_record import decode_json, encode_json
from magnetar.metadata.store import MetadataStore
from magnetar.names import POLICIES_ROOT, tenant_path


class Guard:
    def __init__(self, settings: SecuritySettings, authentication: Authentication | None, store: MetadataStore) -> None:
        if settings.authorization_enabled and authentication is None:
            raise BadSetting("authorizationEnabled=true needs authenticationEnabled=true: without it nobody has a role")
        self.settings = settings
        self._authentication = authentication
        self._records: RecordCache[dict[str, Any]] | None = None
        if settings.authorization_enabled:
            self._records = RecordCache(store, POLICIES_ROOT, decode=decode_json, encode=encode_json)

    @property
    def is_authenticating(self) -> bool:
        return self._authentication is not None

    async def close(self) -> None:
        if self._records is not None:
            self._records.close()
        if self._authentication is not None:
            await self._authentication.close()

    # --- who ----------------------------------------------------------------------------------------

    async def identify(self, method: str, credentials: Credentials) -> Identity:
        assert self._authentication is not None
        return await self._authentication.identify(method, credentials)

    async def still_is(self, method: str, credentials: Credentials, role: str) -> bool:
        """Whether credentials that proved a role would still prove it now: they may have been revoked."""
        try:
            return (await self.identify(method, credentials)).role == role
        except NotAuthenticated:
            return False

    def upkeep(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        return self._authentication.upkeep if self._authentication is not None else ()

    def methods(self) -> tuple[str, ...]:
        return self._authentication.methods if self._authentication is not None else ()

    def logins(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        """How often clients proved who they are and how often they did not, by method, under Pulsar's names."""
        known = self._authentication
        return (
            ("pulsar_authentication_success_total", {} if known is None else known.successes),
            ("pulsar_authentication_failures_total", {} if known is None else known.failures),
        )

    def principal(self, role: str, original: str) -> Principal:
        """Whom requests are for. A proxy speaks for another and must say for whom; a super user may, as brokers do."""
        if role in self.settings.proxy_roles:
            if not original:
                raise NotAuthorized("A proxy must say for whom it speaks")
            if original in self.settings.proxy_roles:
                raise NotAuthorized("A proxy cannot speak for a proxy")
            return Principal(role, original)
        if original and original != role:
            if role in self.settings.super_user_roles:
                return Principal(role, original)
            raise NotAuthorized("Only a proxy may speak for another role")
        return Principal(role)

    # --- what ---------------------------------------------------------------------------------------

    @property
    def is_authorizing(self) -> bool:
        return self._records is not None

    def on_permissions_changed(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Tell the path of each record of a tenant or a namespace that changes; returns the call that ends it."""
        return self._records.on_changed(listener) if self._records is not None else lambda: None

    async def check_command(self, principal: Principal | None, kind: int, command: Message) -> None:
        """NotAuthorized when the sender may not have this command carried out."""
        if self._records is None:
            return
        for need, target in questions(kind, command):
            try:
                await self.require(principal, need, target)
            except NotAuthorized as error:
                # Clients that name a tenant nobody made are told so, as upstream does.
                if target.tenant and await self._record(self._records, tenant_path(target.tenant)) is None:
                    raise TopicNotFound(f"Tenant {target.tenant} does not exist") from error
                raise

    async def require(self, principal: Principal | None, need: Need, target: Target) -> None:
        """NotAuthenticated without a principal where one is needed; NotAuthorized when one of its roles may not."""
        if self._authentication is None or need is Need.NOTHING:
            return
        if principal is None:
            raise NotAuthenticated("Authentication required")
        if self._records is None:
            return
        grants = await self._grants(self._records, target)
        for role in principal.roles:
            if role not in self.settings.super_user_roles and not grants.allow(role, need, target):
                raise NotAuthorized(f"Role {principal} is not allowed to {need.value} {target}")

    async def _grants(self, records: RecordCache[dict[str, Any]], target: Target) -> Grants:
        tenant = await self._record(records, tenant_path(target.tenant)) if target.tenant else None
        namespace = None
        if target.namespace is not None:
            namespace = await self._record(records, target.namespace.policies_path)
        return Grants(tenant, namespace, self.settings.authorization_wildcards)

    @staticmethod
    async def _record(records: RecordCache[dict[str, Any]], path: str) -> Record | None:
        kept = await records.get(path)
        return None if kept is None else kept.value
