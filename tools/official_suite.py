# SPDX-License-Identifier: Apache-2.0
"""Runs the official Python client's own tests against a standalone of ours, in a network of their own.

`python -m tools.official_suite CHECKOUT [--runs 3] [--only NAME]`, where CHECKOUT is a working copy of
pulsar-client-python at the release that is installed here. Each run starts from an empty data directory, with the
settings, tenants and roles that the suite's own service has, on the ports that its tests name; a network namespace
keeps them apart from everything else (`unshare -n`, which needs root). Nothing of the checkout is kept.
Carries.
"""

import argparse
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import NamedTuple

import httpx
import jwt

HOUSE = Path(__file__).resolve().parent.parent
FILES = (
    "custom_logger_test",
    "debug_logger_test",
    "interrupted_test",
    "pulsar_test",
    "schema_test",
    "table_view_test",
    "reader_test",
    "asyncio_test",
)
# What cannot be asked of a broker here, and why.
LEFT_OUT = {
    "oauth2_test": "asks an identity provider on the internet",
    "auto_cluster_failover_test": "starts two containers",
    "test_connect_timeout": "asks an address that must swallow packets; this network has no routes",
}
SECRET = b"the-secret-key-of-the-official-suite-1234"
FILE_LIMIT_S = 900
PORTS = {"brokerServicePort": "6650", "brokerServicePortTls": "6651", "webServicePortTls": "8443"}


class Outcome(NamedTuple):
    name: str
    # passed, failed, or skipped
    state: str
    text: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="official_suite")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="run the tests whose name contains this")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--file", default="", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        return run_file(options.file, options.only, options.results)
    if not (options.checkout / "tests" / "pulsar_test.py").exists():
        print(f"{options.checkout} is no checkout of pulsar-client-python: it has no tests/pulsar_test.py")
        return 2
    if options.inside:
        return run_all(options.checkout, options.runs, options.only)
    command = [sys.executable, "-m", "tools.official_suite", str(options.checkout.resolve()), "--inside"]
    command += ["--runs", str(options.runs), "--only", options.only]
    with tempfile.TemporaryDirectory() as packages:
        _provide_requests(Path(packages))
        paths = os.pathsep.join([str(HOUSE), str(HOUSE / "src"), packages, os.environ.get("PYTHONPATH", "")])
        inner = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
        return subprocess.run(inner, cwd=HOUSE, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode


def run_all(checkout: Path, runs: int, only: str) -> int:
    """So many runs, each on an empty standalone; 0 when all of them passed."""
    failures = 0
    for number in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as scratch:
            outcomes = run_once(checkout, Path(scratch), only)
        failed = [outcome for outcome in outcomes if outcome.state == "failed"]
        failures += len(failed)
        for outcome in failed:
            print(f"FAILED {outcome.name}\n{outcome.text}")
        passed = sum(outcome.state == "passed" for outcome in outcomes)
        skipped = sum(outcome.state == "skipped" for outcome in outcomes)
        print(f"run {number} of {runs}: {passed} passed, {len(failed)} failed, {skipped} skipped", flush=True)
    for name, reason in LEFT_OUT.items():
        print(f"left out: {name}, which {reason}")
    return 1 if failures else 0


def run_once(checkout: Path, scratch: Path, only: str) -> list[Outcome]:
    tests = scratch / "tests"
    shutil.copytree(checkout / "tests", tests)
    shutil.copytree(checkout / "examples", scratch / "examples")
    (tests / ".test-token.txt").write_text(_token("token-principal"))
    log = scratch / "standalone.log"
    with log.open("wb") as output:
        broker = subprocess.Popen(_command(scratch), env=_environment(tests), stdout=output, stderr=output)
    outcomes: list[Outcome] = []
    try:
        _furnish(scratch / "ready.json", broker, log)
        for name in FILES:
            outcomes += _run_file(name, tests, scratch, only)
        if broker.poll() is not None:
            outcomes.append(Outcome("standalone", "failed", log.read_text(errors="replace")[-4000:]))
    finally:
        broker.terminate()
        broker.wait(30)
    return outcomes


def _run_file(name: str, tests: Path, scratch: Path, only: str) -> list[Outcome]:
    results = scratch / f"{name}.json"
    began = time.monotonic()
    command = [sys.executable, "-m", "tools.official_suite", ".", "--file", name, "--only", only]
    with (scratch / f"{name}.log").open("wb") as log:
        try:
            subprocess.run(
                [*command, "--results", str(results)],
                cwd=tests,
                stdout=log,
                stderr=log,
                timeout=FILE_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [Outcome(name, "failed", f"did not end within {FILE_LIMIT_S} s")]
    if not results.exists():
        return [Outcome(name, "failed", (scratch / f"{name}.log").read_text(errors="replace")[-4000:])]
    outcomes = [Outcome(*row) for row in json.loads(results.read_text())]
    print(f"  {name}: {len(outcomes)} tests, {time.monotonic() - began:.0f} s", flush=True)
    return outcomes


class _Record(unittest.TextTestResult):
    """Every test's outcome, by its name."""

    outcomes: list[Outcome]

    def startTestRun(self) -> None:
        self.outcomes = []

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.outcomes.append(Outcome(test.id(), "passed", ""))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.outcomes.append(Outcome(test.id(), "skipped", reason))

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        super().addFailure(test, err)  # type: ignore[arg-type]
        self.outcomes.append(Outcome(test.id(), "failed", self.failures[-1][1]))

    def addError(self, test: unittest.TestCase, err: object) -> None:
        super().addError(test, err)  # type: ignore[arg-type]
        self.outcomes.append(Outcome(test.id(), "failed", self.errors[-1][1]))


def run_file(name: str, only: str, results: Path) -> int:
    """One file of the suite in this process."""
    # One of the tests interrupts itself, which a process in the background would not heed.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, os.getcwd())
    found = unittest.defaultTestLoader.loadTestsFromName(name)
    chosen = unittest.TestSuite(
        test for test in _flat(found) if only in test.id() and not any(name in test.id() for name in LEFT_OUT)
    )
    result = unittest.TextTestRunner(verbosity=2, resultclass=_Record).run(chosen)  # type: ignore[arg-type]
    assert isinstance(result, _Record)
    results.write_text(json.dumps(result.outcomes))
    return 0


def _flat(suite: unittest.TestSuite | unittest.TestCase) -> list[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        return [suite]
    return [case for each in suite for case in _flat(each)]


def _token(role: str) -> str:
    return jwt.encode({"sub": role}, SECRET, algorithm="HS256")


def _command(scratch: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "magnetar.cli.entry", "standalone", "--data-dir", str(scratch / "data")),
        *("--bind", "127.0.0.1", "--port", "6650", "--http-port", "8080"),
        *("--ready-file", str(scratch / "ready.json")),
    ]


def _environment(tests: Path) -> dict[str, str]:
    """The suite's own service, in our words: conformance's profile."""
    users = tests / ".htpasswd"
    users.write_text("admin:" + _apr1("123456") + "\n")
    provider = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
    return {
        **os.environ,
        **PORTS,
        "advertisedAddress": "localhost",
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(provider + kind for kind in ("Tls", "Token", "Basic")),
        "authorizationEnabled": "true",
        "superUserRoles": "localhost,superUser,admin",
        "anonymousUserRole": "anonymous",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
        "basicAuthConf": f"file://{users}",
        "tlsCertificateFilePath": str(tests / "test-conf" / "broker-cert.pem"),
        "tlsKeyFilePath": str(tests / "test-conf" / "broker-key.pem"),
        "tlsTrustCertsFilePath": str(tests / "test-conf" / "cacert.pem"),
        "tlsAllowInsecureConnection": "false",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "maxMessageSize": "1024000",
        "subscriptionKeySharedUseConsistentHashing": "false",
    }


def _apr1(password: str) -> str:
    from magnetar.broker.auth.htpasswd import apr1

    return apr1(password, "suite123")


def _furnish(ready: Path, broker: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until it serves; then the tenants, namespaces and permissions that the suite's service has."""
    until = time.monotonic() + 30
    while not ready.exists():
        if broker.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the standalone does not serve:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)
    headers = {"Authorization": f"Bearer {_token('admin')}"}
    clusters = {"allowedClusters": ["standalone"]}
    both = ["produce", "consume"]
    with httpx.Client(base_url="http://localhost:8080/admin/v2", headers=headers, timeout=30) as admin:
        for method, path, body in (
            ("POST", "/tenants/public", {"adminRoles": ["anonymous"], **clusters}),
            ("PUT", "/tenants/private", {"adminRoles": [], **clusters}),
            ("PUT", "/namespaces/public/default-2", None),
            ("PUT", "/namespaces/private/auth", None),
            ("POST", "/namespaces/public/default/permissions/anonymous", both),
            ("POST", "/namespaces/public/default-2/permissions/anonymous", both),
            ("POST", "/namespaces/private/auth/permissions/token-principal", both),
        ):
            answer = admin.request(method, path, json=body)
            if answer.is_error and answer.status_code != 409:
                raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")


def _provide_requests(target: Path) -> None:
    """The suite needs `requests`, which nothing of ours does."""
    have = subprocess.run([sys.executable, "-c", "import requests"], capture_output=True, check=False)
    if have.returncode:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, "--target", str(target), "requests"], check=True)


if __name__ == "__main__":
    sys.exit(main())
