"""JSON Schemas of the files that topocal writes, generated from the types that it reads them into.

:mod:`topocal.schemas.documents` says what stands at the top of each file, and
:mod:`topocal.schemas.generate` makes the schema.  ``make schemas`` writes those of docs/schemas.
"""
