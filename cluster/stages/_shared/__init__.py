"""What several kinds of stage have in common; nothing here is a kind.

acting         stages in which actors play          evaluation    an evaluation as a queue of seed batches
fitting        gradient steps on a store            asking        questions to a language model
lgqd           stages on what archives hold, by the names of LGQD's stages
account        a training's counters, rows and checkpoints, made of
  tally        episodes, speed and bottleneck of a row        goal_table    what became of goals
  watching     what is true of a training between two rows
"""
