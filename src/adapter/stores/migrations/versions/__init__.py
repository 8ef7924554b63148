"""One module per revision. A revision that was released is never changed."""
