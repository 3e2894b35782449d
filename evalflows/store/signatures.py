"""Signatures of decisions and approvals by SSH keys, made and verified by OpenSSH's `ssh-keygen`.

A signature is of a statement: the fields of the row, and for each experiment that it is about a hash of its spec and of
all its figures. Texts of answers are not in it, so erasing them changes no statement, nor does packing. Statements are
kept with their signatures in the store's folder `signatures`; the keys that count are in a file elsewhere.
"""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.frozen import dataclass
from evalflows.store.file_systems import storage_errors
from evalflows.store.files import write_bytes
from evalflows.store.records import BaselineRow, DecisionRow, now, to_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

FOLDER = "signatures"

NAMESPACE = "evalflows"
"""What the signatures are for, as OpenSSH has it: a key may be allowed to sign for one namespace only."""

Signable = DecisionRow | BaselineRow

_SIGNERS = "a file of allowed signers: in each line a name and a public key"
_SIGNER = re.compile(r"\s*[^#\s]\S*\s+(.*\s)?(ssh|ecdsa|sk)-\S+\s+AAAA")

_UNSIGNED = {
    DecisionRow: frozenset({"recorded_at"}),  # when it was last confirmed
    BaselineRow: frozenset({"approved_by", "reason"}),  # which can be erased; the signer stands for the first
}

_FIGURES = (
    """select experiment_id, snapshot_id, n_examples, repetitions, target_kind, target_version, application_version,
              spec
       from experiments where experiment_id = $1""",
    """select run_id, example_id, repetition, status, error_kind, latency_s, tokens_in, tokens_out, cost_usd, calls,
              length
       from outputs where experiment_id = $1 order by run_id""",
    """select score_id, subject_kind, subject_id, example_id, repetition, metric, value, status, evaluator,
              evaluator_version
       from scores where experiment_id = $1 order by score_id""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Who signed a row, and when, as far as the signer says."""

    by: str
    signed_at: datetime

    @property
    def text(self) -> str:
        return f"by {self.by}, {self.signed_at:%Y-%m-%d %H:%M} UTC"


def sign(store: Store, row: Signable, experiments: Sequence[str], key: Path) -> None:
    """Sign a row and the figures of the experiments that it is about with an SSH key.

    Args:
        store: The store.
        row: The row, which need not be in the store yet.
        experiments: The ids of the experiments.
        key: The file of a private key, or of a public one whose private key the SSH agent holds.

    Raise InputError if the key cannot sign.
    """
    statement = to_json(
        {
            "row": _fields(row),
            "figures": {experiment: _figures(store, experiment) for experiment in experiments},
            "signed_at": now().isoformat(),
        }
    )
    signature = sign_text(key, statement)
    name = f"{_id(row)}.{hashlib.sha256(statement.encode()).hexdigest()[:12]}.json"
    content = json.dumps({"statement": statement, "signature": signature}, indent=1).encode()
    with storage_errors(f"{store.layout.root}/{FOLDER}"):
        store.filesystem.makedirs(f"{store.layout.root}/{FOLDER}", exist_ok=True)
    write_bytes(store.layout, store.filesystem, f"{store.layout.root}/{FOLDER}/{name}", content)


def sign_text(key: Path, text: str) -> str:
    """Return the signature of a text by an SSH key. Raise InputError if the key cannot sign."""
    if not key.is_file():
        raise InputError(f"{key}: no such file, wanted an SSH key")
    done = _ssh_keygen("sign", "-f", str(key), text=text)
    if done.returncode:
        raise InputError(f"{key}: cannot sign: {_last_line(done.stderr)}")
    return done.stdout


def signature_of(store: Store, row: Signable, signers: Path, names: Sequence[str] = ()) -> Signature | None:
    """Return who signed a row as it is now; None if nobody did.

    Args:
        store: The store.
        row: The row.
        signers: A file of keys, as `ssh-keygen` takes allowed signers: a name and a public key a line.
        names: Whose signatures count; empty for all in the file.

    Raise StorageError if there are signatures, but none that counts of the row and figures as they are now, and
    InputError if the file cannot be read.
    """
    try:
        listed = signers.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{signers}: {error.strerror or error}, wanted {_SIGNERS}") from error
    if not any(map(_SIGNER.match, listed.splitlines())):
        raise InputError(f"{signers}: got no signer, wanted {_SIGNERS}")
    problems = list[str]()
    for statement, signature in _signatures(store, _id(row)):
        said = _statement(statement)
        if said is None:
            problems.append("its signature cannot be read")
        elif (by := signer_of(statement, signature, signers, said["signed_at"])) is None:
            problems.append(f"its signature is by none of the keys in {signers}")
        elif problem := _difference(store, row, said):  # of what is known to be signed
            problems.append(problem)
        elif names and by not in names:
            problems.append(f"got the signature of {by}, wanted one of {', '.join(names)}")
        else:
            return Signature(by=by, signed_at=datetime.fromisoformat(said["signed_at"]))
    if problems:
        raise StorageError(f"{_id(row)}: {problems[-1]}")
    return None


def is_signed(store: Store, identity: str) -> bool:
    """Return whether there is a signature of the row of this id, by anybody."""
    return any(True for _ in _signatures(store, identity))


def _id(row: Signable) -> str:
    return row.decision_id if isinstance(row, DecisionRow) else row.baseline_id


def _signatures(store: Store, identity: str) -> Iterator[tuple[str, str]]:
    """Yield the statements on a row with their signatures, the newest last."""
    folder, fs = f"{store.layout.root}/{FOLDER}", store.filesystem
    found = list[tuple[str, str, str]]()
    with storage_errors(folder):
        for path in fs.glob(f"{folder}/{identity}.*.json"):
            try:
                content = json.loads(fs.cat_file(path))
                statement, signature = str(content["statement"]), str(content["signature"])
            except (ValueError, KeyError, TypeError):
                statement, signature = "", ""
            found.append((str((_statement(statement) or {}).get("signed_at", "")), statement, signature))
    yield from ((statement, signature) for _, statement, signature in sorted(found))


def _statement(text: str) -> dict[str, Any] | None:
    """Return a statement, whose signature is not verified yet; None if it is none."""
    try:
        said = json.loads(text)
        datetime.fromisoformat(said["signed_at"])
        return said if isinstance(said["row"], dict) and isinstance(said["figures"], dict) else None
    except (ValueError, KeyError, TypeError):
        return None


def _difference(store: Store, row: Signable, said: Mapping[str, Any]) -> str | None:
    """Return how what was signed differs from the store; None if it does not."""
    there = _fields(row)
    changed = sorted(name for name in {*there, *said["row"]} if there.get(name) != said["row"].get(name))
    if changed:
        return f"its {changed[0]} has changed since it was signed"
    for experiment, figures in said["figures"].items():
        if _figures(store, experiment) != figures:
            return f"the figures of {experiment} have changed since it was signed"
    return None


def _fields(row: Signable) -> dict[str, Any]:
    """Return the fields of a row that are signed, as values of JSON."""
    values = {name: getattr(row, name) for name in row.__slots__ if name not in _UNSIGNED[type(row)]}
    times = {name: value.isoformat() for name, value in values.items() if isinstance(value, datetime)}
    return dict(json.loads(to_json(values | times)))


def _figures(store: Store, experiment: str) -> str:
    """Return a hash of an experiment's spec, the ids of its examples, and all its figures."""
    digest = hashlib.sha256()
    for rows in ask(store, *((query, [experiment]) for query in _FIGURES)):
        for row in rows:
            digest.update(f"{to_json(list(row))}\n".encode())
    return digest.hexdigest()


def signer_of(text: str, signature: str, signers: Path, signed_at: str) -> str | None:
    """Return the name of the key that signed a text, if it was allowed to sign at that time; None if it was not."""
    at = f"{datetime.fromisoformat(signed_at).astimezone(UTC):%Y%m%d%H%M%S}"
    with TemporaryDirectory(prefix="evalflows-") as folder:
        file = Path(folder) / "signature"
        file.write_text(signature)
        given = ("-f", str(signers), "-s", str(file), f"-Overify-time={at}")
        found = _ssh_keygen("find-principals", *given)
        for name in found.stdout.splitlines() if found.returncode == 0 else ():
            if _ssh_keygen("verify", *given, "-I", name, text=text).returncode == 0:
                return name
    return None


def _ssh_keygen(action: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = ["ssh-keygen", "-Y", action, *(("-n", NAMESPACE) if action != "find-principals" else ()), *arguments]
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env=os.environ | {"TZ": "UTC"}
        )
    except FileNotFoundError as error:
        raise InputError("ssh-keygen: not found, wanted OpenSSH 8.2 or later") from error


def _last_line(text: str) -> str:
    *_, last = text.strip().splitlines() or ["ssh-keygen failed"]
    return last.rpartition("Enter passphrase: ")[2]  # where there was no terminal to ask
