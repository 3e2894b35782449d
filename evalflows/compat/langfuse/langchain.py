"""Langfuse's callback handler for LangChain: what a chain does is recorded as steps of the current run, and the calls
of its models with tokens and cost.

It needs `langchain-core`, which whoever has a chain has.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.llm.ledger import AnsweredCall, Recorder, current, note_lost_call
from evalflows.llm.prices import Tokens, listed_price
from evalflows.llm.wrapped import begin_step, begun_call, current_step, plain, within_budget
from evalflows.specs.errors import describe
from evalflows.store.records import CallRow, now, to_json

__all__ = ["CallbackHandler"]


@dataclass(slots=True)
class _Step:
    """A step that has begun, and the call that it makes, if any."""

    note: dict[str, Any]
    started: float = field(default_factory=time.perf_counter)
    recorder: Recorder | None = None
    row: CallRow | None = None
    provider: str | None = None
    budget: ExitStack = field(default_factory=ExitStack)
    settle: Any = None


class CallbackHandler(BaseCallbackHandler):
    """Pass it as `config={"callbacks": [CallbackHandler()]}`. Outside a run nothing is recorded."""

    raise_error = True  # else LangChain would go on when the budget is spent

    def __init__(self, *, public_key: str | None = None, update_trace: bool = False, **ignored: Any) -> None:
        self._steps: dict[UUID, _Step] = {}

    def _begin(
        self, kind: str, serialized: Any, inputs: Any, run_id: UUID, parent_run_id: UUID | None, given: dict[str, Any]
    ) -> _Step:
        name = given.get("name") or (serialized or {}).get("name") or ((serialized or {}).get("id") or [kind])[-1]
        parent = self._steps[parent_run_id].note["id"] if parent_run_id in self._steps else current_step()
        self._steps[run_id] = step = _Step(begin_step(kind, str(name), inputs, parent), recorder=current())
        return step

    def _end(self, run_id: UUID, outputs: Any = None, error: BaseException | None = None) -> None:
        if (step := self._steps.pop(run_id, None)) is not None:
            step.note |= {"outputs": plain(outputs), "latency_s": time.perf_counter() - step.started}
            step.note["error"] = None if error is None else describe(error)

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **given: Any
    ) -> None:
        self._begin("chain", serialized, inputs, run_id, parent_run_id, given)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **given: Any
    ) -> None:
        self._begin("tool", serialized, given.get("inputs") or input_str, run_id, parent_run_id, given)

    def on_retriever_start(
        self, serialized: Any, query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **given: Any
    ) -> None:
        self._begin("retriever", serialized, query, run_id, parent_run_id, given)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **given: Any) -> None:
        self._end(run_id, outputs)

    def on_tool_end(self, output: Any, *, run_id: UUID, **given: Any) -> None:
        self._end(run_id, output)

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **given: Any) -> None:
        self._end(run_id, documents)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **given: Any) -> None:
        self._end(run_id, error=error)

    on_tool_error = on_chain_error
    on_retriever_error = on_chain_error

    def on_llm_start(
        self, serialized: Any, prompts: list[str], *, run_id: UUID, parent_run_id: UUID | None = None, **given: Any
    ) -> None:
        self._begin_call(serialized, prompts, run_id, parent_run_id, given)

    def on_chat_model_start(
        self, serialized: Any, messages: list[Any], *, run_id: UUID, parent_run_id: UUID | None = None, **given: Any
    ) -> None:
        asked = [[{"role": message.type, "content": message.content} for message in prompt] for prompt in messages]
        self._begin_call(serialized, asked[0] if len(asked) == 1 else asked, run_id, parent_run_id, given)

    def _begin_call(
        self, serialized: Any, messages: Any, run_id: UUID, parent_run_id: UUID | None, given: dict[str, Any]
    ) -> None:
        """Record a call of a model that is about to be made. Raise CallError if the run's budget is spent."""
        parameters, metadata = given.get("invocation_params") or {}, given.get("metadata") or {}
        model = str(metadata.get("ls_model_name") or parameters.get("model") or parameters.get("model_name") or "")
        step = self._begin("llm", serialized, {"model": model, "messages": messages}, run_id, parent_run_id, given)
        step.provider = metadata.get("ls_provider")
        if (recorder := step.recorder) is None:
            note_lost_call()
            return
        request = to_json({"model": model, "messages": plain(messages)}, mend=True)
        estimated_usd = None if listed_price(model, provider=step.provider) is None else 0.0
        step.row = begun_call(recorder, f"langchain:{step.provider}", model, request, estimated_usd)
        step.settle = step.budget.enter_context(within_budget(recorder.budget, step.row))
        recorder.begin(step.row)
        step.settle(step.row)

    def on_llm_end(self, response: Any, *, run_id: UUID, **given: Any) -> None:
        step = self._steps.get(run_id)
        answer = response.generations[0][0] if response.generations and response.generations[0] else None
        message = getattr(answer, "message", None)
        content = getattr(message, "content", None) or getattr(answer, "text", None)
        if step is not None and step.row is not None and step.recorder is not None:
            used = _tokens(response, message)
            price = listed_price(step.row.model, provider=step.provider)
            row = replace(
                step.row,
                status="ok",
                response=to_json({"message": {"role": "assistant", "content": plain(content)}}, mend=True),
                tokens_in=used.into,
                tokens_cached=used.cached,
                tokens_out=used.out,
                tokens_reasoning=used.reasoning,
                cost_usd=price.cost(used) if price and used.are_reported else None,
                estimated_usd=None,
                latency_s=time.perf_counter() - step.started,
                recorded_at=now(),
            )
            step.note |= {"model": row.model, "tokens_in": row.tokens_in, "tokens_out": row.tokens_out}
            step.note["cost_usd"] = row.cost_usd
            self._settled(step, row)
            step.recorder.answered.append(AnsweredCall(row))
        self._end(run_id, content)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **given: Any) -> None:
        step = self._steps.get(run_id)
        if step is not None and step.row is not None and step.recorder is not None:
            latency_s = time.perf_counter() - step.started
            row = replace(step.row, error=describe(error), error_kind="raised", latency_s=latency_s, recorded_at=now())
            self._settled(step, row)
            step.recorder.failed.append(row)
        self._end(run_id, error=error)

    def _settled(self, step: _Step, row: CallRow) -> None:
        step.settle(row)
        step.budget.close()
        if step.recorder is not None:
            step.recorder.store(row)


def _tokens(response: Any, message: Any) -> Tokens:
    """Return the tokens that a model's answer reports, where LangChain has them."""
    used = getattr(message, "usage_metadata", None)
    if used:
        of_input, of_output = (used.get(f"{name}_token_details") or {} for name in ("input", "output"))
        sums = used.get("input_tokens"), of_input.get("cache_read"), used.get("output_tokens")
        return Tokens(*sums, of_output.get("reasoning"))
    reported = (response.llm_output or {}).get("token_usage") or {}
    return Tokens(reported.get("prompt_tokens"), None, reported.get("completion_tokens"))


__getattr__ = ABSENT.of_module(__name__)
