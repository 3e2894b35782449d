from evalflows.compat.langchain import PromptTemplate, load_evaluator

# With a reference.
evaluator = load_evaluator("labeled_pairwise_string")

print(
    evaluator.evaluate_string_pairs(
        prediction="the ferry leaves at noon",
        prediction_b="9:30",
        input="When does the first ferry leave?",
        reference="half past nine",
    )
)

# Without one.
evaluator = load_evaluator("pairwise_string")

print(
    evaluator.evaluate_string_pairs(
        prediction="A tide is a movement of the sea.",
        prediction_b="A tide is the rise and fall of the sea, twice a day, which the Moon and the Sun cause.",
        input="What is a tide?",
    )
)

# By criteria of one's own.
custom_criteria = {
    "plainness": "Would a child follow every sentence?",
    "restraint": "Does it do without ornament?",
    "picture": "Does the reader see something?",
}
evaluator = load_evaluator("pairwise_string", criteria=custom_criteria)

print(
    evaluator.evaluate_string_pairs(
        prediction="The lamp turned. Far out, a boat answered with one short light.",
        prediction_b="Ceaselessly the majestic beacon swept its effulgent arm over the slumbering, unfathomable"
        " deep, whose every wave whispered of vessels that had been, and of vessels yet to be.",
        input="Write two lines about a lighthouse.",
    )
)

# With another model.
from recorded_model import ChatModel  # noqa: E402

llm = ChatModel(temperature=0)

evaluator = load_evaluator("labeled_pairwise_string", llm=llm)

print(
    evaluator.evaluate_string_pairs(
        prediction="the ferry leaves at noon",
        prediction_b="9:30",
        input="When does the first ferry leave?",
        reference="half past nine",
    )
)

# With a prompt of one's own.
prompt_template = PromptTemplate.from_template(
    """Two harbour pilots, A and B, were asked the same. Whose word would you rather steer by?
Weigh these:
{criteria}
Think aloud, and close with [[A]] or [[B]] on a line of its own.

RECORD
asked: {input}
known: {reference}
A: {prediction}
B: {prediction_b}
END OF RECORD
"""
)
evaluator = load_evaluator("labeled_pairwise_string", prompt=prompt_template)

print(evaluator.prompt)

print(
    evaluator.evaluate_string_pairs(
        prediction="The wreck off the point is the Amalia.",
        prediction_b="That wreck is called Bertha",
        input="Which ship lies off the point?",
        reference="The wreck is the Amalia",
    )
)
