"""The paper, figure by figure: what it shows, what we find, and whether its claims hold."""
