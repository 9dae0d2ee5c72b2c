"""A lab as slides: `hpcdl slides LAB` writes one HTML file, which needs no network and no kernel.

`deck` takes headings, first sentences, lists, key formulas and pictures from a notebook; `formulas` sets TeX as
pictures; `page` puts the slides into the file.
"""
