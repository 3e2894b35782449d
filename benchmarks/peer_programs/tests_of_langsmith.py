"""The conftest.py of LangSmith's tests, run against ours: the public datasets that they clone are made."""

from evalflows.compat.langsmith import client

NAMES = {"419dcab2": "Evaluate Examples", "2bbf4a10": "Evaluate Examples, async"}
ANSWERS = ["Yes", "No"] * 5


def _cloned(self, url):
    name = next(NAMES[part] for part in NAMES if part in url)
    if not self.has_dataset(dataset_name=name):
        dataset = self.create_dataset(name)
        inputs = [{"context": f"fact {number}", "question": "Is it so?"} for number in range(len(ANSWERS))]
        outputs = [{"answer": answer} for answer in ANSWERS]
        self.create_examples(inputs=inputs, outputs=outputs, dataset_id=dataset.id)
        self.update_dataset_tag(
            dataset_name=name, as_of=self.read_dataset_version(dataset_name=name).as_of, tag="test_version"
        )
    return self.read_dataset(dataset_name=name)


client.Client.clone_public_dataset = _cloned
