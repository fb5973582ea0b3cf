"""What Kubernetes' Python client can ask about a server itself. One JSON object per line.

discovery.py KUBECONFIG
"""

import json
import sys

from kubernetes import client, config, dynamic


def main():
    config.load_kube_config(sys.argv[1])
    version = client.VersionApi().get_code()
    core = client.CoreApi().get_api_versions()
    groups = client.ApisApi().get_api_versions()
    group = client.CertificatesApi().get_api_group()
    resources = client.CertificatesV1Api().get_api_resources()
    found = dynamic.DynamicClient(client.ApiClient()).resources.get(
        api_version="certificates.k8s.io/v1", kind="CertificateSigningRequest")
    print(json.dumps({
        "version": version.git_version,
        "core": core.versions,
        "groups": [group.name for group in groups.groups],
        "group": group.name,
        "resources": [resource.name for resource in resources.resources],
        "listed": len(found.get().items),
    }), flush=True)


main()
