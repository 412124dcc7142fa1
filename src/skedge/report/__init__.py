"""The report: runs side by side in one self-contained HTML file (:mod:`skedge.report.build`)."""
