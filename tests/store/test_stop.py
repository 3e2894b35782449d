"""Work that nobody waits for any more is told so once."""

from evalflows.store.stop import Stop


def test_what_is_registered_is_called_once_and_only_within_its_block() -> None:
    stop, calls = Stop(), list[str]()
    with stop.on_stop(lambda: calls.append("before")):
        pass
    with stop.on_stop(lambda: calls.append("a")), stop.on_stop(lambda: calls.append("b")):
        assert not stop.is_set()
        stop.set()
        stop.set()
        assert (stop.is_set(), calls) == (True, ["a", "b"])
    with stop.on_stop(lambda: calls.append("later")):
        assert calls == ["a", "b", "later"]
