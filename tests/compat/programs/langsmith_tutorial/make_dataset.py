from evalflows.compat.langsmith import Client

client = Client()

dataset_name = "Tide questions"
dataset = client.create_dataset(dataset_name, description="What a harbour master is asked")
client.create_examples(
    dataset_id=dataset.id,
    examples=[
        {
            "inputs": {"question": "What makes the sea rise and fall twice a day?"},
            "outputs": {"answer": "Mostly the pull of the Moon, and a little that of the Sun"},
        },
        {
            "inputs": {"question": "What is a spring tide?"},
            "outputs": {"answer": "A tide of the largest range, when Sun, Moon and Earth stand in line"},
        },
        {
            "inputs": {"question": "What is a neap tide?"},
            "outputs": {"answer": "A tide of the smallest range, at half moon"},
        },
        {
            "inputs": {"question": "What is slack water?"},
            "outputs": {"answer": "The short time when a tidal stream does not run"},
        },
        {
            "inputs": {"question": "Which bay has the highest tides?"},
            "outputs": {"answer": "The Bay of Fundy, with about 16 metres"},
        },
    ],
)
