"""Pictures: pure functions of rows. Each draws on a canvas of the width it is given."""
