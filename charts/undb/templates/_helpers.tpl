{{- define "undb.labels" -}}
app.kubernetes.io/name: undb-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "undb.selector" -}}
app.kubernetes.io/name: undb-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "undb.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "undb.operatorImage" -}}
{{ .Values.operator.image.repository }}:{{ .Values.operator.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Cluster-wide objects carry the namespace, so that two operators do not meet. */}}
{{- define "undb.clusterName" -}}
undb-operator-{{ .Release.Namespace }}
{{- end }}

{{/* The namespaces that are looked after, as a selector; nothing: all. */}}
{{- define "undb.namespaceSelector" -}}
{{- with .Values.operator.watchNamespaces }}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values: {{ toJson . }}
{{- end }}
{{- end }}

{{/* What the operator does in a namespace that it looks after. No verb and no resource more. */}}
{{- define "undb.rules" -}}
- apiGroups: [undb.io]
  resources: [controlplanes, storeclusters, routers]
  verbs: [get, list, watch]
- apiGroups: [undb.io]     # its finalizer
  resources: [tables]
  verbs: [get, list, watch, patch]
- apiGroups: [undb.io]
  resources: [stores]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [undb.io]
  resources: [controlplanes/status, storeclusters/status, stores/status, routers/status, tables/status]
  verbs: [get, patch]
- apiGroups: [undb.io]     # owner references that block the owner's deletion
  resources: [controlplanes/finalizers, storeclusters/finalizers, stores/finalizers, routers/finalizers, tables/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, update]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]      # update: opening one names the version that was read
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, update]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
