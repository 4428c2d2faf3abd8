"""Sample complexity: alternatives, inner and outer optimisation, plans and sensitivity."""
