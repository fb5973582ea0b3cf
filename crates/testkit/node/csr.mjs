// The life of a certificate signing request through @kubernetes/client-node. One JSON object per line.
//
// csr.mjs KUBECONFIG REQUEST_FILE

import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const place = `${process.env.NODE_LIBRARY}/node_modules/@kubernetes/client-node/dist/index.js`;
const k8s = await import(pathToFileURL(place).href);
const [kubeconfig, file] = process.argv.slice(2);
const tell = (line) => console.log(JSON.stringify(line));

const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const make = (api) => config.makeApiClient(api);
const version = await make(k8s.VersionApi).getCode();
tell({ event: 'version', version: version.gitVersion });
const groups = await make(k8s.ApisApi).getAPIVersions();
tell({ event: 'groups', names: groups.groups.map((group) => group.name) });
const core = await make(k8s.CoreApi).getAPIVersions();
tell({ event: 'core', versions: core.versions });

const api = make(k8s.CertificatesV1Api);
const resources = await api.getAPIResources();
tell({ event: 'resources', names: resources.resources.map((resource) => resource.name) });
const name = 'node-client';
await api.createCertificateSigningRequest({
  body: {
    apiVersion: 'certificates.k8s.io/v1',
    kind: 'CertificateSigningRequest',
    metadata: { name },
    spec: {
      request: readFileSync(file).toString('base64'),
      signerName: 'kubernetes.io/kube-apiserver-client',
      usages: ['client auth'],
    },
  },
});
tell({ event: 'created', name });

// What it hears of it, from the beginning to its end.
const heard = [];
let gone;
const ended = new Promise((resolve) => { gone = resolve; });
const path = '/apis/certificates.k8s.io/v1/certificatesigningrequests';
const watch = await new k8s.Watch(config).watch(path, { fieldSelector: `metadata.name=${name}` }, (kind) => {
  heard.push(kind);
  if (kind === 'DELETED') gone();
}, () => gone());

const request = await api.readCertificateSigningRequest({ name });
request.status.conditions = [
  { type: 'Approved', status: 'True', reason: 'Node', message: 'by client-node', lastUpdateTime: new Date() },
];
const approved = await api.replaceCertificateSigningRequestApproval({ name, body: request });
tell({ event: 'approved', certificate: Boolean(approved.status.certificate) });
const list = await api.listCertificateSigningRequest();
tell({ event: 'listed', names: list.items.map((item) => item.metadata.name) });
await api.deleteCertificateSigningRequest({ name });
await ended;
watch.abort();
tell({ event: 'heard', kinds: heard });
process.exit(0);
