"""From an archive of behaviours to what a transformer learns from, and is judged by.

    archives ──gather──> episodes, and a table of them by group
             ──words───> what each passes, in sentences and as places in order; the tokenizer of its descriptions
             ──table───> split by group;  ──clusters──> what its actions are made of
             ──trials──> what will be asked, frozen before anything is learned;  ──agreement──> do judges agree?
                                                                  (ratings: what people think)
             ──demonstrations──imitation──> a transformer that acts as asked

After Salehi and Doncieux (2023, arXiv 2308.13278). Verbs of `cluster/stages/curate` call this, and stages after them.
"""
