"""The targets of experiment.yaml: functions from the fields of `inputs` in questions.jsonl to an answer.

These are stand-ins, so that everything runs without a key. Replace their bodies by calls of your application.
"""

ANSWERS = {
    "password": "Choose 'Forgot password' on the login page.",
    "delivery": "Delivery takes 3 to 5 days.",
    "return": "You can return it within 30 days.",
    "invoice": "It is below the order, under Orders.",
    "cancel": "Open the order and choose 'Cancel order'.",
}


def current(question: str) -> str:
    """The version in use."""
    return _answer(question)


def candidate(question: str) -> str:
    """The version that you want to release: another prompt, model or retriever."""
    return _answer(question.lower())


def _answer(question: str) -> str:
    return next((answer for word, answer in ANSWERS.items() if word in question), "I do not know.")
