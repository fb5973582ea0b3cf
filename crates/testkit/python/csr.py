"""Certificate signing requests through the Python client. One JSON object per line.

csr.py KUBECONFIG create NAME SIGNER REQUEST_FILE USAGE...
csr.py KUBECONFIG list | get NAME | approve NAME | label NAME KEY VALUE | delete NAME
csr.py KUBECONFIG watch COUNT      so many events, from the beginning
"""

import base64
import datetime
import json
import sys

from kubernetes import client, config, watch


def show(event, request):
    status = request.status or client.V1CertificateSigningRequestStatus()
    line = {
        "event": event,
        "name": request.metadata.name,
        "resourceVersion": request.metadata.resource_version,
        "labels": request.metadata.labels or {},
        "username": request.spec.username,
        "conditions": [condition.type for condition in status.conditions or []],
        "certificate": bool(status.certificate),
    }
    print(json.dumps(line), flush=True)


def create(api, name, signer, file, *usages):
    with open(file, "rb") as pem:
        request = base64.b64encode(pem.read()).decode()
    show("created", api.create_certificate_signing_request(client.V1CertificateSigningRequest(
        api_version="certificates.k8s.io/v1",
        kind="CertificateSigningRequest",
        metadata=client.V1ObjectMeta(name=name),
        spec=client.V1CertificateSigningRequestSpec(request=request, signer_name=signer, usages=list(usages)),
    )))


def get(api, name):
    show("read", api.read_certificate_signing_request(name))


def list_all(api):
    for request in api.list_certificate_signing_request().items:
        show("listed", request)


def approve(api, name):
    request = api.read_certificate_signing_request_status(name)
    condition = client.V1CertificateSigningRequestCondition(
        type="Approved",
        status="True",
        reason="PythonApproved",
        message="by the Python client",
        last_update_time=datetime.datetime.now(datetime.timezone.utc),
    )
    request.status.conditions = (request.status.conditions or []) + [condition]
    show("approved", api.replace_certificate_signing_request_approval(name, request))


def label(api, name, key, value):
    show("patched", api.patch_certificate_signing_request(name, {"metadata": {"labels": {key: value}}}))


def delete(api, name):
    api.delete_certificate_signing_request(name)
    print(json.dumps({"event": "deleted", "name": name}))


def follow(api, count):
    stream = watch.Watch()
    left = int(count)
    for event in stream.stream(api.list_certificate_signing_request):
        show(event["type"], event["object"])
        left -= 1
        if left == 0:
            stream.stop()


COMMANDS = {
    "create": create,
    "get": get,
    "list": list_all,
    "approve": approve,
    "label": label,
    "delete": delete,
    "watch": follow,
}


def main():
    kubeconfig, command, *arguments = sys.argv[1:]
    config.load_kube_config(kubeconfig)
    try:
        COMMANDS[command](client.CertificatesV1Api(), *arguments)
    except client.ApiException as error:
        body = json.loads(error.body) if error.body else {}
        print(json.dumps({"event": "refused", "status": error.status, "body": body}))
        sys.exit(1)


main()
