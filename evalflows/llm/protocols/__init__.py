"""The protocols of providers: each turns a request in OpenAI's form into its own, and its answer into OpenAI's."""
