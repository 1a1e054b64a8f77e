"""Faults made on purpose: what each rule must find, and what it must not.

Its tour: `scenario` says what a run is and how it is labelled; `scenarios/` has them, one folder's
file a kind of fault; `matrix` judges the diagnoses of many runs; `table` writes it down.
"""
