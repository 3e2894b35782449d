"""Complete forgeries, with right checksums and manifests: what signatures name, and what goes unseen without them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gated import drawn, fallen, gated
from plain_flows import plain_flows
from store_copies import StoreCopies

import evalflows.store.packing
from evalflows import approve, gate, run
from evalflows.cli.main import cli
from evalflows.reports.decisions import decisions_named
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.errors import StorageError
from evalflows.store.erasing import Selection
from evalflows.store.evidence import evidence_on, verify_decision
from evalflows.store.manifests import Written
from evalflows.store.packing import pack
from evalflows.store.queries.conclusions import approved
from evalflows.store.records import DecisionRow, to_json
from evalflows.store.retention import erase
from evalflows.store.schemas import to_arrow
from evalflows.store.signatures import FOLDER, signature_of
from evalflows.store.store import Store

pytestmark = [
    pytest.mark.usefixtures("without_prefect"),
    pytest.mark.skipif(
        shutil.which("ssh-keygen") is None and os.environ.get("EVALFLOWS_REQUIRE_SSH") != "1",
        reason="ssh-keygen is not installed",
    ),
]

GUARD = {"name": "release", "non_inferiority": {"exact_match": 0.05}}
OLD = drawn(60, 0.8)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the keys of alice and mallory, and a file in which only alice may sign."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    public = (folder / "alice.pub").read_text()
    (folder / "signers").write_text(f'# who releases\nalice namespaces="evalflows" {public}')
    return folder


def spec_of(folder: Path, keys: Path, **changes: Any) -> ExperimentSpec:
    """A new version, as good as the old one, against the approved baseline."""
    rules = GUARD | {"signers": str(keys / "signers")} | changes
    return ExperimentSpec.model_validate(gated(folder, [rules], new=OLD))


@pytest.fixture(scope="module")
def copies(
    tmp_path_factory: pytest.TempPathFactory,
    keys: Path,
    store_at: Callable[[Path], Any],
    request: pytest.FixtureRequest,
) -> StoreCopies:
    """Copies of a store in which alice signed the baseline, and the decision that a new version is no worse."""
    folder = tmp_path_factory.mktemp("signed")
    with store_at(folder) as store, plain_flows():
        (old,) = run(ExperimentSpec.model_validate(gated(folder, [], old=OLD)))
        approve(old, key=keys / "alice")
        (decision,) = gate(spec_of(folder, keys))
        done = CliRunner().invoke(cli, ["explain", decision, "--again", "--sign", str(keys / "alice")])
        assert done.exit_code == 0 and "Signature: signed with" in done.stdout, done.output
        return StoreCopies(Path(store.layout.root), Path(store.layout.marker).name)


@pytest.fixture
def signed(copies: StoreCopies, store_root: Path) -> Store:
    copies.make(str(store_root))
    return Store(store_root)


def decision_in(store: Store) -> DecisionRow:
    ((identity,),) = store.query("select decision_id from source.decisions")
    return store.read("decisions", identity)[0]  # type: ignore[no-any-return]


def explained(store: Store, keys: Path, *options: str) -> Result:
    arguments = ["explain", decision_in(store).decision_id, "--again", "--signers", str(keys / "signers"), *options]
    return CliRunner().invoke(cli, arguments)


def forge_scores(store: Store, experiment: str, value: float) -> None:
    """Replace all scores of an experiment by others, with a manifest."""
    rows = [replace(row, value=value) for row in store.read("judgements", experiment) if row.metric == "exact_match"]
    store.publish("judgements", experiment, rows)


def forge_decision(store: Store, **fields: Any) -> None:
    """Replace the decision by another, with a manifest on the evidence as it is now."""
    row = decision_in(store)
    owners = [row.candidate_experiment_id, row.baseline_experiment_id or ""]
    written = Written(evidence=evidence_on(store, owners))
    contents = [("decisions", [to_arrow("decisions", [replace(row, **fields)])])]
    store.publish_all(row.decision_id, contents, written)


def test_a_signed_baseline_is_wanted_and_a_signed_decision_is_verified(
    signed: Store, keys: Path, tmp_path: Path
) -> None:
    done = explained(signed, keys)
    assert done.exit_code == 0 and "Signature: by alice, " in done.stdout
    assert gate(spec_of(tmp_path, keys, approved_by=["alice", "bob"]))
    with pytest.raises(StorageError, match="got the signature of alice, wanted one of bob"):
        gate(spec_of(tmp_path, keys, approved_by=["bob"]))
    with pytest.raises(InputError, match=r"approved by \S+, wanted bob or carol \(approved_by\)"):
        gate(spec_of(tmp_path, keys, signers=None, approved_by=["bob", "carol"]))
    row = approved(signed, "app")
    assert row is not None
    approve(row.experiment_id)  # by whoever can write to the store
    with pytest.raises(InputError, match=r"the approval of the baseline 'app' is not signed.*--sign KEY"):
        gate(spec_of(tmp_path, keys))
    (decision,) = run(spec_of(tmp_path, keys)) and signed.query(
        "select conclusion, summary from source.decisions order by decided_at desc limit 1"
    )
    assert decision[0] == "NOT ENOUGH EVIDENCE" and "is not signed" in decision[1]
    approve(row.experiment_id, key=keys / "mallory")
    with pytest.raises(StorageError, match=f"its signature is by none of the keys in {keys / 'signers'}"):
        gate(spec_of(tmp_path, keys))
    approve(row.experiment_id, key=keys / "alice")
    assert gate(spec_of(tmp_path, keys))


def test_forged_figures_of_the_baseline_pass_unseen_without_a_signature(
    signed: Store, keys: Path, tmp_path: Path
) -> None:
    worse = ExperimentSpec.model_validate(gated(tmp_path, [GUARD], worse=fallen(OLD, 0.3)))
    row = approved(signed, "app")
    assert row is not None
    forge_scores(signed, row.experiment_id, 0.0)
    (decision,) = decisions_named(signed, gate(worse))
    assert (decision.conclusion, verify_decision(signed, decision.decision_id).n_files) == ("PASS", 9)
    with pytest.raises(StorageError, match=f"the figures of {row.experiment_id} have changed since"):
        gate(spec_of(tmp_path, keys))


@pytest.mark.parametrize(
    "fields",
    [{"conclusion": "FAIL"}, {"summary": "much better"}, {"policy": to_json(GUARD)}, {"baseline_experiment_id": None}],
)
def test_a_forged_decision_is_not_the_one_that_was_signed(signed: Store, keys: Path, fields: dict[str, Any]) -> None:
    forge_decision(signed, **fields)
    assert verify_decision(signed, decision_in(signed).decision_id).n_files >= 5, (
        "its checksums and manifests are right"
    )
    done = explained(signed, keys)
    assert done.exit_code == 4 and f"its {next(iter(fields))} has changed since it was signed" in done.stderr
    assert done.stdout == ""
    if not {"policy", "baseline_experiment_id"} & {*fields}:  # with these, another decision is made
        done = CliRunner().invoke(cli, ["explain", decision_in(signed).decision_id, "--again"])
        assert done.exit_code == 1 and "different" in done.stdout.splitlines()[-4], done.stdout


def test_forged_evidence_of_a_signed_decision_is_named(signed: Store, keys: Path) -> None:
    candidate = decision_in(signed).candidate_experiment_id
    forge_scores(signed, candidate, 1.0)
    forge_decision(signed)
    done = explained(signed, keys)
    assert done.exit_code == 4 and f"the figures of {candidate} have changed since it was signed" in done.stderr
    done = CliRunner().invoke(
        cli, ["explain", decision_in(signed).decision_id, "--again", "--sign", str(keys / "alice")]
    )
    assert done.exit_code == 2 and "--sign: got a different decision now, PASS" in done.stderr


def test_a_forged_approval_is_named(signed: Store, keys: Path, tmp_path: Path) -> None:
    row = approved(signed, "app")
    assert row is not None
    signed.publish(
        "baselines", row.baseline_id, [replace(row, experiment_id=decision_in(signed).candidate_experiment_id)]
    )
    with pytest.raises(StorageError, match=f"{row.baseline_id}: its experiment_id has changed since it was signed"):
        gate(spec_of(tmp_path, keys))


def test_erasing_and_packing_change_nothing_that_is_signed(
    signed: Store, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evalflows.store.packing, "SETTLED_S", 0.0)
    erase(signed, Selection(examples=["q0001"]), None)
    erase(signed, Selection(reviewers=[approved(signed, "app").approved_by]), None)  # type: ignore[union-attr,list-item]
    pack(signed)
    row = approved(signed, "app")
    assert row is not None and (found := signature_of(signed, row, keys / "signers")) and found.by == "alice"
    assert explained(signed, keys).exit_code == 0


def test_what_cannot_be_verified_or_signed_is_one_line(signed: Store, keys: Path, tmp_path: Path) -> None:
    identity = decision_in(signed).decision_id
    refused = {
        ("--sign", str(tmp_path / "none")): (2, "none: no such file, wanted an SSH key"),
        ("--sign", str(keys / "signers")): (2, "signers: cannot sign: "),
        ("--signers", str(tmp_path / "none")): (2, "none: No such file or directory, wanted a file of allowed signers"),
        ("--signers", str(keys / "alice.pub")): (2, "alice.pub: got no signer, wanted a file of allowed signers"),
    }
    for options, (code, message) in refused.items():
        done = CliRunner().invoke(cli, ["explain", identity, "--again", *options])
        assert done.exit_code == code and message in done.stderr and done.stderr.count("\n") == 1, done.output
        assert CliRunner().invoke(cli, ["explain", identity, *options]).exit_code == 2, "--again is missing"
    (path,) = Path(signed.layout.root, FOLDER).glob(f"{identity}.*.json")
    path.write_text("{}")
    done = explained(signed, keys)
    assert done.exit_code == 4 and f"{identity}: its signature cannot be read" in done.stderr
    path.unlink()
    done = explained(signed, keys)
    assert done.exit_code == 4 and f"{identity}: is not signed, wanted a signature by a key in" in done.stderr
    done = explained(signed, keys, "--sign", str(keys / "alice"))
    assert done.exit_code == 0 and "Signature: by alice, " in done.stdout, "signed, then verified"
