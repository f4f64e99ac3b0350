"""The configuration of a run, and what is wrong with one.

tree           one frozen tree of parts, and the ways in and out of it
sections       where a run lives, its world, where its roles are          cases      of a trained language policy
overrides      words of a command line to layers of values                members    of a sweep, from words
checks         what is wrong, in words      limits    what does not fit      unread    words that do nothing
"""
