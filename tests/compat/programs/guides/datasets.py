"""Manage datasets programmatically."""

import io

import pandas as pd

from evalflows.compat.langsmith import Client
from evalflows.compat.langsmith.schemas import DataType

client = Client()

# From a list of values.
example_inputs = [
    ("What is the largest knot?", "The one you tie badly"),
    ("What is a fathom?", "Six feet"),
    ("What is a cable?", "A tenth of a sea mile"),
]
dataset = client.create_dataset(dataset_name="Seamanship quiz", description="For apprentices", data_type=DataType.kv)
for question, answer in example_inputs:
    client.create_example(
        inputs={"question": question},
        outputs={"answer": answer},
        metadata={"source": "the mate"},
        dataset_id=dataset.id,
    )
client.create_examples(
    inputs=[{"question": "What is a knot in speed?"}],
    outputs=[{"answer": "A sea mile in an hour"}],
    metadata=[{"source": "the log"}],
    splits=["hard"],
    dataset_id=dataset.id,
)

# From a CSV file, and from a DataFrame.
csv_file = ("signals.csv", io.BytesIO(b"flag,meaning\nA,diver down\nB,dangerous goods\n"))
signals = client.upload_csv(
    csv_file=csv_file,
    input_keys=["flag"],
    output_keys=["meaning"],
    name="Signals",
    description="From a file",
    data_type="kv",
)
frame = pd.DataFrame({"depth": [2.5, 7.0], "bottom": ["mud", "sand"], "anchor": [False, True]})
soundings = client.upload_dataframe(
    df=frame,
    input_keys=["depth", "bottom"],
    output_keys=["anchor"],
    name="Soundings",
    description="From a frame",
    data_type="kv",
)

# What there is.
print(*sorted(found.name for found in client.list_datasets()), sep=", ")
print(*[found.name for found in client.list_datasets(dataset_name_contains="sign")], sep=", ")
examples = list(client.list_examples(dataset_name="Seamanship quiz"))
print(len(examples), len(list(client.list_examples(dataset_id=dataset.id, metadata={"source": "the mate"}))))

# Changes.
first = client.read_dataset_version(dataset_id=dataset.id)
client.update_example(
    example_id=examples[0].id,
    inputs={"question": "What is the worst knot?"},
    outputs={"answer": "The one you tie badly"},
    metadata={"source": "the bosun"},
    split="easy",
)
updates = [{"id": example.id, "metadata": {"checked": True}, "split": "easy"} for example in examples[1:3]]
client.update_examples(dataset_id=dataset.id, updates=updates)
print(client.list_dataset_splits(dataset_name="Seamanship quiz"))
easy = client.list_examples(dataset_name="Seamanship quiz", splits=["easy"])
print(*[example.inputs["question"] for example in easy], sep=" | ")
client.delete_example(example_id=examples[3].id)

# Versions.
before = [example.inputs["question"] for example in client.list_examples(dataset_id=dataset.id, as_of=first.as_of)]
now = [example.inputs["question"] for example in client.list_examples(dataset_id=dataset.id, as_of="latest")]
print(len(before), len(now), before[0], "->", now[0])
