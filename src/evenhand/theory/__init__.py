"""The paper and beyond: one equation, one function, one tag."""
