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

{{- /* Of a role: who has it. Takes the name of the role, its kind and its namespace. */ -}}
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
    name: {{ include "countersign.fullname" .top }}
    namespace: {{ .top.Release.Namespace }}
{{- end -}}

{{- define "countersign.leaseName" -}}
{{- .Values.leaderElection.leaseName | default (include "countersign.fullname" .) -}}
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
{{- if dig "cluster" "kubelet" "" .Values.config -}}
{{- fail "config.cluster.kubelet is set: use kubelet.port and kubelet.cidrs, which the NetworkPolicy follows" -}}
{{- end -}}
{{- if dig "metrics" "listen" "" .Values.config -}}
{{- fail "config.metrics.listen is set: use metrics.address and metrics.port, which probes and services follow" -}}
{{- end -}}
{{- end -}}
