"""How instrumentations write down conversations with a model, one module per way. All result in OpenAI messages."""
