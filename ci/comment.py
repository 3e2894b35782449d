"""The comment on a pull request of GitHub, or a merge request of GitLab, that shows a decision.

`python comment.py FILE [ID]` updates the comment that an earlier run has written. It needs nothing but Python.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LARGEST, A_PAGE = 60_000, 100
"""Characters of a comment, of which GitHub takes 65,536, and comments listed at once."""

WRITERS = ("OWNER", "MEMBER", "COLLABORATOR")


def _places(ci: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return where comments are listed, where they are edited, and by which method; None without such a request."""
    if merge_request := ci.get("CI_MERGE_REQUEST_IID"):
        notes = f"{ci['CI_API_V4_URL']}/projects/{ci['CI_PROJECT_ID']}/merge_requests/{merge_request}/notes"
        return notes, notes, "PUT"
    event = ci.get("GITHUB_EVENT_PATH")
    request = json.loads(Path(event).read_text(encoding="utf-8")).get("pull_request") if event else None
    if not request:
        return None
    issues = f"{ci['GITHUB_API_URL']}/repos/{ci['GITHUB_REPOSITORY']}/issues"
    return f"{issues}/{request['number']}/comments", f"{issues}/comments", "PATCH"


def _answer(method: str, address: str, body: str | None = None) -> Any:
    data = None if body is None else json.dumps({"body": body}).encode()
    token = os.environ.get("EVALFLOWS_CI_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _comments(address: str) -> Iterator[Mapping[str, Any]]:
    page = 0
    listed: list[Any] = [None] * A_PAGE
    while len(listed) == A_PAGE:
        page += 1
        yield from (listed := _answer("GET", f"{address}?per_page={A_PAGE}&page={page}"))


def _is_ours(comment: Mapping[str, Any], marker: str) -> bool:
    """Return whether a bot or somebody who may write wrote it: who else copies the marker could edit our text later."""
    by_writer = comment.get("author_association", WRITERS[0]) in WRITERS  # GitLab lets nobody edit what others wrote
    return comment["body"].startswith(marker) and (by_writer or comment["user"]["type"] == "Bot")


def main(file: str, identity: str = "decide") -> int:
    """Write the comment, and return the exit code: 1 with a line if it cannot be written."""
    if (places := _places(os.environ)) is None:
        print("comment: not written: this is no pull or merge request")
        return 0
    listed, edited, method = places
    marker = f"<!-- evalflows {identity} -->"
    body = f"{marker}\n{Path(file).read_text(encoding='utf-8')[:LARGEST]}"
    try:
        own = next((comment for comment in _comments(listed) if _is_ours(comment, marker)), None)
        _answer("POST", listed, body) if own is None else _answer(method, f"{edited}/{own['id']}", body)
    except OSError as error:
        print(f"comment: not written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
