"""The report: one file that shows a fitted machine to people.

Data flows one way::

    Model (and Measurements) -> figures, contents      what was measured and is predicted
                             -> families -> cards, ring    the machine as drawings
                             -> capacity_rows              what each resource passes
                             -> calculator                 what the page computes with
                             -> page                       everything together, as HTML

Each of these is data in Python, without any markup; ``templates/`` holds the page (jinja2),
its style and its scripts, which are put into the file when it is written.
"""
