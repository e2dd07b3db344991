# SPDX-License-Identifier: Apache-2.0
"""How commands that use Spark reach a cluster, and their session.

A token given on the command line goes to the workers through the environment and never into a plan. Everything listens
on loopback. pyspark is imported by the Spark room, and only when a session is asked for.
Carries.
"""

import logging
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import CLIENT_FLAGS, Access, access_of
from magnetar.cli.exits import Failure
from magnetar.cli.words import Flag, Given, Kind, flag

TOKEN_VARIABLE: Final = "MAGNETAR_SPARK_TOKEN"
MASTER: Final = flag("--master", Kind.TEXT, "Where Spark runs: local[*], spark://…, yarn, k8s://…", default="local[*]")
SPARK_FLAGS: Final[tuple[Flag, ...]] = (
    MASTER,
    flag("--conf", Kind.REPEATED, "A setting of Spark's, name=value; may be repeated.", default=[]),
    flag("--metadata-url", Kind.TEXT, "Where ledgers are listed, to read them from bookies."),
    *CLIENT_FLAGS,
    flag("--admin-url", Kind.TEXT, "Where a broker serves HTTP."),
)


def source_connection(given: Given) -> dict[str, str]:
    """Options of the data source that say how to reach the cluster."""
    access = access_of(given)
    found = {"service.url": access.service_url, **_identity(access)}
    if given.get("metadata_url"):
        found["metadata.url"] = given["metadata_url"]
    files = {
        "tlsTrustCertsFilePath": access.trust_certs,
        "tlsCertificateFilePath": access.certificate,
        "tlsKeyFilePath": access.private_key,
    }
    found |= {name: value for name, value in files.items() if value}
    if access.allow_insecure:
        found["pulsar.client.tlsAllowInsecureConnection"] = "true"
    return found


def _identity(access: Access) -> dict[str, str]:
    if not access.auth_plugin or "tls" in access.auth_plugin.lower():
        return {}
    if "token" not in access.auth_plugin.lower():
        raise Failure(f"Spark proves who asks with a token or a certificate, not with {access.auth_plugin}")
    kind, _, value = access.auth_params.partition(":")
    if kind == "file":
        return {"tokenFile": value.removeprefix("//")}
    if kind == "env":
        return {"tokenEnvironment": value}
    os.environ[TOKEN_VARIABLE] = value if kind == "token" else access.auth_params
    return {"tokenEnvironment": TOKEN_VARIABLE}


def check_spark() -> None:
    """Raises Failure with what is missing on this machine."""
    if find_spec("pyspark") is None:
        raise Failure("Spark is not installed here: pip install 'magnetar[spark]'", exits.NOT_SERVED)
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else None
    if not (java is not None and java.exists()) and shutil.which("java") is None:
        raise Failure("Spark needs Java 17 or newer: install one, or set JAVA_HOME", exits.NOT_SERVED)


def spark_session(name: str, given: Given, **more: str) -> Any:
    """A session with the data source registered, listening on loopback alone while it is local."""
    check_spark()
    # Reasons are told in one sentence by the command; pyspark would print each as JSON beside it.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    settings: dict[str, str] = {"spark_ui_showConsoleProgress": "false", **more}
    if given["master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings["spark_driver_bindAddress"] = "127.0.0.1"
    for pair in given["conf"]:
        key, separator, value = pair.partition("=")
        if not separator:
            raise Failure(f"--conf {pair!r} should be name=value", exits.WRONG_USE)
        settings[key] = value
    from magnetar import spark

    made: Any = spark.session(name, master=given["master"], **settings)
    made.sparkContext.setLogLevel("OFF")
    return made
