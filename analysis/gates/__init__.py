"""Release gates: rules, their results and the decision."""
