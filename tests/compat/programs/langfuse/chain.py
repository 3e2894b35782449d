"""A chain of LangChain with Langfuse's handler."""

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate

from evalflows.compat.langfuse import Evaluation, Langfuse
from evalflows.compat.langfuse.langchain import CallbackHandler

langfuse = Langfuse(public_key="pk-lf-1", secret_key="sk-lf-1", host="https://cloud.langfuse.com")
handler = CallbackHandler()

prompt = ChatPromptTemplate.from_messages([("system", "Name the knot."), ("user", "{question}")])
used = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}


def task(*, item, **kwargs):
    model = GenericFakeChatModel(messages=iter([AIMessage("A bowline.", usage_metadata=used)]))
    return (prompt | model).invoke({"question": item.input}, config={"callbacks": [handler]}).content


def named(*, output, expected_output=None, **kwargs):
    return Evaluation(name="named", value=1 if expected_output in output else 0)


if __name__ == "__main__":
    langfuse.create_dataset(name="knots")
    for question, knot in (("a loop?", "bowline"), ("two ropes?", "reef")):
        langfuse.create_dataset_item(dataset_name="knots", input=question, expected_output=knot)
    dataset = langfuse.get_dataset("knots")
    result = dataset.run_experiment(name="Knots", run_name="Knots v1", task=task, evaluators=[named])
    print(result.run_name, [one.evaluations[0].value for one in result.item_results])
