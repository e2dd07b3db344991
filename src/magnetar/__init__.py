# SPDX-License-Identifier: Apache-2.0
"""Magnetar: an Apache-Pulsar-compatible messaging and streaming platform.

The names of the client are here, each loaded when first used, so that a command starts quickly. The asyncio client
is `magnetar.Client`; the one for programs that block is `magnetar.blocking.Client`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.client.authentication import Authentication as Authentication
    from magnetar.client.authentication import AuthenticationBasic as AuthenticationBasic
    from magnetar.client.authentication import AuthenticationTLS as AuthenticationTLS
    from magnetar.client.authentication import AuthenticationToken as AuthenticationToken
    from magnetar.client.backoff import RedeliveryBackoff as RedeliveryBackoff
    from magnetar.client.client import Client as Client
    from magnetar.client.consumer import Consumer as Consumer
    from magnetar.client.encryption import CryptoKeyReader as CryptoKeyReader
    from magnetar.client.encryption import KeyFiles as KeyFiles
    from magnetar.client.failover import AutoClusterFailover as AutoClusterFailover
    from magnetar.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from magnetar.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from magnetar.client.message import Message as Message
    from magnetar.client.message_id import MessageId as MessageId
    from magnetar.client.oauth2 import AuthenticationOauth2 as AuthenticationOauth2
    from magnetar.client.options import BatchingType as BatchingType
    from magnetar.client.options import BatchReceivePolicy as BatchReceivePolicy
    from magnetar.client.options import CompressionType as CompressionType
    from magnetar.client.options import ConsumerCryptoFailureAction as ConsumerCryptoFailureAction
    from magnetar.client.options import ConsumerType as ConsumerType
    from magnetar.client.options import DeadLetterPolicy as DeadLetterPolicy
    from magnetar.client.options import HashingScheme as HashingScheme
    from magnetar.client.options import InitialPosition as InitialPosition
    from magnetar.client.options import KeySharedMode as KeySharedMode
    from magnetar.client.options import KeySharedPolicy as KeySharedPolicy
    from magnetar.client.options import PartitionsRoutingMode as PartitionsRoutingMode
    from magnetar.client.options import ProducerAccessMode as ProducerAccessMode
    from magnetar.client.options import ProducerCryptoFailureAction as ProducerCryptoFailureAction
    from magnetar.client.options import RegexSubscriptionMode as RegexSubscriptionMode
    from magnetar.client.producer import Producer as Producer
    from magnetar.client.reader import Reader as Reader
    from magnetar.client.receipt import Receipt as Receipt
    from magnetar.client.schema import Schema as Schema
    from magnetar.client.table_view import TableView as TableView
    from magnetar.client.transaction import Transaction as Transaction

__version__ = "0.1.0.dev0"

# Where each public name lives; a test holds this equal to the imports above.
_HOMES = {
    "authentication": ("Authentication", "AuthenticationBasic", "AuthenticationTLS", "AuthenticationToken"),
    "backoff": ("RedeliveryBackoff",),
    "client": ("Client",),
    "consumer": ("Consumer",),
    "encryption": ("CryptoKeyReader", "KeyFiles"),
    "failover": ("AutoClusterFailover",),
    "interceptors": ("ConsumerInterceptor", "ProducerInterceptor"),
    "message": ("Message",),
    "message_id": ("MessageId",),
    "oauth2": ("AuthenticationOauth2",),
    "options": (
        "BatchReceivePolicy",
        "BatchingType",
        "CompressionType",
        "ConsumerCryptoFailureAction",
        "ConsumerType",
        "DeadLetterPolicy",
        "HashingScheme",
        "InitialPosition",
        "KeySharedMode",
        "KeySharedPolicy",
        "PartitionsRoutingMode",
        "ProducerAccessMode",
        "ProducerCryptoFailureAction",
        "RegexSubscriptionMode",
    ),
    "producer": ("Producer",),
    "reader": ("Reader",),
    "receipt": ("Receipt",),
    "schema": ("Schema",),
    "table_view": ("TableView",),
    "transaction": ("Transaction",),
}
_MODULE_OF = {name: f"magnetar.client.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'magnetar' has no attribute {name!r}")
    found: object = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
