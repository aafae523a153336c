"""The data doctor: checks whether training on a table would work, and what is odd about it; writes a report."""

from lformer.doctor.checks import examine
from lformer.doctor.files import read_table
from lformer.doctor.form import Form
from lformer.doctor.report import Finding, Report

__all__ = ["Finding", "Form", "Report", "examine", "read_table"]
