"""LangSmith's AsyncClient: the same store, awaited."""

import asyncio

import pytest

from evalflows.compat.langsmith import AsyncClient, Client
from evalflows.specs import InputError


def test_a_dataset_is_made_and_read() -> None:
    async def main() -> list[str]:
        async with AsyncClient(api_key="k", timeout_ms=5) as client:
            dataset = await client.create_dataset("d", description="numbers")
            made = await client.create_example({"q": "one"}, dataset_id=dataset.id, outputs={"a": 1})
            await client.create_examples(dataset_name="d", inputs=[{"q": "two"}])
            assert (await client.read_dataset(dataset_name="d")).example_count == 2
            assert await client.read_example(made.id) == made
            assert [found.name async for found in client.list_datasets()] == ["d"]
            with pytest.raises(InputError, match="dataset 'e': not in the store"):
                await client.read_dataset(dataset_name="e")
            await client.aclose()
            return [example.inputs["q"] async for example in client.list_examples(dataset_name="d")]

    assert asyncio.run(main()) == ["one", "two"]
    assert Client().read_dataset(dataset_name="d").description == "numbers"
