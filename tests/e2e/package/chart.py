"""Renders the chart by the library of Helm, and validates what it rendered by the schemas of Kubernetes.

The arguments are the chart and its values as JSON; the output is YAML.
"""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

chart, values = sys.argv[1], json.loads(sys.argv[2])
report = helm_python.lint(chart, values, strict=True)
if report["errors"] or any(message["severity"] > 1 for message in report["messages"]):
    sys.exit(f"{report}")
try:
    with helm_python.Chart.load(chart) as loaded:
        rendered = loaded.render(values, name="edge", namespace="weir")
except helm_python.HelmError as error:
    sys.exit(f"{error}")
texts = [text for name, text in sorted(rendered.items()) if name.endswith(".yaml") and text.strip()]
for document in yaml.safe_load_all("\n---\n".join(texts)):
    # That of an operator, which is no part of Kubernetes.
    if document["kind"] != "ServiceMonitor":
        kubernetes_validate.validate(document, "1.37", strict=True)
print("\n---\n".join(texts))
