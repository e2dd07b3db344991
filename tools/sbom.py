# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.sbom [FILE]`: what Magnetar runs on, as a CycloneDX document, from the locks and nothing else.

Every component is there with its version and the hashes that an installation accepts. The same locks give the same
text, so that two releases can be compared.
Carries.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import magnetar

LOCK: Final = Path(__file__).parents[1] / "requirements" / "run.txt"
_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(\S+?)(?:\s*;[^\\]*)?\s*\\?$")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, Any]]:
    """One per pinned distribution, in the lock's order. ValueError for one without a hash."""
    found: list[dict[str, Any]] = []
    for line in lock.splitlines():
        pin = _PIN.match(line)
        if pin is not None:
            name, version = pin[1].lower(), pin[2]
            url = f"pkg:pypi/{name}@{version}"
            found.append(
                {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url, "hashes": []}
            )
        for digest in _HASH.findall(line):
            found[-1]["hashes"].append({"alg": "SHA-256", "content": digest})
    without = [each["name"] for each in found if not each["hashes"]]
    if without:
        raise ValueError(f"the lock has no hash for {', '.join(without)}")
    return found


def document() -> dict[str, Any]:
    own = f"pkg:pypi/magnetar@{magnetar.__version__}"
    listed = components(LOCK.read_text(encoding="utf-8"))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "magnetar",
                "version": magnetar.__version__,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": listed,
        "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in listed]}],
    }


def main(arguments: list[str]) -> int:
    text = json.dumps(document(), indent=2) + "\n"
    if arguments:
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
