"""The template: an Acme support agent, meant to be edited."""
