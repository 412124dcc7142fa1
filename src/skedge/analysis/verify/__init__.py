"""The rules of docs/model.md, one file per family, checked against a record."""
