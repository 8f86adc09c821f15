{{/* An image of the values: by its digest where one is given, else by its tag. Takes (dict "image" … "root" $). */}}
{{- define "edgehub.image" -}}
{{- include "edgehub.repository" . -}}
{{- if .image.digest -}}
@{{ .image.digest }}
{{- else -}}
:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "edgehub.repository" -}}
{{- with .root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ .image.repository }}
{{- end -}}

{{/* The labels of the ecosystem, each on a line of its own, below labels of the object's own. Nothing in the plain manifests. */}}
{{- define "edgehub.labels" -}}
{{- if .Values.labels }}
    app.kubernetes.io/instance: {{ .Release.Name }}
    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
    app.kubernetes.io/part-of: edgehub
    app.kubernetes.io/managed-by: {{ .Release.Service }}
    helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
{{- end -}}

{{/* The same for an object without other labels. */}}
{{- define "edgehub.ownLabels" -}}
{{- if .Values.labels }}
  labels:
    app.kubernetes.io/name: edgehub
    {{- include "edgehub.labels" . }}
{{- end }}
{{- end -}}

{{/* As edgehub.labels, with the name, below labels that have another meaning. */}}
{{- define "edgehub.namedLabels" -}}
{{- if .Values.labels }}
    app.kubernetes.io/name: edgehub
    {{- include "edgehub.labels" . }}
{{- end }}
{{- end -}}

{{/* The labels of a pod besides its selector's: none that changes with a version, since each change rolls the pods. */}}
{{- define "edgehub.podLabels" -}}
{{- if .Values.labels }}
        app.kubernetes.io/instance: {{ .Release.Name }}
        app.kubernetes.io/part-of: edgehub
{{- end }}
{{- end -}}

{{/* Labels and annotations that the values give a pod. Takes the values of its program. */}}
{{- define "edgehub.podMetadata" -}}
{{- with .podLabels }}
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- with .podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end -}}

{{/* The value of --controllers: all, without those of the duties that are off. */}}
{{- define "edgehub.controllers" -}}
{{- $duties := .Values.manager.duties -}}
{{- $chosen := list "*" -}}
{{- if not $duties.triggers -}}
{{- $chosen = concat $chosen (list "-servicetopology-endpoints" "-servicetopology-endpointslices") -}}
{{- end -}}
{{- if not $duties.serviceGrids -}}
{{- $chosen = append $chosen "-servicegrid" -}}
{{- end -}}
{{- if not $duties.bindings -}}
{{- $chosen = append $chosen "-configbinding" -}}
{{- end -}}
{{- if not (and $duties.bindings $duties.webhook) -}}
{{- $chosen = append $chosen "-configbindingwebhook" -}}
{{- end -}}
{{- if not $duties.autonomy -}}
{{- $chosen = append $chosen "-autonomy" -}}
{{- end -}}
{{- if not $duties.hubCertificates -}}
{{- $chosen = append $chosen "-hubcertificates" -}}
{{- end -}}
{{- if not $duties.podUpdates -}}
{{- $chosen = concat $chosen (list "-daemonpodupdater" "-imagepull") -}}
{{- end -}}
{{- join "," $chosen -}}
{{- end -}}
