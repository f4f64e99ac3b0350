"""Numbers: where they go, what each means, how sure it is.

table          every metric that Prometheus is told             sinks       metrics.jsonl, TensorBoard
exporting      numbers of every role to Ray                     alerts      rules, as data
dashboard      what is made of the table, and documentation, docs/metrics.md
statistics     intervals
"""
