import openai

from evalflows.compat.langsmith import Client, wrappers

client = Client()
openai_client = wrappers.wrap_openai(openai.OpenAI())

dataset_name = "Tide questions"
default_instructions = "Answer the harbour visitor's question in one short sentence."
eval_instructions = "You are a strict examiner in seamanship."


def my_app(question: str, model: str = "small-1", instructions: str = default_instructions) -> str:
    return (
        openai_client.chat.completions.create(
            model=model,
            temperature=0,
            messages=[
                {"role": "system", "content": instructions},
                {"role": "user", "content": question},
            ],
        )
        .choices[0]
        .message.content
    )


def correctness(inputs: dict, outputs: dict, reference_outputs: dict) -> bool:
    user_content = f"""The question was: {inputs["question"]}
The right answer is: {reference_outputs["answer"]}
The candidate wrote: {outputs["response"]}
Is the candidate right? Say CORRECT or INCORRECT:"""
    response = (
        openai_client.chat.completions.create(
            model="judge-1",
            temperature=0,
            messages=[
                {"role": "system", "content": eval_instructions},
                {"role": "user", "content": user_content},
            ],
        )
        .choices[0]
        .message.content
    )
    return response == "CORRECT"


def concision(outputs: dict, reference_outputs: dict) -> bool:
    return int(len(outputs["response"]) < 2 * len(reference_outputs["answer"]))


def ls_target(inputs: dict) -> dict:
    return {"response": my_app(inputs["question"])}


def ls_target_v2(inputs: dict) -> dict:
    return {"response": my_app(inputs["question"], model="large-1")}


instructions_v3 = "Answer the harbour visitor's question in one short sentence of at most ten words."


def ls_target_v3(inputs: dict) -> dict:
    response = my_app(inputs["question"], model="large-1", instructions=instructions_v3)
    return {"response": response}


if __name__ == "__main__":
    experiment_results_v1 = client.evaluate(
        ls_target,
        data=dataset_name,
        evaluators=[concision, correctness],
        experiment_prefix="small",
    )
    experiment_results_v2 = client.evaluate(
        ls_target_v2,
        data=dataset_name,
        evaluators=[concision, correctness],
        experiment_prefix="large",
    )
    experiment_results_v3 = client.evaluate(
        ls_target_v3,
        data=dataset_name,
        evaluators=[concision, correctness],
        experiment_prefix="strict-large",
    )
    for results in (experiment_results_v1, experiment_results_v2, experiment_results_v3):
        print(results.experiment_name, len(results), sep="\t")
