"""The life of a certificate signing request through kr8s. One JSON object per line.

kr8s_csr.py KUBECONFIG REQUEST_FILE
"""

import base64
import json
import sys

import kr8s
from kr8s.objects import new_class


def tell(**line):
    print(json.dumps(line), flush=True)


def main():
    kubeconfig, file = sys.argv[1:]
    api = kr8s.api(kubeconfig=kubeconfig)
    tell(event="version", version=api.version()["gitVersion"])
    tell(event="resources", names=sorted(resource["name"] for resource in api.api_resources()))
    request_class = new_class(
        kind="CertificateSigningRequest", version="certificates.k8s.io/v1", namespaced=False)
    with open(file, "rb") as pem:
        request = base64.b64encode(pem.read()).decode()
    request = request_class({
        "metadata": {"name": "kr8s"},
        "spec": {"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
    }, api=api)
    request.create()
    tell(event="created", exists=request.exists())
    condition = {"type": "Approved", "status": "True", "reason": "Kr8s", "message": "by kr8s"}
    request.patch({"status": {"conditions": [condition]}}, subresource="approval")
    request.refresh()
    tell(event="approved", certificate=bool(request.raw["status"].get("certificate")))
    tell(event="listed", names=[one.name for one in api.get("certificatesigningrequests.certificates.k8s.io")])
    request.delete()
    tell(event="deleted", exists=request.exists())


main()
