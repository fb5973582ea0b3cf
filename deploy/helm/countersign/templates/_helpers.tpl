{{- define "countersign.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "countersign.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "countersign.labels" -}}
{{ include "countersign.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Of a role: who has it. Takes the name of the role, its kind, its namespace, and an account that is not the first. */ -}}
{{- define "countersign.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "countersign.labels" .top | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account | default (include "countersign.fullname" .top) }}
    namespace: {{ .top.Release.Namespace }}
{{- end -}}

{{- define "countersign.leaseName" -}}
{{- .Values.leaderElection.leaseName | default (include "countersign.fullname" .) -}}
{{- end -}}

{{- define "countersign.operatorName" -}}
{{- include "countersign.fullname" . }}-operator
{{- end -}}

{{- define "countersign.operatorSelectorLabels" -}}
{{- /* Not the name of the approver's pods: its selectors would take in these too. */ -}}
app.kubernetes.io/name: {{ .Chart.Name }}-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The configuration file of the operator. */ -}}
{{- define "countersign.operatorConfig" -}}
{{- $listen := printf "%s:%d" .Values.metrics.address (int .Values.metrics.port) -}}
{{- toYaml (mergeOverwrite (dict "metrics" (dict "listen" $listen)) (deepCopy .Values.operator.config)) -}}
{{- end -}}

{{- /* "true" where the controller runs. */ -}}
{{- define "countersign.runs" -}}
{{- if has .controller .top.Values.controllers }}true{{ end -}}
{{- end -}}

{{- /* The configuration file: what the chart needs, and what the values add. */ -}}
{{- define "countersign.config" -}}
{{- $listen := printf "%s:%d" .Values.metrics.address (int .Values.metrics.port) -}}
{{- $config := dict "metrics" (dict "listen" $listen) -}}
{{- $kubelet := dict -}}
{{- if ne (int .Values.kubelet.port) 10250 -}}
{{- $_ := set $kubelet "port" (int .Values.kubelet.port) -}}
{{- end -}}
{{- with .Values.kubelet.cidrs -}}
{{- $_ := set $kubelet "prefixes" . -}}
{{- end -}}
{{- if $kubelet -}}
{{- $_ := set $config "cluster" (dict "kubelet" $kubelet) -}}
{{- end -}}
{{- if .Values.policies -}}
{{- $_ := set $config "policies" (list "/etc/countersign-policies") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{- /* Combinations that cannot work end here, with the reason. */ -}}
{{- define "countersign.check" -}}
{{- $replicas := int .Values.replicas -}}
{{- $signer := has "signer" .Values.controllers -}}
{{- if and $signer (gt $replicas 1) -}}
{{- fail (printf "controllers has signer and replicas is %d: its ledger is a SQLite file, which has one writer. Set replicas=1, or run the signer as a release of its own" $replicas) -}}
{{- end -}}
{{- if and (gt $replicas 1) (not .Values.leaderElection.enabled) -}}
{{- fail (printf "replicas is %d and leaderElection.enabled is false: every replica would act on every request. Set leaderElection.enabled=true or replicas=1" $replicas) -}}
{{- end -}}
{{- if and $signer (not .Values.signer.caSecretName) -}}
{{- fail "controllers has signer and signer.caSecretName is empty: name the Secret with the cluster's CA" -}}
{{- end -}}
{{- if and .Values.signer.caSecretName (not $signer) -}}
{{- fail "signer.caSecretName is set and controllers has no signer: the CA would never be used. Add signer to controllers" -}}
{{- end -}}
{{- if and .Values.kubeletCsrApprover (ne .Values.preset "kubelet-csr-approver") -}}
{{- fail (printf "kubeletCsrApprover has options and preset is %q: they are read only with preset=kubelet-csr-approver. For another preset, put them into a policy (rule nodeServing)" .Values.preset) -}}
{{- end -}}
{{- if and .Values.podCertificates.enabled (not $signer) -}}
{{- fail "podCertificates.enabled is true and controllers has no signer: nobody would sign. Add signer to controllers" -}}
{{- end -}}
{{- if and .Values.podCertificates.enabled (not .Values.podCertificates.signers) -}}
{{- fail "podCertificates.enabled is true and podCertificates.signers is empty: name the signers, such as example.com/pods" -}}
{{- end -}}
{{- if and .Values.enrollmentTokens.enabled (not $signer) -}}
{{- fail "enrollmentTokens.enabled is true and controllers has no signer: tokens are kept in the signer's ledger. Add signer to controllers" -}}
{{- end -}}
{{- if and .Values.policies (hasKey .Values.config "policies") -}}
{{- fail "policies and config.policies are both set: put the files into policies, or name folders in config.policies" -}}
{{- end -}}
{{- if and (not .Values.controllers) (not .Values.operator.enabled) -}}
{{- fail "controllers is empty and operator.enabled is false: nothing would run. Name a controller, or set operator.enabled=true" -}}
{{- end -}}
{{- with .Values.operator -}}
{{- if and .authority.url (not .authority.secretName) -}}
{{- fail "operator.authority.url is set and operator.authority.secretName is empty: name the Secret with admin.pem, admin-key.pem and ca.pem" -}}
{{- end -}}
{{- if and .authority.secretName (not .authority.url) -}}
{{- fail "operator.authority.secretName is set and operator.authority.url is empty: write the URL of the authority, such as https://puppet.example.com:8140" -}}
{{- end -}}
{{- if and (not .enabled) (or .authority.url .namespaces) -}}
{{- fail "operator has an authority or namespaces and operator.enabled is false: nobody would use them. Set operator.enabled=true" -}}
{{- end -}}
{{- if and .admission.enabled (not .enabled) -}}
{{- fail "operator.admission.enabled is true and operator.enabled is false: nobody would answer. Set operator.enabled=true" -}}
{{- end -}}
{{- if and .admission.enabled (not .admission.secretName) -}}
{{- fail "operator.admission.enabled is true and operator.admission.secretName is empty: name the Secret with tls.crt and tls.key" -}}
{{- end -}}
{{- if and .admission.enabled (not .admission.caBundle) (not .admission.annotations) -}}
{{- fail "operator.admission.enabled is true and operator.admission.caBundle is empty: the API server would not trust the certificate. Pass the CA with --set-file operator.admission.caBundle=ca.crt, or have it injected by operator.admission.annotations" -}}
{{- end -}}
{{- if dig "metrics" "listen" "" .config -}}
{{- fail "operator.config.metrics.listen is set: use metrics.address and metrics.port, which probes and services follow" -}}
{{- end -}}
{{- end -}}
{{- if dig "cluster" "kubelet" "" .Values.config -}}
{{- fail "config.cluster.kubelet is set: use kubelet.port and kubelet.cidrs, which the NetworkPolicy follows" -}}
{{- end -}}
{{- if dig "metrics" "listen" "" .Values.config -}}
{{- fail "config.metrics.listen is set: use metrics.address and metrics.port, which probes and services follow" -}}
{{- end -}}
{{- end -}}
