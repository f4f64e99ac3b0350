"""What came out: one self-contained page of runs, and two runs side by side.

document       the page                                         panels      what stands on it, found by name
page, plots    the pieces of a page                             outcome     what came out of runs, by setting
compare        two runs side by side                            agreement   of judges
deployed       what stages of behaviour left                    house_plan  a furnished house as SVG
"""
